"""How an encoder of texts is trained, in PyTorch: tuples of a state, its other view and others.

Imported when something is trained, never earlier: PyTorch is optional.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from foretune._arrays import BoolArray, Float32Array, IntArray
from foretune._torch import limited_threads, seeded
from foretune.world._training import Descent, Say
from foretune.world._weights import finished

if TYPE_CHECKING:
    from foretune_research.world.contrastive import ContrastiveConfig, Rewrite, TextFile
    from foretune_research.world.encoder import StateEncoder

_JUDGE_SEED = 1
"""Held-out states are judged with the same dropout and tuples after every epoch."""


@dataclass(frozen=True)
class EncoderEpoch:
    """What was seen of one pass over the states.

    Attributes:
        loss: Mean over the steps.
        found: Share of states whose positive was nearer than every negative.
        held_out_loss, held_out_found: The same on workloads that are not learned from; NaN without.
    """

    loss: float
    found: float
    held_out_loss: float
    held_out_found: float


def contrast(
    encoder: StateEncoder,
    files: Sequence[TextFile],
    validation: Sequence[TextFile],
    config: ContrastiveConfig,
    rewrite: Rewrite | None,
    seed: int,
    progress: Say | None,
) -> tuple[EncoderEpoch, ...]:
    """Trains an encoder in place; see ``contrastive.train_encoder``."""
    rng = np.random.default_rng(seed)
    network = encoder.network
    published = config.backbone_rate if encoder.config.published else config.learning_rate
    parts = [(network.backbone, published), (network.head, config.learning_rate)]
    descent = Descent(parts, config.warm_up, config.weight_decay, config.clip)
    learned = _Tuples(encoder, files, config, rewrite)
    held = _Tuples(encoder, validation, config, rewrite) if validation else None
    history: list[EncoderEpoch] = []
    with limited_threads(encoder.threads), seeded(seed):
        for number in range(config.epochs):
            start = time.monotonic()
            seen = []
            batches = list(learned.batches(rng))
            for at, batch in enumerate(batches):
                loss, found = learned.loss(batch, rng)
                done = (number + (at + 0.5) / len(batches)) / config.epochs
                seen.append((descent.step(loss, done), found))
            epoch = EncoderEpoch(*_mean(seen), *_judged(held))
            history.append(epoch)
            if progress is not None:
                progress(
                    f"encoder: epoch {number + 1} of {config.epochs}, loss {epoch.loss:.3f}, found "
                    f"{epoch.found:.3f}; held out {epoch.held_out_loss:.3f}, "
                    f"{epoch.held_out_found:.3f}; {time.monotonic() - start:.0f} s"
                )
    finished(network, config.learning_rate)
    return tuple(history)


def _mean(seen: Sequence[tuple[float, float]]) -> tuple[float, float]:
    loss, found = np.mean(seen, axis=0) if seen else (math.nan, math.nan)
    return float(loss), float(found)


def _judged(held: _Tuples | None) -> tuple[float, float]:
    """Loss and share found on held-out files, under dropout as in training."""
    if held is None:
        return math.nan, math.nan
    rng = np.random.default_rng(_JUDGE_SEED)
    with torch.no_grad(), seeded(_JUDGE_SEED):
        pairs = [held.loss(batch, rng) for batch in held.batches(rng)]
    return _mean([(loss.item(), found) for loss, found in pairs])


class _Tuples:
    """The states of files, and the loss of those of a batch."""

    def __init__(
        self,
        encoder: StateEncoder,
        files: Sequence[TextFile],
        config: ContrastiveConfig,
        rewrite: Rewrite | None,
    ) -> None:
        self._encoder, self._config, self._rewrite = encoder, config, rewrite
        self._texts = [text for file in files for text in file.texts]
        self._tokens = encoder.tokens(self._texts) if self._texts else []
        self._sizes = [len(file.texts) for file in files]
        self._file = np.repeat(np.arange(len(files)), self._sizes)
        self._logs = np.concatenate(
            [
                np.full(len(file.texts), np.nan)
                if file.seconds is None
                else np.log2(np.asarray(file.seconds, dtype=np.float64))
                for file in files
            ]
        )

    def batches(self, rng: np.random.Generator) -> Iterator[IntArray]:
        """Numbers of states, at least two."""
        for batch in tuple_batches(self._sizes, self._config.intra, self._config.files, rng):
            if len(batch) > 1:
                yield batch

    def loss(self, batch: IntArray, rng: np.random.Generator) -> tuple[Tensor, float]:
        """The loss of a batch, and the share of its states that were found."""
        network = self._encoder.network.train()
        first = [self._tokens[state] for state in batch.tolist()]
        views = network([*first, *self._second(batch, rng)])
        cosines = views[: len(batch)] @ views[len(batch) :].T
        weights, there = (
            torch.from_numpy(each).to(views.device) for each in self._negatives(batch)
        )
        positive = cosines.diagonal()
        loss = tuple_loss(
            positive,
            cosines,
            weights,
            there,
            temperature=self._config.temperature,
            neg_weight=self._config.neg_weight,
        )
        others = cosines.detach().masked_fill(~there, -math.inf).max(dim=1).values
        return loss, float((positive.detach() > others).float().mean())

    def _second(self, batch: IntArray, rng: np.random.Generator) -> list[IntArray]:
        """Tokens of each state's other view."""
        tokens = [self._tokens[state] for state in batch.tolist()]
        if self._rewrite is None or self._config.positives == "dropout":
            return tokens
        other = np.arange(len(batch))
        if self._config.positives == "both":
            other = np.flatnonzero(rng.random(len(batch)) < 0.5)
        texts = [self._rewrite(self._texts[batch[at]], rng) for at in other.tolist()]
        written = self._encoder.tokens(texts)
        for at, new in zip(other.tolist(), written, strict=True):
            tokens[at] = new
        return tokens

    def _negatives(self, batch: IntArray) -> tuple[Float32Array, BoolArray]:
        """Weights of the states as negatives of one another and whether they are, (n, n)."""
        config = self._config
        same_file = self._file[batch][:, None] == self._file[batch]
        intra = np.full(same_file.shape, config.intra_weight)
        if config.by_time:
            apart = np.abs(self._logs[batch][:, None] - self._logs[batch])
            intra = intra * np.minimum(np.where(np.isnan(apart), 1.0, apart), 1.0)
        weights = np.where(same_file, intra, config.inter_weight).astype(np.float32)
        texts = [self._texts[state] for state in batch.tolist()]
        number = {text: at for at, text in enumerate(texts)}
        which = np.array([number[text] for text in texts])
        return weights, which[:, None] != which


def tuple_loss(
    positive: Tensor,
    negatives: Tensor,
    weights: Tensor,
    there: Tensor,
    *,
    temperature: float = 0.05,
    neg_weight: str = "log_add",
) -> Tensor:
    """The cross entropy of finding the positive among the negatives (paper, equation 6).

    With u = [cos(a, p); cos(a, n_1)...] / temperature, the mean over anchors of

        log sum exp u - u_0

    The paper divides by no temperature; cosines reach 1 at most, so that its loss could not fall
    below ln(1 + N exp(-2)) with N negatives. A weight w counts a negative w times (ln w is added to
    its u); the paper multiplies its cosine by w, which does the opposite where that is negative.

    Args:
        positive: Cosines of anchors and their positives, shape (n,).
        negatives: Cosines of anchors and negatives, shape (n, N).
        weights: Of the negatives, shape (n, N), at least 0.
        there: Which of them count, bool of shape (n, N).
        temperature: Divides cosines.
        neg_weight: ``"log_add"``, or ``"multiply"`` as in the paper.
    """
    others = negatives / temperature
    others = others + weights.log() if neg_weight == "log_add" else others * weights
    # -inf, a weight of 0 or a negative that is not there, adds nothing to the sum.
    others = others.masked_fill(~there, -math.inf)
    right = positive[:, None] / temperature
    return (torch.cat([right, others], dim=1).logsumexp(dim=1) - right[:, 0]).mean()


def tuple_batches(
    sizes: Sequence[int], intra: int, files: int, rng: np.random.Generator
) -> Iterator[IntArray]:
    """States by which tuples are made, all of them once.

    Each file is shuffled and cut into blocks of ``intra + 1`` states, and its blocks are spread
    over the epoch, so that a batch has blocks of as many different files as can be.

    Args:
        sizes: States of each file.
        intra: States of a block, less one.
        files: Blocks of a batch.
        rng: Decides.

    Yields:
        Numbers of states, counted through all files, about ``files * (intra + 1)`` at a time.
    """
    blocks: list[Any] = []
    places: list[float] = []
    start = 0
    for size in sizes:
        order = start + rng.permutation(size)
        start += size
        own = [order[at : at + intra + 1] for at in range(0, size, intra + 1)]
        blocks += own
        places += ((rng.random() + np.arange(len(own))) / max(1, len(own))).tolist()
    order = np.argsort(places, kind="stable")
    for at in range(0, len(order), files):
        yield np.concatenate([blocks[block] for block in order[at : at + files]])
