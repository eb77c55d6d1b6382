"""What the world model is trained to make small, in PyTorch. Points are vectors of length 1."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_SAME = 1e-6
"""Squared distance up to which two points are the same program."""


def rollout_loss(
    predicted: Tensor,
    target: Tensor,
    mask: Tensor,
    negatives: Tensor,
    *,
    match_share: float = 0.5,
    margin: float = 0.2,
    attainable: bool = True,
) -> Tensor:
    """How far rolled-out states are from the true ones, and how near to others (equation 11).

    The mean over steps t, with d the squared distance and n the hardest negative, of

        match_share d(p_t, z_t) + (1 - match_share) max(0, d(p_t, z_t) - d(p_t, n) + margin)

    The paper adds up instead of taking the mean, so that long windows count for more. A negative
    that is the target itself is left out: no prediction could satisfy it. The same holds for one
    within the margin of the target, so that ``attainable`` takes d(z_t, n) for the margin where
    that is less: then the loss is 0 where the prediction is right. The hardest negative is that
    with the largest term, which is the one nearest to the prediction where margins are equal.

    Args:
        predicted: Shape (n, steps, d).
        target: Shape (n, steps, d).
        mask: Which steps count, shape (n, steps).
        negatives: Other states for each step, shape (n, steps, N, d).
        match_share: Lambda.
        margin: Gamma.
        attainable: As above.
    """
    match = (predicted - target).square().sum(dim=-1)
    away = (predicted[:, :, None] - negatives).square().sum(dim=-1)
    apart = (target[:, :, None] - negatives).square().sum(dim=-1)
    wanted = apart.clamp(max=margin) if attainable else torch.full_like(apart, margin)
    violated = (match[..., None] - away + wanted).masked_fill(apart <= _SAME, -math.inf)
    rank = violated.max(dim=-1).values.clamp(min=0.0)
    each = match_share * match + (1.0 - match_share) * rank
    return (each * mask).sum() / mask.sum().clamp(min=1)
