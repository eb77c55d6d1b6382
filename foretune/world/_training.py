"""How transitions are trained, in PyTorch.

Imported when something is trained, never earlier: PyTorch is optional.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from foretune._arrays import IntArray
from foretune._torch import limited_threads, seeded
from foretune.world._dynamics import Inputs, Member
from foretune.world._losses import rollout_loss
from foretune.world._paths import Draw, Paths, Plan, TransitionEpoch, windows_of
from foretune.world._weights import finished

if TYPE_CHECKING:
    from foretune.world._transition_config import TransitionConfig

Say = Callable[[str], None]

_TOLD_EVERY = 10
"""Epochs from one look at held-out paths to the next, where nothing is chosen by them."""


def step_share(progress: float, warm_up: float) -> float:
    """The share of the step size at some point of training: a rise, then half a cosine to 0.

    Args:
        progress: From 0 to 1.
        warm_up: Where the rise ends.
    """
    if progress < warm_up:
        return progress / warm_up
    return 0.5 * (1.0 + math.cos(math.pi * (progress - warm_up) / (1.0 - warm_up)))


class Descent:
    """AdamW with a step size that rises and falls, and clipped gradients.

    Args:
        parts: Networks and the step sizes at their peak.
        warm_up, weight_decay, clip: As in the configurations.
    """

    def __init__(
        self,
        parts: Sequence[tuple[nn.Module, float]],
        warm_up: float,
        weight_decay: float,
        clip: float,
    ) -> None:
        groups: list[dict[str, Any]] = []
        for network, peak in parts:
            weights = list(network.parameters())
            groups += [
                {"params": [w for w in weights if w.ndim > 1], "weight_decay": weight_decay},
                {"params": [w for w in weights if w.ndim <= 1], "weight_decay": 0.0},
            ]
            for group in groups[-2:]:
                group["peak"] = peak
        self._weights = [w for group in groups for w in group["params"]]
        self._optimiser = torch.optim.AdamW(groups, lr=0.0)
        self._warm_up, self._clip = warm_up, clip

    def step(self, loss: Tensor, progress: float) -> float:
        """Goes one step down; the loss as a number.

        Args:
            loss: Of this step.
            progress: How much of the training is done, 0 to 1.
        """
        share = step_share(progress, self._warm_up)
        for group in self._optimiser.param_groups:
            group["lr"] = group["peak"] * share
        self._optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self._weights, self._clip)
        self._optimiser.step()
        return loss.item()


class Side:
    """Paths on a device: those to learn from, or those to be judged on.

    Args:
        paths: Which.
        inputs: Their actions.
    """

    def __init__(self, paths: Paths, inputs: Inputs) -> None:
        self.paths, self.inputs = paths, inputs
        self.states = torch.from_numpy(paths.states).to(inputs.kind.device)

    @cached_property
    def _plan(self) -> tuple[IntArray, Plan]:
        """Distinct initial states, and all paths from these, common beginnings once."""
        paths = self.paths
        initial, start = np.unique(paths.initial, return_inverse=True)
        return initial, Plan.of(start, paths.matrix(), paths.lengths)

    def at(self, states: IntArray) -> Tensor:
        """Encoded states by number, shape (..., d)."""
        return self.states[torch.from_numpy(states).to(self.states.device)]

    def error(self, member: Member) -> float:
        """Mean of 1 - cos(p_T, z_T)."""
        initial, plan = self._plan
        member.eval()
        with torch.inference_mode():
            ends = member.rolled(self.at(initial), self.inputs, plan, len(self.paths))
            mean = float(1.0 - (ends * self.at(self.paths.terminal)).sum(dim=1).mean())
        member.train()
        return mean


def follow(
    member: Member,
    sides: Sequence[Side],
    config: TransitionConfig,
    *,
    choose: bool,
    number: int,
    seed: int,
    threads: int | None,
    say: Say | None,
) -> list[TransitionEpoch]:
    """Trains one network in place; see ``transition.train_transition``.

    Args:
        member: On the device of the sides.
        sides: What to learn from and, if there is one, what to be judged on.
        config: How.
        choose: Whether to keep the epoch that ends nearest to what is judged on.
        number: Of the network.
        seed: Of order, negatives and forgotten kinds.
        threads: PyTorch may use.
        say: Called with one line per epoch.
    """
    rng = np.random.default_rng(seed)
    descent = Descent(
        [(member, config.learning_rate)], config.warm_up, config.weight_decay, config.clip
    )
    learned, held = sides[0], sides[1] if len(sides) > 1 else None
    phases = config.phases
    history: list[TransitionEpoch] = []
    kept, best = None, math.inf
    with limited_threads(threads), seeded(seed):
        for at, (horizon, terminal) in enumerate(phases):
            start = time.monotonic()
            draws = list(_draws(learned.paths, horizon, config, rng))
            losses = []
            for step, draw in enumerate(draws):
                loss = _rolled_loss(member, learned, draw, config, terminal, rng)
                losses.append(descent.step(loss, (at + (step + 0.5) / len(draws)) / len(phases)))
            # Where nothing is chosen by it, it is for who looks on: a seventh of the time.
            told = choose or (at + 1) % _TOLD_EVERY == 0 or at + 1 == len(phases)
            error = held.error(member) if held is not None and told else math.nan
            history.append(TransitionEpoch(number, horizon, float(np.mean(losses)), error))
            if choose and horizon == 0 and error < best:
                best = error
                kept = {name: w.detach().clone() for name, w in member.state_dict().items()}
            if say is not None:
                say(
                    f"transition {number}: epoch {at + 1} of {len(phases)}, horizon "
                    f"{horizon or 'whole'}{', end only' if terminal else ''}, loss "
                    f"{losses and np.mean(losses):.4f}"
                    f"{'' if math.isnan(error) else f', held out {error:.4f}'}; "
                    f"{time.monotonic() - start:.1f} s"
                )
    if kept is not None:
        member.load_state_dict(kept)
    finished(member, config.learning_rate)
    return history


def _draws(
    paths: Paths, horizon: int, config: TransitionConfig, rng: np.random.Generator
) -> Iterator[Draw]:
    """One pass over the paths: windows of like length together, batches in any order."""
    windows = windows_of(paths, horizon, rng, whole=not config.initial)
    for rows in alike(windows.length, config.batch, rng):
        yield Draw.of(paths, windows.some(rows), config.cross, config.same, rng)


def alike(lengths: IntArray, budget: int, rng: np.random.Generator) -> list[IntArray]:
    """Numbers of sequences in batches of like length, so that little of a batch is filled up.

    Args:
        lengths: Of each sequence.
        budget: Longest times number of a batch at most, where one sequence is no longer than that.
        rng: Mixes sequences of one length, and the batches.
    """
    mixed = rng.permutation(len(lengths))
    order = mixed[np.argsort(-lengths[mixed], kind="stable")]
    batches = []
    while len(order):
        many = max(1, budget // int(lengths[order[0]]))
        batches.append(order[:many])
        order = order[many:]
    return [batches[at] for at in rng.permutation(len(batches)).tolist()]


def _rolled_loss(
    member: Member,
    side: Side,
    draw: Draw,
    config: TransitionConfig,
    terminal: bool,
    rng: np.random.Generator,
) -> Tensor:
    distinct, back = np.unique(draw.actions, return_inverse=True)
    inputs = side.inputs.rows(torch.from_numpy(distinct).to(side.states.device))
    forgotten = torch.from_numpy(rng.random(len(distinct)) < config.unknown)
    inputs = inputs._replace(kind=inputs.kind.masked_fill(forgotten.to(inputs.kind.device), 0))
    actions, mask = (
        torch.from_numpy(each).to(side.states.device)
        for each in (back.reshape(draw.actions.shape), draw.mask)
    )
    predicted = member.unrolled(side.at(draw.first), member.prepared(inputs), actions, mask)
    targets, negatives = draw.targets, draw.negatives
    if terminal:
        # Behind the last action of a row its state stays, so that the last column has all ends.
        predicted, mask = predicted[:, -1:], mask[:, :1]
        rows, last = np.arange(len(targets)), draw.mask.sum(axis=1) - 1
        targets, negatives = (each[rows, last][:, None] for each in (targets, negatives))
    return rollout_loss(
        predicted,
        side.at(targets),
        mask,
        side.at(negatives),
        match_share=config.match_share,
        margin=config.margin,
        attainable=config.attainable,
    )
