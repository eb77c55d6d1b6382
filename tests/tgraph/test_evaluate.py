"""What ``graph eval`` reports."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from foretune.errors import BadInputError
from foretune.tgraph import (
    SCHEMA,
    TGraphConfig,
    evaluate,
    judge_all,
    judgeable,
    named,
    train,
    whole,
)
from foretune.tgraph.evaluate import NO_ORDER, UNMEASURED
from tests.tgraph.made import layout_graph, tile_graph

pytest.importorskip("torch")

LAYOUT = {"tau", "tau_a", "opa", "slowdown1", "slowdown10", "slowdown100"}
TILE = {"m_tile", "slowdown1", "slowdown5", "slowdown10", "tau"}


def config_of(**options: Any) -> TGraphConfig:
    return named("corrected", {"width": 16, "epochs": 1, "trained": 2, **options})


@pytest.mark.parametrize(("make", "names"), [(layout_graph, LAYOUT), (tile_graph, TILE)])
def test_every_graph_is_judged_once_by_a_model_that_never_saw_it(make, names):
    graphs = [make(seed) for seed in range(5)]
    said: list[str] = []
    result = evaluate("corrected", config_of(), graphs, "graph", folds=3, progress=said.append)
    assert result["schema"] == SCHEMA
    assert result["split"] == "graph"
    assert len(said) == 3
    assert sorted(one["name"] for one in result["graphs"]) == sorted(g.name for g in graphs)
    for one in result["graphs"]:
        assert names <= set(one)
    assert set(result["metrics"]) == names
    for figures in result["metrics"].values():
        assert figures["low"] <= figures["mean"] <= figures["high"]
    assert len(result["members"]) == 3
    assert all(len(each["folds"]) == 2 for each in result["members"])
    assert {"all", "best_four"} <= set(result["members"][0])


def test_a_part_of_the_configurations_is_judged():
    graphs = [layout_graph(seed, configurations=100) for seed in range(2)]
    result = evaluate("corrected", config_of(), graphs, "configuration", folds=4)
    distinct = [len(whole(graph).rows) for graph in graphs]
    assert [one["configurations"] for one in result["graphs"]] == [round(n / 4) for n in distinct]
    assert [one["rows"] for one in result["graphs"]] == [100, 100]
    assert [len(each["folds"]) for each in result["members"]] == [1]


def test_graphs_that_cannot_be_judged_are_named():
    graph = layout_graph(1)
    assert graph.runtime is not None
    flat = replace(layout_graph(2), name="flat", runtime=np.full_like(graph.runtime, 7))
    one = replace(layout_graph(3, configurations=1), name="one")
    unknown = replace(layout_graph(4), name="unknown", runtime=None)
    used, skipped = judgeable([graph, flat, one, unknown])
    assert used == [graph]
    assert skipped == {NO_ORDER: ["flat", "one"], UNMEASURED: ["unknown"]}
    with pytest.raises(BadInputError, match="flat, one, unknown has none"):
        judgeable([flat, one, unknown])


def test_a_trained_model_says_what_it_has_seen():
    graphs = [layout_graph(seed) for seed in range(3)]
    model = train([whole(graph) for graph in graphs[:2]], config_of())
    result = judge_all(model, [*graphs, replace(layout_graph(7), runtime=None)])
    assert [one["seen"] for one in result["graphs"]] == [True, True, False]
    assert result["split"] == "none"
    assert result["skipped"] == {UNMEASURED: ["made7"]}


def test_equal_configurations_are_judged_once():
    graph = layout_graph(1, configurable=1, configurations=200)
    model = train([whole(graph)], config_of())
    (one,) = judge_all(model, [graph])["graphs"]
    assert one["rows"] == 200
    assert one["configurations"] == len(whole(graph).rows) < 100


def test_splits_that_cannot_be_made_are_refused():
    graph = layout_graph(1)
    with pytest.raises(BadInputError, match="with different operations, but got 1"):
        evaluate("corrected", config_of(), [graph], "graph")
    with pytest.raises(BadInputError, match="unknown split 'row': choose one of"):
        evaluate("corrected", config_of(), [graph], "row")
    with pytest.raises(BadInputError, match="folds >= 2"):
        evaluate("corrected", config_of(), [graph], "graph", folds=1)
    few = layout_graph(1, configurations=3)
    with pytest.raises(BadInputError, match="take fewer --folds"):
        evaluate("corrected", config_of(), [few], "configuration", folds=5)
