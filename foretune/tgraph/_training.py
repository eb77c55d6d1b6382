"""Training one member of a TGraph, and scoring with it, in PyTorch.

Idea: a step takes one graph and some of its configurations, scores them in one pass, and lets the
loss compare them; scores of different graphs are never compared. Configurations stay packed, on a
disk if need be, until a step draws them.

Source: section 2.4 of Tatarkhanov et al., TGraph (2025).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from foretune._arrays import Array, FloatArray, IndexArray
from foretune._torch import seeded
from foretune.errors import BadInputError
from foretune.tgraph import metrics
from foretune.tgraph._layers import Neighbours
from foretune.tgraph._networks import LayoutNetwork, NodeTensors, TileNetwork
from foretune.tgraph.graphs import LAYOUT, Graph, LayoutGraph
from foretune.tgraph.prepare import Prepared, Scaler, Scalers, prepare
from foretune.tgraph.splits import Part, configuration_keys

if TYPE_CHECKING:
    from foretune.tgraph.config import TGraphConfig

Weights = dict[str, Array]
logger = logging.getLogger("foretune.tgraph")

_VALIDATED = 1000
"""Configurations of a graph that validation looks at, as many as the official evaluation."""
_SPREAD_OVER = 128
"""Configurations of a graph over which the spread of scores is taken."""
_TELLS = 100
"""Steps after which a message says how far training is."""


@dataclass(frozen=True)
class Trained:
    """What training one member gives.

    Attributes:
        weights: By name, float32.
        spread: Deviation of its scores within a graph, the mean over the graphs it learned from.
        validation: What it was validated by, the mean over the graphs it left out; NaN without any.
        losses: Of each step.
    """

    weights: Weights
    spread: float
    validation: float
    losses: tuple[float, ...]


def make_network(kind: str, columns: int, layouts: int, config: TGraphConfig) -> nn.Module:
    """A network for graphs of a kind with so many columns, and so many columns of layouts."""
    return (LayoutNetwork if kind == LAYOUT else TileNetwork)(columns, layouts, config)


class Loaded:
    """A graph on a device, ready for a network."""

    def __init__(
        self,
        graph: Graph,
        scalers: Scalers,
        config: TGraphConfig,
        device: torch.device,
    ) -> None:
        self.graph, self.device = graph, device
        prepared = prepare(graph, config.hops, config.repad)
        self.nodes = _tensors(prepared, scalers.nodes, config, device)
        self._choices = scalers.choices
        self._anchors = self._compared_with(config)

    def features(self, rows: IndexArray) -> Tensor:
        """What configurations are to the network: anchors, then ``rows``."""
        read = np.concatenate([self._anchors, self._read(self.graph.configurations, rows)])
        return torch.from_numpy(read).to(self.device)

    def scores(self, network: nn.Module, rows: IndexArray) -> Tensor:
        """Scores of some configurations in one pass, without those of the anchors."""
        count = len(self._anchors)
        scores: Tensor = network(self.nodes, self.features(rows), count)
        return scores[count:]

    def _read(self, configurations: Any, rows: IndexArray) -> Array:
        """Layouts as whole numbers of shape (rows, nc, 18), or scaled tiles of shape (rows, 24)."""
        if self._choices is None:
            return np.asarray(configurations.features(rows), dtype=np.int64)
        return self._choices(configurations[rows])

    def _compared_with(self, config: TGraphConfig) -> Array:
        """The configurations that others are compared with: the graph's own, or some of its."""
        graph = self.graph
        if not _has_anchors(graph, config):
            return self._read(graph.configurations, np.empty(0, dtype=np.intp))
        if isinstance(graph, LayoutGraph) and graph.anchors is not None:
            count = min(config.anchors, len(graph.anchors))
            return self._read(graph.anchors, np.arange(count, dtype=np.intp))
        return self._read(graph.configurations, _least_digests(graph, config.anchors))


def _tensors(
    prepared: Prepared, scaler: Scaler, config: TGraphConfig, device: torch.device
) -> NodeTensors:
    edges = torch.from_numpy(prepared.edges).to(device)
    return NodeTensors(
        torch.from_numpy(scaler(prepared.numbers)).to(device),
        torch.from_numpy(prepared.layout).to(device),
        torch.from_numpy(prepared.opcode).to(device),
        torch.from_numpy(prepared.configurable).to(device),
        Neighbours.of(edges, len(prepared.numbers), config),
    )


def _has_anchors(graph: Graph, config: TGraphConfig) -> bool:
    """Whether configurations of a graph are compared with fixed ones."""
    fused = graph.kind == LAYOUT or config.tile_attention == "fused"
    return config.attention == "anchors" and fused


def _least_digests(graph: Graph, count: int) -> IndexArray:
    """Rows of the configurations with the least digests.

    A choice at random that depends neither on the order of the configurations, nor on how often one
    occurs, nor on which of them are scored.
    """
    first = np.unique(configuration_keys(graph), return_index=True)[1]
    return np.asarray(first[:count], dtype=np.intp)


def score(
    network: nn.Module, loaded: Loaded, rows: IndexArray, config: TGraphConfig, seed: int = 0
) -> FloatArray:
    """Scores of configurations, higher is slower, float64 of shape (rows,); see ``scored``."""
    network.eval()

    def scores_of(some: IndexArray) -> FloatArray:
        return _in_chunks(network, loaded, some, config.chunk)

    with torch.no_grad():
        return config.scored(loaded.graph, rows, seed, scores_of)


def scored_once(
    graph: Graph, rows: IndexArray, scores_of: Callable[[IndexArray], FloatArray]
) -> FloatArray:
    """Scores each different configuration once, in an order of its own.

    So neither the order of ``rows`` nor copies in it change anything.

    Args:
        graph: Of the configurations.
        rows: Which.
        scores_of: Rows to scores.
    """
    keys = configuration_keys(graph)[rows]
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    return scores_of(rows[first])[group]


def _in_chunks(network: nn.Module, loaded: Loaded, rows: IndexArray, chunk: int) -> FloatArray:
    parts = [
        loaded.scores(network, rows[at : at + chunk]).double().cpu().numpy()
        for at in range(0, len(rows), chunk)
    ]
    return np.concatenate(parts)


def train(
    parts: Sequence[Part],
    validation: Sequence[Part],
    scalers: Scalers,
    layouts: int,
    config: TGraphConfig,
    seed: int,
    device: torch.device,
) -> Trained:
    """Trains one member.

    Args:
        parts: What to learn from; each has an order.
        validation: Other graphs.
        scalers: Fitted to ``parts``.
        layouts: Columns of layouts: 6, or 0.
        config: How.
        seed: Of weights, order, samples and dropout.
        device: Where.

    Raises:
        BadInputError: The weights are no numbers any more.
    """
    with seeded(seed):
        columns = len(scalers.nodes.mean)
        network = make_network(parts[0].graph.kind, columns, layouts, config).to(device)
        run = config.run_type()(network, parts, validation, scalers, config, seed, device)
        losses = run.steps()
        quality = run.kept_quality()
        spread = run.spread()
    weights = {name: w.detach().cpu().numpy() for name, w in network.state_dict().items()}
    if not all(np.isfinite(weight).all() for weight in weights.values()):
        raise BadInputError(
            "tgraph: the weights grew without bound: lower learning_rate, which is "
            f"{config.learning_rate}"
        )
    return Trained(weights, spread, quality, tuple(losses))


class Run:
    """One member on its way."""

    def __init__(
        self,
        network: nn.Module,
        parts: Sequence[Part],
        validation: Sequence[Part],
        scalers: Scalers,
        config: TGraphConfig,
        seed: int,
        device: torch.device,
    ) -> None:
        self.network, self._config, self._parts = network, config, parts
        self._loaded = [Loaded(part.graph, scalers, config, device) for part in parts]
        self._rng = np.random.default_rng(seed)
        self._validation = [
            (Loaded(part.graph, scalers, config, device), some(part, _VALIDATED, self._rng))
            for part in validation
        ]
        self._optimiser = _optimiser(network, config)

    def steps(self) -> list[float]:
        """All steps; their losses."""
        config, losses = self._config, list[float]()
        total = config.epochs * len(self._parts)
        for _ in range(config.epochs):
            for at in self._rng.permutation(len(self._parts)):
                share = step_share((len(losses) + 0.5) / total, config.warm_up)
                for group in self._optimiser.param_groups:
                    group["lr"] = config.learning_rate * share
                losses.append(self._step(self._loaded[at], self._parts[at]))
                if len(losses) % _TELLS == 0:
                    mean = np.mean(losses[-_TELLS:])
                    logger.info("step %d of %d, loss %.4f", len(losses), total, mean)
                self.look(len(losses), total)
        return losses

    def _step(self, loaded: Loaded, part: Part) -> float:
        self.network.train()
        rows, runtime = self._config.sampled(part, self._rng)
        self._optimiser.zero_grad()
        scores = loaded.scores(self.network, rows)
        times = torch.from_numpy(runtime).to(scores.device)
        loss = self._config.compared(scores, times)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.network.parameters(), self._config.clip)
        self._optimiser.step()
        return loss.item()

    def look(self, step: int, total: int) -> None:
        """Called after every step of training."""

    def kept_quality(self) -> float:
        """How the weights that are kept validate: those at the end."""
        return self.quality()

    def quality(self) -> float:
        """tau, or the tile metric, of the validation graphs; NaN without any."""
        values = []
        for loaded, part in self._validation:
            scores = score(self.network, loaded, part.rows, self._config)
            if part.graph.kind == LAYOUT:
                values.append(metrics.agreement(scores, part.runtime)[0])
            else:
                values.append(metrics.tile_metrics(scores, part.runtime)["m_tile"])
        known = [value for value in values if not math.isnan(value)]
        return float(np.mean(known)) if known else math.nan

    def spread(self) -> float:
        """The mean deviation of scores within a graph."""
        spreads = []
        for loaded, part in zip(self._loaded, self._parts, strict=True):
            rows = some(part, _SPREAD_OVER, self._rng).rows
            spreads.append(score(self.network, loaded, rows, self._config).std())
        return float(np.mean(spreads))


def some(part: Part, count: int, rng: np.random.Generator) -> Part:
    """A part with so many of its rows at most, drawn at random."""
    if len(part.rows) <= count:
        return part
    return Part(part.graph, rng.choice(part.rows, count, replace=False))


def sample(part: Part, batch: int, rng: np.random.Generator) -> tuple[IndexArray, FloatArray]:
    """Configurations of a step and their run times, ``batch`` at most, all as likely."""
    chosen = rng.choice(len(part.runtime), min(batch, len(part.runtime)), replace=False)
    return part.rows[chosen], part.runtime[chosen]


def step_share(progress: float, warm_up: float) -> float:
    """The share of the learning rate that is used at some point of training, 0 to 1."""
    if progress < warm_up:
        return progress / warm_up
    return 0.5 * (1.0 + math.cos(math.pi * (progress - warm_up) / (1.0 - warm_up)))


def _optimiser(network: nn.Module, config: TGraphConfig) -> torch.optim.Optimizer:
    decayed = [p for p in network.parameters() if config.decay_all or p.ndim > 1]
    others = [p for p in network.parameters() if not config.decay_all and p.ndim <= 1]
    return torch.optim.AdamW(
        [
            {"params": decayed, "weight_decay": config.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ],
        lr=config.learning_rate,
    )
