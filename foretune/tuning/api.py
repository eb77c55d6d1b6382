"""``foretune.tune``: one call from a model or a workload to a result."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretune import codegen, cost, search
from foretune.cost import CostModel
from foretune.errors import BadInputError
from foretune.hardware import Devices, Hardware, described_by, probe, why_not_here
from foretune.measure import JobMeasurer, MeasurePolicy, Measurer, place_of, require_device
from foretune.measure.gate import Signature
from foretune.space import Space
from foretune.tuning.contenders import Contender, contenders
from foretune.tuning.experience import experience, require_journals
from foretune.tuning.explained import explained_kernels
from foretune.tuning.measurers import devices_for, measurer_for
from foretune.tuning.network import Proof
from foretune.tuning.planned import SHARE, FoundPlan, Place, PlanSearch
from foretune.tuning.result import TaskResult, TuneResult
from foretune.tuning.reuse import Reuse
from foretune.tuning.task import Task, resolve_names
from foretune.tuning.tuner import RESERVE_SHARE, Budget, Progress, Tuner, check_batch
from foretune.tuning.work_dir import RESULT, Saver, enter_work_dir
from foretune.workload import Model, Workload, from_object, load_input

if TYPE_CHECKING:
    from foretune.graph import Artifact, Extraction, Plan
    from foretune.llm import Session
    from foretune.records import Journal, Store

logger = logging.getLogger(__name__)

_STRIDE = 1_000_003
_MORE_SHARE = 0.05
"""Share of the time that comparing the proven network on further inputs may take."""


@dataclass(frozen=True)
class Prepared:
    """A model or workload with the workloads it consists of.

    Attributes:
        source: What was given, loaded.
        workloads: The distinct tunable programs, with weights.
        untunable: Names of operators outside the tuner's reach.
        extraction: How a model was taken apart, which compiling it needs again.
    """

    source: Model | Workload
    workloads: tuple[Workload, ...]
    untunable: tuple[str, ...] = ()
    extraction: Extraction | None = None


def prepare(
    what: str | Model | Workload | Any,
    hardware: Hardware,
    without: Collection[str] = (),
    plan: Plan | None = None,
) -> Prepared:
    """Loads an INPUT and takes it apart into workloads.

    Args:
        what: An INPUT of the command line (catalog name, file, ``file.py:function``), a ``Model``,
            a ``Workload``, a TVM ``PrimFunc`` or ``IRModule``, or a pair of a torch module and its
            example inputs.
        hardware: Decides the layouts a model's operators are given.
        without: Names of passes over the graph that do not run.
        plan: What is chosen for some operators of a model: ``network.plan`` of another result.

    Raises:
        BadInputError: Missing or unreadable file, unknown name, unsupported model, or a plan that
            does not fit.
    """
    source = _loaded(what)
    if isinstance(source, Workload):
        if plan:
            raise BadInputError(
                f"a plan is for a network, but {source.name!r} is one tensor program: leave it out"
            )
        return Prepared(source, (source,))
    from foretune import graph

    extracted = graph.extract(source, hardware, without, plan)
    return Prepared(source, tuple(extracted.workloads), tuple(extracted.untunable), extracted)


def _loaded(what: str | Model | Workload | Any) -> Model | Workload:
    return load_input(what) if isinstance(what, str) else from_object(what)


def tune(
    what: str | Model | Workload | Any,
    *,
    target: str | Hardware | None = None,
    threads: int | None = None,
    strategy: str = "default",
    cost_model: str | CostModel = "default",
    trials: int | None = None,
    time_s: float | None = None,
    patience: int = 256,
    seed: int = 0,
    work_dir: str | Path | None = None,
    fresh: bool = False,
    measurer: Measurer | None = None,
    policy: MeasurePolicy | None = None,
    progress: Progress | None = None,
    batch: int | None = None,
    options: Mapping[str, Any] | None = None,
    llm: Session | None = None,
    command: str = "",
    output: str | Path | None = None,
    without: Collection[str] = (),
    plan: Plan | None = None,
    plan_trials: int = 0,
    plan_model: str | Path | None = None,
    devices: Devices | None = None,
    learn_from: Sequence[str | Path] = (),
    store: Store | None = None,
    remote: Sequence[str] = (),
) -> TuneResult:
    """Tunes a model or a workload and returns the result, which compiles, runs and reports.

    A model is compiled as a whole with default schedules first, run, and compared with the
    original: what cannot work is refused before a trial is spent.

    Args:
        what: See ``prepare``.
        target: A preset, a TVM target, or a ``Hardware``; the machine at hand if None.
        threads: Threads a kernel runs on; all cores of the affinity mask if None.
        strategy: A name ``foretune strategies`` lists.
        cost_model: A name ``foretune cost-models`` lists, or a model.
        trials: Candidates to measure, over all tasks; None for no limit.
        time_s: Wall seconds to spend; None for no limit. At least one of the two must be given.
        patience: A task stops early after this many trials without an improvement of 1 %.
        seed: Seeds everything random.
        work_dir: Where the journal and the result are kept. A directory that holds a journal is
            resumed, its trials and seconds counted as spent. None keeps nothing on disk.
        fresh: Set a journal found in ``work_dir`` aside (renamed, not deleted) and start anew; so
            are a language model's answers, unless ``llm`` replays or keeps its own elsewhere.
        measurer: Who measures; local worker processes if None. Left open when given.
        policy: How local workers measure.
        progress: Who is told what happens.
        batch: Candidates per round; fitted to the budget if None.
        options: Of the strategy: fields of its configuration and its proposer's.
        llm: The language model for whoever names it: the proposer ``llm``, which is meant where
            nobody does, and the cost model ``behaviour:scores=llm``. Left open. Its answers are
            kept in ``work_dir``, where the next run finds them.
        command: The command line to note in the result.
        output: Where a model's artifact is saved: the proven one before the first trial, the one
            that ships at the end. A tuned artifact of the same network that is there stays until
            there is another tuned one; before the first trial it goes where ``fresh``, at the end
            where the tuned network is wrong. None saves nothing. Removed where the proven one turns
            out to be wrong on an input compared at the end.
        without: Names of passes that do not run: to find out what they bring.
        plan: What is chosen for some operators, as ``network.plan`` of a result has it.
        plan_trials: Plans of a network that are measured beside its default plan before anything
            is tuned; the one that is tuned is the default unless another one is faster beside it.
            They take a fifth of ``time_s`` at most. A run that is resumed tunes the same plan.
        plan_model: Which of them are worth it: a file of ``foretune graph train``. What comes with
            the package if None; without any, or without PyTorch, the default plan is tuned.
        devices: Data sheets that come before those of foretune's table, for cost models that look
            at the device. One that is called like the hardware is used; see ``read_devices``.
        learn_from: Work directories of earlier runs. Their fast schedules are tried on programs
            that are alike, and what they measured on this hardware teaches the cost model.

    Raises:
        BadInputError: An argument is unusable, or a model cannot be compiled to what it computes;
            the message says which and why.
        NothingMeasuredError: Neither tuned nor untuned programs could be measured, and no proven
            network is left to ship because time ran out.
        RecordError: ``work_dir`` cannot be written.
    """
    began = time.perf_counter()
    budget = Budget(trials=trials, seconds=time_s, patience=patience)
    check_batch(batch)
    _require_passes(without)
    require_journals(learn_from, work_dir if fresh else None)
    _require_free(output)
    planning = PlanSearch.asked_for(plan_trials, plan_model, plan, progress)
    strategy, model_name = _checked_names(strategy, cost_model, seed)
    scored = isinstance(cost_model, str) and cost.asks_llm(model_name)
    options = strategy_options(strategy, options or {}, has_llm=llm is not None, scored=scored)
    if scored and llm is None:
        raise BadInputError(
            f"the cost model {model_name!r} asks a language model for scores, but there is none: "
            "give one with --llm, for example --llm qwen2.5-coder@http://localhost:11434/v1, or "
            "with llm= in Python"
        )
    named, given = None, target
    if not isinstance(target, Hardware):
        named = partial(probe, target, threads=threads)
        target = named()
    elif threads is not None and threads != target.threads:
        raise BadInputError(
            f"`threads` must be those of the hardware where `target` is one, but got "
            f"threads={threads} and a target of {target.threads}: leave threads out, or pass "
            f"dataclasses.replace(hardware, threads={threads})"
        )
    hardware = _with_sheet(target, devices)
    addresses = devices_for(remote, hardware, named is not None and given is None)
    if addresses:
        named, hardware = None, replace(hardware, place=place_of(addresses))
    if llm is not None and (not scored or _proposes(strategy, options)):
        options["llm"] = llm
    with ExitStack() as stack:
        journal, place = enter_work_dir(stack, work_dir, fresh, llm)
        if measurer is None and not addresses:
            require_device(hardware)
        tell = partial(_tell, progress=progress, time_s=time_s, output=output, replacing=fresh)

        def look(model: Model) -> FoundPlan:
            assert planning is not None, "asked for where plans are searched only"
            left_s = math.inf if time_s is None else time_s + began - time.perf_counter()
            most_s = math.inf if time_s is None else SHARE * time_s
            where = Place(work_dir, journal, min(most_s, left_s))
            return planning.run(model, hardware, where, seed=seed, without=without)

        prepared, proof, found = _begin(
            what, hardware, without, plan, planning, journal, tell, look
        )
        if found is not None:
            # Seconds of runs that were stopped before their first trial count, too.
            began -= found.earlier_s
        # Not before the proof, which has the machine to itself.
        if named is not None:
            hardware = replace(named(measure=True), device=hardware.device)
        if journal is not None:
            journal.add_hardware(hardware)
            if prepared.extraction is not None:
                passes = [report.to_json() for report in prepared.extraction.passes]
                report = None if found is None else found.report
                journal.add_network(prepared.source.name, passes, prepared.extraction.plan, report)
        known = experience(hardware, learn_from)
        if isinstance(cost_model, str):
            asked = {"llm": llm} if scored else {}
            cost_model = cost.create(model_name, rng=seed, hardware=hardware, **asked)
        if known.records:
            cost_model.update(known.records)
        # The workers start while the spaces are generated.
        measurer = measurer or stack.enter_context(
            measurer_for(hardware, addresses, _policy(policy or MeasurePolicy(), without, proof))
        )
        tasks, untunable = _tasks(
            prepared,
            hardware,
            strategy=strategy,
            cost_model=cost_model,
            seed=seed + _STRIDE * place,
            options=options,
            portfolio=known.portfolio,
        )
        tuner = Tuner(
            tasks,
            measurer,
            budget,
            journal=journal,
            batch=batch,
            peak_gflops=hardware.peak_gflops,
            progress=progress,
            began=began,
            proof_s=0.0 if proof is None else proof.network.proof_s,
            plans_s=0.0 if found is None else found.seconds,
            reserve_s=0.0 if proof is None else proof.reserve_s(_most_reserve_s(budget)),
            proven=proof is not None,
            reuse=None if store is None else Reuse(store, str(work_dir or "")),
        )
        run = _Run(
            tuner, measurer, prepared, hardware, untunable, strategy, model_name, seed, command,
            options, llm, proof, tuple(sorted(without)), tuple(map(str, learn_from)),
        )  # fmt: skip
        tuner.after_restore = partial(_end_answers, llm, tuner)
        if work_dir is not None:
            tuner.after_round = Saver(run.result, Path(work_dir) / RESULT)
        tuner.run()
        if llm is not None:
            llm.conclude()
        result = run.result()
    # The workers have ended: what is timed now has the machine to itself.
    result = replace(result, kernels=explained_kernels(tuner.tasks, hardware))
    if proof is not None:
        others = contenders(tuner.tasks) if proof.can_try(_most_reserve_s(budget)) else []
        result = _conclude(proof, result, tuner, output, others)
    if work_dir is not None:
        result.save(Path(work_dir) / RESULT)
    return result


def _begin(
    what: Any,
    hardware: Hardware,
    without: Collection[str],
    plan: Plan | None,
    planning: PlanSearch | None,
    journal: Journal | None,
    tell: Callable[[Proof], None],
    look: Callable[[Model], FoundPlan],
) -> tuple[Prepared, Proof | None, FoundPlan | None]:
    """What is tuned, taken apart and proven, with the plan that was given or found.

    Args:
        what, hardware, without, plan: As for ``prepare``.
        planning: Whether a plan is searched, if the journal does not say which one it was.
        journal: Of the run.
        tell: Called with each proof.
        look: Searches a plan of a network that was proven.
    """
    proving = time.perf_counter()
    found = None
    if planning is not None:
        what = _loaded(what)
        found = planning.known(journal, what)
    if found is None:
        prepared = prepare(what, hardware, without, plan)
    else:
        prepared = _as_before(what, hardware, without, found)
    proof = _prove(prepared, hardware, proving)
    if proof is not None:
        tell(proof)
    if planning is not None and found is None and isinstance(prepared.source, Model):
        found = look(prepared.source)
        if found.plan is not None and proof is not None:
            found, prepared, proof = _replanned(found, prepared, proof, without, tell)
    if found is not None and proof is not None:
        proof.network = replace(proof.network, plans=found.report)
    return prepared, proof, found


def _as_before(
    what: Any, hardware: Hardware, without: Collection[str], found: FoundPlan
) -> Prepared:
    """A network with the plan that an earlier run tuned."""
    try:
        return prepare(what, hardware, without, found.plan)
    except BadInputError as error:
        raise BadInputError(
            f"a run that is resumed tunes the plan that its journal holds, but that does not fit "
            f"any more: {error}; start anew with --fresh"
        ) from error


def _replanned(
    found: FoundPlan,
    prepared: Prepared,
    proof: Proof,
    without: Collection[str],
    tell: Callable[[Proof], None],
) -> tuple[FoundPlan, Prepared, Proof]:
    """The network with another plan, proven and told; as it was where that cannot be."""
    began, spent_s = time.perf_counter(), proof.network.proof_s
    hardware = proof.hardware
    try:
        other = prepare(prepared.source, hardware, without, found.plan)
        assert other.extraction is not None, "a plan is for a network"
        again = Proof(proof.model, hardware, other.extraction, began, spent_s)
        tell(again)
        return found, other, again
    except BadInputError as error:
        spent_s += time.perf_counter() - began
        proof.network = replace(proof.network, proof_s=spent_s)
        logger.warning("the plan that was found is not tuned, the default plan is: %s", error)
        return found.refused(f"the plan that was found cannot be proven: {error}"), prepared, proof


def _with_sheet(hardware: Hardware, devices: Devices | None) -> Hardware:
    """The hardware with the data sheet that a user's file has of it."""
    if devices is None:
        return hardware
    found = described_by(hardware, devices)
    if found.device is None:
        logger.warning(
            "the file of devices has none that is called %r, as this hardware is: add that to the "
            "aliases of one of them",
            hardware.name,
        )
    return found


def _most_reserve_s(budget: Budget) -> float:
    return math.inf if budget.seconds is None else RESERVE_SHARE * budget.seconds


def _prove(prepared: Prepared, hardware: Hardware, began: float) -> Proof | None:
    """The proof that a model works; of a workload only that it can be compiled.

    Nothing is proven for a device that is not here: its compiler may not be either.

    Raises:
        BadInputError: It cannot be compiled, or what was compiled computes something else.
    """
    source = prepared.source
    here = why_not_here(hardware) is None
    if isinstance(source, Workload):
        if here:
            _refuse_uncompiled(source, hardware)
        return None
    if prepared.extraction is None or (not here and not hardware.has_cores):
        return None
    return Proof(source, hardware, prepared.extraction, began)


def _refuse_uncompiled(workload: Workload, hardware: Hardware) -> None:
    from foretune import graph

    for reason in graph.failing_kernels(workload.module, hardware).values():
        raise BadInputError(
            f"workload {workload.name!r} cannot be compiled for this target: TVM says {reason}"
        )


def _tell(
    proof: Proof,
    progress: Progress | None,
    time_s: float | None,
    output: str | Path | None,
    replacing: bool,
) -> None:
    """Says that a network works, compares it on the other inputs, saves it; after Ctrl-C at once.

    From the moment that it is said, Ctrl-C leaves the artifact.
    """
    try:
        if progress is not None:
            progress.proved(proof.network)
        proof.compare_more(None if time_s is None else _MORE_SHARE * time_s)
        if output is not None:
            proof.save(Path(output), replacing)
    except KeyboardInterrupt:
        if output is not None and proof.saved is None:
            proof.save(Path(output), replacing)
        raise


def _conclude(
    proof: Proof,
    result: TuneResult,
    tuner: Tuner,
    output: str | Path | None,
    others: Sequence[Contender],
) -> TuneResult:
    """The result with the network that ships, compiled, compared, timed and saved.

    Ctrl-C leaves the proven network. A tuned artifact of the same network, of an earlier run or of
    a tuner beside this one, stays in its place. A network that turns out to be wrong leaves none.
    """
    interrupted = result.interrupted
    before_s = proof.network.proof_s
    place = None if output is None else Path(output)
    kept = None
    try:
        artifact = proof.conclude(result.chosen, interrupted, tuner.progress.phase)
    except KeyboardInterrupt:
        interrupted, artifact = True, proof.default
    if artifact is not None:
        _note_kernels(artifact, proof, result, tuner)
    if place is not None and artifact is None:
        proof.default.withdraw(place)
    elif place is not None:
        assert artifact is not None
        kept = _save(artifact, place, proof)
    if artifact is not None and others and not interrupted:
        try:
            better = proof.improve(artifact, result.chosen, others, tuner.progress.phase)
        except KeyboardInterrupt:
            interrupted, better = True, artifact
        if better is not artifact and place is not None:
            better.manifest["kernels"] = list(result.kernels)
            better.save(place)
            kept = None
        artifact = better
    spent_s = dict(result.spent_s)
    spent_s["proof_s"] = spent_s.get("proof_s", 0.0) + proof.network.proof_s - before_s
    return replace(
        result,
        network=proof.network,
        artifact=artifact,
        kept=kept,
        interrupted=interrupted,
        elapsed_s=tuner.elapsed_s,
        spent_s=spent_s,
    )


def _save(artifact: Artifact, place: Path, proof: Proof) -> Mapping[str, Any] | None:
    """Saves what ships; the manifest of a tuned artifact of another run that stays in its place.

    Where this run's tuned network is wrong, an earlier one may be, too: the default replaces it.
    """
    if artifact.manifest["tuned"] or proof.network.wrong:
        artifact.save(place)
        return None
    kept = artifact.save_unless_tuned(place)
    if kept is not None:
        logger.warning("%s stays as another run left it: the same network, tuned", place)
    return kept


def _note_kernels(artifact: Artifact, proof: Proof, result: TuneResult, tuner: Tuner) -> None:
    """What bounds its kernels goes with an artifact: those that it has."""
    default = artifact is proof.default
    artifact.manifest["kernels"] = (
        explained_kernels(tuner.tasks, proof.hardware, default=True)
        if default
        else list(result.kernels)
    )


def _checked_names(strategy: str, cost_model: str | CostModel, seed: int) -> tuple[str, str]:
    """The names of strategy and cost model, before anything takes time.

    Raises:
        BadInputError: A name is unknown or the seed is negative.
    """
    named = cost_model if isinstance(cost_model, str) else "default"
    strategy, model_name = resolve_names(strategy, named)
    if seed < 0:
        raise BadInputError(f"`seed >= 0` must hold, but got seed={seed}: pass another one")
    return strategy, model_name if isinstance(cost_model, str) else type(cost_model).__name__


def strategy_options(
    strategy: str, options: Mapping[str, Any], has_llm: bool, scored: bool = False
) -> dict[str, Any]:
    """Options of a strategy, checked before anything takes time.

    Before → after: with a language model and no proposer, ``{}`` → ``{"proposer": "llm"}``.

    Args:
        strategy: A name ``foretune strategies`` lists; options in it count, too.
        options: Those that stand beside the name.
        has_llm: Whether there is a language model.
        scored: Whether the cost model asks it: then it proposes only where that is said.

    Raises:
        BadInputError: An option is unknown, of a wrong type, makes no sense, or contradicts another
            one or the language model.
        RecordError: An option names a file that cannot be read.
    """
    given = dict(options)
    if "llm" in given:
        raise BadInputError(
            "a language model is no option of a strategy: give it with --llm, or with llm= in "
            "Python"
        )
    base, named = search.split_name(strategy)
    proposer = given.get("proposer", named.get("proposer"))
    if has_llm and proposer is None and not scored:
        proposer = given["proposer"] = "llm"
        try:
            search.check(base, {"proposer": "llm"})
        except BadInputError as error:
            raise BadInputError(
                f"a language model proposes edits of programs, but {error}: choose the strategy "
                "mcts or evolutionary, or leave the language model out"
            ) from error
    search.check(strategy, given)
    asked = search.proposers.asks_llm(proposer)
    if has_llm and not asked and not scored:
        raise BadInputError(
            f"a language model is for the proposer 'llm', but the proposer is {proposer!r}: leave "
            "one of them out, or choose the cost model behaviour:scores=llm"
        )
    if asked and not has_llm:
        raise BadInputError(
            f"the proposer {proposer!r} needs a language model, but there is none: give one with "
            "--llm, for example --llm qwen2.5-coder@http://localhost:11434/v1, or with llm= in "
            "Python"
        )
    return given


def _proposes(strategy: str, options: Mapping[str, Any]) -> bool:
    """Whether the proposer is a language model."""
    named = search.split_name(strategy)[1]
    return search.proposers.asks_llm(options.get("proposer", named.get("proposer")))


@dataclass(frozen=True)
class _Run:
    """A run and what its result, which can be had at any moment, says about it."""

    tuner: Tuner
    measurer: Measurer
    prepared: Prepared
    hardware: Hardware
    untunable: tuple[str, ...]
    strategy: str
    cost_model: str
    seed: int
    command: str
    options: Mapping[str, Any]
    llm: Session | None
    proof: Proof | None
    without: tuple[str, ...]
    learn_from: tuple[str, ...]

    def result(self) -> TuneResult:
        """What was reached so far."""
        return TuneResult(
            source=self.prepared.source,
            hardware=self.hardware,
            tasks=tuple(
                TaskResult.of(task, of_network=self.proof is not None) for task in self.tuner.tasks
            ),
            strategy=self.strategy,
            cost_model=self.cost_model,
            seed=self.seed,
            batch=self.tuner.batch,
            budget=self.tuner.budget,
            elapsed_s=self.tuner.elapsed_s,
            spent_s=_spent(self.tuner, self.measurer),
            environment=self.tuner.environment,
            untunable=self.untunable,
            extraction=self.prepared.extraction,
            interrupted=self.tuner.interrupted,
            command=self.command,
            options={name: _plain(v) for name, v in self.options.items() if name != "llm"},
            llm=None if self.llm is None else {**self.llm.to_json(), **self._scores()},
            network=None if self.proof is None else self.proof.network,
            without=self.without,
            learn_from=self.learn_from,
            reused=None if self.tuner.reuse is None else self.tuner.reuse.to_json(),
        )

    def _scores(self) -> dict[str, Any]:
        """What became of the scores that the cost model asked for, if it did."""
        models = {id(task.model): task.model for task in self.tuner.tasks}.values()
        found = [model.status for model in models if model.status]
        return {"scores": found[0]} if found else {}


def _require_passes(without: Collection[str]) -> None:
    from foretune.graph import require_passes

    require_passes(without)


def _require_free(output: str | Path | None) -> None:
    """Refuses an artifact beside which files lie that are not its own, before anything is tuned."""
    from foretune.graph import require_free

    if output is not None:
        require_free(Path(output))


def _policy(policy: MeasurePolicy, without: Collection[str], proof: Proof | None) -> MeasurePolicy:
    """The policy for the kernels of a network, or for one program.

    Candidates are built without some passes, of which only the last ones concern them, and what
    they compute from lies as far away as in the network.
    """
    off = [name for name in codegen.PASSES if name in without]
    workspace = 0 if proof is None else int(proof.default.manifest["workspace"])
    return replace(
        policy, passes_off=tuple(off), workspace_bytes=policy.workspace_bytes or workspace
    )


def _tasks(
    prepared: Prepared, hardware: Hardware, **options: Any
) -> tuple[list[Task], tuple[str, ...]]:
    """One task per workload, and the names of operators without one.

    A single workload without a space is the caller's error; one operator of a model is not: the
    others are tuned and it is named.
    """
    tasks: list[Task] = []
    untunable = list(prepared.untunable)
    for workload in prepared.workloads:
        try:
            Signature.of(workload)  # what candidates cannot be checked on is not tuned
            space = Space.generate(workload, hardware)
        except BadInputError as error:
            if isinstance(prepared.source, Workload):
                raise
            logger.warning("operator %s stays untuned: %s", workload.name, error)
            untunable.append(workload.name)
        else:
            tasks.append(Task(workload, hardware, space=space, **options))
    return tasks, tuple(untunable)


def _end_answers(llm: Session | None, tuner: Tuner) -> None:
    """Has no answer waited for after the end of a run; what earlier runs spent is gone."""
    if llm is not None:
        llm.end_after(tuner.left_s)


def _plain(value: Any) -> Any:
    """An option as JSON has it; what is no value, a policy for example, by its type."""
    known = value is None or isinstance(value, (bool, int, float, str))
    return value if known else type(value).__name__


def _spent(tuner: Tuner, measurer: Measurer) -> dict[str, float]:
    """This run's wall seconds by purpose, in the words of the JSON contract."""
    spent = tuner.clock.to_json()
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
