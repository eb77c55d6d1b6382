"""``foretune.tune``: one call from a model or a workload to a result."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretune.cost import CostModel
from foretune.hardware import Devices, Hardware
from foretune.measure import MeasurePolicy, Measurer
from foretune.tuning.asked import Choices, Files, Machine, Method
from foretune.tuning.budget import Budget, check_batch
from foretune.tuning.events import Progress
from foretune.tuning.result import TuneResult
from foretune.tuning.run import Run
from foretune.workload import Model, Workload

if TYPE_CHECKING:
    from foretune.graph import Plan
    from foretune.llm import Session
    from foretune.records import Store
    from foretune.space import Candidate


def tune(
    what: str | Model | Workload | Any,
    *,
    target: str | Hardware | None = None,
    threads: int | None = None,
    strategy: str = "default",
    cost_model: str | CostModel[Candidate] = "default",
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
    cluster: str | None = None,
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
        store: Where records of all runs are kept and looked for; none if None.
        remote: Addresses of devices elsewhere that measure, ``rpc://...``; this machine if none.
        cluster: Address of a Ray cluster whose nodes build programs, ``ray://...``, or ``local``
            for the cores of this machine that nothing is timed on; this machine if None.

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
    choices = Choices.of(without, plan, plan_trials, plan_model, progress)
    files = Files(work_dir, fresh, output, learn_from, store)
    files.check()
    method = Method.of(strategy, cost_model, options or {}, seed, llm)
    machine = Machine.of(target, threads, devices, remote)
    machine = replace(machine, measurer=measurer, policy=policy, cluster=cluster)
    run = Run(budget, files, choices, method, machine, batch, progress, command, began)
    return run.on(what)
