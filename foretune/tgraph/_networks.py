"""The two networks, in PyTorch: equation 7 for layouts, with late fusion for tiles.

Source: section 2.3.3 and figure 3 of Tatarkhanov et al., TGraph (2025); the tile network is in the
released code only.

What is computed is what the paper concatenates and multiplies; the first linear layer is taken
apart, because a node's own columns are the same in all configurations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from foretune.tgraph._layers import Block, CrossAttention, Dense, Neighbours
from foretune.tgraph.configurations import BASE, FEATURES
from foretune.tgraph.graphs import OPCODES, TILE_FEATURES

if TYPE_CHECKING:
    from foretune.tgraph.config import TGraphConfig

_LAYOUT_WIDTH, _OPCODE_WIDTH = 4, 16
_KEPT_NUMBERS = 2**25
"""Size of a layer's result up to which all that training needs of the layer is kept."""


@dataclass(frozen=True)
class NodeTensors:
    """A prepared graph on a device.

    Attributes:
        numbers: Scaled columns, (n, F).
        layout: Axes from -1, (n, 6) or (n, 0).
        opcode: (n,).
        configurable: (nc,).
        neighbours: Of its edges.
    """

    numbers: Tensor
    layout: Tensor
    opcode: Tensor
    configurable: Tensor
    neighbours: Neighbours


class _Nodes(nn.Module):
    """Embeddings, f_in and graph convolutions: what both networks share."""

    def __init__(
        self, columns: int, layouts: int, features: int, config: TGraphConfig, across: bool
    ) -> None:
        super().__init__()
        self.opcode = nn.Embedding(OPCODES, _OPCODE_WIDTH)
        # 0: a node without a configuration; 1: no axis; 2 to 7: an axis.
        self.axis = nn.Embedding(BASE + 1, _LAYOUT_WIDTH)
        own = columns + layouts * _LAYOUT_WIDTH + _OPCODE_WIDTH
        self.first = Dense(own + features * _LAYOUT_WIDTH, config, across)
        self.second = Dense(config.width, config, across)
        self.blocks = nn.ModuleList(Block(config, across) for _ in range(config.blocks))

    def begin(self, nodes: NodeTensors, features: Tensor | None) -> Tensor:
        """The first linear layer: (b, nc, 18) axes, or None, to (n, b, C)."""
        linear = self.first.linear
        own = torch.cat(
            [nodes.numbers, self.axis(nodes.layout + 2).flatten(1), self.opcode(nodes.opcode)], 1
        )
        if features is None:
            return functional.linear(own, linear.weight, linear.bias)[:, None]
        of_node, of_choice = linear.weight[:, : own.shape[1]], linear.weight[:, own.shape[1] :]
        same = functional.linear(own, of_node, linear.bias)
        blank = functional.linear(self.axis.weight[0].repeat(FEATURES), of_choice)
        chosen = functional.linear(self.axis(features + 2).flatten(2), of_choice).transpose(0, 1)
        x = (same + blank)[:, None].expand(-1, len(features), -1)
        return x.index_add(0, nodes.configurable, (chosen - blank).to(x.dtype))

    def forward(self, nodes: NodeTensors, features: Tensor | None, anchors: int) -> Tensor:
        """(n, b, C)."""
        x = _through(self.first.finish, self.begin(nodes, features), anchors)
        x = _through(self.second, x, anchors)
        for block in self.blocks:
            x = _through(block, x, nodes.neighbours, anchors)
        return x


def _through(layer: Callable[..., Tensor], x: Tensor, *inputs: object) -> Tensor:
    """A layer's result; of a large batch only what enters it is kept, and the rest computed twice.

    Of 128 configurations of 5,000 nodes, a layer holds 15 numbers of each channel otherwise.
    """
    if torch.is_grad_enabled() and x.numel() > _KEPT_NUMBERS:
        passed: Tensor = checkpoint(layer, x, *inputs, use_reentrant=False)
        return passed
    return layer(x, *inputs)


class LayoutNetwork(nn.Module):
    """Scores configurations of the nodes of a graph."""

    def __init__(self, columns: int, layouts: int, config: TGraphConfig) -> None:
        super().__init__()
        across = config.attention != "none"
        self.nodes = _Nodes(columns, layouts, FEATURES, config, across)
        self._largest = config.readout == "mean_max"
        self.out = nn.Linear(config.width * (2 if self._largest else 1), 1)

    def forward(self, nodes: NodeTensors, features: Tensor, anchors: int) -> Tensor:
        """Axes of configurable nodes, (b, nc, 18) from -1, to scores, (b,); higher is slower."""
        x = self.nodes(nodes, features, anchors)
        pooled = x.mean(dim=0)
        if self._largest:
            pooled = torch.cat([pooled, x.amax(dim=0)], dim=-1)
        scores: Tensor = self.out(pooled)[:, 0]
        return scores


class TileNetwork(nn.Module):
    """Scores configurations of a whole graph: late fusion of nodes and configuration."""

    def __init__(self, columns: int, layouts: int, config: TGraphConfig) -> None:
        super().__init__()
        width, drop = config.width, config.dropout
        inert = config.tile_attention == "inert" and config.attention != "none"
        self.nodes = _Nodes(columns, layouts, 0, config, inert)
        self.choice = nn.Sequential(
            nn.Linear(TILE_FEATURES, width),
            nn.Dropout(drop),
            nn.GELU(),
            nn.Linear(width, width),
        )
        self.join = nn.Sequential(nn.Linear(3 * width, width), nn.Dropout(drop), nn.GELU())
        fused = config.tile_attention == "fused" and config.attention != "none"
        self.across = CrossAttention(config) if fused else None
        self.out = nn.Sequential(
            nn.Linear(2 * width if fused else width, width),
            nn.Dropout(drop),
            nn.GELU(),
            nn.Linear(width, 1),
        )

    def forward(self, nodes: NodeTensors, features: Tensor, anchors: int) -> Tensor:
        """Scaled configurations, (b, 24), to scores, (b,); higher is slower."""
        # The nodes know no configuration: there is one, and no anchor among it.
        x = self.nodes(nodes, None, 0)[:, 0]
        graph = torch.cat([x.amax(dim=0), x.mean(dim=0)])
        joined = self.join(
            torch.cat([self.choice(features), graph.expand(len(features), -1)], dim=1)
        )
        if self.across is not None:
            joined = torch.cat([joined, self.across(joined[None], anchors)[0]], dim=1)
        scores: Tensor = self.out(joined)[:, 0]
        return scores
