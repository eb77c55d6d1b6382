"""Which plan of a network ships: the few that a model proposes are measured, the best again.

Order of things: the default plan is measured; then what the strategy ``evolutionary`` breeds under
the guidance of what TGraph expects, corrected by what was measured (``prior``, ``model``); then the
best few are measured once more, beside the default plan, their readings taking turns. Another plan
is chosen only if it is faster there by more than readings vary: what was best of many was lucky,
too.
"""

from __future__ import annotations

import math
import re
import shutil
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._arrays import FloatArray
from foretune.errors import BadInputError
from foretune.plans.files import read_graph
from foretune.plans.kernels import KERNELS
from foretune.plans.loop import (
    JOURNAL,
    MADE,
    Measures,
    PlanLoop,
    Proposals,
    beside_default,
    opened,
)
from foretune.plans.measurer import OutOfTime, PlanMeasurer
from foretune.plans.model import LinearPlans
from foretune.plans.prior import GraphPrior, shipped_plan_model
from foretune.plans.provenance import provenance
from foretune.plans.standings import DEFAULT, PlanStandings
from foretune.records import Journal
from foretune.tgraph import TGraph, require_torch

if TYPE_CHECKING:
    from foretune.graph import Plan
    from foretune.hardware import Hardware
    from foretune.plans.space import PlanCandidate
    from foretune.records import Record, Trial
    from foretune.workload import Model

_COMPARED = 3
"""Plans that are measured again beside the default plan, at most."""
_LEAST_ROUNDS, _MOST_BATCH = 4, 10
"""Looks at what was learned, at least; plans between two of them, at most."""
_RESERVED = 0.4
"""Share of the time, at most, that is left for the comparison."""


@dataclass(frozen=True)
class PlanOutcome:
    """What became of a search for a plan.

    Attributes:
        plan: Of the plan that is faster than the default: what passes choose in it, as ``--plan``
            takes it. None: the default plan stays.
        measured: Plans that were measured beside the default plan, those that failed included.
        failed: How many failed.
        seconds: Wall seconds that it took, in earlier runs, too.
        earlier_s: Of these, in earlier runs, about.
        model: Name of the model that proposed; empty where there was none.
        seen: Whether it learned from plans of a network of this architecture.
        expected: How many times as fast as the default plan the best of the comparison was expected
            to be before anything was measured; None without a comparison.
        ratio: The same as measured there, median of the rounds.
        stopped: Why it ended.
    """

    plan: Plan | None = None
    measured: int = 0
    failed: int = 0
    seconds: float = 0.0
    earlier_s: float = 0.0
    model: str = ""
    seen: bool | None = None
    expected: float | None = None
    ratio: float | None = None
    stopped: str = ""

    def to_json(self) -> dict[str, Any]:
        """The object ``network.plans`` of ``foretune.tune/1``."""
        told = {k: v for k, v in asdict(self).items() if k not in ("plan", "earlier_s")}
        return {**told, "model": self.model or None, "chosen": self.plan is not None}


def search_plans(
    network: Model,
    hardware: Hardware,
    folder: Path,
    *,
    trials: int,
    seconds: float = math.inf,
    model: TGraph | None = None,
    seed: int = 0,
    without: Collection[str] = (),
    measurer: Callable[..., Measures] = PlanMeasurer,
    say: Callable[[str], None] = print,
) -> PlanOutcome:
    """Looks for a plan that is faster than the default plan.

    Args:
        network: What is planned.
        hardware: This machine.
        folder: Keeps the records; a search that was stopped there goes on.
        trials: Plans to measure beside the default plan, those of earlier runs included.
        seconds: Wall seconds that it may take, those of earlier runs included.
        model: Proposes plans; the one that comes with the package if None.
        seed: Seeds everything random.
        without: Names of passes that do not run.
        measurer: Makes what measures, as ``PlanMeasurer``.
        say: Takes lines of progress.

    Raises:
        BadInputError: There is no model, or it ranks something else; the network cannot be loaded
            in a child process; or its default plan does not run there.
        MissingDependencyError: PyTorch or a compiler is not installed.
        RecordError: The folder cannot be written, or what it holds is damaged.
    """
    if trials < 1:
        raise BadInputError(f"`trials >= 1` must hold, but got trials={trials}")
    require_torch()
    proposer = model or shipped_plan_model(hardware.kind)
    if proposer is None:
        raise BadInputError(
            f"no trained model of plans for targets of kind {hardware.kind!r} comes with this "
            "installation: give one with --plan-model FILE, or plan_model= in Python"
        )
    made = provenance(hardware, without)
    place = folder / f"{re.sub(r'[^A-Za-z0-9_.-]+', '_', network.name)}-{made.digest[:8]}"
    with Journal(folder / JOURNAL) as journal:
        search = _Search(journal, made.digest, proposer, trials, seconds, seed, say)
        if time.monotonic() >= search.deadline:
            return search.outcome("the time was spent before anything was measured")
        start = partial(
            measurer, network, hardware, place, without=without, deadline=search.deadline
        )
        try:
            with opened(start, place, journal, hardware, made) as opening:
                outcome = search.run(opening, place)
        except OutOfTime:
            outcome = search.outcome("the time was spent before anything was measured")
    # Other networks have few of these kernels, and all together take gigabytes.
    shutil.rmtree(place / KERNELS, ignore_errors=True)
    return outcome


@dataclass
class _Search:
    """One search on its way.

    Attributes:
        journal, proposer, trials, seconds, seed, say: As for ``search_plans``.
        made: Digest of what plans are measured with.
        began: When it did, of ``time.monotonic``.
        earlier_s: Seconds that earlier runs measured.
        records: What was measured, in earlier runs, too.
        seen: As for ``PlanOutcome``; None until the network is known.
    """

    journal: Journal
    made: str
    proposer: TGraph
    trials: int
    seconds: float
    seed: int
    say: Callable[[str], None]
    began: float = field(default_factory=time.monotonic)
    records: Sequence[Record] = ()
    earlier_s: float = 0.0
    seen: bool | None = None

    def __post_init__(self) -> None:
        every = self.journal.records()
        self.records = [r for r in every if r.environment.get(MADE) == self.made]
        for record in self.records:
            self.earlier_s += record.measurement.build_s + record.measurement.run_s

    @property
    def deadline(self) -> float:
        """Of ``time.monotonic``: when the time is spent."""
        return self.began + self.seconds - self.earlier_s

    def run(self, loop: PlanLoop, place: Path) -> PlanOutcome:
        """Measures, compares and decides."""
        space = loop.space
        if space.size == 1:
            return self.outcome("the network has one plan only")
        prior = GraphPrior(self.proposer, read_graph(place), space)
        self.seen = prior.has_seen
        proposals = Proposals(
            space,
            LinearPlans(prior),
            wanted=self.trials + 1,
            random=0,
            batch=max(1, min(_MOST_BATCH, self.trials // _LEAST_ROUNDS)),
            seed=self.seed,
            # A random plan needs dozens of kernels that no other has.
            epsilon=0.0,
        )
        proposals.restore(loop.measured)
        complete = self._measure(loop, proposals)
        self.records = measured = loop.measured
        why = self._why(complete)
        best = _best(measured)
        if not best:
            return self.outcome(f"{why}; none is faster than the default plan")
        return self._compared(loop, prior, best, why)

    def _measure(self, loop: PlanLoop, proposals: Proposals) -> bool:
        """Trials until there are enough, or until time is left for the comparison alone."""
        loaded_s = time.monotonic() - self.began
        longest_s = 0.0

        def reserved() -> float:
            wanted = loaded_s + (_COMPARED + 1) * longest_s
            return min(wanted, _RESERVED * self.seconds)

        def tell(records: Sequence[Trial[PlanCandidate]]) -> None:
            nonlocal longest_s
            longest_s = max([longest_s, *map(_again_s, records)])
            loop.measurer.deadline = self.deadline - reserved()
            self.say(
                f"plans: {proposals.count - 1} of {self.trials} beside the default measured, "
                f"{proposals.describe(records)}"
            )

        complete = loop.run(proposals, lambda: time.monotonic() < self.deadline - reserved(), tell)
        loop.measurer.deadline = self.deadline
        return complete

    def _why(self, complete: bool) -> str:
        """Why no more plans were measured."""
        measured = len(self._others())
        if not complete:
            return f"the time was spent after {measured} plans"
        enough = measured >= self.trials
        return f"{measured} plans were measured" if enough else "every plan was measured"

    def _others(self) -> dict[str, bool]:
        """Keys of the plans that were measured beside the default plan, and whether each ran."""
        default = {record.candidate_key for record in self.records if record.origin == DEFAULT}
        return {
            record.candidate_key: record.measurement.ok
            for record in self.records
            if record.candidate_key not in default
        }

    def _compared(
        self, loop: PlanLoop, prior: GraphPrior, best: Sequence[PlanCandidate], why: str
    ) -> PlanOutcome:
        """Measures the best beside the default plan, and decides."""
        self.say(f"plans: comparing the best {len(best)} with the default plan")
        try:
            # Memory may not suffice for several networks at once.
            ratios = _beside(loop, best) or _beside(loop, best[:1])
        except OutOfTime:
            return self.outcome(f"{why}, and none was left to compare the best: allow more time")
        if not ratios:
            return self.outcome(f"{why}, but comparing the best with the default plan failed")
        plan = max(ratios, key=lambda each: float(np.median(ratios[each])))
        # Beyond what readings vary, as for the network that is tuned.
        better = float(np.quantile(ratios[plan], 0.25)) > 1
        return self.outcome(
            why if better else f"{why}; none is faster beside the default plan",
            plan=loop.measurer.chosen[plan.key] if better else None,
            expected=prior.gain(plan, loop.space.default),
            ratio=float(np.median(ratios[plan])),
        )

    def outcome(self, why: str, **told: Any) -> PlanOutcome:
        """What became of it, with what is known in any case."""
        others = self._others()
        return PlanOutcome(
            measured=len(others),
            failed=sum(not ok for ok in others.values()),
            seconds=self.earlier_s + time.monotonic() - self.began,
            earlier_s=self.earlier_s,
            model=self.proposer.name,
            seen=self.seen,
            stopped=why,
            **told,
        )


def _best(measured: Sequence[Trial[PlanCandidate]]) -> list[PlanCandidate]:
    """The fastest plans, if they are faster than the default plan."""
    standings = PlanStandings.of(measured)
    best = standings.best(_COMPARED)
    return [one.record.candidate for one in best if one.alone_s < standings.whole_s]


def _beside(loop: PlanLoop, plans: Sequence[PlanCandidate]) -> dict[PlanCandidate, FloatArray]:
    """How many times as fast as the default plan plans are, round by round; of those that run."""
    first, others = beside_default(loop, plans)
    return {
        plan: np.divide(first.seconds, measurement.seconds)
        for plan, measurement in others
        if first.ok and measurement.ok
    }


def _again_s(record: Record) -> float:
    """Seconds that a plan would take once more: its kernels are there."""
    stages: Mapping[str, float] = record.environment.get("stages", {})
    measurement = record.measurement
    return max(0.0, measurement.build_s + measurement.run_s - stages.get("kernels", 0.0))
