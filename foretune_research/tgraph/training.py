"""How studies of TGraph sample, score and keep members, in PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from foretune._arrays import FloatArray, IndexArray
from foretune.tgraph._training import Run
from foretune.tgraph.splits import Part

if TYPE_CHECKING:
    from foretune_research.tgraph.config import VariantsConfig

CHECKS = 10
"""How many times a member is validated on its way."""


class BestRun(Run):
    """Keeps a member as it was when it validated best; without validation the last."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._best, self._best_weights = math.nan, dict[str, Tensor]()

    def look(self, step: int, total: int) -> None:
        """Validates ``CHECKS`` times."""
        if step not in {round(total * (n + 1) / CHECKS) for n in range(CHECKS)}:
            return
        quality = self.quality()
        # Without validation the last one is kept.
        if not quality <= self._best:
            self._best = quality
            self._best_weights = {n: w.clone() for n, w in self.network.state_dict().items()}

    def kept_quality(self) -> float:
        """Puts the weights to keep in place, and says how they validate."""
        if self._best_weights and not math.isnan(self._best):
            self.network.load_state_dict(self._best_weights)
            return self._best
        return self.quality()


def scored_in_orders(
    rows: IndexArray, permutations: int, seed: int, scores_of: Callable[[IndexArray], FloatArray]
) -> FloatArray:
    """Means of scores over some orders, since each is compared with its batch; 0: the given one."""
    rng = np.random.default_rng(seed)
    orders = [rng.permutation(len(rows)) for _ in range(permutations)]
    return averaged_over(orders or [np.arange(len(rows))], lambda order: scores_of(rows[order]))


def averaged_over(orders: Sequence[IndexArray], scores_of: Any) -> FloatArray:
    """The mean of scores that were computed in several orders, each put back into place.

    Args:
        orders: Permutations, each of shape (n,).
        scores_of: From an order to the scores in that order.
    """
    total = np.zeros(len(orders[0]))
    for order in orders:
        total[order] += scores_of(order)
    return total / len(orders)


def sample(
    part: Part, config: VariantsConfig, rng: np.random.Generator
) -> tuple[IndexArray, FloatArray]:
    """Configurations of a step and their run times, ``config.batch`` at most.

    Source: section 2.2.5 of the paper (uniform); the released code's sampler, which is off there
    (window); Gumbel noise on log run times, as in the data set's own baseline (gumbel_best).
    """
    runtime = part.runtime
    count = min(config.batch, len(runtime))
    if config.sampler == "gumbel_best":
        rank = runtime.argsort().argsort() / len(runtime)
        chosen = (rng.gumbel(size=len(runtime)) - rank).argsort()[-count:]
    elif config.sampler == "window" and rng.random() < 0.5:
        width = min(count * int(rng.integers(1, 5)), len(runtime))
        begin = int(rng.integers(len(runtime) - width + 1))
        chosen = rng.choice(runtime.argsort()[begin : begin + width], count, replace=False)
    else:
        chosen = rng.choice(len(runtime), count, replace=False)
    return part.rows[chosen], runtime[chosen]
