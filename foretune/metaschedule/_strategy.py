"""Our strategies behind TVM's door.

TVM owns the loop: its builder and runner measure, its task scheduler calls. In every round it asks
for candidates, measures them, hands back results in the same order, and updates its cost model.
Results are told to the strategy at the start of the next round, after the model has learned from
them, as our own loop does it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune import _tvm, cost, search
from foretune.errors import IllegalCandidateError, unknown_name
from foretune.metaschedule._cost_model import TvmCostModel, measure_candidate, our_model
from foretune.metaschedule._spaces import Spaces, records_of

if TYPE_CHECKING:
    from foretune.cost import CostModel
    from foretune.hardware import Hardware
    from foretune.records import Trial
    from foretune.search import Strategy
    from foretune.space import Candidate, Space

_PySearchStrategy: Any = _tvm.meta_schedule.search_strategy.PySearchStrategy

StrategyFactory = Callable[
    ["Space", "CostModel[Candidate]", np.random.Generator], "Strategy[Candidate]"
]


@_tvm.tvm.ir.utils.derived_object  # type: ignore[untyped-decorator, unused-ignore]
class _OurStrategy(_PySearchStrategy):  # type: ignore[misc, unused-ignore]
    """A foretune strategy behind TVM's door; one instance per task."""

    def __init__(self, factory: StrategyFactory, name: str, hardware: Hardware | None) -> None:
        super().__init__()
        self.factory = factory
        self.name = name
        self.hardware = hardware
        self.strategy: Strategy[Candidate] | None = None
        self.asked: list[Candidate] = []
        self.waiting: list[Trial[Candidate]] = []
        self.left = 0
        self.batch = 0

    def _initialize_with_tune_context(self, context: Any) -> None:
        self.space = Spaces(self.hardware).of_context(context)
        self.target = context.target
        self.seed = int(context.rand_state)

    def pre_tuning(
        self,
        max_trials: int,
        num_trials_per_iter: int,
        design_spaces: Any,
        database: Any = None,
        cost_model: Any = None,
    ) -> None:
        """Makes the strategy; TVM's design spaces are left aside, the space has its own."""
        rng = np.random.default_rng([abs(self.seed), int(self.space.workload.key, 16)])
        self.strategy = self.factory(self.space, self._model(cost_model), rng)
        self.left = int(max_trials)
        self.batch = int(num_trials_per_iter)

    def post_tuning(self) -> None:
        """Lets go of the strategy."""
        self.strategy = None
        self.waiting = []

    def generate_measure_candidates(self) -> list[Any] | None:
        """The next batch, None when trials or space are exhausted."""
        assert self.strategy is not None, "TVM calls pre_tuning first"
        if self.waiting:
            self.strategy.tell(self.waiting)
            self.waiting = []
        self.asked = []
        theirs: list[Any] = []
        while self.left > 0 and not theirs:
            proposed = self.strategy.ask(min(self.batch, self.left))
            if not proposed:
                break
            for candidate in proposed:
                try:
                    theirs.append(measure_candidate(candidate))
                except IllegalCandidateError:
                    continue
                self.asked.append(candidate)
        self.left -= len(theirs)
        return theirs or None

    def notify_runner_results(self, measure_candidates: Any, results: Sequence[Any]) -> None:
        """Keeps the results until the cost model has learned from them."""
        self.waiting = records_of(self.asked, results, origin=self.name)

    def clone(self) -> Any:
        """A fresh one for another task, as TVM's own strategies clone themselves."""
        return _OurStrategy(self.factory, self.name, self.hardware)

    def _model(self, cost_model: Any) -> CostModel[Candidate]:
        if cost_model is None:
            return cost.create("random", rng=abs(self.seed))
        ours = our_model(cost_model)
        if ours is not None:
            return ours
        context = _tvm.make_context(self.space.workload.module, self.target)
        return TvmCostModel(cost_model, context)


def as_search_strategy(strategy: str | StrategyFactory, hardware: Hardware | None = None) -> Any:
    """A TVM search strategy that asks one of ours, for ``tune_tir`` and ``tune_relax``.

    The strategy scores candidates with the cost model that TVM was given, be it one of ours
    (``as_cost_model``) or TVM's own, which TVM keeps up to date.

    Args:
        strategy: A name ``foretune strategies`` lists, or a function that makes a strategy from a
            space, a cost model and a random generator.
        hardware: What is tuned for; made from TVM's target if None.

    Returns:
        An object for the argument ``strategy`` of TVM's tuning functions.

    Raises:
        BadInputError: No strategy has this name.
    """
    if callable(strategy):
        return _OurStrategy(strategy, getattr(strategy, "__name__", "custom"), hardware)
    name = strategy
    if name not in search.names():
        raise unknown_name("strategy", name, search.names())

    def make(
        space: Space, model: CostModel[Candidate], rng: np.random.Generator
    ) -> Strategy[Candidate]:
        return search.create(name, space, model, rng)

    return _OurStrategy(make, name, hardware)
