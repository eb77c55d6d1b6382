"""The plan of a network that is tuned, where one is searched: ``--plan-trials``.

The default plan is proven first: what cannot work is refused, and Ctrl-C leaves an artifact. Then
plans are measured (``foretune.plans.search_plans``). One that is faster is proven in turn, and
tuned. The journal keeps which plan it was, so that a run that goes on tunes the same one.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretune.errors import BadInputError, ForetuneError, RecordError, first_line
from foretune.hardware import why_not_here
from foretune.tuning.events import Progress, Silent
from foretune.tuning.work_dir import PLANS_FOLDER
from foretune.workload import Model, Workload

if TYPE_CHECKING:
    from foretune.graph import Plan
    from foretune.hardware import Hardware
    from foretune.plans import PlanOutcome
    from foretune.records import Journal
    from foretune.tgraph import TGraph

SHARE = 0.2
"""Share of a budget of seconds, at most, that is spent on plans."""


@dataclass(frozen=True)
class TunedPlan:
    """The plan that a network is tuned with.

    Attributes:
        plan: As ``--plan`` takes it; None: the default plan.
        report: The object ``network.plans`` of ``foretune.tune/1``.
        seconds: Wall seconds that were spent on it, those of earlier runs included.
        earlier_s: Of these, in earlier runs that were stopped.
    """

    plan: Plan | None
    report: Mapping[str, Any]
    seconds: float = 0.0
    earlier_s: float = 0.0

    @classmethod
    def of(cls, planned: PlanOutcome) -> TunedPlan:
        """What a search found."""
        return cls(planned.plan, planned.to_json(), planned.seconds, planned.earlier_s)

    def refused(self, why: str) -> TunedPlan:
        """The default plan, because this one cannot be tuned."""
        return replace(self, plan=None, report={**self.report, "chosen": False, "stopped": why})


@dataclass(frozen=True)
class Place:
    """Where a run searches a plan, and for how long.

    Attributes:
        work_dir: Keeps what is measured; None keeps nothing.
        journal: Of the run.
        seconds: That it may take.
    """

    work_dir: str | Path | None
    journal: Journal | None
    seconds: float


@dataclass(frozen=True)
class PlanSearch:
    """What is searched with.

    Attributes:
        trials: Plans to measure beside the default plan.
        model: Who proposes them; what comes with the package if None.
        progress: Who is told.
    """

    trials: int
    model: TGraph | None = None
    progress: Progress = field(default_factory=Silent)

    @classmethod
    def asked_for(
        cls,
        trials: int,
        model: str | Path | None,
        plan: Plan | None,
        progress: Progress | None = None,
    ) -> PlanSearch | None:
        """The search that a user wants; None where there is none.

        Raises:
            BadInputError: It makes no sense, or ``model`` does not rank plans.
            RecordError: The file ``model`` cannot be read.
        """
        if trials < 0:
            raise BadInputError(
                f"`plan_trials >= 0` must hold, but got plan_trials={trials}: ask for some, or "
                "leave it out"
            )
        if trials and plan is not None:
            raise BadInputError(
                f"a plan is given or searched, but got a plan and plan_trials={trials}: leave one "
                "of them out"
            )
        if not trials:
            if model is not None:
                raise BadInputError(
                    f"a model of plans is for a search, but got plan_model={model} without "
                    "plan_trials: ask for some plans with --plan-trials N, or leave it out"
                )
            return None
        from foretune.plans import read_plan_model

        proposer = None if model is None else read_plan_model(Path(model))
        return cls(trials, proposer, progress or Silent())

    def known(self, journal: Journal | None, source: Model | Workload) -> TunedPlan | None:
        """The plan that an earlier run in this journal decided on.

        Raises:
            BadInputError: What is tuned has no plans.
        """
        if isinstance(source, Workload):
            raise BadInputError(
                f"a plan is for a network, but {source.name!r} is one tensor program: leave "
                "plan_trials out (--plan-trials)"
            )
        noted = None if journal is None else journal.networks().get(source.name)
        if noted is None:
            return None
        report = noted.get("plans") or _unsearched("an earlier run in this directory had no search")
        return TunedPlan(noted["plan"], dict(report))

    def run(
        self,
        source: Model,
        hardware: Hardware,
        place: Place,
        *,
        seed: int,
        without: Collection[str],
    ) -> TunedPlan:
        """Searches, and says what came of it. Without a model, for example, the default stays.

        Args:
            source: The network.
            hardware: What it is tuned for.
            place: Where, and for how long.
            seed: Seeds everything random.
            without: Names of passes that do not run.

        Raises:
            RecordError: The work directory cannot be written, or what it holds is damaged.
        """
        from foretune.plans import search_plans

        began = time.monotonic()
        try:
            _require_here(hardware)
            with _folder(place.work_dir) as folder:
                plan = TunedPlan.of(
                    search_plans(
                        source,
                        hardware,
                        folder,
                        trials=self.trials,
                        seconds=place.seconds,
                        model=self.model,
                        seed=seed,
                        without=without,
                        say=self.progress.phase,
                    )
                )
        except RecordError:
            raise
        except ForetuneError as error:
            why = first_line(error)
            self.progress.stopped(f"plans are not searched, the default plan is used: {why}")
            return TunedPlan(None, _unsearched(why), time.monotonic() - began)
        self.progress.phase(_outcome(plan))
        return self._agreed(plan, source, place.journal)

    def _agreed(self, plan: TunedPlan, source: Model, journal: Journal | None) -> TunedPlan:
        """What another tuner in the same directory has decided on meanwhile, if one has."""
        if journal is None:
            return plan
        journal.refresh()
        other = self.known(journal, source)
        if other is None:
            return plan
        return replace(other, seconds=plan.seconds, earlier_s=plan.earlier_s)


def _unsearched(why: str) -> Mapping[str, Any]:
    from foretune.plans import PlanOutcome

    return PlanOutcome(stopped=why).to_json()


def _outcome(plan: TunedPlan) -> str:
    if plan.plan is None:
        return f"plans: the default plan stays: {plan.report['stopped']}"
    return (
        f"plans: another plan is {plan.report['ratio']:.3f} times as fast as the default plan "
        "beside it, and is tuned"
    )


def _require_here(hardware: Hardware) -> None:
    """Refuses hardware on which plans cannot be measured.

    Raises:
        BadInputError: It is not a processor of this machine.
    """
    why = why_not_here(hardware)
    if why is not None or not hardware.has_cores:
        raise BadInputError(
            f"plans are measured on processors of this machine, but the target is {hardware.name} "
            f"({why or f'of kind {hardware.kind}'}): give a plan with --plan"
        )


@contextlib.contextmanager
def _folder(work_dir: str | Path | None) -> Iterator[Path]:
    """Where the search keeps what it measures; for as long as it takes without a directory."""
    if work_dir is not None:
        yield Path(work_dir) / PLANS_FOLDER
        return
    with tempfile.TemporaryDirectory(prefix="foretune-") as folder:
        yield Path(folder)
