"""Layers and networks: what they depend on, and what they must not depend on."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from foretune.tgraph import TGraphConfig, _networks, named  # noqa: E402
from foretune.tgraph._layers import (  # noqa: E402
    Block,
    ChannelAttention,
    CrossAttention,
    Neighbours,
    Norm,
    Sage,
)
from foretune.tgraph._networks import LayoutNetwork, NodeTensors, TileNetwork  # noqa: E402

EDGES = torch.tensor([[1, 0], [2, 1], [3, 1], [3, 2], [4, 3]])
NODES, COLUMNS = 5, 7


def config_of(name: str = "corrected", **options: Any) -> TGraphConfig:
    kind = "variants" if name == "corrected" else name
    return named(kind, {"width": 16, "dropout": 0.0, **options})


def graph_of(config: TGraphConfig, edges: Any = EDGES, seed: int = 0, order: Any = None) -> Any:
    """Nodes of a small graph, in some order; nodes 1 and 3 are configurable."""
    made = torch.Generator().manual_seed(seed)
    numbers = torch.randn(NODES, COLUMNS, generator=made)
    opcode = torch.randint(0, 120, (NODES,), generator=made)
    layout = torch.randint(-1, 6, (NODES, 6), generator=made)
    order = torch.arange(NODES) if order is None else order
    place = order.argsort()
    return NodeTensors(
        numbers[order],
        layout[order],
        opcode[order],
        place[torch.tensor([1, 3])],
        Neighbours.of(place[edges], NODES, config),
    )


def features_of(count: int = 6, seed: int = 1) -> Any:
    made = torch.Generator().manual_seed(seed)
    return torch.randint(-1, 6, (count, 2, 18), generator=made)


def network_of(config: TGraphConfig, kind: Any = LayoutNetwork, seed: int = 0) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return kind(COLUMNS, 6, config).eval()


def close(a: Any, b: Any) -> bool:
    return torch.allclose(a, b, atol=1e-5, rtol=1e-4)


# Attention across configurations.


@pytest.mark.parametrize("attention", ["batch", "anchors"])
def test_alone_a_configuration_is_let_through(attention):
    layer = CrossAttention(config_of(attention=attention))
    x = torch.randn(3, 1, 4)
    assert close(layer(x, 0), x)


def test_in_a_batch_weights_are_a_softmax_over_configurations():
    x = torch.randn(3, 5, 4)
    layer = CrossAttention(config_of("published"))
    assert layer.temperature.item() == pytest.approx(0.5)
    assert close(layer(x, 0), x * torch.softmax(x / 0.5, dim=1))
    mean = CrossAttention(config_of("published", mean_weight=True))
    assert close(mean(x, 0), 5 * layer(x, 0))


def test_beside_anchors_weights_are_a_softmax_over_itself_and_them():
    x, anchors = torch.randn(2, 7, 3), 4
    layer = CrossAttention(config_of())
    found = layer(x, anchors)
    for row in range(7):
        seen = torch.cat([x[:, row : row + 1], x[:, :anchors]], dim=1)
        weight = torch.softmax(seen / 0.5, dim=1)[:, 0]
        assert close(found[:, row], (anchors + 1) * x[:, row] * weight)


@settings(max_examples=50, deadline=None)
@given(st.floats(-60, 60))
def test_a_temperature_stays_positive(raw):
    layer = CrossAttention(config_of())
    with torch.no_grad():
        layer.raw_temperature.fill_(raw)
    assert layer.temperature >= 0.05
    assert torch.isfinite(layer(torch.randn(2, 3, 4), 2)).all()


# Other layers.


def test_channel_attention_is_equation_5():
    layer, x = ChannelAttention(16), torch.randn(2, 3, 16)
    hidden = (x @ layer.squeeze.weight.T + layer.squeeze.bias).clamp(min=0)
    gate = torch.sigmoid(hidden @ layer.excite.weight.T + layer.excite.bias)
    assert layer.squeeze.out_features == 2
    assert close(layer(x), x * gate)


def test_norms():
    x = torch.randn(6, 2, 16) * 3 + 1
    over_nodes = Norm(config_of(norm="instance"))(x)
    assert close(over_nodes.mean(0), torch.zeros(2, 16))
    instance = torch.nn.InstanceNorm1d(16)
    assert close(over_nodes, instance(x.permute(1, 2, 0)).permute(2, 0, 1))
    over_channels = Norm(config_of(norm="layer"))(x)
    assert close(over_channels, torch.nn.functional.layer_norm(x, (16,)))
    assert torch.isfinite(Norm(config_of(norm="instance"))(x[:1])).all()


def test_a_convolution_is_that_of_pytorch_geometric():
    geometric = pytest.importorskip("torch_geometric.nn")
    config = config_of("published")
    ours = Sage(16, 8, config)
    theirs = geometric.SAGEConv(16, 8)
    with torch.no_grad():
        theirs.lin_l.weight.copy_(ours.heard[0].weight)
        theirs.lin_l.bias.copy_(ours.own.bias)
        theirs.lin_r.weight.copy_(ours.own.weight)
    x = torch.randn(NODES, 3, 16)
    found = ours(x, Neighbours.of(EDGES, NODES, config))
    # There configurations come first; edges lead from the consumer, as in the released code.
    assert close(found, theirs(x.transpose(0, 1), EDGES.T).transpose(0, 1))


def test_a_convolution_of_the_paper_is_equation_2():
    config = config_of("published", sage="paper")
    layer, x = Sage(16, 8, config), torch.randn(NODES, 2, 16)
    told = torch.nn.functional.gelu(layer.told[0](x))
    heard = torch.zeros_like(x)
    for consumer, consumed in EDGES.tolist():
        heard[consumed] += told[consumer]
    joined = torch.cat([x, heard], dim=-1)
    weight = torch.cat([layer.own.weight, layer.heard[0].weight], dim=1)
    expected = joined @ weight.T + layer.own.bias
    expected = expected / expected.norm(dim=-1, keepdim=True)
    assert close(layer(x, Neighbours.of(EDGES, NODES, config)), expected)


def test_a_node_hears_of_those_that_edges_say():
    x = torch.randn(NODES, 1, 16)
    changed = x.clone()
    changed[2] += 1
    for edges, moved in (("none", {2}), ("consumers", {1, 2}), ("both", {1, 2, 3})):
        config = config_of("published", edges=edges)
        layer = Sage(16, 8, config)
        near = Neighbours.of(EDGES, NODES, config)
        differs = (layer(x, near) - layer(changed, near)).abs().sum(dim=(1, 2)) > 1e-6
        assert set(differs.nonzero()[:, 0].tolist()) == moved


@pytest.mark.parametrize("residual", ["code", "paper"])
def test_a_block_is_beside_its_shortcut(residual):
    config = config_of("published", residual=residual, attention="none", channel_attention=False)
    block, x = Block(config, False).eval(), torch.randn(NODES, 2, 16)
    near = Neighbours.of(EDGES, NODES, config)
    inner = block.sage(block.norm(x), near)
    gelu = torch.nn.functional.gelu
    expected = gelu(x + inner) if residual == "code" else x + gelu(inner)
    assert close(block(x, near, 0), expected)


# Whole networks.


@settings(max_examples=15, deadline=None)
@given(st.permutations(range(8)), st.integers(0, 3))
def test_beside_anchors_permuting_configurations_permutes_scores(order, seed):
    config = config_of()
    network, nodes = network_of(config, seed=seed), graph_of(config, seed=seed)
    anchors, features = features_of(3, seed=9), features_of(8, seed=seed)
    with torch.no_grad():
        plain = network(nodes, torch.cat([anchors, features]), 3)[3:]
        permuted = network(nodes, torch.cat([anchors, features[list(order)]]), 3)[3:]
        doubled = network(nodes, torch.cat([anchors, features, features]), 3)[3:]
    assert close(permuted, plain[list(order)])
    assert close(doubled, torch.cat([plain, plain]))


@settings(max_examples=10, deadline=None)
@given(st.permutations(range(6)))
def test_published_scores_follow_a_permutation_of_the_whole_batch(order):
    config = config_of("published")
    network, nodes, features = network_of(config), graph_of(config), features_of()
    with torch.no_grad():
        assert close(
            network(nodes, features[list(order)], 0), network(nodes, features, 0)[list(order)]
        )


def test_published_scores_depend_on_companions_and_corrected_ones_do_not():
    features = features_of(8)
    for name, anchors, same in (("published", 0, False), ("corrected", 2, True)):
        config = config_of(name)
        network, nodes = network_of(config), graph_of(config)
        with torch.no_grad():
            few, many = network(nodes, features[:4], anchors), network(nodes, features, anchors)
        assert close(few, many[:4]) == same


def test_an_anchor_that_is_scored_has_its_own_score():
    config = config_of()
    network, nodes, features = network_of(config), graph_of(config), features_of(3)
    with torch.no_grad():
        found = network(nodes, torch.cat([features, features]), 3)
    assert close(found[:3], found[3:])


@settings(max_examples=10, deadline=None)
@given(st.permutations(range(NODES)), st.sampled_from(["published", "corrected"]))
def test_the_order_of_nodes_does_not_matter(order, name):
    config = config_of(name)
    network, features = network_of(config), features_of()
    anchors = 2 if name == "corrected" else 0
    with torch.no_grad():
        plain = network(graph_of(config), features, anchors)
        moved = network(graph_of(config, order=torch.tensor(order)), features, anchors)
    assert close(plain, moved)


def test_without_edges_the_graph_is_a_set_of_nodes():
    other = torch.tensor([[0, 4], [2, 0]])
    for edges, same in (("none", True), ("consumers", False), ("both", False)):
        config = config_of(edges=edges)
        network, features = network_of(config), features_of()
        with torch.no_grad():
            found = [network(graph_of(config, e), features, 2) for e in (EDGES, other)]
        assert close(*found) == same


def test_the_first_layer_is_that_of_the_concatenated_columns():
    config = config_of("published")
    network, nodes, features = network_of(config), graph_of(config), features_of(4)
    axes = torch.full((4, NODES, 18), -2)
    axes[:, nodes.configurable] = features
    part = network.nodes
    own = torch.cat(
        [nodes.numbers, part.axis(nodes.layout + 2).flatten(1), part.opcode(nodes.opcode)], dim=1
    )
    joined = torch.cat([own.expand(4, -1, -1), part.axis(axes + 2).flatten(2)], dim=2)
    assert joined.shape[2] == COLUMNS + 6 * 4 + 16 + 18 * 4
    assert close(part.begin(nodes, features), part.first.linear(joined).transpose(0, 1))


def _parameters(kind: Any = LayoutNetwork, **options: Any) -> int:
    network = network_of(config_of("published", **options), kind)
    return sum(parameter.numel() for parameter in network.parameters())


def test_switches_add_and_remove_the_parameters_they_should():
    full, width = _parameters(), 16
    half, squeezed = width // 2, 1
    gates = 2 * half * squeezed + squeezed + half
    # Four mixes: two in f_in, one in each of two blocks.
    assert full - _parameters(channel_attention=False) == 4 * gates
    # Without edges each convolution loses what it hears.
    assert full - _parameters(edges="none") == 2 * width * half
    assert _parameters(edges="both") - full == 2 * width * half
    # Without attention beside them, layers are as wide as what they were joined to.
    wide_gates = 2 * width * 2 + 2 + width
    linear = COLUMNS + 24 + 16 + 72 + 1 + width + 1 + 2 * (2 * width + 1)
    wider = 4 * (wide_gates - gates) + linear * (width - half) - 4
    assert _parameters(attention="none") - full == wider
    assert _parameters(attention="anchors") == full
    assert _parameters(readout="mean_max") - full == width
    assert full - _parameters(blocks=1) == 2 * width * half + half + gates + 1


def test_what_the_tile_network_does_with_attention():
    inert = _parameters(TileNetwork)
    assert inert - _parameters(TileNetwork, tile_attention="none") < 0, "it halves its layers"
    config = config_of("published")
    network, nodes = network_of(config, TileNetwork), graph_of(config)
    x = network.nodes(nodes, None, 0)
    # The released tile model: softmax over one configuration is 1, so halves of f_in are equal.
    begun = network.nodes.first.finish(network.nodes.begin(nodes, None), 0)
    assert close(begun[..., :8], begun[..., 8:])
    assert x.shape == (NODES, 1, 16)


@pytest.mark.parametrize(
    ("attention", "fused", "same"), [("batch", "inert", True), ("batch", "fused", False)]
)
def test_tiles_see_one_another_only_where_attention_is_fused(attention, fused, same):
    config = config_of("published", attention=attention, tile_attention=fused)
    network, nodes = network_of(config, TileNetwork), graph_of(config)
    features = torch.randn(6, 24)
    with torch.no_grad():
        assert close(network(nodes, features, 0)[:3], network(nodes, features[:3], 0)) == same


def test_large_batches_are_computed_twice_and_are_the_same(monkeypatch):
    config = config_of()
    network, nodes, features = network_of(config).train(), graph_of(config), features_of()

    def gradients() -> list[Any]:
        network.zero_grad()
        network(nodes, features, 2).square().sum().backward()
        return [parameter.grad.clone() for parameter in network.parameters()]

    kept = gradients()
    monkeypatch.setattr(_networks, "_KEPT_NUMBERS", 0)
    for a, b in zip(kept, gradients(), strict=True):
        assert close(a, b)


def test_graphs_whose_columns_are_all_numbers_have_no_layouts():
    config = config_of()
    network = LayoutNetwork(COLUMNS, 0, config)
    plain = graph_of(config)
    nodes = NodeTensors(
        plain.numbers, plain.layout[:, :0], plain.opcode, plain.configurable, plain.neighbours
    )
    assert network(nodes, features_of(), 2).shape == (6,)


def test_temperatures_begin_at_one_half():
    for positive in (True, False):
        layer = CrossAttention(config_of(positive_temperature=positive))
        assert layer.temperature.item() == pytest.approx(0.5)
