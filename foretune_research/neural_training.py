"""Trainers of neural rankers as they were published, and with a switch for each part.

Imported when something is trained, never earlier: PyTorch is optional. What the switches mean is
said in ``foretune_research.neural.NeuralSwitches``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from foretune._arrays import IndexArray
from foretune.cost._examples import Batch, padded
from foretune.cost._networks import Loss, better, differences, lambda_rank, list_net
from foretune.cost._training import Training

_MEMORY = 0.95
"""Weight of the past in TenSet's moving average of the training loss."""
_LEFT_OUT = 0.1
"""Share of the programs that TLP's trainer keeps for choosing an epoch."""


def pairwise(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """RankNet: the mean over pairs of log(1 + exp(s_j - s_i)), i truly better than j."""
    pairs = better(labels, mask)
    lost = functional.softplus(-differences(scores)) * pairs
    return lost.sum(dim=(1, 2)) / pairs.sum(dim=(1, 2)).clamp(min=1)


def mse(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """The mean square of sigmoid(score) minus label."""
    square = (torch.sigmoid(scores) - labels) ** 2 * mask
    return square.sum(dim=1) / mask.sum(dim=1)


def bce(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """The mean cross entropy of sigmoid(score) with the label as a probability."""
    lost = functional.binary_cross_entropy_with_logits(scores, labels, reduction="none") * mask
    return lost.sum(dim=1) / mask.sum(dim=1)


LOSSES: Mapping[str, Loss] = {
    "lambda_rank": lambda_rank,
    "pairwise": pairwise,
    "mse": mse,
    "bce": bce,
    "list_net": list_net,
}
"""By the names of ``NeuralSwitches.loss``."""


def mixed_batches(
    programs: IndexArray, head: IndexArray, batch: int, rng: np.random.Generator
) -> list[Batch]:
    """Batches of shuffled programs of all workloads; one list per output head in it.

    Args:
        programs: Indices of the programs to use.
        head: Output head of every program there is.
        batch: Programs per batch.
        rng: Shuffles.
    """
    shuffled = rng.permutation(programs)
    chunks = [shuffled[at : at + batch] for at in range(0, len(shuffled), batch)]
    return [
        Batch(chunk, padded([np.flatnonzero(head[chunk] == h) for h in np.unique(head[chunk])]))
        for chunk in chunks
    ]


class StudyTraining(Training):
    """One network on its way through the epochs, as ``NeuralSwitches`` say."""

    config: Any

    def learned(self, order: IndexArray) -> IndexArray:
        """All programs; without a tenth where that chooses the epoch."""
        self._average = math.nan
        count = int(_LEFT_OUT * len(order)) if self.config.select == "rows" else 0
        used = np.sort(order[count:])
        self._left_out = self.plan(order[:count]) if count else []
        return used

    @property
    def keeps_best(self) -> bool:  # type: ignore[override]
        """Not where the training loss says when training ends."""
        return bool(self.config.select != "training")

    def ends(self, since: int) -> bool:
        """Never where the programs left out choose the epoch."""
        return self.config.select != "rows" and super().ends(since)

    def optimiser(self) -> torch.optim.Optimizer:
        """AdamW, or Adam, whose weight decay is part of the gradient."""
        if not self.config.coupled:
            return super().optimiser()
        return torch.optim.Adam(
            self.network.parameters(),
            lr=self.config.learning_rate,
            weight_decay=self.config.weight_decay,
        )

    def share(self, progress: float) -> float:
        """All of it where it does not change."""
        return super().share(progress) if self.config.decay else 1.0

    def plan(self, programs: IndexArray) -> list[Batch]:
        """Lists of one group, or of all workloads."""
        if not self.config.mixed:
            return super().plan(programs)
        return mixed_batches(programs, self.data.head, self.config.batch, self.rng)

    def joined(self, each: Tensor) -> Tensor:
        """The published trainers add up the losses of the heads."""
        return each.sum() if self.config.mixed else super().joined(each)

    def seen(self, loss: float) -> None:
        """Keeps a moving average."""
        past = loss if math.isnan(self._average) else self._average
        self._average = _MEMORY * past + (1.0 - _MEMORY) * loss

    def quality(self) -> float:
        """By the training loss, by programs left out, or by validation groups."""
        if self.config.select == "training":
            return -self._average
        if self.config.select == "validation":
            return super().quality()
        if not self._left_out:
            return math.nan
        self.network.eval()
        with torch.no_grad():
            return -sum(self.loss(batch).item() for batch in self._left_out)
