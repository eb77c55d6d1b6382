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
    pick_quality,
    row_indices,
)
from foretune.cost._networks import Loss, lambda_rank
from foretune.errors import BadInputError

if TYPE_CHECKING:
    from foretune.cost._neural import NeuralConfig

_CHUNK = 4096
"""Programs scored at once."""


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
    return _score(network, Loaded(examples, device), head, np.arange(len(examples)))


def train(
    make: Callable[[], nn.Module],
    data: Labelled,
    validation: Labelled | None,
    config: NeuralConfig,
    *,
    seed: int,
    device: torch.device,
    loss: Loss | None = None,
    trainer: type[Training] | None = None,
) -> tuple[Weights, tuple[Epoch, ...]]:
    """Trains one network.

    Args:
        make: Makes it.
        data: What to learn from, scaled.
        validation: Groups of other workloads, scaled alike.
        config: How.
        seed: Of weights, order and dropout.
        device: Where.
        loss: What is minimised; LambdaRank's if None.
        trainer: How; ``Training`` if None.

    Returns:
        The weights of the epoch that is kept, in the type of ``config.storage``, and what was seen
        of each epoch.

    Raises:
        BadInputError: The weights are no numbers any more.
    """
    with torch.random.fork_rng(devices=list(range(torch.cuda.device_count()))):
        torch.manual_seed(seed)
        kind = Training if trainer is None else trainer
        training = kind(make().to(device), data, validation, config, seed, device, loss)
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
    if progress < config.warm_up:
        return progress / config.warm_up
    fallen = (progress - config.warm_up) / (1.0 - config.warm_up)
    return 0.5 * (1.0 + math.cos(math.pi * fallen))


class Loaded:
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


def of_heads(outputs: Tensor, head: Tensor) -> Tensor:
    """From each program's outputs, shape (n, outputs), that of its head; the mean if unknown."""
    own = outputs.gather(1, head.clamp(min=0)[:, None])[:, 0]
    return torch.where(head < 0, outputs.mean(dim=1), own)


def _score(
    network: nn.Module, loaded: Loaded, head: IndexArray, programs: IndexArray
) -> FloatArray:
    network.eval()
    parts = []
    with torch.no_grad():
        for at in range(0, len(programs), _CHUNK):
            chunk = programs[at : at + _CHUNK]
            outputs = network(*loaded.inputs(chunk))
            heads = torch.from_numpy(head[chunk]).to(loaded.device)
            parts.append(of_heads(outputs, heads).cpu().numpy().astype(np.float64))
    return np.concatenate(parts)


class Training:
    """One network on its way through the epochs.

    The best epoch by what is picked in the validation groups is kept, the last without any.
    ``foretune_research.neural_training`` has the other ways, of the published trainers.
    """

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
        self.network, self.config = network, config
        self.data, self.validation = data, validation
        self.rng = np.random.default_rng(seed)
        self._loaded = Loaded(data.examples, device)
        self._loaded_validation = (
            None if validation is None else Loaded(validation.examples, device)
        )
        targets = data.labels if data.targets is None else data.targets
        self._labels = torch.from_numpy(targets).to(device)
        self._of_lists = lambda_rank if loss is None else loss
        self._head = torch.from_numpy(data.head).to(device)
        self._optimiser = self.optimiser()
        self._used = self.learned(self.rng.permutation(len(data.labels)))

    def run(self) -> list[Epoch]:
        """Trains, and leaves the weights of the epoch to keep in the network."""
        history: list[Epoch] = []
        kept: dict[str, Tensor] | None = None
        best, since = -math.inf, 0
        for number in range(self.config.epochs):
            loss = self._epoch(number)
            quality = self.quality()
            history.append(Epoch(0, loss, quality))
            if math.isnan(quality):
                continue
            if quality > best:
                best, since = quality, 0
                kept = {name: w.detach().clone() for name, w in self.network.state_dict().items()}
                continue
            since += 1
            if self.ends(since):
                break
        if kept is not None and self.keeps_best:
            self.network.load_state_dict(kept)
        return history

    keeps_best = True
    """Whether the weights of the best epoch are kept, or those of the last."""

    def ends(self, since: int) -> bool:
        """Whether training ends so many epochs after the best."""
        return since >= self.config.patience

    def learned(self, order: IndexArray) -> IndexArray:
        """Programs that are learned from, of all in random order."""
        return np.sort(order)

    def optimiser(self) -> torch.optim.Optimizer:
        """AdamW, whose weight decay is of matrices only."""
        matrices = [p for p in self.network.parameters() if p.ndim > 1]
        others = [p for p in self.network.parameters() if p.ndim <= 1]
        return torch.optim.AdamW(
            [
                {"params": matrices, "weight_decay": self.config.weight_decay},
                {"params": others, "weight_decay": 0.0},
            ],
            lr=self.config.learning_rate,
        )

    def share(self, progress: float) -> float:
        """The share of ``learning_rate`` at some point of training, from 0 to 1."""
        return step_share(progress, self.config)

    def plan(self, programs: IndexArray) -> list[Batch]:
        """Batches of lists of programs that are compared, each of one group."""
        numbers = np.unique(self.data.group[programs], return_inverse=True)[1]
        return [
            Batch(programs[batch.programs], batch.lists)
            for batch in group_batches(numbers, self.config.batch, self.config.list_size, self.rng)
        ]

    def joined(self, each: Tensor) -> Tensor:
        """The loss of a batch of that of its lists."""
        return each.mean()

    def seen(self, loss: float) -> None:
        """Called with the loss of each step."""

    def quality(self) -> float:
        """What an epoch is judged by, higher is better; NaN where nothing judges it."""
        if self.validation is None or self._loaded_validation is None:
            return math.nan
        held = self.validation
        every = np.arange(len(held.labels))
        scores = _score(self.network, self._loaded_validation, held.head, every)
        return pick_quality(scores, held.labels, held.group)

    def loss(self, batch: Batch) -> Tensor:
        """Of a batch, with gradients."""
        device = self._loaded.device
        programs = torch.from_numpy(batch.programs).to(device)
        fast = self.config.precision == "bfloat16"
        with torch.autocast(device.type, torch.bfloat16, enabled=fast):
            outputs = self.network(*self._loaded.inputs(batch.programs)).float()
        scores, labels = of_heads(outputs, self._head[programs]), self._labels[programs]
        at = torch.from_numpy(batch.lists).to(device)
        there, at = at >= 0, at.clamp(min=0)
        return self.joined(self._of_lists(scores[at], labels[at], there))

    def _epoch(self, number: int) -> float:
        """One pass; the mean loss of its steps."""
        self.network.train()
        plan = self.plan(self._used)
        total = 0.0
        for at, batch in enumerate(plan):
            progress = (number + (at + 0.5) / len(plan)) / self.config.epochs
            for group in self._optimiser.param_groups:
                group["lr"] = self.config.learning_rate * self.share(progress)
            loss = self._step(batch)
            total += loss
            self.seen(loss)
        return total / len(plan)

    def _step(self, batch: Batch) -> float:
        self._optimiser.zero_grad()
        loss = self.loss(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.network.parameters(), self.config.clip)
        self._optimiser.step()
        return loss.item()
