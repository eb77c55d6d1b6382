"""``foretune.tune``: one call from a model or a workload to a result."""

from __future__ import annotations

import os
import re
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretune import cost
from foretune.cost import CostModel
from foretune.errors import RecordError
from foretune.hardware import Hardware, probe
from foretune.measure import LocalMeasurer, MeasurePolicy, Measurer
from foretune.records import Journal
from foretune.tuning.result import TaskResult, TuneResult
from foretune.tuning.task import Task, resolve_names
from foretune.tuning.tuner import Budget, Progress, Tuner
from foretune.workload import Model, Workload, load_input

JOURNAL = "journal.jsonl"
RESULT = "tune.json"


@dataclass(frozen=True)
class Prepared:
    """A model or workload with the workloads it consists of.

    Attributes:
        source: What was given, loaded.
        workloads: The distinct tunable programs, with weights.
        untunable: Names of operators outside the tuner's reach.
    """

    source: Model | Workload
    workloads: tuple[Workload, ...]
    untunable: tuple[str, ...] = ()


def prepare(what: str | Model | Workload | Any, hardware: Hardware) -> Prepared:
    """Loads an INPUT and takes it apart into workloads.

    Args:
        what: An INPUT of the command line (catalog name, file, ``file.py:function``), a ``Model``,
            a ``Workload``, a TVM ``PrimFunc`` or ``IRModule`` with one.
        hardware: Decides the layouts a model's operators are given.

    Raises:
        BadInputError: Missing or unreadable file, unknown name, unsupported model.
    """
    source = load_input(what) if isinstance(what, str) else what
    if isinstance(source, Workload):
        return Prepared(source, (source,))
    if not isinstance(source, Model):
        workload = Workload.from_module(source, name="main")
        return Prepared(workload, (workload,))
    from foretune import graph

    extracted = graph.extract(source, hardware)
    return Prepared(source, tuple(extracted.workloads), tuple(extracted.untunable))


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
    command: str = "",
) -> TuneResult:
    """Tunes a model or a workload and returns the result, which compiles, runs and reports.

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
        fresh: Set a journal found in ``work_dir`` aside (renamed, not deleted) and start anew.
        measurer: Who measures; local worker processes if None. Left open when given.
        policy: How local workers measure.
        progress: Who is told what happens.
        batch: Candidates per round; fitted to the budget if None.
        command: The command line to note in the result.

    Raises:
        BadInputError: An argument is unusable; the message says which and why.
        NothingMeasuredError: Neither tuned nor untuned programs could be measured.
        RecordError: ``work_dir`` cannot be written.
    """
    budget = Budget(trials=trials, seconds=time_s, patience=patience)
    named = cost_model if isinstance(cost_model, str) else "default"
    strategy, model_name = resolve_names(strategy, named)
    hardware = (
        target if isinstance(target, Hardware) else probe(target, threads=threads, measure=True)
    )
    if isinstance(cost_model, str):
        model = cost.create(model_name, rng=seed, hardware=hardware)
    else:
        model, model_name = cost_model, type(cost_model).__name__
    with ExitStack() as stack:
        journal = None
        if work_dir is not None:
            journal = stack.enter_context(open_journal(Path(work_dir), fresh))
            journal.add_hardware(hardware)
        prepared = prepare(what, hardware)
        # The workers start while the spaces are generated.
        measurer = measurer or stack.enter_context(LocalMeasurer(hardware, policy))
        tasks = [
            Task(workload, hardware, strategy=strategy, cost_model=model, seed=seed)
            for workload in prepared.workloads
        ]
        tuner = Tuner(
            tasks,
            measurer,
            budget,
            journal=journal,
            model=model,
            batch=batch,
            peak_gflops=hardware.peak_gflops,
            progress=progress,
        )
        tuner.run()
        result = TuneResult(
            source=prepared.source,
            hardware=hardware,
            tasks=tuple(TaskResult.of(task) for task in tasks),
            strategy=strategy,
            cost_model=model_name,
            seed=seed,
            elapsed_s=tuner.elapsed_s,
            spent_s=_spent(tuner, measurer),
            environment=tuner.environment,
            untunable=prepared.untunable,
            interrupted=tuner.interrupted,
            command=command,
        )
    if work_dir is not None:
        result.save(Path(work_dir) / RESULT)
    return result


def open_journal(work_dir: Path, fresh: bool = False) -> Journal:
    """Opens the journal of a work directory, made if need be.

    Args:
        work_dir: The directory.
        fresh: Rename a journal that is there (``journal.1.jsonl``...) and start an empty one.

    Raises:
        RecordError: The directory cannot be made or written.
    """
    try:
        work_dir.mkdir(parents=True, exist_ok=True)
        path = work_dir / JOURNAL
        if fresh and path.exists():
            number = 1
            while (aside := work_dir / f"journal.{number}.jsonl").exists():
                number += 1
            os.replace(path, aside)
    except OSError as error:
        raise RecordError(
            f"the work directory {work_dir} cannot be written ({error.strerror}): "
            "pass another one with --work-dir"
        ) from error
    return Journal(path)


def default_work_dir(what: str, hardware: Hardware) -> Path:
    """Where ``foretune tune INPUT`` keeps its journal when nothing is said."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", Path(what).name if "/" in what else what)
    return Path("foretune-work") / f"{name}-{hardware.key[:6]}"


def _spent(tuner: Tuner, measurer: Measurer) -> dict[str, float]:
    """This run's wall seconds by purpose, in the words of the JSON contract."""
    spent = tuner.clock.to_json()
    if isinstance(measurer, LocalMeasurer):
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
