"""Layers of the graph network, in PyTorch.

Tensors have shape (n, b, C): n nodes, b configurations, C channels. Nodes come first, so that one
sparse product sums the neighbours of all configurations and channels at once, and nothing of the
size of the edges is made. PyTorch Geometric's ``SAGEConv`` computes the same (a test compares
them); it takes 1.5 times as long here and makes a tensor of shape (b, m, C), so it is not used.

Source: sections 2.3 of Tatarkhanov et al., TGraph (2025); Hamilton et al., GraphSAGE (2017); Hu et
al., Squeeze-and-Excitation (2018). Where paper and released code differ, a switch of
``TGraphConfig`` says which is meant.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from foretune.tgraph.config import TGraphConfig

_SQUEEZE = 8
_FIRST_TEMPERATURE = 0.5
_LEAST_TEMPERATURE = 0.05


@dataclass(frozen=True)
class Neighbours:
    """Who hears of whom: sparse matrices of shape (n, n), one for each direction.

    Row i has an entry for each neighbour that node i hears of: 1 over their number for means, 1 for
    sums.
    """

    matrices: tuple[Tensor, ...]

    @classmethod
    def of(cls, edges: Tensor, nodes: int, config: TGraphConfig) -> Neighbours:
        """Made of edges from consumers to what they consume, shape (m, 2)."""
        consumer, consumed = edges.unbind(1)
        ways = {"none": (), "consumers": ((consumed, consumer),)}.get(
            config.edges, ((consumed, consumer), (consumer, consumed))
        )
        return cls(tuple(_sparse(to, of, nodes, config.sage == "pyg") for to, of in ways))


def _sparse(to: Tensor, of: Tensor, nodes: int, mean: bool) -> Tensor:
    count = torch.bincount(to, minlength=nodes).clamp(min=1)
    values = (1.0 / count[to]) if mean else torch.ones_like(to, dtype=torch.float32)
    with warnings.catch_warnings():
        # PyTorch says of its sparse matrices that they are new.
        warnings.simplefilter("ignore")
        matrix = torch.sparse_coo_tensor(
            torch.stack([to, of]), values, (nodes, nodes), check_invariants=False
        )
        rows: Tensor = matrix.coalesce().to_sparse_csr()
        return rows


def gather(matrix: Tensor, x: Tensor) -> Tensor:
    """What each node hears of its neighbours: (n, n) times (n, b, C)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gathered: Tensor = torch.sparse.mm(matrix, x.reshape(len(x), -1))
    return gathered.view_as(x)


class Sage(nn.Module):
    """Equation 2: a node's own numbers and those of its neighbours.

    ``pyg``: W x_i + mean_j V x_j + c, with one V for each direction. ``paper``: W [x_i, sum_j
    f(x_j)] + c, divided by its norm.
    """

    def __init__(self, width: int, out: int, config: TGraphConfig) -> None:
        super().__init__()
        ways = {"none": 0, "consumers": 1}.get(config.edges, 2)
        self._paper = config.sage == "paper"
        self.own = nn.Linear(width, out)
        self.heard = nn.ModuleList(nn.Linear(width, out, bias=False) for _ in range(ways))
        self.told = nn.ModuleList(
            nn.Linear(width, width) for _ in range(ways if self._paper else 0)
        )

    def forward(self, x: Tensor, neighbours: Neighbours) -> Tensor:
        """(n, b, C) -> (n, b, out)."""
        mixed = self.own(x)
        for at, (matrix, heard) in enumerate(zip(neighbours.matrices, self.heard, strict=True)):
            if self._paper:
                mixed = mixed + heard(gather(matrix, functional.gelu(self.told[at](x))))
            else:
                # A mean of products is the product of the mean, and narrower.
                mixed = mixed + gather(matrix, heard(x))
        return functional.normalize(mixed, dim=-1) if self._paper else mixed


class ChannelAttention(nn.Module):
    """Equation 5: each channel times a number from 0 to 1 that all channels of the node decide."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.squeeze = nn.Linear(width, width // _SQUEEZE)
        self.excite = nn.Linear(width // _SQUEEZE, width)

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        return x * torch.sigmoid(self.excite(torch.relu(self.squeeze(x))))


class CrossAttention(nn.Module):
    """Equation 6: each number times its softmax over configurations, per node and channel.

    ``batch``: over all b configurations, so that a score depends on the others of its batch.
    ``anchors``: over the configuration itself and the first A ones, which are the graph's anchors;
    with the anchors' log-sum L that is the sigmoid of x/T - L. An anchor, too, sees itself and all
    anchors, so that a configuration that equals an anchor has its score.
    """

    def __init__(self, config: TGraphConfig) -> None:
        super().__init__()
        self._anchored = config.attention == "anchors"
        self._mean = config.mean_weight
        self._positive = config.positive_temperature
        first = _FIRST_TEMPERATURE
        if self._positive:
            # The inverse of softplus.
            first = math.log(math.expm1(first - _LEAST_TEMPERATURE))
        self.raw_temperature = nn.Parameter(torch.tensor(first))

    @property
    def temperature(self) -> Tensor:
        """T."""
        raw = self.raw_temperature
        return functional.softplus(raw) + _LEAST_TEMPERATURE if self._positive else raw

    def forward(self, x: Tensor, anchors: int) -> Tensor:
        """(n, b, C), whose first ``anchors`` configurations are anchors, to the same shape."""
        if self._anchored and not anchors:
            return x
        logits = x / self.temperature
        if self._anchored:
            rest = logits[:, :anchors].logsumexp(dim=1, keepdim=True)
            weight, count = torch.sigmoid(logits - rest), anchors + 1
        else:
            weight, count = logits.softmax(dim=1), x.shape[1]
        return x * (weight * count if self._mean else weight)


class Mix(nn.Module):
    """Attention over channels, then over configurations, whose result stands beside its input."""

    def __init__(self, config: TGraphConfig, across: bool) -> None:
        super().__init__()
        self.width = config.width // 2 if across else config.width
        self.channels = ChannelAttention(self.width) if config.channel_attention else None
        self.across = CrossAttention(config) if across else None

    def forward(self, x: Tensor, anchors: int) -> Tensor:
        """(n, b, self.width) -> (n, b, config.width)."""
        if self.channels is not None:
            x = self.channels(x)
        return x if self.across is None else torch.cat([x, self.across(x, anchors)], dim=-1)


class Norm(nn.Module):
    """Mean 0, deviation 1, without weights: over nodes per channel, or over channels per node."""

    def __init__(self, config: TGraphConfig) -> None:
        super().__init__()
        self._over = 0 if config.norm == "instance" else -1

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        variance, mean = torch.var_mean(x, dim=self._over, keepdim=True, correction=0)
        return (x - mean) * torch.rsqrt(variance + 1e-5)


class Block(nn.Module):
    """Equations 3 and 4: a graph convolution beside a shortcut."""

    def __init__(self, config: TGraphConfig, across: bool) -> None:
        super().__init__()
        self._before = config.residual == "paper"
        self.mix = Mix(config, across)
        self.norm = Norm(config)
        self.sage = Sage(config.width, self.mix.width, config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, neighbours: Neighbours, anchors: int) -> Tensor:
        """(n, b, C) -> (n, b, C)."""
        mixed = self.mix(self.sage(self.norm(x), neighbours), anchors)
        mixed = x + functional.gelu(mixed) if self._before else functional.gelu(x + mixed)
        dropped: Tensor = self.dropout(mixed)
        return dropped


class Dense(nn.Module):
    """A linear layer with normalisation and attention: half of f_in of equation 7."""

    def __init__(self, width: int, config: TGraphConfig, across: bool) -> None:
        super().__init__()
        self.mix = Mix(config, across)
        self.linear = nn.Linear(width, self.mix.width)
        nn.init.xavier_normal_(self.linear.weight)
        nn.init.constant_(self.linear.bias, 0.01)
        self.norm = Norm(config)

    def forward(self, x: Tensor, anchors: int) -> Tensor:
        """(n, b, width) -> (n, b, C)."""
        return self.finish(self.linear(x), anchors)

    def finish(self, x: Tensor, anchors: int) -> Tensor:
        """What follows the linear layer."""
        return functional.gelu(self.mix(self.norm(x), anchors))
