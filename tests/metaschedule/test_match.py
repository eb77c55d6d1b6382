from __future__ import annotations

import pickle

import numpy as np
import pytest

from foretune import _tvm
from foretune.errors import BadInputError
from foretune.hardware import Hardware
from foretune.metaschedule import (
    ScheduledCandidate,
    candidate_of_schedule,
    candidate_of_trace,
    frozen_candidate,
    match_trace,
    trace_json,
)
from foretune.space import Candidate, Space
from foretune.space.trace import plain
from foretune.workload import Workload, catalog
from tests.metaschedule.programs import matmul


@pytest.fixture(scope="module", params=["matmul:64x64x64", "softmax", "conv2d:1x14x14x16x16x3x1"])
def space(request: pytest.FixtureRequest, hardware: Hardware) -> Space:
    workload = catalog.get(request.param)
    assert isinstance(workload, Workload)
    return Space.generate(workload, hardware)


def test_every_candidate_is_found_again_in_its_trace(
    space: Space, rng: np.random.Generator
) -> None:
    for candidate in space.sample(rng, 40):
        assert match_trace(trace_json(candidate.schedule()), space) == candidate


def test_post_processing_in_a_trace_is_left_out(space: Space, rng: np.random.Generator) -> None:
    (candidate,) = space.sample(rng, 1)
    schedule = candidate.schedule()
    whole = plain(schedule.trace.as_json(remove_postproc=False))
    assert len(whole[0]) > len(trace_json(schedule)[0])
    assert match_trace(whole, space) == candidate


def test_a_trace_without_its_dead_instructions_is_matched_as_tvm_measures_it(
    space: Space, rng: np.random.Generator
) -> None:
    for candidate in space.sample(rng, 10):
        simplified = candidate.schedule().trace.simplified(remove_postproc=True)
        assert match_trace(plain(simplified.as_json()), space) == candidate


def test_the_empty_trace_is_the_untuned_program(space: Space) -> None:
    assert match_trace([[], []], space) == space.untuned


def test_designs_of_tvm_itself_are_matched(hardware: Hardware) -> None:
    workload = matmul()
    space = Space.generate(workload, hardware)
    context = _tvm.make_context(
        workload.module, hardware.tvm_target(), space_generator="post-order-apply", rand_state=7
    )
    for schedule in context.generate_design_space():
        found = match_trace(trace_json(schedule), space)
        assert found is not None
        replayed = _tvm.structural_hash(found.sketch.template.replay(found.decisions).mod)
        assert replayed == _tvm.structural_hash(schedule.mod)


def test_a_trace_of_another_program_matches_nothing(hardware: Hardware) -> None:
    theirs = Space.generate(matmul(32), hardware).sample(np.random.default_rng(0), 1)[0]
    assert match_trace(trace_json(theirs.schedule()), Space.generate(matmul(64), hardware)) is None


def test_a_frozen_candidate_makes_the_same_program(space: Space, rng: np.random.Generator) -> None:
    one, other = space.sample(rng, 2)
    frozen = frozen_candidate(trace_json(one.schedule()), space)
    assert not frozen.sketch.variables
    assert _tvm.structural_hash(frozen.apply()) == _tvm.structural_hash(one.apply())
    assert frozen.key != frozen_candidate(trace_json(other.schedule()), space).key
    assert pickle.loads(pickle.dumps(frozen)) == frozen


def test_an_unknown_limit_gives_a_frozen_candidate(hardware: Hardware) -> None:
    space = Space.generate(matmul(), hardware)
    traces = [trace_json(c.schedule()) for c in space.sample(np.random.default_rng(0), 8)]
    trace, limit = next(
        (trace, instruction)
        for trace in traces
        for instruction in trace[0]
        if instruction[0] == "Annotate" and instruction[2] == ["meta_schedule.parallel"]
    )
    limit[1][1] = 7
    assert match_trace(trace, space) is None
    assert not candidate_of_trace(trace, space).sketch.variables


@pytest.mark.parametrize("trace", [[], [[]], "nonsense", [[["GetSBlock"]], [["x", 1]]]])
def test_what_is_no_trace_is_refused(trace: object, hardware: Hardware) -> None:
    with pytest.raises(BadInputError, match="a trace is"):
        frozen_candidate(trace, Space.generate(matmul(), hardware))  # type: ignore[arg-type]


def test_a_scheduled_candidate_keeps_tvms_program(hardware: Hardware) -> None:
    space = Space.generate(matmul(), hardware)
    (plain,) = space.sample(np.random.default_rng(0), 1)
    schedule = plain.schedule()
    joined = candidate_of_schedule(schedule, space)
    assert isinstance(joined, ScheduledCandidate)
    assert joined == plain
    assert joined.key == plain.key
    assert joined.apply().same_as(schedule.mod)
    travelled = pickle.loads(pickle.dumps(joined))
    assert type(travelled) is Candidate
    assert travelled == plain
