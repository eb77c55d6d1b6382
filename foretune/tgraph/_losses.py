"""Losses over the configurations of one graph, in PyTorch.

Symbols: s scores of shape (b,), higher is slower; r run times of shape (b,).

Source: equation 8 of Tatarkhanov et al., TGraph (2025); ListMLE: Xia et al. (2008); RankNet: Burges
et al. (2005).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

if TYPE_CHECKING:
    from foretune.tgraph.config import TGraphConfig


def loss(scores: Tensor, runtime: Tensor, config: TGraphConfig) -> Tensor:
    """The loss that a configuration names, a scalar."""
    if config.loss == "hinge":
        return hinge(scores, runtime, config.hinge_reduction, config.tie_width)
    return {"listmle": listmle, "ranknet": ranknet, "mse": squared}[config.loss](scores, runtime)


def hinge(
    scores: Tensor, runtime: Tensor, reduction: str = "mean_valid", tie_width: float = 0.0
) -> Tensor:
    """Over all pairs with r_i > r_j: max(0, m - (s_i - s_j)).

    Args:
        scores, runtime: See above. Pairs of equal run times count nothing.
        reduction: ``"sum"``, ``"mean_valid"`` over ordered pairs, or ``"mean_all"`` over b² pairs.
        tie_width: m is 1, or with a width min(1, log(r_i / r_j) / width): what differs by less than
            noise is not pushed apart.
    """
    slower = runtime[:, None] > runtime[None, :]
    margin = torch.ones((), dtype=scores.dtype, device=scores.device)
    if tie_width:
        log = runtime.log()
        margin = ((log[:, None] - log[None, :]) / tie_width).clamp(max=1.0).to(scores.dtype)
    each = (margin - (scores[:, None] - scores[None, :])).clamp(min=0.0) * slower
    if reduction == "sum":
        return each.sum()
    return each.sum() / (slower.sum().clamp(min=1) if reduction == "mean_valid" else each.numel())


def listmle(scores: Tensor, runtime: Tensor) -> Tensor:
    """Minus the log likelihood of the order of run times, fastest first, per configuration."""
    ordered = -scores[runtime.argsort(stable=True)]
    rest = ordered.flip(0).logcumsumexp(0).flip(0)
    return (rest - ordered).mean()


def ranknet(scores: Tensor, runtime: Tensor) -> Tensor:
    """Mean over pairs with r_i > r_j of log(1 + exp(-(s_i - s_j)))."""
    slower = runtime[:, None] > runtime[None, :]
    each = functional.softplus(-(scores[:, None] - scores[None, :])) * slower
    return each.sum() / slower.sum().clamp(min=1)


def squared(scores: Tensor, runtime: Tensor) -> Tensor:
    """Mean squared difference to log run times that are standardised within the batch."""
    log = runtime.log()
    target = (log - log.mean()) / log.std(unbiased=False).clamp(min=1e-12)
    return (scores - target.to(scores.dtype)).square().mean()
