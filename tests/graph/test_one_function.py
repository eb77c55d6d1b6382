"""The calls of a network as one function: what it returns, and when it is left out."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune import _tvm
from foretune.graph import compile_model, extract
from foretune.graph._memory import together
from foretune.hardware import probe
from foretune.workload import Model
from foretune.workload.element_types import element_type
from tests.graph.programs import constant, module_of, relax

op, tvm = relax.op, _tvm.tvm
NAME = "one-function"


def compiled(make, arrays, hardware, without=()):
    model = Model.from_relax(module_of(make, *arrays), "a model", examples=arrays)
    return compile_model(model, hardware, {}, extract(model, hardware, without))


def report(artifact):
    return next(entry for entry in artifact.manifest["passes"] if entry["name"] == NAME)


def by_tvm_alone(artifact, arrays):
    """``main`` as it is called by those who have no foretune."""
    machine = tvm.relax.VirtualMachine(artifact._executable, tvm.cpu())
    weights = [artifact._parameters[name] for name in artifact.manifest["parameters"]]
    return [t.numpy() for t in machine["main"](*map(tvm.runtime.tensor, arrays), *weights)]


OPERATORS = ("exp", "product", "sum", "view", "turn", "given", "weight", "again")


@settings(max_examples=8, deadline=None)
@given(st.lists(st.sampled_from(OPERATORS), min_size=1, max_size=12), st.data())
def test_it_computes_what_the_single_calls_compute(operators, data):
    hardware = probe()
    rng = np.random.default_rng(len(operators))
    x, weight = rng.normal(size=(6, 6)).astype("float32"), rng.normal(size=(6, 6)).astype("float32")
    returned = data.draw(st.lists(st.integers(0, len(operators)), min_size=2, max_size=5))

    def make(x):
        emit = relax.BlockBuilder.current().emit
        made = [x]
        for name in operators:
            last = made[-1]
            flat = last if len(last.ty.shape) == 2 else emit(op.reshape(last, (6, 6)))
            made.append(
                {
                    "exp": lambda t: emit(op.exp(op.tanh(t))),
                    "product": lambda t: emit(op.matmul(t, constant(weight))),
                    "sum": lambda t: emit(op.nn.softmax(t, -1)),
                    "view": lambda t: emit(op.reshape(t, (36,))),
                    "turn": lambda t: emit(op.permute_dims(t, [1, 0])),
                    "given": lambda _: x,
                    "weight": lambda _: emit(constant(weight)),
                    "again": lambda t: t,
                }[name](flat)
            )
        return tuple(made[number] for number in returned)

    joined = compiled(make, (x,), hardware)
    single = compiled(make, (x,), hardware, [NAME])
    assert not report(single)["on"] and single.manifest["workspace"] == 0
    expected = single.run([x])
    for actual in (joined.run([x]), joined.run([x]), by_tvm_alone(joined, [x])):
        for one, other in zip(actual, expected, strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_network_of_kernels_is_joined_and_its_weights_lie_in_one_place(hardware, rng):
    x, weight = (rng.normal(size=(64, 64)).astype("float32") for _ in range(2))
    artifact = compiled(lambda t: (op.matmul(op.matmul(t, constant(weight)), t),), (x,), hardware)
    assert report(artifact) == {"name": NAME, "on": True, "reason": "", "changed": True}
    assert artifact.manifest["workspace"] >= x.nbytes
    (actual,) = artifact.run([x])
    np.testing.assert_allclose(actual, x @ weight @ x, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize(
    ("make", "dtype", "factor", "reason"),
    [
        (lambda t: (t,), "float32", 1, "it calls no kernel"),
        (lambda t: (op.add(t, t),), "bfloat16", 2, "it holds .*bfloat16"),
    ],
)
def test_what_cannot_be_joined_says_why_and_runs(hardware, make, dtype, factor, reason):
    x = np.ones(40, element_type(dtype))
    artifact = compiled(make, (x,), hardware)
    assert not report(artifact)["on"]
    assert re.search(reason, report(artifact)["reason"])
    (actual,) = artifact.run([x])
    np.testing.assert_array_equal(actual, factor * x)


def as_it_is(t, weight):
    return (op.matmul(t, constant(weight)),)


def as_a_view(t, weight):
    return (op.matmul(t, op.reshape(constant(weight.reshape(-1)), (64, 64))),)


@pytest.mark.parametrize("make", [as_it_is, as_a_view])
def test_a_weight_of_another_shape_is_refused_by_name(hardware, rng, make):
    x, weight = (rng.normal(size=(64, 64)).astype("float32") for _ in range(2))
    artifact = compiled(lambda t: make(t, weight), (x,), hardware)
    assert report(artifact)["on"]
    machine = tvm.relax.VirtualMachine(artifact._executable, tvm.cpu())
    with pytest.raises((ValueError, TypeError, RuntimeError), match=r"matmul|sequence"):
        machine["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(x[:3]))


@pytest.mark.parametrize("dtype", ["float32", "bool", "int8", "float64", "bfloat16"])
@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (3, 1, 2)])
def test_tensors_keep_their_values_types_and_shapes_together(dtype, shape):
    values = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(element_type(dtype))
    tensors = {name: tvm.runtime.tensor(values) for name in "abc"}
    for copy in together(tensors).values():
        assert (tuple(copy.shape), str(copy.dtype)) == (shape, dtype)
        np.testing.assert_array_equal(copy.numpy(), values)


def test_what_lies_together_does_not_overlap_and_starts_where_kernels_expect_it():
    tensors = {str(n): tvm.runtime.tensor(np.full(n, n % 256, "uint8")) for n in range(1, 300, 7)}
    copies = together(tensors)
    for n in range(1, 300, 7):
        assert (copies[str(n)].numpy() == n % 256).all()
        assert np.from_dlpack(copies[str(n)]).ctypes.data % 64 == 0


def test_kernels_keep_the_promise_that_their_arguments_do_not_overlap(rng):
    x, weight = (rng.normal(size=(16, 16)).astype("float32") for _ in range(2))
    artifact = compiled(lambda t: op.matmul(t, constant(weight)), [x], probe())
    (library,) = artifact._executable.mod.imports
    text = library.inspect_source("ll")
    kernels = re.findall(r"^define .*@matmul_compute_\((.*)", text, re.MULTILINE)
    assert kernels, "the kernel is a function of its own"
    for arguments in kernels:
        assert arguments.count("noalias") == 3
