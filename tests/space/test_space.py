from __future__ import annotations

import hashlib
import itertools
import json
import logging
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foretune import _tvm
from foretune.errors import BadInputError, IllegalCandidateError
from foretune.space import Candidate, Choice, ComputeLocation, PerfectTile, Sketch, Space
from foretune.workload import Workload

from .programs import CPU, PROGRAMS, _input, space, te

names = st.sampled_from(["matmul", "conv2d_nhwc", "softmax"])
some = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def _legal(candidate: Candidate) -> bool:
    return Candidate(candidate.sketch, candidate.decisions) == candidate


@some
@given(names, st.integers(0, 2**32))
def test_sampled_mutated_and_crossed_candidates_are_legal(name: str, seed: int) -> None:
    here, rng = space(name), np.random.default_rng(seed)
    parents = here.sample(rng, 20)
    assert len(set(parents)) == len(parents)
    for a, b in zip(parents, reversed(parents), strict=True):
        mutant = here.mutate(a, rng)
        assert _legal(a)
        assert _legal(mutant)
        assert mutant != a
        assert mutant.sketch == a.sketch
        child = here.crossover(a, b, rng)
        assert _legal(child)
        assert child.sketch in (a.sketch, b.sketch)


@some
@given(names, st.integers(0, 2**32))
def test_a_mutation_changes_one_decision_and_locations_that_no_longer_fit(
    name: str, seed: int
) -> None:
    here, rng = space(name), np.random.default_rng(seed)
    for candidate in here.sample(rng, 10):
        mutant = here.mutate(candidate, rng)
        variables = candidate.sketch.variables
        changed = [
            v
            for v, a, b in zip(variables, candidate.decisions, mutant.decisions, strict=True)
            if a != b
        ]
        other = [v for v in changed if not isinstance(v, ComputeLocation)]
        assert len(other) <= 1


@some
@given(names, st.integers(0, 2**32))
def test_candidates_survive_json_and_pickle(name: str, seed: int) -> None:
    here = space(name)
    for candidate in here.sample(np.random.default_rng(seed), 3):
        text = json.dumps(candidate.to_json())
        again = here.candidate(json.loads(text))
        carried = pickle.loads(pickle.dumps(candidate))
        assert again == carried == candidate
        assert hash(again) == hash(carried) == hash(candidate)
        assert again.key == carried.key == candidate.key


def test_a_large_sample_holds_no_duplicates_and_covers_every_sketch() -> None:
    here = space("matmul")
    drawn = here.sample(np.random.default_rng(0), 5000)
    assert len(set(drawn)) == len(drawn) == 5000
    assert {c.sketch.key for c in drawn} == {s.key for s in here.sketches}


def test_sampling_ends_in_a_small_space() -> None:
    a = _input("A", 8)
    program = te.create_prim_func([a, te.compute((8,), lambda i: a[i] + 1.0, name="B")])
    here = Space.generate(Workload.from_module(program, "add"), CPU)
    drawn = here.sample(np.random.default_rng(0), 10_000)
    assert 0 < len(drawn) <= here.size


def test_the_same_seed_gives_the_same_candidates_in_another_process() -> None:
    script = (
        "import numpy as np, hashlib\n"
        "from tests.space.programs import space\n"
        "rng = np.random.default_rng(7)\n"
        "s = space('conv2d_nhwc')\n"
        "cs = s.sample(rng, 200)\n"
        "cs += [s.mutate(c, rng) for c in cs] + [s.crossover(a, b, rng) for a, b in "
        "zip(cs, cs[1:])]\n"
        "print(hashlib.sha256(''.join(c.key for c in cs).encode()).hexdigest())\n"
    )
    there = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    here, rng = space("conv2d_nhwc"), np.random.default_rng(7)
    drawn = here.sample(rng, 200)
    drawn += [here.mutate(c, rng) for c in drawn] + [
        here.crossover(a, b, rng) for a, b in itertools.pairwise(drawn)
    ]
    digest = hashlib.sha256("".join(c.key for c in drawn).encode()).hexdigest()
    assert there.stdout.split()[-1] == digest


def test_a_sketch_survives_json_and_a_forged_one_is_refused() -> None:
    sketch = space("softmax").sketches[1]
    data = json.loads(json.dumps(sketch.to_json()))
    again = Sketch.from_json(data)
    assert again == sketch
    assert again.locations == sketch.locations
    assert again.candidate(next(iter(_first(sketch))).decisions).schedule() is not None
    data["trace"][0].pop()
    with pytest.raises(BadInputError, match="hash of its content"):
        Sketch.from_json(data)
    with pytest.raises(BadInputError, match="not a sketch"):
        Sketch.from_json({"key": "0"})


def _first(sketch: Sketch) -> list[Candidate]:
    here = Space(sketch.workload, sketch.hardware, (sketch,))
    return here.sample(np.random.default_rng(0), 1)


def test_keys_depend_on_program_and_target_only() -> None:
    here = space("matmul")
    again = Space.generate(here.workload.with_weight(7), CPU)
    assert [s.key for s in again.sketches] == [s.key for s in here.sketches]
    assert not {s.key for s in here.sketches} & {s.key for s in space("batch_matmul").sketches}


@pytest.mark.parametrize(
    "broken",
    [
        {"decisions": []},
        {"sketch": "0" * 16, "decisions": []},
        {"sketch": None, "decisions": []},
        [],
        None,
        {"sketch": "KEY", "decisions": "text"},
        {"sketch": "KEY", "decisions": 3},
    ],
)
def test_what_is_no_candidate_of_the_space_is_bad_input(broken: Any) -> None:
    here = space("matmul")
    if isinstance(broken, dict) and broken.get("sketch") == "KEY":
        broken["sketch"] = here.sketches[0].key
    with pytest.raises(BadInputError):
        here.candidate(broken)


def test_zero_factors_never_reach_tvm() -> None:
    here = space("matmul")
    data = here.sample(np.random.default_rng(0), 1)[0].to_json()
    data["decisions"][0] = [0] * len(data["decisions"][0])
    with pytest.raises(IllegalCandidateError, match="at least 1"):
        here.candidate(data)
    with pytest.raises(IllegalCandidateError, match="one decision per variable"):
        here.candidate({**data, "decisions": data["decisions"][1:]})


def test_candidates_cannot_be_changed() -> None:
    candidate = space("matmul").untuned
    with pytest.raises(AttributeError, match="immutable"):
        candidate.decisions = ()  # type: ignore[misc]


def test_the_untuned_candidate_is_the_program_itself() -> None:
    here = space("conv2d_nhwc")
    untuned = here.untuned
    assert _tvm.structural_hash(untuned.apply()) == int(here.workload.key, 16)
    assert here.candidate(untuned.to_json()) == untuned
    assert pickle.loads(pickle.dumps(untuned)).key == untuned.key
    assert untuned.actions() == ()
    assert here.mutate(untuned, np.random.default_rng(0)) == untuned


def test_variables_are_named_by_block_and_axis() -> None:
    sketch = space("matmul").sketches[0]
    assert [
        (v.name, v.extent, v.parts) for v in sketch.variables if isinstance(v, PerfectTile)
    ] == [
        ("C.i", 64, 4),
        ("C.j", 128, 4),
        ("C.k", 96, 2),
    ]
    choices = {v.name: v.values for v in sketch.variables if isinstance(v, Choice)}
    assert choices["parallel"] == (0, 2, 8, 32, 128)
    assert choices["vectorize"] == (0, 16, 32, 64, 128)
    for v in sketch.variables:
        if isinstance(v, Choice) and v.name in ("parallel", "vectorize"):
            assert sum(v.weights) == pytest.approx(1)
            assert v.weights[v.values.index(0)] == pytest.approx(0.01)
    assert choices["unroll_explicit"] == (0, 16, 64, 512)


def test_every_value_of_every_choice_builds_and_serial_means_serial() -> None:
    here = space("matmul")
    base = here.sample(np.random.default_rng(3), 1)[0]
    for index, variable in enumerate(base.sketch.variables):
        if not isinstance(variable, Choice):
            continue
        for value in range(len(variable.values)):
            decisions = list(base.decisions)
            decisions[index] = value
            text = str(base.sketch.candidate(decisions).apply())
            if variable.name == "parallel":
                assert ("T.parallel" in text) == (variable.values[value] != 0)
            if variable.name == "vectorize" and variable.values[value] == 0:
                assert "T.vectorized" not in text


def test_the_schedule_records_the_post_processors() -> None:
    here = space("matmul")
    trace = here.sample(np.random.default_rng(0), 1)[0].schedule().trace
    kinds = [str(inst.kind.name) for inst in trace.insts]
    assert "EnterPostproc" in kinds
    assert kinds.index("EnterPostproc") < len(kinds) - 1


def test_a_candidate_computes_the_same_as_the_untuned_program() -> None:
    here = space("softmax")
    target = CPU.tvm_target()
    data = np.random.default_rng(0).standard_normal((16, 128)).astype("float32")

    def run(module: Any) -> Any:
        host = _tvm.Target({"kind": "llvm"})
        built = _tvm.tvm.compile(module, host).jit()
        out = _tvm.tvm.runtime.tensor(np.zeros_like(data))
        built["main"](_tvm.tvm.runtime.tensor(data), out)
        return out.numpy()

    assert str(target.kind) == "llvm"
    expected = run(here.untuned.apply())
    for candidate in here.sample(np.random.default_rng(1), 6):
        np.testing.assert_allclose(run(candidate.apply()), expected, rtol=1e-5, atol=1e-6)


def test_a_rule_that_fails_costs_part_of_the_space_not_the_workload(
    caplog: pytest.LogCaptureFixture,
) -> None:
    a, b, c = _input("A", 32, 32), _input("B", 32, 32), _input("C", 32, 32)
    k, k2 = te.reduce_axis((0, 32), name="k"), te.reduce_axis((0, 32), name="k2")
    x = te.compute((32, 32), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="X")
    y = te.compute((32, 32), lambda i, j: te.sum(a[i, k2] * c[k2, j], axis=k2), name="Y")
    out = te.compute((32, 32), lambda i, j: x[i, j] + y[i, j], name="O")
    program = te.create_prim_func([a, b, c, out])
    with caplog.at_level(logging.WARNING):
        here = Space.generate(Workload.from_module(program, "two matmuls"), CPU)
    assert "two matmuls" in caplog.text
    assert any(isinstance(v, PerfectTile) for v in here.sketches[0].variables)
    for candidate in here.sample(np.random.default_rng(0), 5):
        candidate.apply()


def test_a_block_called_as_the_root_is_refused_by_name() -> None:
    a = te.placeholder((8, 8), name="A")
    function = te.create_prim_func([a, te.compute((8, 8), lambda i, j: a[i, j] + 1, name="root")])
    with pytest.raises(BadInputError, match=r"'mine' has several of that name: rename its blocks"):
        Space.generate(Workload.from_module(function, "mine"), CPU)


def test_scheduled_modules_are_cached_but_not_without_bound() -> None:
    here = space("matmul")
    first, *rest = here.sample(np.random.default_rng(0), 140)
    assert first.apply() is first.apply()
    kept = first.apply()
    for candidate in rest:
        candidate.apply()
    assert first.apply() is not kept


def test_all_programs_have_spaces() -> None:
    for name in PROGRAMS:
        assert space(name).size > 100


@some
@given(names, st.integers(0, 2**32))
def test_edits_take_what_is_asked_for_and_repair_only_locations(name: str, seed: int) -> None:
    here, rng = space(name), np.random.default_rng(seed)
    for candidate, other in itertools.pairwise(here.sample(rng, 12)):
        if candidate.sketch != other.sketch:
            continue
        variables = candidate.sketch.variables
        wanted = {
            i: d
            for i, d in enumerate(other.decisions)
            if rng.random() < 0.5 and not isinstance(variables[i], ComputeLocation)
        }
        edited = here.edit(candidate, wanted, rng)
        assert _legal(edited)
        for i, variable in enumerate(variables):
            if not isinstance(variable, ComputeLocation):
                assert edited.decisions[i] == wanted.get(i, candidate.decisions[i])


def test_edits_outside_the_domain_are_refused() -> None:
    here, rng = space("conv2d_nhwc"), np.random.default_rng(0)
    candidate = next(c for c in here.sample(rng, 40) if c.sketch.location_order)
    place = candidate.sketch.location_order[0]
    tile = next(i for i, v in enumerate(candidate.sketch.variables) if isinstance(v, PerfectTile))
    parts = len(candidate.decisions[tile])  # type: ignore[arg-type]
    for index, value in (
        (tile, [0] * parts),
        (tile, "x"),
        (place, 999),
        (place, "top"),
        (place, True),
        # Equal to a location, and none.
        (place, float(candidate.decisions[place])),  # type: ignore[arg-type]
        (tile, [10**3000] * parts),
    ):
        with pytest.raises(IllegalCandidateError):
            here.edit(candidate, {index: value}, rng)
    for location in (-2, -1, *range(8)):
        try:
            edited = here.edit(candidate, {place: location}, rng)
        except IllegalCandidateError as error:
            assert "fits only at" in str(error)
        else:
            assert edited.decisions[place] == location and _legal(edited)


def test_a_mutation_may_be_kept_to_some_variables() -> None:
    here, rng = space("matmul"), np.random.default_rng(0)
    for candidate in here.sample(rng, 20):
        for index in range(len(candidate.decisions)):
            mutant = here.mutate(candidate, rng, [index])
            changed = [
                i
                for i, (a, b) in enumerate(zip(candidate.decisions, mutant.decisions, strict=True))
                if a != b
            ]
            assert changed in ([index], [])
    assert here.mutate(candidate, rng, []) == candidate
