"""Losses that TGraph's hinge is compared with, in PyTorch.

Symbols: s scores of shape (b,), higher is slower; r run times of shape (b,).

Source: equation 8 of Tatarkhanov et al., TGraph (2025); ListMLE: Xia et al. (2008); RankNet: Burges
et al. (2005).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor
from torch.nn import functional

from foretune.tgraph._losses import hinges

if TYPE_CHECKING:
    from foretune_research.tgraph.config import VariantsConfig


def loss(scores: Tensor, runtime: Tensor, config: VariantsConfig) -> Tensor:
    """The loss that a configuration names, a scalar."""
    if config.loss == "hinge":
        return hinge(scores, runtime, config.hinge_reduction, config.tie_width)
    return {"listmle": listmle, "ranknet": ranknet, "mse": squared}[config.loss](scores, runtime)


def hinge(
    scores: Tensor, runtime: Tensor, reduction: str = "mean_valid", tie_width: float = 0.0
) -> Tensor:
    """The hinge by its reduction.

    Args:
        scores, runtime: See above.
        reduction: ``"sum"``, ``"mean_valid"`` over ordered pairs, or ``"mean_all"`` over b² pairs.
        tie_width: As of ``foretune.tgraph._losses.hinges``.
    """
    each, slower = hinges(scores, runtime, tie_width)
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
