from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from foretune import _tvm, codegen
from foretune.hardware import Hardware
from foretune.metaschedule import PEERS, PeerOptions, match_trace, run_peer
from foretune.metaschedule._match import trace_json
from foretune.metaschedule._our_space import BUILD, design_spaces, register_build, space_generator
from foretune.space import Choice, Space
from foretune.workload import catalog
from tests.metaschedule.programs import matmul


def test_tvm_draws_vector_limits_as_often_as_we_do(hardware: Hardware) -> None:
    space = Space.generate(matmul(), hardware)
    drawn: dict[str, Counter[int]] = {}
    for schedule in design_spaces(space):
        candidate = match_trace(trace_json(schedule), space)
        assert candidate is not None
        limits = drawn.setdefault(candidate.sketch.key, Counter())
        for variable, decision in zip(candidate.sketch.variables, candidate.decisions, strict=True):
            if isinstance(variable, Choice) and variable.name == "vectorize":
                limits[decision] += 1
    assert set(drawn) == {sketch.key for sketch in space.sketches}
    for sketch in space.sketches:
        (limit,) = (v for v in sketch.variables if v.name == "vectorize")
        assert isinstance(limit, Choice)
        weights = {i: w for i, w in enumerate(limit.weights) if limit.values[i] != 0}
        count = drawn[sketch.key]
        assert set(count) == set(weights)
        for index, weight in weights.items():
            share = weight / sum(weights.values())
            assert count[index] / count.total() == pytest.approx(share, abs=0.03)


def test_tvm_takes_the_design_spaces(hardware: Hardware) -> None:
    workload = matmul()
    context = _tvm.make_context(
        workload.module, hardware.tvm_target(), space_generator=space_generator(hardware)
    )
    spaces = context.generate_design_space()
    assert len(spaces) == len(list(design_spaces(Space.generate(workload, hardware))))
    assert context.space_generator.postprocs and context.space_generator.mutator_probs


def test_programs_are_built_with_our_passes(hardware: Hardware) -> None:
    register_build(hardware)
    schedule = Space.generate(catalog.get("softmax"), hardware).default.schedule()
    finished = codegen.finish(schedule.mod, hardware)
    assert "vector-math" in finished.changed
    built = _tvm.tvm.get_global_func(BUILD)(schedule.mod, hardware.tvm_target(), None)
    ours = _tvm.tvm.tirx.build(finished.module, target=hardware.code_target())
    theirs = _tvm.tvm.tirx.build(schedule.mod, target=hardware.code_target())
    assert _code(built) == _code(ours) != _code(theirs)


def _code(module: Any) -> str:
    """LLVM's text of a program; addresses in TVM's process occur as names of no meaning."""
    return re.sub(r"0x[0-9a-f]{8,}", "", str(module.inspect_source("ll")))


@pytest.mark.slow
def test_the_peer_searches_our_space(hardware: Hardware) -> None:
    assert PEERS["metaschedule-our-space"].our_space
    options = PeerOptions(num_trials_per_iter=4, remove_import_trap=True, our_space=True)
    result = run_peer(matmul(), hardware, 4, 3, options)
    space = Space.generate(matmul(), hardware)
    assert len(result.trials) == 4
    assert all(trial.best_s is not None for trial in result.trials)
    assert all(match_trace(trial.trace, space) is not None for trial in result.trials)
