"""Training a network of a neural ranker, and scoring with it, in PyTorch.

Imported by ``foretune.cost._neural`` when a ranker first trains or scores, never earlier: PyTorch
is optional.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from foretune._arrays import FloatArray, IndexArray
from foretune.cost._examples import (
    Batch,
    Epoch,
    Examples,
    Labelled,
    Weights,
    group_batches,
    mixed_batches,
    pick_quality,
    row_indices,
)
from foretune.cost._networks import LOSSES, Loss
from foretune.errors import BadInputError

if TYPE_CHECKING:
    from foretune.cost._neural import NeuralConfig

_CHUNK = 4096
"""Programs scored at once."""
_MEMORY = 0.95
"""Weight of the past in TenSet's moving average of the training loss."""
_LEFT_OUT = 0.1
"""Share of the programs that TLP's trainer keeps for choosing an epoch."""


def with_weights(
    make: Callable[[], nn.Module], weights: Weights, device: torch.device
) -> nn.Module:
    """A network with stored weights, ready to score."""
    with torch.random.fork_rng(devices=[]):
        network = make()
    network.load_state_dict(
        {name: torch.from_numpy(weight.astype(np.float32)) for name, weight in weights.items()}
    )
    return network.to(device).eval()


def score(network: nn.Module, examples: Examples, head: IndexArray) -> FloatArray:
    """Scores of programs by the outputs of their hardware, float64 of shape (n,)."""
    device = next(network.parameters()).device
    return _score(network, _Loaded(examples, device), head, np.arange(len(examples)))


def train(
    make: Callable[[], nn.Module],
    data: Labelled,
    validation: Labelled | None,
    config: NeuralConfig,
    *,
    seed: int,
    device: torch.device,
    loss: Loss | None = None,
) -> tuple[Weights, tuple[Epoch, ...]]:
    """Trains one network.

    Args:
        make: Makes it.
        data: What to learn from, scaled.
        validation: Groups of other workloads, scaled alike.
        config: How.
        seed: Of weights, order and dropout.
        device: Where.
        loss: Instead of the one that ``config.loss`` names.

    Returns:
        The weights of the epoch that ``config.select`` names, in the type of ``config.storage``,
        and what was seen of each epoch.

    Raises:
        BadInputError: The weights are no numbers any more.
    """
    with torch.random.fork_rng(devices=list(range(torch.cuda.device_count()))):
        torch.manual_seed(seed)
        training = _Training(make().to(device), data, validation, config, seed, device, loss)
        history = training.run()
        weights = {
            name: weight.detach().cpu().numpy().astype(config.storage)
            for name, weight in training.network.state_dict().items()
        }
    if not all(np.isfinite(weight).all() for weight in weights.values()):
        raise BadInputError(
            f"{config.ranker}: the weights grew without bound: lower learning_rate, which is "
            f"{config.learning_rate}"
        )
    return weights, tuple(history)


def step_share(progress: float, config: NeuralConfig) -> float:
    """The share of ``learning_rate`` that is used at some point of training, 0 to 1.

    Args:
        progress: From 0 to 1.
        config: Says how the step size changes.
    """
    if not config.decay:
        return 1.0
    if progress < config.warm_up:
        return progress / config.warm_up
    fallen = (progress - config.warm_up) / (1.0 - config.warm_up)
    return 0.5 * (1.0 + math.cos(math.pi * fallen))


class _Loaded:
    """Programs on a device."""

    def __init__(self, examples: Examples, device: torch.device) -> None:
        self.device = device
        self._rows = torch.from_numpy(examples.rows).to(device)
        self._context = torch.from_numpy(examples.context).to(device)
        self._starts, self._counts = examples.starts, examples.counts

    def inputs(self, programs: IndexArray) -> tuple[Tensor, Tensor, Tensor]:
        """Rows, counts and context of some programs."""
        counts = self._counts[programs]
        rows = torch.from_numpy(row_indices(self._starts[programs], counts))
        at = torch.from_numpy(programs)
        return (
            self._rows[rows.to(self.device)],
            torch.from_numpy(counts).to(self.device),
            self._context[at.to(self.device)],
        )


def _of_heads(outputs: Tensor, head: Tensor) -> Tensor:
    """From each program's outputs, shape (n, outputs), that of its head; the mean if unknown."""
    own = outputs.gather(1, head.clamp(min=0)[:, None])[:, 0]
    return torch.where(head < 0, outputs.mean(dim=1), own)


def _score(
    network: nn.Module, loaded: _Loaded, head: IndexArray, programs: IndexArray
) -> FloatArray:
    network.eval()
    parts = []
    with torch.no_grad():
        for at in range(0, len(programs), _CHUNK):
            chunk = programs[at : at + _CHUNK]
            outputs = network(*loaded.inputs(chunk))
            heads = torch.from_numpy(head[chunk]).to(loaded.device)
            parts.append(_of_heads(outputs, heads).cpu().numpy().astype(np.float64))
    return np.concatenate(parts)


class _Training:
    """One network on its way through the epochs."""

    def __init__(
        self,
        network: nn.Module,
        data: Labelled,
        validation: Labelled | None,
        config: NeuralConfig,
        seed: int,
        device: torch.device,
        loss: Loss | None = None,
    ) -> None:
        self.network = network
        self._data, self._validation, self._config = data, validation, config
        self._loaded = _Loaded(data.examples, device)
        self._loaded_validation = (
            None if validation is None else _Loaded(validation.examples, device)
        )
        targets = data.labels if data.targets is None else data.targets
        self._labels = torch.from_numpy(targets).to(device)
        self._of_lists = LOSSES[config.loss] if loss is None else loss
        self._head = torch.from_numpy(data.head).to(device)
        self._rng = np.random.default_rng(seed)
        self._optimiser = _optimiser(network, config)
        self._average = math.nan
        order = self._rng.permutation(len(data.labels))
        left_out = int(_LEFT_OUT * len(order)) if config.select == "rows" else 0
        self._used = np.sort(order[left_out:])
        self._left_out = self._plan(order[:left_out]) if left_out else []

    def run(self) -> list[Epoch]:
        """Trains, and leaves the weights of the epoch to keep in the network."""
        config = self._config
        history: list[Epoch] = []
        kept: dict[str, Tensor] | None = None
        best, since = -math.inf, 0
        for number in range(config.epochs):
            loss = self._epoch(number)
            quality = self._quality()
            history.append(Epoch(0, loss, quality))
            if math.isnan(quality):
                continue
            if quality > best:
                best, since = quality, 0
                kept = {name: w.detach().clone() for name, w in self.network.state_dict().items()}
                continue
            since += 1
            if since >= config.patience and config.select != "rows":
                break
        if kept is not None and config.select != "training":
            self.network.load_state_dict(kept)
        return history

    def _epoch(self, number: int) -> float:
        """One pass; the mean loss of its steps."""
        self.network.train()
        plan = self._plan(self._used)
        total = 0.0
        for at, batch in enumerate(plan):
            progress = (number + (at + 0.5) / len(plan)) / self._config.epochs
            for group in self._optimiser.param_groups:
                group["lr"] = self._config.learning_rate * step_share(progress, self._config)
            loss = self._step(batch)
            total += loss
            past = loss if math.isnan(self._average) else self._average
            self._average = _MEMORY * past + (1.0 - _MEMORY) * loss
        return total / len(plan)

    def _plan(self, programs: IndexArray) -> list[Batch]:
        config = self._config
        if config.mixed:
            return mixed_batches(programs, self._data.head, config.batch, self._rng)
        numbers = np.unique(self._data.group[programs], return_inverse=True)[1]
        return [
            Batch(programs[batch.programs], batch.lists)
            for batch in group_batches(numbers, config.batch, config.list_size, self._rng)
        ]

    def _step(self, batch: Batch) -> float:
        self._optimiser.zero_grad()
        loss = self._loss(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.network.parameters(), self._config.clip)
        self._optimiser.step()
        return loss.item()

    def _loss(self, batch: Batch) -> Tensor:
        device = self._loaded.device
        programs = torch.from_numpy(batch.programs).to(device)
        fast = self._config.precision == "bfloat16"
        with torch.autocast(device.type, torch.bfloat16, enabled=fast):
            outputs = self.network(*self._loaded.inputs(batch.programs)).float()
        scores, labels = _of_heads(outputs, self._head[programs]), self._labels[programs]
        at = torch.from_numpy(batch.lists).to(device)
        there, at = at >= 0, at.clamp(min=0)
        each = self._of_lists(scores[at], labels[at], there)
        # The published trainers add up the losses of the heads.
        return each.sum() if self._config.mixed else each.mean()

    def _quality(self) -> float:
        """What an epoch is judged by, higher is better; NaN where nothing judges it."""
        if self._config.select == "training":
            return -self._average
        if self._config.select == "rows":
            return self._left_out_quality()
        if self._validation is None or self._loaded_validation is None:
            return math.nan
        held = self._validation
        every = np.arange(len(held.labels))
        scores = _score(self.network, self._loaded_validation, held.head, every)
        return pick_quality(scores, held.labels, held.group)

    def _left_out_quality(self) -> float:
        if not self._left_out:
            return math.nan
        self.network.eval()
        with torch.no_grad():
            return -sum(self._loss(batch).item() for batch in self._left_out)


def _optimiser(network: nn.Module, config: NeuralConfig) -> torch.optim.Optimizer:
    if config.coupled:
        return torch.optim.Adam(
            network.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
        )
    matrices = [p for p in network.parameters() if p.ndim > 1]
    others = [p for p in network.parameters() if p.ndim <= 1]
    return torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": config.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ],
        lr=config.learning_rate,
    )
