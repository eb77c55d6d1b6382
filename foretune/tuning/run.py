"""One run, from what was asked to its result."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretune import codegen
from foretune.cluster import Cluster, open_cluster
from foretune.errors import BadInputError
from foretune.hardware import Hardware
from foretune.measure import JobMeasurer, MeasurePolicy, Measurer, require_device
from foretune.tuning.asked import Choices, Files, Machine, Method
from foretune.tuning.budget import Budget, Outside
from foretune.tuning.conclude import conclude
from foretune.tuning.events import Progress
from foretune.tuning.experience import experience
from foretune.tuning.explained import explained_kernels
from foretune.tuning.measurers import measurer_for
from foretune.tuning.prepared import tasks_of
from foretune.tuning.proof import Proof
from foretune.tuning.proving import Begun, Proving
from foretune.tuning.result import TaskResult, TuneResult
from foretune.tuning.reuse import Reuse
from foretune.tuning.tuner import Tuner
from foretune.tuning.work_dir import RESULT, Saver, enter_work_dir

if TYPE_CHECKING:
    from foretune.llm import Session
    from foretune.records import Journal

_STRIDE = 1_000_003


@dataclass(frozen=True)
class Run:
    """A run: what was asked, checked.

    Attributes:
        budget: What it may spend.
        files: Where it keeps what it finds, and what it learns from.
        choices: About a network as a whole.
        method: Who proposes candidates, and who judges them.
        machine: What is tuned for, and who measures.
        batch: Candidates per round; fitted to the budget if None.
        progress: Who is told; nobody if None.
        command: The command line to note in the result.
        began: ``time.perf_counter`` when it did.
    """

    budget: Budget
    files: Files
    choices: Choices
    method: Method
    machine: Machine
    batch: int | None = None
    progress: Progress | None = None
    command: str = ""
    began: float = 0.0

    def on(self, what: Any) -> TuneResult:
        """Tunes an INPUT; see ``foretune.tune``."""
        files, llm = self.files, self.method.llm
        with ExitStack() as stack:
            journal, place = enter_work_dir(stack, files.work_dir, files.fresh, llm)
            if self.machine.measurer is None and not self.machine.addresses:
                require_device(self.machine.hardware)
            # What cannot be reached is refused before the proof, which takes its time.
            cluster = self._cluster(stack)
            begun = self._begin(what, journal)
            # Not before the proof, which has the machine to itself.
            hardware = self.machine.with_peak()
            if journal is not None:
                journal.add_hardware(hardware)
                begun.note(journal)
            running = self._set_up(stack, begun, hardware, journal, place, cluster)
            running.tuner.run()
            if llm is not None:
                llm.conclude()
            result = running.result()
        # The workers have ended: what is timed now has the machine to itself.
        tuner = running.tuner
        result = replace(result, kernels=explained_kernels(tuner.tasks, hardware))
        if begun.proof is not None:
            result = conclude(begun.proof, result, tuner, files.output)
        if files.work_dir is not None:
            result.save(Path(files.work_dir) / RESULT)
        return result

    def _cluster(self, stack: ExitStack) -> Cluster | None:
        machine = self.machine
        if machine.cluster is None:
            return None
        if machine.measurer is not None:
            raise BadInputError(
                f"a measurer that is given builds by itself, but got cluster={machine.cluster!r}, "
                "too: leave one of them out"
            )
        timed = 0 if machine.addresses else machine.hardware.threads
        return stack.enter_context(open_cluster(machine.cluster, timed))

    def _begin(self, what: Any, journal: Journal | None) -> Begun:
        proving = Proving(
            self.machine.hardware,
            self.choices,
            self.files,
            self.budget,
            self.method.seed,
            self.began,
            self.progress,
        )
        return proving.begin(what, journal)

    def _set_up(
        self,
        stack: ExitStack,
        begun: Begun,
        hardware: Hardware,
        journal: Journal | None,
        place: int,
        cluster: Cluster | None,
    ) -> _Running:
        """Tasks, measurer and tuner."""
        files, machine = self.files, self.machine
        known = experience(hardware, files.learn_from)
        model = self.method.model(hardware)
        if known.records:
            model.update(known.records)
        # The workers start while the spaces are generated.
        measurer = machine.measurer or stack.enter_context(
            measurer_for(hardware, machine.addresses, self._policy(begun.proof), cluster)
        )
        tasks, untunable = tasks_of(
            begun.prepared,
            hardware,
            strategy=self.method.strategy,
            cost_model=model,
            seed=self.method.seed + _STRIDE * place,
            options=self.method.options,
            portfolio=known.portfolio,
        )
        tuner = Tuner(
            tasks,
            measurer,
            self.budget,
            journal=journal,
            reuse=None if files.store is None else Reuse(files.store, str(files.work_dir or "")),
            batch=self.batch,
            peak_gflops=hardware.peak_gflops,
            progress=self.progress,
            outside=self._outside(begun),
        )
        running = _Running(self, begun, hardware, measurer, tuner, untunable)
        tuner.after_restore = partial(_end_answers, self.method.llm, tuner)
        if files.work_dir is not None:
            tuner.after_round = Saver(running.result, Path(files.work_dir) / RESULT)
        return running

    def _policy(self, proof: Proof | None) -> MeasurePolicy:
        """The policy for the kernels of a network, or for one program.

        Candidates are built without some passes, of which only the last ones concern them, and what
        they compute from lies as far away as in the network.
        """
        policy = self.machine.policy or MeasurePolicy()
        off = [name for name in codegen.PASSES if name in self.choices.without]
        workspace = policy.workspace_bytes
        if workspace == 0 and proof is not None:
            workspace = int(proof.default.manifest["workspace"])
        return replace(policy, passes_off=tuple(off), workspace_bytes=workspace)

    def _outside(self, begun: Begun) -> Outside:
        """What the tuner does not see of the run."""
        # Seconds of runs that were stopped before their first trial count, too.
        earlier_s = 0.0 if begun.plan is None else begun.plan.earlier_s
        proof = begun.proof
        return Outside(
            began=self.began - earlier_s,
            proof_s=0.0 if proof is None else proof.network.proof_s,
            plans_s=0.0 if begun.plan is None else begun.plan.seconds,
            reserve_s=0.0 if proof is None else proof.reserve_s(self.budget.reserve_s),
            proven=proof is not None,
        )


@dataclass(frozen=True)
class _Running:
    """A run on its way, of which a result can be had at any moment."""

    run: Run
    begun: Begun
    hardware: Hardware
    measurer: Measurer
    tuner: Tuner
    untunable: tuple[str, ...]

    def result(self) -> TuneResult:
        """What was reached so far."""
        return TuneResult(
            source=self.begun.prepared.source,
            hardware=self.hardware,
            tasks=tuple(
                TaskResult.of(task, of_network=self.begun.proof is not None)
                for task in self.tuner.tasks
            ),
            strategy=self.run.method.strategy,
            cost_model=self.run.method.model_name,
            seed=self.run.method.seed,
            batch=self.tuner.batch,
            budget=self.tuner.budget,
            elapsed_s=self.tuner.spending.elapsed_s,
            spent_s=_spent(self.tuner, self.measurer),
            environment=self.tuner.environment,
            untunable=self.untunable,
            extraction=self.begun.prepared.extraction,
            interrupted=self.tuner.interrupted,
            command=self.run.command,
            options={
                name: _plain(v) for name, v in self.run.method.options.items() if name != "llm"
            },
            llm=None
            if self.run.method.llm is None
            else {**self.run.method.llm.to_json(), **self._scores()},
            network=None if self.begun.proof is None else self.begun.proof.network,
            without=tuple(sorted(self.run.choices.without)),
            learn_from=tuple(map(str, self.run.files.learn_from)),
            reused=None if self.tuner.reuse is None else self.tuner.reuse.to_json(),
        )

    def _scores(self) -> dict[str, Any]:
        """What became of the scores that the cost model asked for, if it did."""
        models = {id(task.model): task.model for task in self.tuner.tasks}.values()
        statuses = [model.status for model in models if model.status]
        return {"scores": statuses[0]} if statuses else {}


def _end_answers(llm: Session | None, tuner: Tuner) -> None:
    """Has no answer waited for after the end of a run; what earlier runs spent is gone."""
    if llm is not None:
        llm.end_after(tuner.spending.left_s)


def _plain(value: Any) -> Any:
    """An option as JSON has it; what is no value, a policy for example, by its type."""
    known = value is None or isinstance(value, (bool, int, float, str))
    return value if known else type(value).__name__


def _spent(tuner: Tuner, measurer: Measurer) -> dict[str, float]:
    """This run's wall seconds by purpose, in the words of the JSON contract."""
    spent = tuner.spending.clock.to_json()
    if isinstance(measurer, JobMeasurer):
        costs = measurer.costs
        return {
            **spent,
            "build_s": costs.build_s,
            "measure_s": costs.run_s,
            "canary_s": costs.canary_s,
            "start_s": costs.start_s,
            "measurer_overhead_s": costs.overhead_s,
        }
    return {**spent, "measure_s": spent["measuring_s"]}
