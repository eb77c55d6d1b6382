"""Operators of real networks are found in every pass."""

from __future__ import annotations

import numpy as np
import pytest

from foretune.plans.encode import configurations, graph_of
from foretune.plans.network import PlanNetwork
from foretune.plans.space import PlanSpace
from foretune.workload import load_input
from tests.graph.test_algorithms import hardware


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "operators"),
    [
        ("resnet50", 54), ("mobilenet_v2", 53), ("unet", 23), ("bert_base", 72), ("dcgan", 5),
        ("efficientnet_b0", 82),
    ],
)  # fmt: skip
def test_what_plans_want_is_done(name, operators):
    network = PlanNetwork(load_input(name), hardware())
    space = PlanSpace.of(network, "0" * 16)
    assert len(space.sketch.operators) == operators
    tables = {operator.number: operator.table for operator in space.sketch.operators}
    plans = [space.default, *space.sample(np.random.default_rng(0), 2)]
    for plan in plans:
        _, walk = network.walk(plan.wanted, lambda n, step, path: (step, path) in tables[n])
        assert not walk.strangers
        for operator, path in zip(space.sketch.operators, plan.paths, strict=True):
            taken = walk.paths.get(operator.number, ())
            assert taken == path or (taken == path[:-1] and path[-1][0] == "fusion")
    graph = graph_of(network.begun.module)
    rows = configurations(graph, plans)
    assert rows.shape == (3, operators, 18)
    assert rows.max() <= 5
    # Nothing that these networks consist of is without a number.
    assert (graph.opcode > 0).all()
