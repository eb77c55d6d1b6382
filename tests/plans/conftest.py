"""Fixtures of plans."""

from __future__ import annotations

import numpy as np
import pytest

from foretune.plans import calibrated
from foretune.plans.encode import configurable, configurations, graph_of
from foretune.plans.network import PlanNetwork
from foretune.plans.space import PlanSpace
from foretune.tgraph import LayoutGraph, Nodes, named, train, whole
from foretune.tgraph.configurations import packed
from foretune.workload import load_input
from tests.plans.formula import NETWORK, formula, hardware, seconds


@pytest.fixture(scope="package")
def network():
    """Plans and graph of ``networks.convolutions``, for one thread on whatever machine."""
    # What passes choose by themselves depends on the threads, and the formulas do not.
    found = PlanNetwork(load_input(NETWORK), hardware())
    return PlanSpace.of(found, "0" * 16), graph_of(found.begun.module)


@pytest.fixture
def measurer(network):
    """Measures by a formula."""
    return formula(*network)


@pytest.fixture(scope="package")
def model(network):
    """A small graph network that learned the formula from plans of that network."""
    pytest.importorskip("torch")
    space, graph = network
    plans = space.sample(np.random.default_rng(5), 80)
    rows = configurations(graph, plans)
    nodes = Nodes(graph.features, graph.opcode.astype(np.int64), graph.edges.astype(np.int64))
    ids = configurable(graph, plans[0]).astype(np.int64)
    nanoseconds = np.array([1e9 * seconds(plan) for plan in plans]).astype(np.int64)
    of_plans = LayoutGraph("net", nodes, ids, packed([rows], *rows.shape[:2]), nanoseconds)
    options = {"width": 16, "epochs": 40, "batch": 32, "blocks": 1, "learning_rate": 1e-2}
    parts = [whole(of_plans)]
    return calibrated(train(parts, named("corrected", options), name="made up"), parts)
