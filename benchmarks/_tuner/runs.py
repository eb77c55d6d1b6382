"""One tuner on one whole network for so long: the runs that the benchmark ``tuners`` compares.

A run is a fresh process, and its clock starts with the process: imports, loading the network and
taking it apart are paid by every side alike. What it leaves is its incumbents, task by task: every
program that it took for the best of a task for a while, and since when.

A finished run is kept and never made again. One that was broken off starts anew, from nothing: a
tuner that goes on in a second process would have started twice, and TVM's would have forgotten its
search.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.cells import digest, kept
from benchmarks.results import read_json
from benchmarks.sources import state_of_side
from foretune import _child, cost
from foretune.bench import Side, SideError, sides
from foretune.hardware import Hardware
from foretune.measure import Status
from foretune.metaschedule import PeerError, PeerTrial, peer_options, run_peer_on_model
from foretune.records import CONFIRM, Journal, Record
from foretune.tuning import JOURNAL, strategy_options
from foretune.workload import Workload

_GRACE_S = 300.0
"""What a tuner of ours may take beyond its time before it counts as stuck."""


@dataclass(frozen=True)
class Incumbent:
    """A program that a run took for the best of a task.

    Attributes:
        elapsed_s: Seconds since the start of the process when it knew.
        seconds: What the run itself read, seconds per call.
        candidate: ``Candidate.to_json()``, or None where ``trace`` is given.
        trace: The trace as TVM serialises it, or None.
    """

    elapsed_s: float
    seconds: float
    candidate: Mapping[str, Any] | None = None
    trace: Any = None


@dataclass(frozen=True)
class NetworkRun:
    """One finished run.

    Attributes:
        side: What the side is called.
        seed: Of everything random.
        elapsed_s: Seconds from the start of the process until it had its result.
        trials: Candidates measured within the time of the plan, over all tasks.
        failed: Those among them without a valid reading.
        reached: Tasks of which a candidate was measured.
        incumbents: Workload key to the incumbents of that task, in order; the last one is what the
            run returned.
        folder: Name of the folder that keeps the run.
    """

    side: str
    seed: int
    elapsed_s: float
    trials: int
    failed: int
    reached: int
    incumbents: Mapping[str, Sequence[Incumbent]]
    folder: str

    def to_json(self) -> dict[str, Any]:
        """A JSON object; ``from_json`` reverses it."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> NetworkRun:
        """Reads what ``to_json`` wrote."""
        found = {
            key: tuple(Incumbent(**each) for each in incumbents)
            for key, incumbents in data["incumbents"].items()
        }
        return cls(**{**data, "incumbents": found})


def side_of(name: str) -> Side:
    """A side by its name: ``strategy+cost model``, a strategy alone, or a peer.

    Before → after: ``"gradient+mlp:formulas"`` → ``Side("gradient", "mlp:formulas")``.

    Raises:
        BadInputError: An unknown strategy, option, cost model or peer, or a language model is
            wanted.
    """
    (side,) = sides([name], ["default"])
    if not side.is_peer:
        strategy_options(side.strategy, {}, has_llm=False)
    return side


def label(side: Side) -> str:
    """What a side is called in tables and files."""
    return side.strategy if side.is_peer else side.name


@dataclass(frozen=True)
class Plan:
    """A run that is to be there.

    Attributes:
        network: An INPUT of the command line.
        side: Who tunes.
        seed: Of everything random.
        time_s: Wall seconds, from the start of the process.
    """

    network: str
    side: Side
    seed: int
    time_s: float

    def folder(self, hardware: Hardware, workloads: Iterable[Workload]) -> str:
        """The name of its folder, another one for whatever would make another run of it.

        Runs of ours count only for the code and the weights that made them.
        """
        tasks = sorted((workload.key, workload.weight) for workload in workloads)
        parts = [self.network, label(self.side), self.seed, self.time_s, hardware.key, tasks]
        if not self.side.is_peer:
            model, _options = cost.split_name(self.side.cost_model)
            parts.append(state_of_side(self.side))
            if model.endswith(".npz"):
                weights = Path(model).read_bytes()
                parts.append(hashlib.blake2b(weights, digest_size=8).hexdigest())
        name = f"{Path(self.network).name}-{label(self.side)}-{self.seed}"
        return f"{re.sub(r'[^A-Za-z0-9_.=+-]', '_', name)}-{digest(parts, 5)}"


def run(
    plan: Plan,
    hardware: Hardware,
    workloads: Sequence[Workload],
    root: Path,
) -> NetworkRun:
    """A run that was finished earlier, or one made now.

    Args:
        plan: Which.
        hardware: What for.
        workloads: The network's tasks, as this process extracted them.
        root: Where runs are kept.

    Raises:
        SideError: The run failed; the next call tries again.
    """
    folder = root / plan.folder(hardware, workloads)
    file = folder / "run.json"
    if not file.exists():
        # Of one that was broken off nothing is left.
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    make = _peer_run if plan.side.is_peer else _our_run
    told = f"{plan.network}  {label(plan.side)}  seed {plan.seed}"
    return NetworkRun.from_json(kept(file, lambda: make(plan, hardware, folder).to_json(), told))


def _peer_run(plan: Plan, hardware: Hardware, folder: Path) -> NetworkRun:
    options = peer_options(plan.side.strategy)
    try:
        result = run_peer_on_model(plan.network, hardware, plan.time_s, plan.seed, options)
    except PeerError as error:
        raise SideError(str(error)) from error
    known = [(each.elapsed_s, each.workload, each.best_s is not None) for each in result.trials]
    return NetworkRun(
        side=label(plan.side),
        seed=plan.seed,
        elapsed_s=result.elapsed_s,
        **counts(known, plan.time_s),
        incumbents=peer_incumbents(result.trials),
        folder=folder.name,
    )


def counts(known: Iterable[tuple[float, str, bool]], time_s: float) -> dict[str, int]:
    """``trials``, ``failed`` and ``reached`` of a run within its time.

    Args:
        known: Of each trial the seconds from the start of the process until its result was known,
            the task, and whether it ran.
        time_s: What became known later, in a last batch for example, does not count.
    """
    within = [(task, ran) for elapsed_s, task, ran in known if elapsed_s <= time_s]
    return {
        "trials": len(within),
        "failed": sum(not ran for _, ran in within),
        "reached": len({task for task, _ in within}),
    }


def peer_incumbents(trials: Iterable[PeerTrial]) -> dict[str, list[Incumbent]]:
    """The bests of every task, by what TVM ranks by, in the order in which it knew them."""
    found: dict[str, list[Incumbent]] = {}
    for trial in trials:
        best, known = trial.best_s, found.get(trial.workload)
        if best is not None and (not known or best < known[-1].seconds):
            incumbent = Incumbent(trial.elapsed_s, best, trace=trial.trace)
            found.setdefault(trial.workload, []).append(incumbent)
    return found


def _our_run(plan: Plan, hardware: Hardware, folder: Path) -> NetworkRun:
    epoch = time.time()
    request = {
        "network": plan.network,
        "hardware": hardware.to_json(),
        "strategy": plan.side.strategy,
        "cost_model": plan.side.cost_model,
        "batch": plan.side.batch,
        "seconds": plan.time_s,
        "seed": plan.seed,
        "epoch": epoch,
        "work_dir": str(folder / "work"),
        "answer": str(folder / "answer.json"),
    }
    (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
    command = [sys.executable, "-m", "benchmarks._tuner.child", str(folder / "request.json")]
    ended = _child.run(command, hardware.threads, folder / "output.txt", plan.time_s + _GRACE_S)
    if ended != 0:
        end = "stuck" if ended is None else _child.how_it_ended(ended)
        words = _child.last_lines(folder / "output.txt")
        raise SideError(f"tuning {plan.network!r} for {plan.time_s:g} s failed ({end}): {words}")
    answer = read_json(folder / "answer.json")
    with Journal(folder / "work" / JOURNAL, read_only=True) as journal:
        records = journal.records()
    known = [
        (record.time - epoch, record.workload, bool(record.measurement.seconds))
        for record in records
        if record.is_counted
    ]
    return NetworkRun(
        side=label(plan.side),
        seed=plan.seed,
        elapsed_s=answer["elapsed_s"],
        **counts(known, plan.time_s),
        incumbents=our_incumbents(records, epoch, answer),
        folder=folder.name,
    )


def our_incumbents(
    records: Iterable[Record], epoch: float, answer: Mapping[str, Any]
) -> dict[str, list[Incumbent]]:
    """The bests of every task, baselines included, and last what the tuner chose.

    Args:
        records: Of the run's journal, in order.
        epoch: When the process started, in seconds since the epoch.
        answer: ``elapsed_s`` of the run, and ``bests``: workload key to candidate and seconds.
    """
    found: dict[str, list[Incumbent]] = {}
    confirmed: dict[str, float] = {}
    for record in records:
        best, known = record.measurement.best_s, found.get(record.workload)
        if record.origin == CONFIRM:
            confirmed[record.workload] = record.time - epoch
        if record.origin == CONFIRM or record.measurement.status is not Status.OK or best is None:
            continue
        if not known or best < known[-1].seconds:
            incumbent = Incumbent(record.time - epoch, best, candidate=record.decisions)
            found.setdefault(record.workload, []).append(incumbent)
    for key, chosen in answer["bests"].items():
        known = found.setdefault(key, [])
        if not known or known[-1].candidate != chosen["candidate"]:
            # Its contenders were timed side by side in the end, and another one was chosen.
            end = confirmed.get(key, answer["elapsed_s"])
            known.append(Incumbent(end, chosen["seconds"], candidate=chosen["candidate"]))
    return found
