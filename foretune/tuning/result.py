"""What tuning gives back: it compiles, runs, reports and says what was spent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretune._files import write_json
from foretune.errors import WrongResultError
from foretune.hardware import Hardware
from foretune.records import CountedTrial
from foretune.space import Candidate
from foretune.tuning.budget import Budget
from foretune.tuning.network import NOTHING, Network
from foretune.tuning.task import Task
from foretune.workload import Model, Workload

if TYPE_CHECKING:
    from foretune.graph import Artifact, Extraction

SCHEMA = "foretune.tune/1"


@dataclass(frozen=True)
class TaskResult:
    """The outcome of one task.

    Attributes:
        workload: What was tuned.
        best: The fastest correct candidate, the untuned program if nothing beat it, or None.
        best_s: Its seconds per call.
        untuned_s: Seconds per call of the untuned program, or None if it could not be measured or
            was left out for want of time. Of an operator of a network with the default schedule:
            what would run there.
        trials: Every counted measurement, in order.
        default_s: Seconds per call with the default schedule, or None if they are unknown.
        tuned: Whether the best beat the untuned program and the default schedule.
        confirmed: Whether the best was timed side by side with the runners-up and with what tuning
            had to beat, but for an untuned program far behind or left out.
    """

    workload: Workload
    best: Candidate | None
    best_s: float | None
    untuned_s: float | None
    trials: tuple[CountedTrial, ...]
    default_s: float | None = None
    tuned: bool = False
    confirmed: bool = False

    @classmethod
    def of(cls, task: Task, of_network: bool = False) -> TaskResult:
        """Freezes the present state of a task, that of an operator of a network or its own."""
        return cls(
            workload=task.workload,
            best=task.best,
            best_s=task.best_s,
            untuned_s=task.default_s if of_network else task.untuned_s,
            trials=tuple(task.trials),
            default_s=task.default_s,
            tuned=task.tuned,
            confirmed=task.confirmed,
        )

    def to_json(self, peak_gflops: float = 0.0) -> dict[str, Any]:
        """The JSON object of one task, fields of the contract first."""
        rate = self.workload.flops / self.best_s / 1e9 if self.best_s else None
        return {
            "name": self.workload.name,
            "key": self.workload.key,
            "weight": self.workload.weight,
            "flops": self.workload.flops,
            "untuned_s": self.untuned_s,
            "best_s": self.best_s,
            "trials": [trial.to_json() for trial in self.trials],
            "default_s": self.default_s,
            "tuned": self.tuned,
            "confirmed": self.confirmed,
            "best_gflops": rate,
            "peak_share": rate / peak_gflops if rate and peak_gflops else None,
        }


@dataclass(frozen=True)
class TuneResult:
    """The outcome of a tuning run.

    Attributes:
        source: The model or workload that was tuned.
        hardware: What it was tuned for.
        tasks: One result per distinct workload.
        strategy, cost_model, seed: How.
        batch: Candidates per round, given or fitted to the budget.
        budget: What could be spent.
        elapsed_s: Wall seconds, those of resumed runs included.
        spent_s: This run's wall seconds by purpose: ``search_s``, ``build_s``, ``measure_s``...
        environment: Versions and measurement policy.
        untunable: Names of the operators that are outside the tuner's reach.
        interrupted: Whether Ctrl-C ended the run.
        command: The command line that reproduces the run, if one was used.
        extraction: How a model was taken apart; found out again by ``compile`` if None.
        options: Options of the strategy that were given.
        llm: What the language model was asked and how it fared (``Session.to_json``), if there
            was one.
        network: What is known of a model as a whole; None for a workload.
        artifact: What is shipped of a model, compared with the original; compiled by ``compile``
            if None, unless nothing right is left.
        kept: The manifest of the artifact that another run left where this one's was to be saved,
            where that is the same network, tuned, and the default ships; None otherwise.
        without: Names of passes that were switched off.
        learn_from: Work directories of earlier runs that it learned from.
        reused: What a store of records knew of its tasks; None where there was none.
        kernels: What bounds the heaviest kernels, as ``foretune.explain/1`` has them.
    """

    source: Model | Workload
    hardware: Hardware
    tasks: tuple[TaskResult, ...]
    strategy: str
    cost_model: str
    seed: int
    elapsed_s: float
    spent_s: Mapping[str, float]
    environment: Mapping[str, Any] = field(default_factory=dict)
    untunable: Sequence[str] = ()
    interrupted: bool = False
    command: str = ""
    extraction: Extraction | None = field(default=None, repr=False, compare=False)
    options: Mapping[str, Any] = field(default_factory=dict)
    llm: Mapping[str, Any] | None = None
    batch: int | None = None
    budget: Budget | None = None
    network: Network | None = None
    without: tuple[str, ...] = ()
    learn_from: tuple[str, ...] = ()
    reused: Mapping[str, Any] | None = field(default=None, repr=False)
    kernels: Sequence[Mapping[str, Any]] = field(default=(), repr=False)
    artifact: Artifact | None = field(default=None, repr=False, compare=False)
    kept: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)

    @property
    def best(self) -> dict[str, Candidate]:
        """Workload key to the fastest correct candidate, where tuning beat every baseline."""
        return {
            task.workload.key: task.best
            for task in self.tasks
            if task.best is not None and task.tuned
        }

    @property
    def untuned_s(self) -> float | None:
        """Seconds of all untuned programs, each times its weight; None if one is unknown."""
        return _weighted_sum([(t.untuned_s, t.workload.weight) for t in self.tasks])

    @property
    def tuned_s(self) -> float | None:
        """Seconds of all best candidates, each times its weight; None if one is unknown."""
        return _weighted_sum([(t.best_s, t.workload.weight) for t in self.tasks])

    @property
    def untuned_operators(self) -> list[str]:
        """Names of operators left as they were: out of reach, or nothing beat them."""
        return [
            *self.untunable,
            *(t.workload.name for t in self.tasks if t.workload.key not in self.best),
        ]

    @property
    def chosen(self) -> dict[str, Candidate]:
        """What is compiled, by workload key: the best of each task, baselines included."""
        return {t.workload.key: t.best for t in self.tasks if t.best is not None}

    def compile(self) -> Artifact:
        """The artifact: each operator with its best candidate, the rest by default rules.

        Of a network that was proven, the one that ships: see ``network.shipped``.

        Raises:
            WrongResultError: None does: what was compiled computes something else.
        """
        from foretune import graph

        if self.artifact is not None:
            return self.artifact
        if self.network is not None and self.network.shipped == NOTHING:
            raise WrongResultError(self.network.fault)
        if isinstance(self.source, Workload):
            artifact = graph.compile_workload(
                self.source, self.hardware, self.chosen.get(self.source.key), self.without
            )
            artifact.manifest["kernels"] = list(self.kernels)
            return artifact
        extraction = self.extraction or graph.extract(
            self.source, self.hardware, self.without, self.network.plan if self.network else None
        )
        return graph.compile_model(self.source, self.hardware, self.chosen, extraction)

    def report(self, path: str | Path) -> Path:
        """Writes the self-contained HTML page of this run and returns its path."""
        from foretune.report import write_report

        write_report(self.to_json(), Path(path))
        return Path(path)

    def save(self, path: str | Path) -> None:
        """Writes ``to_json()`` as a file, replaced whole so that a reader never sees half."""
        write_json(Path(path), self.to_json())

    def to_json(self) -> dict[str, Any]:
        """The ``foretune.tune/1`` object of the command line contract."""
        return {
            "schema": SCHEMA,
            "input": self.source.name,
            "hardware": self.hardware.to_json(),
            "strategy": self.strategy,
            "cost_model": self.cost_model,
            "seed": self.seed,
            "batch": self.batch,
            "budget": None if self.budget is None else asdict(self.budget),
            "elapsed_s": self.elapsed_s,
            "search_s": 0.0,
            "build_s": 0.0,
            "measure_s": 0.0,
            **self.spent_s,
            "untuned_s": self.untuned_s,
            "tuned_s": self.tuned_s,
            **({} if self.network is None else {"network": self.network.to_json()}),
            "tasks": [t.to_json(self.hardware.peak_gflops) for t in self.tasks],
            "kernels": [dict(kernel) for kernel in self.kernels],
            "untuned_operators": self.untuned_operators,
            "interrupted": self.interrupted,
            "environment": dict(self.environment),
            "command": self.command,
            "options": dict(self.options),
            "passes_off": list(self.without),
            "learn_from": list(self.learn_from),
            "reused": None if self.reused is None else dict(self.reused),
            **({} if self.llm is None else {"llm": dict(self.llm)}),
        }


def _weighted_sum(values: Sequence[tuple[float | None, int]]) -> float | None:
    total = 0.0
    for seconds, weight in values:
        if seconds is None:
            return None
        total += seconds * weight
    return total
