"""Spaces for a GPU, on machines that have none."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from foretune import _tvm
from foretune.errors import IllegalCandidateError
from foretune.space import Choice, Space
from foretune.workload import Workload

from .programs import PROGRAMS, gpu


@functools.lru_cache(maxsize=4)
def _space(name: str) -> Space:
    return Space.generate(Workload.from_module(PROGRAMS[name](), name), gpu())


def _source(space: Space, module: object) -> str:
    built = _tvm.tvm.compile(module, space.hardware.tvm_target())
    return str(built.mod.imports[0].inspect_source())


@pytest.mark.parametrize("name", ["matmul", "conv2d_nhwc", "softmax"])
def test_a_candidate_that_passes_becomes_cuda_source(name: str) -> None:
    here = _space(name)
    passed = []
    for candidate in here.sample(np.random.default_rng(0), 150):
        try:
            passed.append(candidate.apply())
        except IllegalCandidateError as error:
            assert "VerifyGPUCode" in str(error)
        if len(passed) == 2:
            break
    assert passed
    assert "__global__" in _source(here, passed[0])


def test_most_random_gpu_candidates_are_rejected_by_the_typed_error() -> None:
    here = _space("matmul")
    rejected = 0
    for candidate in here.sample(np.random.default_rng(1), 60):
        candidate.sketch.template.replay(candidate.decisions)
        try:
            candidate.apply()
        except IllegalCandidateError:
            rejected += 1
    assert 0 < rejected < 60


def test_the_untuned_program_runs_on_a_gpu_too() -> None:
    here = _space("softmax")
    assert "__global__" in _source(here, here.untuned.apply())


def test_cooperative_fetching_is_a_variable() -> None:
    names = [v.name for v in _space("matmul").sketches[0].variables if isinstance(v, Choice)]
    assert names.count("cooperative_fetch") == 2
