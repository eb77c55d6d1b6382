"""Trajectories: the states of one replay are those of every prefix, and are kept once."""

from __future__ import annotations

import functools
import subprocess
import sys

import numpy as np
import pytest

from foretune import _tvm
from foretune.errors import BadInputError, IllegalCandidateError, RecordError
from foretune.space import Candidate, Space
from foretune.workload import Workload
from foretune.world import TEXT_VERSION, steps_of
from foretune_research.world import (
    StateStore,
    program_text,
    trajectories_of,
    trajectory_of,
)
from tests import ROOT
from tests.space.programs import PROGRAMS, TYPICAL, gpu, matmul, space


def drawn(name: str, count: int = 4) -> list[Candidate]:
    """Candidates of as many sketches as there are."""
    return space(name).sample(np.random.default_rng(0), count)


@functools.lru_cache(maxsize=1)
def gpu_candidates() -> list[Candidate]:
    here = Space.generate(Workload.from_module(matmul(), "matmul"), gpu())
    return here.sample(np.random.default_rng(0), 12)


def key(module) -> str:
    return f"{_tvm.structural_hash(module):016x}"


def prefixes(candidate: Candidate) -> list[str]:
    """The slow way: every action's state by a replay of its own."""
    template = candidate.sketch.template
    trace = template.trace(candidate.decisions)
    found = []
    for end in range(len(trace.insts) + 1):
        kept = list(trace.insts)[:end]
        if end and kept[-1].kind.is_pure:
            continue
        chosen = {i: trace.get_decision(i) for i in kept if trace.get_decision(i) is not None}
        schedule = template.base.schedule()
        _tvm.Trace(kept, chosen).apply_to_schedule(schedule, remove_postproc=True)
        found.append(key(schedule.mod))
    return found


def check_left_out(candidate: Candidate) -> None:
    """The actions that are no steps are those that do nothing."""
    slow = prefixes(candidate)
    for action, before, after in zip(candidate.actions(), slow, slow[1:], strict=False):
        assert (before == after) == (steps_of([action]) == ())


class TestStates:
    @pytest.mark.parametrize("name", TYPICAL)
    def test_they_are_those_of_the_prefixes_of_the_trace(self, name):
        for candidate in drawn(name, 2):
            found = trajectory_of(candidate, StateStore())
            slow = prefixes(candidate)
            actions = candidate.actions()
            assert len(slow) == len(actions) + 1
            changing = [at for at, action in enumerate(actions, 1) if steps_of([action])]
            assert found.states == (slow[0], *(slow[at] for at in changing))

    @pytest.mark.parametrize("name", TYPICAL)
    def test_the_first_is_the_workload_and_the_last_what_replaying_gives(self, name):
        for candidate in drawn(name):
            found = trajectory_of(candidate, StateStore())
            assert found.states[0] == candidate.workload.key == found.workload
            replayed = candidate.sketch.template.replay(candidate.decisions)
            assert found.states[-1] == key(replayed.mod)

    @pytest.mark.parametrize("name", PROGRAMS)
    def test_actions_are_what_the_candidate_alone_tells(self, name):
        for candidate in drawn(name):
            found = trajectory_of(candidate, StateStore())
            assert found.actions == steps_of(candidate.actions())
            assert len(found.states) == len(found.actions) + 1
            assert found.candidate_key == candidate.key

    @pytest.mark.parametrize("name", TYPICAL)
    def test_the_actions_left_out_are_those_that_do_nothing(self, name):
        for candidate in drawn(name):
            assert trajectory_of(candidate, StateStore()).idle == ()
            check_left_out(candidate)

    def test_the_last_may_be_the_program_after_post_processors(self):
        for candidate in drawn("conv2d_nhwc"):
            before = trajectory_of(candidate, StateStore())
            after = trajectory_of(candidate, StateStore(), "postproc")
            assert after.states[:-1] == before.states[:-1]
            assert after.states[-1] == key(candidate.apply())
            assert after.states[-1] != before.states[-1]

    def test_the_untuned_program_has_no_steps_and_the_default_one_has(self):
        store, here = StateStore(), space("matmul")
        for terminal in ("schedule", "postproc"):
            untuned = trajectory_of(here.untuned, store, terminal)
            assert untuned.states == (here.workload.key,) and untuned.actions == ()
        default = trajectory_of(here.default, store)
        assert len(default.actions) > 3 and default.states[-1] == key(here.default.schedule().mod)

    @pytest.mark.slow
    def test_post_processors_may_reject_what_has_a_trajectory(self):
        before = trajectories_of(gpu_candidates(), StateStore())
        after = trajectories_of(gpu_candidates(), StateStore(), "postproc")
        assert any(each is None for each in after)
        for candidate, found in zip(gpu_candidates(), before, strict=True):
            replayed = candidate.sketch.template.replay(candidate.decisions)
            assert found is not None and found.states[-1] == key(replayed.mod)
            assert found.idle == () and len(found.actions) > 20
        for candidate in gpu_candidates()[:4]:
            check_left_out(candidate)


def test_an_unknown_terminal_lists_the_known_ones():
    with pytest.raises(BadInputError, match="postproc, schedule"):
        trajectory_of(drawn("matmul")[0], StateStore(), "end")  # type: ignore[arg-type]


class TestMany:
    def mixed(self) -> list[Candidate]:
        found = [c for name in ("matmul", "softmax", "pooling") for c in drawn(name)]
        return [found[at] for at in np.random.default_rng(0).permutation(len(found))]

    def test_they_come_in_the_order_of_the_candidates(self):
        candidates, lines = self.mixed(), []
        store = StateStore()
        found = trajectories_of(candidates, store, progress=lines.append)
        assert found == [trajectory_of(c, StateStore()) for c in candidates]
        assert lines == [f"{len(found)} of {len(found)} trajectories, {len(store)} states"]

    def test_one_that_tvm_refuses_is_none_and_the_others_are_there(self, monkeypatch):
        bad, good = drawn("matmul")[0], drawn("softmax")[0]
        expected = trajectory_of(good, StateStore())
        applied = _tvm.Trace.apply_to_schedule

        def refusing(trace, schedule, **how):
            if key(schedule.mod) == bad.workload.key:
                raise RuntimeError("one\nScheduleError: no such loop\n")
            applied(trace, schedule, **how)

        monkeypatch.setattr(_tvm.Trace, "apply_to_schedule", refusing)
        with pytest.raises(IllegalCandidateError, match="ScheduleError: no such loop"):
            trajectory_of(bad, StateStore())
        assert trajectories_of([bad, good, bad], StateStore()) == [None, expected, None]

    def test_states_that_candidates_share_are_kept_once(self):
        store = StateStore()
        candidates = [c for c in drawn("matmul", 40) if c.sketch == drawn("matmul")[0].sketch]
        found = trajectories_of(candidates, store)
        distinct = {state for each in found for state in each.states}
        assert len(store) == len(distinct) < sum(len(each.states) for each in found)
        assert all(state in store for state in distinct) and "0" * 16 not in store

    def test_texts_are_those_of_the_programs(self):
        store = StateStore()
        for candidate in self.mixed():
            states = trajectory_of(candidate, store).states
            replayed = candidate.sketch.template.replay(candidate.decisions)
            assert store.texts([states[-1], states[0], states[-1]]) == [
                program_text(replayed.mod),
                program_text(candidate.workload.module),
                program_text(replayed.mod),
            ]

    def test_a_text_that_is_not_there_is_an_error(self):
        with pytest.raises(BadInputError, match=r"'beef' is not \(1 of 1"):
            StateStore().texts(["beef"])


class TestFolder:
    def test_what_is_there_is_not_replayed_again(self, tmp_path, monkeypatch):
        candidates = drawn("softmax", 6)
        with StateStore(tmp_path) as store:
            first = trajectories_of(candidates[:4], store)
            size = len(store)
        monkeypatch.setattr(
            "foretune_research.world.trajectories._replayed", lambda _: pytest.fail("again")
        )
        with StateStore(tmp_path) as store:
            assert trajectories_of(candidates[:4], store) == first
            assert len(store) == size
        monkeypatch.undo()
        with StateStore(tmp_path) as store:
            assert trajectories_of(candidates, store)[:4] == first
            texts = store.texts(first[0].states)
        with StateStore(tmp_path) as store:
            assert store.texts(first[0].states) == texts

    def test_the_two_terminals_are_two_paths(self, tmp_path):
        candidate = drawn("matmul")[0]
        with StateStore(tmp_path) as store:
            before = trajectory_of(candidate, store)
            after = trajectory_of(candidate, store, "postproc")
        with StateStore(tmp_path) as store:
            assert store.path(candidate.key, "schedule") == before.states
            assert store.path(candidate.key, "postproc") == after.states
            assert store.path("0" * 16, "schedule") is None

    def test_a_process_that_is_killed_leaves_whole_paths(self, tmp_path):
        code = (
            "import os, sys; from pathlib import Path\n"
            "from tests.research.world.test_trajectories import Numbered\n"
            "store = Numbered(Path(sys.argv[1]))\n"
            "for n in range(450): store.add_path(f'c{n}', 'schedule', [store.add(n)])\n"
            "os._exit(9)\n"
        )
        done = subprocess.run([sys.executable, "-c", code, tmp_path], cwd=ROOT, timeout=120)
        assert done.returncode == 9
        with StateStore(tmp_path) as store:
            there = [n for n in range(450) if store.path(f"c{n}", "schedule")]
            assert there == list(range(400))
            states = [state for n in there for state in store.path(f"c{n}", "schedule") or ()]
            assert store.texts(states) == [f"program {n}" for n in there]

    def test_two_processes_may_fill_one_file(self, tmp_path):
        with StateStore(tmp_path) as one, StateStore(tmp_path) as other:
            found = trajectory_of(drawn("matmul")[0], one)
            one.commit()
            assert trajectory_of(drawn("matmul")[0], other) == found
            trajectory_of(drawn("matmul")[1], other)
            other.commit()
            assert trajectory_of(drawn("matmul")[1], one).states

    def test_a_damaged_file_says_so(self, tmp_path):
        (tmp_path / f"states-{TEXT_VERSION}.sqlite").write_bytes(b"no database at all" * 64)
        with pytest.raises(RecordError, match=r"states-1.sqlite .*not a database.*remove the file"):
            StateStore(tmp_path)

    def test_a_folder_that_is_a_file_says_so(self, tmp_path):
        (tmp_path / "taken").write_text("")
        with pytest.raises(RecordError, match="choose another folder"):
            StateStore(tmp_path / "taken")

    def test_a_closed_store_says_so(self):
        store = StateStore()
        store.close()
        with pytest.raises(RecordError, match="closed"):
            len(store)


class Numbered(StateStore):
    """A store whose programs are numbers, for tests of the file alone."""

    def add(self, module) -> str:
        self._rows.execute("INSERT INTO states VALUES (?, ?)", (f"s{module}", f"program {module}"))
        return f"s{module}"
