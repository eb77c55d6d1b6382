"""Splits: a network, or a configuration, is on one side only."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune.errors import BadInputError
from foretune.tgraph import COLUMNS, Part, by_configuration, by_graph, graph_key, whole
from foretune.tgraph.prepare import family
from foretune.tgraph.splits import configuration_keys
from tests.tgraph.made import layout_graph, tile_graph


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 9), st.integers(2, 12), st.integers(0, 99))
def test_every_graph_is_in_one_fold(count, folds, seed):
    graphs = [tile_graph(n) for n in range(count)]
    found = by_graph(graphs, folds, np.random.default_rng(seed))
    assert len(found) == min(folds, count)
    assert sorted(at for fold in found for at in fold) == list(range(count))
    assert all(found)
    sizes = [len(fold) for fold in found]
    assert max(sizes) - min(sizes) <= 1


def test_a_network_in_two_collections_is_in_one_fold():
    one = layout_graph(1)
    graphs = [one, layout_graph(2), replace(one, name="again"), layout_graph(3)]
    for seed in range(10):
        for fold in by_graph(graphs, 3, np.random.default_rng(seed)):
            assert (0 in fold) == (2 in fold)


def test_sizes_of_one_architecture_are_in_one_fold():
    small = layout_graph(1)
    features = small.nodes.features.copy()
    features[:, COLUMNS.index("shape_dimensions_0")] *= 2
    large = replace(small, name="large", nodes=replace(small.nodes, features=features))
    assert graph_key(large) != graph_key(small)
    graphs = [small, layout_graph(2), large, layout_graph(3)]
    for seed in range(10):
        for fold in by_graph(graphs, 3, np.random.default_rng(seed)):
            assert (0 in fold) == (2 in fold)


def test_other_operations_or_edges_are_another_architecture():
    graph = layout_graph(1)
    opcode = graph.nodes.opcode.copy()
    opcode[0] += 1
    others = [
        replace(graph, nodes=replace(graph.nodes, opcode=opcode)),
        replace(graph, nodes=replace(graph.nodes, edges=graph.nodes.edges[1:])),
    ]
    assert len({family(each) for each in (graph, *others)}) == 3


def test_one_network_cannot_be_split():
    one = layout_graph(1)
    with pytest.raises(BadInputError, match="with different operations, but got 1"):
        by_graph([one, replace(one, name="again")], 5, np.random.default_rng(0))


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 6), st.integers(0, 99), st.sampled_from(["min", "first", "none"]))
def test_copies_of_a_configuration_stay_together(parts, seed, keep):
    graph = layout_graph(1, configurable=1, configurations=150)
    keys = configuration_keys(graph)
    count = len(np.unique(keys))
    assert count < 100, "there are copies"
    learned, held = by_configuration(graph, parts, np.random.default_rng(seed), keep)
    assert not set(keys[learned.rows].tolist()) & set(keys[held.rows].tolist())
    assert len(set(keys[held.rows].tolist())) == len(held.rows) == max(1, round(count / parts))
    together = len(set(keys[learned.rows].tolist())) + len(held.rows)
    assert together == count
    if keep == "none":
        assert len(learned.rows) > count - len(held.rows)


def test_tiles_are_split_in_the_same_way():
    graph = tile_graph(1, configurations=20)
    learned, held = by_configuration(graph, 5, np.random.default_rng(0))
    assert len(held.rows) == 4
    assert len(learned.rows) + len(held.rows) == len(np.unique(configuration_keys(graph)))


def test_equal_configurations_cannot_be_split():
    graph = layout_graph(1, configurations=1)
    with pytest.raises(BadInputError, match="but made1 has 1"):
        by_configuration(graph, 2, np.random.default_rng(0))


def test_an_order_needs_two_different_run_times():
    graph = layout_graph(1)
    assert graph.runtime is not None
    assert whole(graph).orderable
    assert not whole(replace(graph, runtime=None)).orderable
    assert not whole(replace(graph, runtime=np.full_like(graph.runtime, 5))).orderable
    assert not Part(graph, np.array([0])).orderable
    with pytest.raises(ValueError, match="was not measured"):
        _ = whole(replace(graph, runtime=None)).runtime


def test_the_fastest_of_equal_ones_is_judged():
    graph = layout_graph(1, configurable=1, configurations=150)
    assert graph.runtime is not None
    keys = configuration_keys(graph)
    noisy = replace(graph, runtime=graph.runtime + np.arange(150))
    part = whole(noisy)
    assert noisy.runtime is not None
    for row in part.rows:
        assert noisy.runtime[row] == noisy.runtime[keys == keys[row]].min()
