"""Inputs and outputs of single programs, wherever they stand among the parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from foretune import _tvm
from foretune.errors import BadInputError
from foretune.graph import arguments_of, compile_workload
from foretune.space import Space
from foretune.workload import Workload
from tests.measure import programs

te = _tvm.tvm.te
SIZE = 16


def _placeholder(name: str) -> Any:
    return te.placeholder((SIZE, SIZE), name=name)


def product_first() -> Workload:
    """``main(C, A, B)``: all of one shape, and A times B is not B times A."""
    a, b = _placeholder("A"), _placeholder("B")
    k = te.reduce_axis((0, SIZE), name="k")
    c = te.compute((SIZE, SIZE), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return Workload.from_module(te.create_prim_func([c, a, b]), "product_first")


def outputs_around() -> Workload:
    """``main(D, A, B, E)``: ``D = A - B`` and ``E = 2 D``."""
    a, b = _placeholder("A"), _placeholder("B")
    d = te.compute((SIZE, SIZE), lambda i, j: a[i, j] - b[i, j], name="D")
    e = te.compute((SIZE, SIZE), lambda i, j: d[i, j] * 2.0, name="E")
    return Workload.from_module(te.create_prim_func([d, a, b, e]), "outputs_around")


@pytest.mark.parametrize("chosen", ["default schedule", "untuned", "drawn"])
def test_an_output_may_stand_before_the_inputs(hardware, rng, chosen):
    workload = product_first()
    space = Space.generate(workload, hardware)
    candidate = {
        "default schedule": lambda: None,
        "untuned": lambda: space.untuned,
        "drawn": lambda: space.sample(rng, 1)[0],
    }[chosen]()
    artifact = compile_workload(workload, hardware, candidate)
    assert [spec.name for spec in artifact.inputs] == ["A", "B"]
    assert [entry["name"] for entry in artifact.manifest["outputs"]] == ["C"]
    a, b = rng.random((2, SIZE, SIZE), dtype=np.float32)
    (product,) = artifact.run([a, b])
    np.testing.assert_allclose(product, a @ b, rtol=1e-5)


def test_outputs_may_stand_around_the_inputs(hardware, rng):
    workload = outputs_around()
    assert arguments_of(workload).inputs == (1, 2)
    assert arguments_of(workload).outputs == (0, 3)
    a, b = rng.random((2, SIZE, SIZE), dtype=np.float32)
    difference, twice = compile_workload(workload, hardware).run([a, b])
    np.testing.assert_allclose(difference, a - b, rtol=1e-6)
    np.testing.assert_allclose(twice, 2 * (a - b), rtol=1e-6)


def test_an_output_that_is_read_again_is_an_output():
    found = arguments_of(programs.ALL["two_outputs"])
    assert (found.inputs, found.outputs) == ((0,), (1, 2))


def test_a_program_that_changes_a_parameter_in_place_is_refused(hardware):
    increment = programs.ALL["increment"]
    with pytest.raises(BadInputError, match="'x' of 'increment' is read before it is written"):
        arguments_of(increment)
    with pytest.raises(BadInputError, match="one parameter to read and another one to write"):
        compile_workload(increment, hardware)
