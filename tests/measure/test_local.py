"""The local measurer with real child processes that misbehave in every way there is."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretune.errors import BadInputError, ForetuneError
from foretune.hardware import Hardware, preset
from foretune.measure import (
    LocalMeasurer,
    Measurement,
    Status,
    _children,
    _desk,
    _jobs,
    _memory,
    _reference,
)
from foretune.measure.policy import MEASUREMENT_VERSION
from foretune.measure.timing import Reading
from foretune.space import Space
from foretune.workload import Workload
from tests.measure.misbehaviour import BUILDER, Trick, TrickSketch
from tests.measure.policies import OpenPolicy
from tests.measure.programs import matmul, take

pytestmark = pytest.mark.machine

POLICY = OpenPolicy(
    build_timeout_s=2.0,
    run_timeout_s=2.0,
    memory_bytes=256 << 20,
    budget_s=0.02,
    max_rereads=1,
    # A kernel of microseconds may take several times as long on a busy machine.
    cut_factor=20.0,
    quiet_wait_s=0.1,
    compare_extra_rounds=1,
)


@pytest.fixture(scope="module")
def workload() -> Workload:
    return matmul(32)


@pytest.fixture(scope="module")
def sketch(workload: Workload, hardware: Hardware) -> TrickSketch:
    return TrickSketch(workload, hardware)


@pytest.fixture(scope="module")
def measurer(hardware: Hardware) -> Iterator[LocalMeasurer]:
    with LocalMeasurer(hardware, POLICY, BUILDER) as measurer:
        yield measurer


def measure(measurer: LocalMeasurer, *tricks: Trick) -> dict[Trick, Measurement]:
    results = list(measurer.measure(tricks))
    assert sorted(trick.key for trick, _ in results) == sorted(trick.key for trick in tricks)
    return dict(results)


def assert_all_ok(results: dict[Trick, Measurement]) -> None:
    assert not [result for result in results.values() if not result.ok]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def wait_until_gone(pids: list[int], seconds: float = 10.0) -> bool:
    until = time.monotonic() + seconds
    while any(map(is_alive, pids)):
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


@pytest.mark.parametrize(
    ("mode", "status", "message"),
    [
        ("segfaults", Status.CRASH, "SIGSEGV"),
        ("exits", Status.CRASH, "status 3"),
        pytest.param(
            "dies_of_real_time_signal",
            Status.CRASH,
            "killed by SIGRTMIN+3",
            marks=pytest.mark.slow,
        ),
        ("names_sigkill", Status.CRASH, "status 3 the last words name SIGKILL"),
        ("writes_garbage", Status.CRASH, "garbage"),
        ("loops", Status.TIMEOUT, "running took longer than 2 s"),
        ("holds_interpreter", Status.TIMEOUT, "running took longer than 2 s"),
        pytest.param(
            "is_stopped",
            Status.TIMEOUT,
            "running took longer than 2 s",
            marks=pytest.mark.slow,
        ),
        ("allocates", Status.OUT_OF_MEMORY, "256 MiB"),
        ("allocates_at_once", Status.OUT_OF_MEMORY, ""),
        ("raises", Status.RUN_ERROR, "will not"),
        ("returns_nan", Status.WRONG_OUTPUT, "is nan"),
        ("is_off_by_one", Status.WRONG_OUTPUT, "1 of 1024 elements"),
        ("writes_nothing", Status.WRONG_OUTPUT, "1024 of 1024 elements"),
        ("overwrites_input", Status.WRONG_OUTPUT, "was overwritten"),
        ("build_raises", Status.COMPILE_ERROR, "will not"),
        ("build_loops", Status.TIMEOUT, "building took longer than 2 s"),
        pytest.param("build_segfaults", Status.CRASH, "SIGSEGV", marks=pytest.mark.slow),
        ("build_allocates", Status.OUT_OF_MEMORY, ""),
    ],
)
def test_misbehaviour_is_classified_and_the_run_goes_on(
    measurer: LocalMeasurer, sketch: TrickSketch, mode: str, status: Status, message: str
) -> None:
    bad, good = Trick(sketch, mode), Trick(sketch, "good")
    results = measure(measurer, bad, good)
    assert results[bad].status is status
    assert message in results[bad].message
    assert results[bad].seconds == ()
    assert results[bad].best_s is None
    assert results[good].ok, results[good].message
    assert results[good].max_error == 0.0
    assert len(results[good].seconds) == len(results[good].quiet) >= 3


def test_a_build_far_slower_than_the_others_is_given_up_early(
    sketch: TrickSketch, hardware: Hardware
) -> None:
    policy = dataclasses.replace(POLICY, workers=2, build_timeout_s=300.0, build_least_s=0.5)
    bad = Trick(sketch, "build_loops")
    good = [Trick(sketch, "good", number) for number in range(6)]
    with LocalMeasurer(hardware, policy, BUILDER) as measurer:
        results = measure(measurer, bad, *good)
    assert results[bad].status is Status.TIMEOUT
    # Machines differ in how long a build takes; all are far from the limit for the first.
    limit_s = float(results[bad].message.removeprefix("building took longer than ").split()[0])
    assert 0.5 <= limit_s < 100
    assert all(results[trick].ok for trick in good)


def test_what_is_compared_may_take_its_time_to_build(
    sketch: TrickSketch, hardware: Hardware
) -> None:
    policy = dataclasses.replace(
        POLICY, workers=1, build_timeout_s=60.0, build_least_s=0.1, build_factor=1.01
    )
    slow, good = Trick(sketch, "build_sleeps"), [Trick(sketch, "good", n) for n in range(8)]
    with LocalMeasurer(hardware, policy, BUILDER) as measurer:
        measure(measurer, *good)
        (given_up,) = [result for _, result in measurer.measure([slow])]
        compared = measurer.compare([slow, good[0]])
    assert given_up.status is Status.TIMEOUT, "this limit is for the test's slow build"
    assert [result.status for result in compared] == [Status.OK, Status.OK]


@pytest.mark.parametrize(
    ("mode", "status"),
    [("wrong_at_first", Status.OK), ("is_off_by_one", Status.WRONG_OUTPUT)],
)
def test_an_untuned_program_that_differs_from_its_reference_has_it_computed_as_written(
    hardware: Hardware, caplog: pytest.LogCaptureFixture, mode: str, status: Status
) -> None:
    sketch = TrickSketch(matmul(24), hardware, is_untuned=True)
    policy = dataclasses.replace(POLICY, workers=1)
    with LocalMeasurer(hardware, policy, BUILDER) as measurer:
        first = measure(measurer, Trick(sketch, mode))
        (found,) = first.values()
        assert found.status is status
        # Others are compared with what it computes as written; nobody doubts that.
        other = Trick(TrickSketch(matmul(24), hardware, key="others"), "good")
        assert measure(measurer, other)[other].ok
    assert caplog.text.count("in another order of loops") == 1


def test_what_was_built_before_a_reference_is_doubted_waits_for_the_new_one(
    hardware: Hardware,
) -> None:
    untuned = Trick(TrickSketch(matmul(24), hardware, is_untuned=True), "wrong_at_first")
    other = Trick(TrickSketch(matmul(24), hardware, key="others"), "good")
    # One child builds and runs in the order given.
    policy = dataclasses.replace(POLICY, workers=1)
    with LocalMeasurer(hardware, policy, BUILDER) as measurer:
        assert all(result.ok for result in measure(measurer, untuned, other).values())
    with LocalMeasurer(hardware, policy, BUILDER) as measurer:
        assert [result.status for result in measurer.compare([untuned, other])] == [Status.OK] * 2


def test_a_candidate_that_differs_is_wrong_without_doubt(
    measurer: LocalMeasurer, sketch: TrickSketch, caplog: pytest.LogCaptureFixture
) -> None:
    (found,) = measure(measurer, Trick(sketch, "is_off_by_one", 7)).values()
    assert found.status is Status.WRONG_OUTPUT
    assert "another order of loops" not in caplog.text


@pytest.mark.parametrize("mode", ["chatters", "build_chatters", "forks"])
def test_harmless_habits_do_no_harm(
    measurer: LocalMeasurer, sketch: TrickSketch, mode: str
) -> None:
    trick = Trick(sketch, mode)
    assert measure(measurer, trick)[trick].ok


def test_many_candidates_of_two_workloads_in_one_call(
    measurer: LocalMeasurer, sketch: TrickSketch, hardware: Hardware
) -> None:
    other = TrickSketch(matmul(48), hardware)
    modes = ["good", "segfaults", "good", "raises", "good", "is_off_by_one"]
    tricks = [Trick(s, mode, number) for s in (sketch, other) for number, mode in enumerate(modes)]
    results = measure(measurer, *tricks)
    assert len(results) == len(tricks)
    for trick, result in results.items():
        assert result.ok == (trick.mode == "good"), (trick, result)


def test_much_slower_than_the_best_is_cut_short(
    measurer: LocalMeasurer, sketch: TrickSketch
) -> None:
    slow = Trick(sketch, "sluggish")
    ((_, result),) = measurer.measure([slow], {slow.workload.key: 1e-3})
    assert result.status is Status.CUT_SHORT
    assert len(result.seconds) == 1
    assert result.best_s is not None
    assert result.best_s >= 0.05


def test_not_much_slower_than_the_best_is_read_repeatedly(
    measurer: LocalMeasurer, sketch: TrickSketch
) -> None:
    slow = Trick(sketch, "sluggish")
    ((_, result),) = measurer.measure([slow], {slow.workload.key: 0.045})
    assert result.ok


def test_the_best_within_one_call_cuts_later_ones(
    measurer: LocalMeasurer, sketch: TrickSketch
) -> None:
    good = [Trick(sketch, "good", number) for number in range(4)]
    slow = [Trick(sketch, "sluggish", number) for number in range(8)]
    results = measure(measurer, *good, *slow)
    assert all(results[trick].ok for trick in good)
    assert Status.CUT_SHORT in {results[trick].status for trick in slow}


def test_what_should_have_been_cut_short_is_not_read_again(
    sketch: TrickSketch, hardware: Hardware, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = dataclasses.replace(POLICY, workers=1, reread_share=1e9)
    slow, good = Trick(sketch, "sluggish"), Trick(sketch, "good")
    again = []
    with LocalMeasurer(hardware, policy, BUILDER) as measurer:
        monkeypatch.setattr(measurer._children.floor, "is_quiet", lambda reading: False)
        # Else a disturbance that goes on keeps everybody from being read again.
        monkeypatch.setattr(measurer._children, "canary", lambda job: None)
        run = measurer._children.run
        monkeypatch.setattr(
            measurer._children,
            "run",
            lambda job, op, **fields: (again.append((job.candidate, op)), run(job, op, **fields)),
        )
        # Nothing is known when the first one is read.
        results = measure(measurer, slow, good)
    assert results[slow].ok and results[good].ok
    assert (good, "read") in again and (slow, "read") not in again


def test_a_candidate_may_not_run_as_long_as_an_untuned_program_that_is_far_behind(
    measurer: LocalMeasurer, sketch: TrickSketch
) -> None:
    good, bad = Trick(sketch, "good"), Trick(sketch, "loops")
    measure(measurer, good)
    measurer._children._references[sketch.workload.key].seconds = 100.0
    ((_, result),) = measurer.measure([bad], {sketch.workload.key: 1e-3})
    assert result.status is Status.TIMEOUT
    assert "longer than 2.08 s" in result.message, "20 ms are cut short, and 4 calls are allowed"


def test_a_child_killed_from_outside_loses_no_candidate(
    measurer: LocalMeasurer, sketch: TrickSketch
) -> None:
    tricks = [Trick(sketch, "good", number) for number in range(24)]
    results, killed = [], 0
    for number, result in enumerate(measurer.measure(tricks)):
        results.append(result)
        # None is there for a moment where one has just been killed.
        if number in (0, 3, 20) and measurer.pids:
            os.kill(measurer.pids[0], signal.SIGKILL)
            killed += 1
    assert killed
    assert sorted(trick.number for trick, _ in results) == list(range(24))
    assert_all_ok(dict(results))


def test_children_killed_while_noisy_candidates_are_read_again_lose_none(
    measurer: LocalMeasurer, sketch: TrickSketch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measurer, "policy", dataclasses.replace(POLICY, reread_share=1e9))
    monkeypatch.setattr(measurer._children.floor, "is_quiet", lambda reading: False)
    # The first result comes once all of the second window have readings and wait for more.
    tricks = [Trick(sketch, "good", number) for number in range(measurer._window + 8)]
    results, killed = [], 0
    for number, result in enumerate(measurer.measure(tricks)):
        results.append(result)
        if number < 2 and measurer.pids:
            os.kill(measurer.pids[-1], signal.SIGKILL)
            killed += 1
    assert killed
    assert sorted(trick.number for trick, _ in results) == list(range(len(tricks)))
    assert_all_ok(dict(results))


def test_a_candidate_with_readings_ends_with_them_when_its_child_is_killed(
    sketch: TrickSketch,
) -> None:
    job = _jobs.Job(1, Trick(sketch, "good"), stage=_jobs.Stage.RUNNING, status=Status.OK)
    job.readings.append(Reading(1e-3, 1e-4, 1e-4, False))
    job.lose_worker()
    assert job.done
    assert job.status is Status.OK


def test_a_child_that_died_while_idle_is_replaced(
    measurer: LocalMeasurer, sketch: TrickSketch
) -> None:
    for pid in measurer.pids:
        os.kill(pid, signal.SIGKILL)
    tricks = [Trick(sketch, "good", number) for number in range(4)]
    assert_all_ok(measure(measurer, *tricks))


def test_closing_the_iterator_early_leaves_the_measurer_usable(
    measurer: LocalMeasurer, sketch: TrickSketch
) -> None:
    iterator = measurer.measure([Trick(sketch, "good", number) for number in range(40)])
    next(iterator)
    iterator.close()  # type: ignore[attr-defined]
    trick = Trick(sketch, "good")
    assert measure(measurer, trick)[trick].ok


def test_compare_gives_readings_in_the_order_asked(
    measurer: LocalMeasurer, sketch: TrickSketch, hardware: Hardware
) -> None:
    other = TrickSketch(matmul(48), hardware)
    tricks = [
        Trick(sketch, "sluggish"),
        Trick(sketch, "is_off_by_one"),
        Trick(other, "good"),
        Trick(sketch, "good"),
    ]
    slow, wrong, elsewhere, fast = measurer.compare(tricks)
    assert slow.ok and elsewhere.ok and fast.ok
    assert wrong.status is Status.WRONG_OUTPUT
    assert len(fast.seconds) >= POLICY.compare_rounds
    assert slow.best_s is not None and fast.best_s is not None
    assert slow.best_s > fast.best_s


def test_a_program_that_turns_wrong_while_it_is_compared(
    measurer: LocalMeasurer, sketch: TrickSketch
) -> None:
    wrong, good = measurer.compare([Trick(sketch, "turns_wrong"), Trick(sketch, "good")])
    assert wrong.status is Status.WRONG_OUTPUT
    assert wrong.message.startswith("1 of 1024 elements")
    assert wrong.seconds == () and wrong.max_error is None
    assert good.ok


def test_compare_in_the_middle_of_measuring(measurer: LocalMeasurer, sketch: TrickSketch) -> None:
    tricks = [Trick(sketch, "good", number) for number in range(20)]
    seen = 0
    for number, (trick, result) in enumerate(measurer.measure(tricks)):
        seen += result.ok
        if number in (1, 17):
            assert all(m.ok for m in measurer.compare([trick, Trick(sketch, "sluggish")]))
    assert seen == len(tricks)


def test_compare_survives_the_death_of_its_child(
    measurer: LocalMeasurer, sketch: TrickSketch
) -> None:
    good, bad = measurer.compare([Trick(sketch, "good"), Trick(sketch, "segfaults")])
    assert good.ok
    assert bad.status is Status.CRASH


def test_costs_add_up(measurer: LocalMeasurer, sketch: TrickSketch) -> None:
    measure(measurer, *(Trick(sketch, "good", number) for number in range(4)))
    costs = measurer.costs
    assert min(costs.start_s, costs.build_s, costs.run_s, costs.canary_s) > 0
    assert 0 <= costs.overhead_s < costs.active_s


def test_environment_names_versions_and_policy(measurer: LocalMeasurer) -> None:
    environment = measurer.environment()
    assert environment["policy"]["run_timeout_s"] == POLICY.run_timeout_s
    assert {"tvm", "tvm_ffi", "python", "cpu"} <= environment.keys()
    assert environment["measurement_version"] == MEASUREMENT_VERSION
    assert isinstance(environment["fixed_addresses"], bool)


def test_children_are_replaced_after_many_builds(hardware: Hardware, sketch: TrickSketch) -> None:
    policy = OpenPolicy(workers=1, window=2, recycle_builds=2, budget_s=0.01, max_rereads=0)
    with LocalMeasurer(hardware, policy, BUILDER) as measurer:
        first = measurer.pids
        tricks = [Trick(sketch, "good", number) for number in range(5)]
        assert_all_ok(measure(measurer, *tricks))
        assert measurer.pids != first


@pytest.mark.parametrize(
    ("target", "cores", "workers"),
    [("zen4", 3, 3), ("zen4", 64, 16), ("t4", 3, 3), ("t4", 64, 4), ("h100", 64, 16)],
)
def test_there_are_as_many_children_as_cores_but_not_without_end(
    monkeypatch: pytest.MonkeyPatch, target: str, cores: int, workers: int
) -> None:
    monkeypatch.setattr(_children, "usable_cores", lambda: cores)
    assert _children._default_workers(preset(target)) == workers


def test_a_limit_of_memory_is_shared_by_the_children(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_memory, "usable_memory", lambda: 8 << 30)
    assert _memory.default_memory(4) == 1 << 30
    monkeypatch.setattr(_memory, "usable_memory", lambda: 1 << 40)
    assert _memory.default_memory(4) == 4 << 30


def _without_room(children: _children.Children, candidate: Any) -> _reference.Reference:
    reference = _reference.Reference(next(children._ids), candidate)
    reference.path = "/dev/full"
    return reference


def test_nothing_is_built_for_an_untuned_program_that_failed(
    hardware: Hardware, sketch: TrickSketch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_children.Children, "_new_reference", _without_room)
    tricks = [Trick(sketch, "good", number) for number in range(20)]
    with LocalMeasurer(hardware, OpenPolicy(workers=1, window=4), BUILDER) as measurer:
        for result in [*measure(measurer, *tricks).values(), *measurer.compare(tricks[:2])]:
            assert result.status is Status.RUN_ERROR
            assert "the untuned program failed" in result.message
            assert "No space left on device" in result.message and "TMPDIR" in result.message
            assert result.build_s == 0


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.ENOSPC, r"No space left on device.*TMPDIR"),
        (errno.EMFILE, r"Too many open files.*ulimit -n"),
    ],
)
def test_no_place_for_a_temporary_file_is_one_clear_error(
    measurer: LocalMeasurer,
    hardware: Hardware,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    message: str,
) -> None:
    def refuse(**_options: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(_reference.tempfile, "TemporaryFile", refuse)
    fresh = Trick(TrickSketch(matmul(40), hardware), "good")
    with pytest.raises(ForetuneError, match=message):
        list(measurer.measure([fresh]))


def test_results_of_untuned_programs_are_kept_of_the_last_workloads_only(
    hardware: Hardware, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_desk, "_MOST_REFERENCES", 2)
    policy = dataclasses.replace(POLICY, workers=1)
    tricks = [Trick(TrickSketch(matmul(16 + size), hardware), "good") for size in range(4)]
    with LocalMeasurer(hardware, policy, BUILDER) as measurer:
        counts = []
        for trick in [*tricks, tricks[0]]:
            assert measure(measurer, trick)[trick].ok
            counts.append(len(os.listdir("/proc/self/fd")))
        assert len(measurer._children._references) == 2
        # What is needed at once is kept, however much it is.
        assert_all_ok(measure(measurer, *tricks))
    assert counts[1:] == [counts[1]] * 4


def test_a_crash_is_not_taken_for_what_another_program_complained_of(
    hardware: Hardware, sketch: TrickSketch
) -> None:
    policy = dataclasses.replace(POLICY, workers=1)
    with LocalMeasurer(hardware, policy, BUILDER) as measurer:
        before, after = Trick(sketch, "complains"), Trick(sketch, "segfaults")
        assert measure(measurer, before)[before].ok
        assert measure(measurer, after)[after].status is Status.CRASH


def test_unchecked_output_is_taken_as_it_is(hardware: Hardware, sketch: TrickSketch) -> None:
    policy = OpenPolicy(workers=1, budget_s=0.01, check_output=False, max_rereads=0)
    with LocalMeasurer(hardware, policy, BUILDER) as measurer:
        trick = Trick(sketch, "is_off_by_one")
        result = measure(measurer, trick)[trick]
        assert result.ok
        assert result.max_error is None


def test_close_ends_the_children_and_may_be_called_twice(
    hardware: Hardware, sketch: TrickSketch
) -> None:
    measurer = LocalMeasurer(hardware, POLICY, BUILDER)
    pids = measurer.pids
    assert len(pids) >= 1
    measurer.close()
    measurer.close()
    assert wait_until_gone(pids)
    with pytest.raises(ForetuneError, match="closed measurer"):
        list(measurer.measure([Trick(sketch, "good")]))


def test_children_that_never_start_are_one_clear_error(
    hardware: Hardware, sketch: TrickSketch
) -> None:
    with (
        LocalMeasurer(hardware, OpenPolicy(workers=1), "tests.measure.absent:build") as measurer,
        pytest.raises(ForetuneError, match=r"3 measurement processes in a row.*absent"),
    ):
        list(measurer.measure([Trick(sketch, "good")]))


def test_a_missing_device_is_bad_input() -> None:
    from foretune._tvm import tvm

    if tvm.runtime.device("cuda", 0).exist:
        pytest.skip("this machine has a CUDA device")
    with pytest.raises(BadInputError, match="'cuda'"):
        LocalMeasurer(preset("rtx-3090"))


_PARENT = """
from foretune.hardware import probe
from foretune.measure import LocalMeasurer, MeasurePolicy
from tests.measure.misbehaviour import BUILDER, Trick, TrickSketch
from tests.measure.programs import matmul

hardware = probe()
sketch = TrickSketch(matmul(32), hardware)
measurer = LocalMeasurer(hardware, MeasurePolicy(run_timeout_s=100.0), BUILDER)
for _ in measurer.measure([Trick(sketch, "good", n) for n in range(2)]):
    pass
print(*measurer.pids, flush=True)
list(measurer.measure([Trick(sketch, "holds_interpreter", n) for n in range(2)]))
"""


def test_children_die_with_a_parent_that_is_killed() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT], stdout=subprocess.PIPE, env=environment, text=True
    )
    try:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert pids and all(map(is_alive, pids))
        time.sleep(0.5)
        parent.send_signal(signal.SIGKILL)
        assert wait_until_gone(pids)
    finally:
        parent.kill()
        parent.wait()
        assert parent.stdout is not None
        parent.stdout.close()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_candidates_of_a_real_space(hardware: Hardware, rng: np.random.Generator) -> None:
    spaces = [Space.generate(workload, hardware) for workload in (matmul(48), take())]
    candidates = [c for space in spaces for c in (space.untuned, *space.sample(rng, 4))]
    policy = OpenPolicy(budget_s=0.02, max_rereads=0)
    with LocalMeasurer(hardware, policy) as measurer:
        results = dict(measurer.measure(candidates))
        assert set(results) == set(candidates)
        for candidate, result in results.items():
            assert result.status in (Status.OK, Status.CUT_SHORT), (candidate, result)
            assert result.max_error == 0.0
            assert result.build_s > 0 and result.run_s > 0
        compared = measurer.compare([spaces[0].untuned, candidates[1]])
        assert [result.ok for result in compared] == [True, True]
