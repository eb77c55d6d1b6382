"""Pruning, padding and scaling: what is kept is unchanged, what is mended is right."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune.tgraph import COLUMNS, Nodes
from foretune.tgraph._hlo_features import DIMENSIONS, LAYOUT
from foretune.tgraph.prepare import Scaler, Scalers, graph_key, prepare, prune, repad
from tests.tgraph.made import layout_graph, tile_graph


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Nodes, np.ndarray]:
    n = draw(st.integers(1, 12))
    node = st.integers(0, n - 1)
    edges = draw(st.lists(st.tuples(node, node), max_size=20))
    ids = draw(st.lists(node, min_size=1, max_size=n, unique=True))
    features = np.arange(n, dtype=np.float32)[:, None]
    table = np.array(edges, dtype=np.int64).reshape(-1, 2)
    return Nodes(features, np.arange(n), table), np.array(ids, dtype=np.int64)


def _distances(nodes: Nodes, ids: np.ndarray) -> dict[int, int]:
    """By hand: breadth first from all configurable nodes."""
    near = {int(node): 0 for node in ids}
    waiting = list(near)
    while waiting:
        here = waiting.pop(0)
        for u, v in nodes.edges.tolist():
            for a, b in ((u, v), (v, u)):
                if a == here and b not in near:
                    near[b] = near[here] + 1
                    waiting.append(b)
    return near


@settings(max_examples=50, deadline=None)
@given(graphs(), st.sampled_from([0, 1, 3]))
def test_what_is_near_a_configurable_node_is_kept(graph, hops):
    nodes, ids = graph
    near = _distances(nodes, ids)
    pruned, renamed = prune(nodes, ids, hops)
    kept = [node for node in range(len(nodes)) if near.get(node, 99) <= hops]
    assert pruned.features[:, 0].tolist() == kept
    assert pruned.opcode.tolist() == kept
    # Configurable nodes are the same ones, in the same order, isolated or not.
    assert pruned.features[renamed, 0].tolist() == ids.tolist()
    edges = [
        (u, v)
        for u, v in nodes.edges.tolist()
        if min(near.get(u, 99), near.get(v, 99)) < hops
        or (hops == 0 and near.get(u) == 0 and near.get(v) == 0)
    ]
    assert [(kept[u], kept[v]) for u, v in pruned.edges.tolist()] == edges


@settings(max_examples=50, deadline=None)
@given(graphs())
def test_all_keeps_all_and_more_hops_keep_more(graph):
    nodes, ids = graph
    pruned, renamed = prune(nodes, ids, None)
    assert pruned is nodes
    assert renamed is ids
    counts = [len(prune(nodes, ids, hops)[0]) for hops in (0, 1, 3)] + [len(nodes)]
    assert all(few <= more for few, more in pairwise(counts))


def test_with_one_hop_every_edge_touches_a_configurable_node():
    graph = layout_graph(1)
    pruned, ids = prune(graph.nodes, graph.configurable, 1)
    assert np.isin(pruned.edges, ids).any(axis=1).all()


def test_layouts_are_filled_up_with_no_axis():
    features = np.zeros((5, 140), dtype=np.float32)
    features[0, DIMENSIONS] = [4, 5, 0, 0, 0, 0]
    features[0, LAYOUT] = [1, 0, 0, 0, 0, 0]
    features[1, DIMENSIONS] = [7, 0, 0, 0, 0, 0]
    features[2, DIMENSIONS] = [2, 3, 4, 5, 6, 7]
    features[2, LAYOUT] = [5, 4, 3, 2, 1, 0]
    # A dimension of no length ends what is known.
    features[3, DIMENSIONS] = [3, 0, 5, 0, 0, 0]
    mended = repad(features)
    assert mended[0, LAYOUT].tolist() == [1, 0, -1, -1, -1, -1]
    assert mended[1, LAYOUT].tolist() == [0, -1, -1, -1, -1, -1]
    assert mended[2, LAYOUT].tolist() == [5, 4, 3, 2, 1, 0]
    assert mended[3, LAYOUT].tolist() == [0, -1, -1, -1, -1, -1]
    assert mended[4, LAYOUT].tolist() == [-1] * 6
    assert features[0, LAYOUT].tolist() == [1, 0, 0, 0, 0, 0], "the input stays as it was"
    np.testing.assert_array_equal(repad(mended), mended)


@settings(max_examples=50, deadline=None)
@given(st.permutations(range(6)), st.integers(0, 6))
def test_a_layout_comes_back_from_its_zeros(order, rank):
    layout = [axis for axis in order if axis < rank]
    features = np.zeros((1, 140), dtype=np.float32)
    features[0, DIMENSIONS.start : DIMENSIONS.start + rank] = 3
    features[0, LAYOUT.start : LAYOUT.start + rank] = layout
    assert repad(features)[0, LAYOUT].tolist() == layout + [-1] * (6 - rank)


def test_columns_are_taken_apart():
    graph = layout_graph(1)
    found = prepare(graph, 1, True)
    assert found.numbers.shape[1] == 134
    assert found.layout[0].tolist() == [2, 1, 0, -1, -1, -1]
    assert prepare(graph, 1, False).layout[0].tolist() == [2, 1, 0, 0, 0, 0]


def test_other_columns_are_all_numbers():
    graph = layout_graph(1)
    other = Nodes(graph.nodes.features[:, :70], graph.nodes.opcode, graph.nodes.edges)
    found = prepare(
        type(graph)("x", other, graph.configurable, graph.configurations, None), 1, True
    )
    assert found.numbers.shape[1] == 70
    assert found.layout.shape[1] == 0


def test_tile_graphs_are_whole():
    found = prepare(tile_graph(1), 0, True)
    assert len(found.numbers) == 2
    assert len(found.configurable) == 0


def test_scaling_is_that_of_the_training_nodes():
    rng = np.random.default_rng(0)
    tables = [rng.normal(3, 5, size=(20, 4)).astype(np.float32) for _ in range(2)]
    scaler = Scaler.fit(tables, logarithms=False)
    scaled = scaler(np.concatenate(tables))
    np.testing.assert_allclose(scaled.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(scaled.std(axis=0), 1, atol=1e-5)


def test_a_column_that_says_nothing_is_zero_everywhere():
    scaler = Scaler.fit([np.full((5, 1), 7, dtype=np.float32)], logarithms=False)
    assert scaler(np.array([[7.0], [1e9]], dtype=np.float32)).tolist() == [[0.0], [0.0]]


def test_columns_of_a_wide_range_are_logarithms():
    table = np.array([[1, 1], [2, 1e9], [3, -1e3]], dtype=np.float32)
    scaler = Scaler.fit([table], logarithms=True)
    assert scaler.wide.tolist() == [False, True]
    assert Scaler.fit([table], logarithms=False).wide.tolist() == [False, False]
    by_hand = np.array([np.log(2), np.log(1 + 1e9), -np.log(1 + 1e3)])
    expected = (by_hand - by_hand.mean()) / by_hand.std()
    np.testing.assert_allclose(scaler(table)[:, 1], expected, rtol=1e-4)


def test_a_member_scales_nodes_that_it_keeps_and_tiles():
    assert Scalers.fit([layout_graph(1)], 1, False).choices is None
    tiles = Scalers.fit([tile_graph(1), tile_graph(2)], 1, True)
    assert tiles.choices is not None
    assert len(tiles.choices.mean) == 24


def test_a_network_is_known_without_its_configurations():
    graph, other = layout_graph(1), layout_graph(2)
    assert graph_key(graph) == graph_key(layout_graph(1, configurations=7))
    assert graph_key(graph) != graph_key(other)
    mended = Nodes(repad(graph.nodes.features), graph.nodes.opcode, graph.nodes.edges)
    padded = type(graph)("x", mended, graph.configurable, graph.configurations, None)
    assert graph_key(padded) == graph_key(graph)


def test_there_are_140_columns_under_the_names_of_the_data_set():
    assert len(set(COLUMNS)) == 140
    assert COLUMNS[28] == "shape_dimensions_product"
    assert COLUMNS[92] == "window_window_reversal_false_count"
    assert COLUMNS[106] == "convolution_dim_numbers_output_feature_dim"
    assert COLUMNS[133] == "is_stable"


@pytest.mark.parametrize("hops", [0, 1, 3, None])
def test_an_isolated_configurable_node_stays(hops):
    graph = layout_graph(1, isolated=True)
    found = prepare(graph, hops, True)
    assert len(found.configurable) == len(graph.configurable)
    assert found.configurable.max() < len(found.numbers)
