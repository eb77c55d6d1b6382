"""The default schedule on a GPU and what a thread of a candidate keeps; no GPU is needed."""

from __future__ import annotations

import re

import numpy as np
import pytest

from foretune import _tvm
from foretune.errors import IllegalCandidateError
from foretune.hardware import preset
from foretune.search.sampling import FreshSampler
from foretune.space import MOST_RESULTS, Space, device_schedule, results_per_thread
from foretune.workload import Workload, catalog

GPU = preset("h100")


def _workload(name: str) -> Workload:
    workload = catalog.get(name)
    assert isinstance(workload, Workload)
    return workload


def _source(module: object) -> str:
    built = _tvm.tvm.compile(module, GPU.tvm_target())
    return str(built.mod.imports[0].inspect_source())


def test_a_sum_of_nine_is_one_threads_work() -> None:
    source = _source(device_schedule(_workload("depthwise_3x3").module, GPU))
    assert "threadIdx.x" in source
    assert "__shared__" not in source and "__shfl" not in source


def test_a_long_sum_is_shared_by_threads() -> None:
    source = _source(device_schedule(_workload("layernorm_mean").module, GPU))
    assert "__shared__" in source or "__shfl" in source


def test_what_counts_as_untuned_is_what_ships_untuned() -> None:
    workload = _workload("attention_qk")
    untuned = Space.generate(workload, GPU).untuned.apply()
    default = device_schedule(workload.module, GPU)
    assert _tvm.structural_equal(untuned["main"], default["main"])


def test_a_rule_that_raises_leaves_a_program_that_can_be_launched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object) -> None:
        raise ValueError("a rule of TVM failed")

    monkeypatch.setattr(_tvm.tvm.s_tir.dlight.gpu.Matmul, "apply", fails)
    source = _source(device_schedule(_workload("matmul:64x64x64").module, GPU))
    assert "threadIdx.x" in source


def test_scheduled_functions_are_left_alone() -> None:
    scheduled = device_schedule(_workload("matmul:64x64x64").module, GPU)
    again = device_schedule(scheduled, GPU)
    assert again["main"].same_as(scheduled["main"])


@pytest.mark.parametrize("name", ["matmul:256x256x256", "conv2d:1x16x16x32x32x3x1"])
def test_results_per_thread_are_those_of_the_generated_source(name: str) -> None:
    space = Space.generate(_workload(name), GPU)
    compared = 0
    for candidate in space.sample(np.random.default_rng(0), 200):
        if results_per_thread(candidate) > MOST_RESULTS:
            continue  # takes the compiler of the source, too, its time
        try:
            module = candidate.apply()
        except IllegalCandidateError:
            continue
        found = re.search(r"float \w+_local_ptr\[(\d+)\]", _source(module))
        assert found is not None
        assert int(found.group(1)) == results_per_thread(candidate)
        compared += 1
        if compared == 4:
            break
    assert compared == 4


def test_programs_of_processors_have_no_such_limit() -> None:
    space = Space.generate(_workload("matmul:64x64x64"), preset("zen4"))
    drawn = space.sample(np.random.default_rng(0), 20)
    assert {results_per_thread(candidate) for candidate in drawn} == {1}


def test_a_search_proposes_only_what_registers_can_hold() -> None:
    space = Space.generate(_workload("matmul:512x512x512"), GPU)
    drawn = space.sample(np.random.default_rng(0), 100)
    assert any(results_per_thread(candidate) > MOST_RESULTS for candidate in drawn)
    found = FreshSampler(space, np.random.default_rng(0)).random(8)
    assert len(found) == 8
    assert all(results_per_thread(candidate) <= MOST_RESULTS for candidate in found)
