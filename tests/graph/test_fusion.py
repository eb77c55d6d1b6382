"""Fusion as a choice: what is kept alone computes the same, and plans are given back."""

from __future__ import annotations

import numpy as np
import pytest

from foretune.errors import BadInputError
from foretune.graph import compile_model, extract
from foretune.workload import Model, TensorSpec
from tests.graph.programs import constant, module_of, relax, run
from tests.graph.test_algorithms import hardware

op = relax.op


@pytest.fixture
def network(rng):
    """Two products with bias and activation, the second without anything behind it."""
    x = rng.normal(size=(4, 16)).astype("float32")
    first, second, third = (
        rng.normal(size=shape).astype("float32") for shape in ((16, 32), (32, 32), (32, 16))
    )
    bias = constant(rng.normal(size=32).astype("float32"))

    def make(t):
        emit = relax.BlockBuilder.current().emit
        y = emit(op.nn.relu(emit(op.add(emit(op.matmul(t, constant(first))), bias))))
        y = emit(op.nn.relu(emit(op.add(emit(op.matmul(y, constant(second))), bias))))
        return op.matmul(y, constant(third))

    spec, result = TensorSpec("x0", x.shape, "float32"), TensorSpec("y", (4, 16), "float32")
    return Model("products", module_of(make, x), (spec,), (result,), (x,))


def choices(extraction):
    return extraction.plan["fusion"]


def test_operators_with_something_behind_them_have_a_choice_and_default_to_one_kernel(network):
    found = extract(network, hardware())
    assert len(choices(found)) == 2
    assert set(choices(found).values()) == {"fused"}
    again = extract(network, hardware(), plan=found.plan)
    assert again.plan == found.plan
    assert [w.key for w in again.workloads] == [w.key for w in found.workloads]


def test_what_is_alone_is_a_kernel_of_its_own_and_computes_the_same(network):
    found = extract(network, hardware())
    first, second = choices(found)
    plan = {**found.plan, "fusion": {first: "alone", second: "fused"}}
    alone = extract(network, hardware(), plan=plan)
    assert choices(alone) == plan["fusion"]
    assert sum(w.weight for w in alone.workloads) == sum(w.weight for w in found.workloads) + 1
    assert any("alone" in w.name for w in alone.workloads)
    artifact = compile_model(network, hardware(), {}, alone)
    assert artifact.manifest["plan"]["fusion"] == plan["fusion"]
    expected = run(network.module, *network.examples)[0]
    np.testing.assert_allclose(artifact.run(list(network.examples))[0], expected, atol=1e-4)


def test_equal_operators_are_decided_one_by_one(rng):
    x = rng.normal(size=(4, 16)).astype("float32")
    weights = [constant(rng.normal(size=(16, 16)).astype("float32")) for _ in range(3)]

    def make(t):
        emit = relax.BlockBuilder.current().emit
        for weight in weights:
            t = emit(op.nn.relu(emit(op.matmul(t, weight))))
        return t

    spec, result = TensorSpec("x0", x.shape, "float32"), TensorSpec("y", (4, 16), "float32")
    model = Model("equal", module_of(make, x), (spec,), (result,), (x,))
    found = extract(model, hardware())
    one, two, three = choices(found)
    assert (two, three) == (f"{one} (2)", f"{one} (3)")
    kept = extract(model, hardware(), plan={"fusion": {two: "alone"}})
    assert list(choices(kept).values()) == ["fused", "alone", "fused"]
    assert sum(w.weight for w in kept.workloads) == 4


@pytest.mark.parametrize(
    ("plan", "named"),
    [
        ({"fusion": {"matmul 1x9": "alone"}}, "those of this network are"),
        ({"fusion": "FIRST"}, "fused, alone"),
    ],
)
def test_a_plan_for_other_operators_is_refused(network, plan, named):
    if plan["fusion"] == "FIRST":
        first, _ = choices(extract(network, hardware()))
        plan = {"fusion": {first: "apart"}}
    with pytest.raises(BadInputError, match=named):
        extract(network, hardware(), plan=plan)


def test_a_plan_is_refused_where_nothing_is_fused(network):
    first, _ = choices(extract(network, hardware()))
    with pytest.raises(BadInputError, match="'fusion', which is off"):
        extract(network, hardware(), ["fusion"], {"fusion": {first: "alone"}})
