"""The loss over the configurations of one graph, in PyTorch.

Symbols: s scores of shape (b,), higher is slower; r run times of shape (b,).

Source: equation 8 of Tatarkhanov et al., TGraph (2025).
"""

from __future__ import annotations

import torch
from torch import Tensor


def hinge(scores: Tensor, runtime: Tensor, tie_width: float = 0.0) -> Tensor:
    """The mean of ``hinges`` over ordered pairs, a scalar."""
    each, slower = hinges(scores, runtime, tie_width)
    return each.sum() / slower.sum().clamp(min=1)


def hinges(scores: Tensor, runtime: Tensor, tie_width: float) -> tuple[Tensor, Tensor]:
    """Of all pairs with r_i > r_j: max(0, m - (s_i - s_j)), and which pairs these are, (b, b).

    Args:
        scores, runtime: See above. Pairs of equal run times count nothing.
        tie_width: m is 1, or with a width min(1, log(r_i / r_j) / width): what differs by less than
            noise is not pushed apart.
    """
    slower = runtime[:, None] > runtime[None, :]
    margin = torch.ones((), dtype=scores.dtype, device=scores.device)
    if tie_width:
        log = runtime.log()
        margin = ((log[:, None] - log[None, :]) / tie_width).clamp(max=1.0).to(scores.dtype)
    return (margin - (scores[:, None] - scores[None, :])).clamp(min=0.0) * slower, slower
