"""The regressor's perceptron: three layers, as LLMTuner has them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from foretune._arrays import Float32Array, FloatArray, IndexArray
from foretune._torch import limited_threads
from foretune.cost._examples import Scaling, group_batches
from foretune.cost.behaviour.regressor import Arrays, Material
from foretune.cost.behaviour.targets import bins_of

if TYPE_CHECKING:
    from foretune_research.behaviour.regressor import RegressorVariantsConfig

HIDDEN = (512, 256, 128)
_RATE = 1e-3
_BATCH = 512
_LIST = 64
"""Programs of one group that are compared at a time."""
_LEAST_GAIN = 1e-4


@dataclass(frozen=True)
class PerceptronMember:
    """A network with its scaling, or none.

    Attributes:
        network: None: what is added is 0.
        scaling: Of columns.
        threads: That PyTorch may use.
    """

    network: nn.Module | None
    scaling: Scaling
    threads: int

    def correction(self, matrix: Float32Array) -> FloatArray:
        """The network's numbers, shape (n, columns) -> (n,)."""
        if self.network is None or not len(matrix):
            return np.zeros(len(matrix))
        with limited_threads(self.threads), torch.no_grad():
            found = self.network(torch.from_numpy(_inputs(matrix, self.scaling)))[:, 0]
        result: FloatArray = found.numpy().astype(np.float64)
        return result

    def arrays(self) -> Arrays:
        """Weights and scaling."""
        if self.network is None:
            return {}
        weights = {name: w.numpy() for name, w in self.network.state_dict().items()}
        return {**weights, "shift": self.scaling.shift, "factor": self.scaling.factor}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Any], threads: int) -> PerceptronMember:
        """What ``arrays`` gave."""
        rest = dict(arrays)
        if not rest:
            nothing = np.zeros(0, np.float32)
            return cls(None, Scaling(nothing, nothing), threads)
        scaling = Scaling(rest.pop("shift"), rest.pop("factor"), 8.0)
        with torch.random.fork_rng(devices=[]):
            network = _network(2 * len(scaling.shift))
        network.load_state_dict({name: torch.from_numpy(w.copy()) for name, w in rest.items()})
        return cls(network.eval(), scaling, threads)


def train(
    config: RegressorVariantsConfig, seed: int, material: Material, judges: Material | None
) -> PerceptronMember:
    """Trains one member.

    Args:
        config: How.
        seed: Of weights and order.
        material: What is learned from.
        judges: Training ends when the loss on these no longer falls.
    """
    scaling = Scaling.standard(material.matrix)
    with limited_threads(config.threads), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = _network(2 * material.matrix.shape[1])
        kept = _train(config, seed, network, scaling, material, judges)
    return PerceptronMember(kept, scaling, config.threads)


def _train(
    config: RegressorVariantsConfig,
    seed: int,
    network: nn.Module,
    scaling: Scaling,
    material: Material,
    judges: Material | None,
) -> nn.Module | None:
    rng = np.random.default_rng(seed)
    rows = np.arange(len(material.times))
    if config.binning:
        rows = over_sampled(material.times, config.bins, config.repetition, rng)
    numbers = np.unique(material.group[rows], return_inverse=True)[1]
    inputs = torch.from_numpy(_inputs(material.matrix, scaling))
    begin, times = (
        torch.from_numpy(v.astype(np.float32)) for v in (material.begin, material.times)
    )
    rate = _RATE if config.learning_rate is None else config.learning_rate
    optimiser = torch.optim.AdamW(network.parameters(), lr=rate)
    best, since = (np.inf if judges is None else _judged(config, None, scaling, judges)), 0
    kept: nn.Module | None = None if config.line else copy.deepcopy(network)
    for _ in range(config.rounds):
        network.train()
        for batch in group_batches(numbers, _BATCH, _LIST, rng):
            at = torch.from_numpy(rows[batch.programs])
            scores = begin[at] + network(inputs[at])[:, 0]
            loss = _loss(config, scores, times[at], torch.from_numpy(batch.lists))
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        if judges is None:
            continue
        found = _judged(config, network, scaling, judges)
        if found < best * (1.0 - _LEAST_GAIN):
            best, since, kept = found, 0, copy.deepcopy(network)
            continue
        since += 1
        if since >= config.patience:
            break
    final = network if judges is None else kept
    return None if final is None else final.eval()


def _judged(
    config: RegressorVariantsConfig, network: nn.Module | None, scaling: Scaling, judges: Material
) -> float:
    if network is not None:
        network.eval()
    member = PerceptronMember(network, scaling, config.threads)
    scores = torch.from_numpy(judges.begin + member.correction(judges.matrix))
    ends = np.cumsum(judges.sizes)
    losses = [
        _loss(
            config,
            scores[start:end],
            torch.from_numpy(judges.times[start:end]),
            torch.arange(end - start)[None],
        ).item()
        for start, end in zip(ends - judges.sizes, ends, strict=True)
    ]
    return float(np.mean(losses))


def _loss(config: RegressorVariantsConfig, scores: Tensor, times: Tensor, lists: Tensor) -> Tensor:
    """The loss of the regressor's map.

    Args:
        config: Shares and temperature.
        scores: Shape (n,).
        times: Shape (n,).
        lists: Programs compared with one another, shape (lists, longest); -1 fills up.
    """
    t = config.temperature
    there, at = lists >= 0, lists.clamp(min=0)
    s, y = (scores[at] / t), (-times[at] / t)
    if config.ranking == "list":
        low = torch.finfo(s.dtype).min
        reached = torch.log_softmax(s.masked_fill(~there, low), dim=1)
        target = torch.softmax(y.masked_fill(~there, low), dim=1)
        ranks = -(target * reached.masked_fill(~there, 0.0)).sum(dim=1)
        entropy = torch.special.entr(target).sum(dim=1)
        ranking = t * t * (ranks - entropy).mean()
    else:
        both = there[:, :, None] & there[:, None, :]
        gap, wanted = s[:, :, None] - s[:, None, :], y[:, :, None] - y[:, None, :]
        odds = nn.functional.binary_cross_entropy_with_logits(
            gap, torch.sigmoid(wanted), reduction="none"
        )
        ranking = 4.0 * t * t * odds[both].mean()
    left = (scores + times)[at] * there
    left = left - left.sum(dim=1, keepdim=True) / there.sum(dim=1, keepdim=True)
    squares = 0.5 * (left[there] ** 2).mean()
    loss: Tensor = config.rank_share * ranking + (1.0 - config.rank_share) * squares
    return loss


def _inputs(matrix: Float32Array, scaling: Scaling) -> Float32Array:
    """Scaled columns, and beside each whether it is known."""
    known = (~np.isnan(matrix)).astype(np.float32)
    return np.concatenate([scaling(matrix), known], axis=1)


def _network(width: int) -> nn.Module:
    layers: list[nn.Module] = []
    for size in HIDDEN:
        layers += [nn.Linear(width, size), nn.ReLU()]
        width = size
    last = nn.Linear(width, 1)
    # What is added begins with nothing.
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(*layers, last)


def over_sampled(
    times: FloatArray, bins: int, repetition: int, rng: np.random.Generator
) -> IndexArray:
    """Indices of programs, each at least once, so that bins are of one size as far as allowed.

    Args:
        times: In [0, 1], shape (n,).
        bins: Of equal width.
        repetition: How often one program may occur at most.
        rng: Draws which programs of a bin occur once more than others.
    """
    at = bins_of(times, bins)
    largest = int(np.bincount(at, minlength=1).max())
    found = []
    for number in np.unique(at).tolist():
        members = rng.permutation(np.flatnonzero(at == number))
        found.append(np.resize(members, min(largest, repetition * len(members))))
    return np.sort(np.concatenate(found)) if found else np.zeros(0, np.intp)
