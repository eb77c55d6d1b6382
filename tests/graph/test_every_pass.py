"""Every pass by itself, each of them left out, and all together, on random programs."""

from __future__ import annotations

import logging
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune import codegen
from foretune.codegen import prefetch
from foretune.graph import compile_model, extract
from foretune.graph.passes import algorithms, names, transposed_convolutions
from foretune.hardware import probe
from foretune.workload import Model
from foretune.workload.model import TensorSpec
from tests.graph.programs import module_of, relax, run
from tests.graph.random_programs import LAYERS, program

HARDWARE = probe()


def model_of(module, x):
    outputs = [
        TensorSpec(f"y{at}", tuple(int(n) for n in part.shape), str(part.dtype))
        for at, part in enumerate(module["main"].ret_ty.fields)
    ]
    spec = TensorSpec("x", x.shape, str(x.dtype))
    return Model("a program", module, (spec,), tuple(outputs), (x,))


def check(module, x, without, called):
    model = model_of(module, x)
    extraction = extract(model, HARDWARE, without)
    artifact = compile_model(model, HARDWARE, {}, extraction)
    failed = [p["name"] for p in artifact.manifest["passes"] if "failed" in p["reason"]]
    assert not failed, called
    for expected, actual in zip(run(module, x), artifact.run([x]), strict=True):
        assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype), called
        scale = max(1.0, float(np.abs(expected).max(initial=0)))
        np.testing.assert_allclose(actual, expected, rtol=0, atol=2e-5 * scale, err_msg=called)


def check_some(seed):
    """All passes; and for a pass that the seed names, it alone or all others.

    Thresholds that small programs stay below are lowered for some: then passes do what they would
    do to large ones.
    """
    module, x = program(seed, makers=LAYERS, wide=seed % 3 > 0)
    with pytest.MonkeyPatch.context() as patch:
        if seed % 5 < 3:
            eager(patch)
        check_with(module, x, seed)


def eager(patch):
    """Winograd's filtering, prefetching and phases in parts, whether they pay or not."""
    for name in ("_PRODUCT", "_MOVED", "_STREAMED"):
        patch.setattr(algorithms, name, 0)
    patch.setattr(prefetch, "_WORK", 0)
    patch.setattr(sys.modules["foretune.graph.extract"], "_LARGE_BYTES", 1)
    patch.setattr(transposed_convolutions, "_MOVED", -1)


def check_with(module, x, seed):
    check(module, x, [], f"program {seed}")
    chosen = names()[seed % len(names())]
    alone = [name for name in names() if name != chosen]
    without, kind = ([chosen], "without") if seed % 2 else (alone, "only")
    check(module, x, without, f"program {seed}, {kind} {chosen}")


@settings(max_examples=3, derandomize=True, deadline=None, database=None)
@given(st.integers(0, 1 << 30))
def test_random_programs_compute_the_same_with_some_passes(seed):
    check_some(seed)


@pytest.mark.slow
@settings(max_examples=120, derandomize=True, deadline=None, database=None)
@given(st.integers(0, 1 << 30))
def test_many_random_programs_compute_the_same_with_some_passes(seed):
    check_some(seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_each_pass_can_be_left_out_and_stand_alone(name):
    for seed in range(3):
        module, x = program(1000 + seed, steps=10, makers=LAYERS)
        check(module, x, [name], f"without {name}")
        check(module, x, [each for each in names() if each != name], f"only {name}")


@pytest.mark.passes_may_fail
@pytest.mark.parametrize("name", codegen.PASSES)
def test_a_pass_over_code_that_fails_is_left_out_with_a_warning(name, monkeypatch, caplog):
    def raises(_module):
        raise RuntimeError("std::bad_alloc")

    changes = codegen._changes(HARDWARE)
    monkeypatch.setattr(codegen, "_changes", lambda _hardware: {**changes, name: raises})
    x = np.linspace(-2, 2, 12, dtype="float32").reshape(3, 4)
    module = module_of(relax.op.exp, x)
    with caplog.at_level(logging.WARNING):
        artifact = compile_model(model_of(module, x), HARDWARE, {})
    (report,) = (p for p in artifact.manifest["passes"] if p["name"] == name)
    assert not report["on"]
    assert report["reason"].startswith("failed: RuntimeError")
    assert f"{name!r} is left out for the kernels on which it fails" in caplog.text
    np.testing.assert_allclose(artifact.run([x])[0], np.exp(x), rtol=1e-5)


@pytest.mark.passes_may_fail
def test_calls_that_cannot_be_joined_are_made_one_by_one(monkeypatch, caplog):
    def raises(_module, _inputs):
        raise TypeError("no such thing")

    monkeypatch.setattr("foretune.graph.passes.one_function", raises)
    x = np.linspace(-2, 2, 12, dtype="float32").reshape(3, 4)
    module = module_of(relax.op.exp, x)
    artifact = compile_model(model_of(module, x), HARDWARE, {})
    (report,) = (p for p in artifact.manifest["passes"] if p["name"] == "one-function")
    assert report["reason"] == "failed: TypeError: no such thing"
    assert "'one-function' is left out" in caplog.text
    np.testing.assert_allclose(artifact.run([x])[0], np.exp(x), rtol=1e-5)
