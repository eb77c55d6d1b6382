"""TVM's own tuner as the peer that foretune is compared with.

The peer runs as a user runs it: ``tune_tir`` on one program, or what ``tune_relax`` does on the
tasks of a model, with its own builder, runner, database, cost model, search, task scheduler and
defaults, in a fresh process of its own. Two things are done for it. Its runtime gets
the real number of threads (TVM's default is half of the processors on x86), because every kernel
would otherwise be timed on half of the machine; its builder and runner workers inherit that.
And its candidates are written down in the order of measurement, because its database keeps none.

``elapsed_s`` counts from the start of the process, imports included, as foretune's own does.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretune import _child
from foretune.errors import ForetuneError, unknown_name

if TYPE_CHECKING:
    from foretune.hardware import Hardware
    from foretune.workload import Workload

_POLL_S = 0.2
_WITHOUT_END = 10**6
"""Trials, where time is what ends a run."""


class PeerError(ForetuneError):
    """TVM's own tuner ended without finishing its trials; the message holds its last words."""


@dataclass(frozen=True)
class PeerOptions:
    """How TVM's tuner is run.

    Attributes:
        num_trials_per_iter: Candidates per batch; None is TVM's default, 64.
        num_warmup_samples: Measured candidates before its cost model predicts anything (until
            then its scores are uniform random numbers); None is TVM's default, 100.
        remove_import_trap: Spare it the import of every tensor intrinsic TVM knows, as foretune
            spares itself. It costs tens of seconds, in the tuning process and again in every
            builder worker (new ones for each batch). A user of TVM does not have this.
        our_space: Give it our space, and build its programs as ours are (``_our_space``), so that
            only the search differs. For single programs, with ``remove_import_trap``.
        note: What a reader of the results must know.
    """

    num_trials_per_iter: int | None = None
    num_warmup_samples: int | None = None
    remove_import_trap: bool = False
    our_space: bool = False
    note: str = ""


PEERS: Mapping[str, PeerOptions] = {
    "metaschedule": PeerOptions(
        note="TVM MetaSchedule with its defaults: 64 candidates per batch, and a cost model that "
        "returns random scores until 100 candidates are measured, so that the first 100 trials "
        "are partly random search"
    ),
    "metaschedule-warm": PeerOptions(
        num_trials_per_iter=16,
        num_warmup_samples=16,
        note="TVM MetaSchedule with 16 candidates per batch and its cost model's warm-up lowered "
        "from 100 to 16 samples; everything else default",
    ),
    "metaschedule-early": PeerOptions(
        num_trials_per_iter=8,
        num_warmup_samples=8,
        remove_import_trap=True,
        note="TVM MetaSchedule with 8 candidates per batch and its cost model's warm-up lowered "
        "from 100 to 8 samples, so that all but its first 8 trials are guided, and spared the "
        "import of every tensor intrinsic; everything else default",
    ),
    "metaschedule-equal": PeerOptions(
        num_trials_per_iter=16,
        num_warmup_samples=16,
        remove_import_trap=True,
        note="TVM MetaSchedule with 16 candidates per batch, as foretune has in runs of some "
        "hundred trials, its cost model's warm-up lowered from 100 to 16 samples, and spared the "
        "import of every tensor intrinsic; everything else default",
    ),
    "metaschedule-quick-start": PeerOptions(
        remove_import_trap=True,
        note="TVM MetaSchedule with its defaults, partly random search like metaschedule, but "
        "spared the import of every tensor intrinsic in the tuning process and in each builder "
        "worker",
    ),
    "metaschedule-our-space": PeerOptions(
        remove_import_trap=True,
        our_space=True,
        note="TVM MetaSchedule as metaschedule-quick-start is, but it searches foretune's space "
        "and its programs are built as foretune's are, so that only the search differs",
    ),
}
"""The peers that ``bench`` knows, by strategy name."""


def peer_options(name: str) -> PeerOptions:
    """The options of a named peer.

    Raises:
        BadInputError: No peer has this name.
    """
    if name not in PEERS:
        raise unknown_name("peer", name, PEERS)
    return PEERS[name]


@dataclass(frozen=True)
class PeerTrial:
    """One candidate that TVM measured.

    Attributes:
        index: Position in the order of measurement, from 1.
        elapsed_s: Seconds from the start of the process until TVM knew the result; all candidates
            of one batch arrive together.
        seconds: Seconds per call as TVM's runner read them; empty when it failed.
        message: Why it failed.
        trace: The schedule's trace as TVM serialises it: ``[instructions, decisions]``.
        workload: Key of the workload.
    """

    index: int
    elapsed_s: float
    seconds: tuple[float, ...]
    message: str
    trace: Any = field(repr=False)
    workload: str

    @property
    def best_s(self) -> float | None:
        """What TVM ranks by: the mean reading. None when it failed."""
        return sum(self.seconds) / len(self.seconds) if self.seconds else None


@dataclass(frozen=True)
class PeerResult:
    """One run of TVM's tuner: its trials in order of measurement, and the whole run's seconds."""

    trials: tuple[PeerTrial, ...]
    elapsed_s: float


def run_peer(
    workload: Workload,
    hardware: Hardware,
    trials: int,
    seed: int,
    options: PeerOptions | None = None,
    timeout_s: float | None = None,
    progress: Callable[[int], None] | None = None,
) -> PeerResult:
    """Runs TVM's own tuner on one workload in a fresh child process.

    Args:
        workload: What to tune.
        hardware: Target, and the number of threads that kernels run on.
        trials: Candidates to measure (TVM's ``max_trials_global``). TVM measures fewer when its
            search finds no more distinct ones.
        seed: TVM's random seed; at least 1 is passed on, as TVM demands.
        options: Departures from TVM's defaults.
        timeout_s: The child and its workers are killed after this.
        progress: Called with the number of candidates measured so far.

    Raises:
        PeerError: The child failed, or ran out of time, before measuring anything.
    """
    request = {"module": workload.module_json, "trials": trials}
    with tempfile.TemporaryDirectory(prefix="foretune-peer-") as folder:
        log, output = Path(folder) / "trials.jsonl", Path(folder) / "output.txt"
        started = time.monotonic()
        ended = _run(request, hardware, seed, options, timeout_s, progress, Path(folder))
        elapsed = time.monotonic() - started
        measured = _read_log(log, started, [workload.key])
        if ended != 0 and len(measured) < trials:
            end = f"no end after {timeout_s} s" if ended is None else _child.how_it_ended(ended)
            raise PeerError(
                f"TVM's tuner measured {len(measured)} of {trials} candidates of "
                f"{workload.name!r} ({end}): {_child.last_lines(output)}"
            )
    return PeerResult(trials=tuple(measured), elapsed_s=elapsed)


def run_peer_on_model(
    model: str,
    hardware: Hardware,
    seconds: float,
    seed: int,
    options: PeerOptions | None = None,
) -> PeerResult:
    """Runs TVM's own tuner on all tasks of a model for so long, in a fresh child process.

    Its task scheduler divides the time. TVM knows no budget in seconds: it is stopped when they are
    over, and a batch that it has not finished then is lost, as it would be to its user.

    Args:
        model: An INPUT of the command line; taken apart in the child, at the expense of its time.
        hardware: Target, and the number of threads that kernels run on.
        seconds: From the start of the process.
        seed: TVM's random seed; at least 1 is passed on, as TVM demands.
        options: Departures from TVM's defaults.

    Returns:
        The candidates of all tasks in the order of measurement; none where the first batch took
        longer than the budget.

    Raises:
        PeerError: The child ended before its time was over, and not because there was nothing left
            to try.
    """
    with tempfile.TemporaryDirectory(prefix="foretune-peer-") as folder:
        log, tasks = Path(folder) / "trials.jsonl", Path(folder) / "tasks.json"
        request = {
            "model": model,
            "tasks": str(tasks),
            "trials": _WITHOUT_END,
        }
        started = time.monotonic()
        ended = _run(request, hardware, seed, options, seconds, None, Path(folder))
        elapsed = time.monotonic() - started
        if ended not in (None, 0):
            raise PeerError(
                f"TVM's tuner ended after {elapsed:.0f} of {seconds:g} s on {model!r} "
                f"({_child.how_it_ended(ended)}): {_child.last_lines(Path(folder) / 'output.txt')}"
            )
        keys = json.loads(tasks.read_text(encoding="utf-8")) if tasks.exists() else []
        measured = _read_log(log, started, keys)
    return PeerResult(trials=tuple(measured), elapsed_s=elapsed)


def _run(
    request: dict[str, Any],
    hardware: Hardware,
    seed: int,
    options: PeerOptions | None,
    timeout_s: float | None,
    progress: Callable[[int], None] | None,
    folder: Path,
) -> int | None:
    """Runs the child to its end; its exit status, None if its time ran out."""
    log, options = folder / "trials.jsonl", options or PeerOptions()
    request |= {
        "hardware": hardware.to_json(),
        "target": json.loads(hardware.target),
        "seed": seed % (2**31 - 1) + 1,
        "num_trials_per_iter": options.num_trials_per_iter,
        "num_warmup_samples": options.num_warmup_samples,
        "remove_import_trap": options.remove_import_trap,
        "our_space": options.our_space,
        "work_dir": str(folder / "work"),
        "log": str(log),
    }
    (folder / "work").mkdir()
    (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
    log.touch()
    command = [
        sys.executable,
        str(Path(__file__).with_name("_child.py")),
        str(folder / "request.json"),
    ]
    look = None if progress is None else _counting(log, progress)
    return _child.run(command, hardware.threads, folder / "output.txt", timeout_s, look, _POLL_S)


def _counting(log: Path, progress: Callable[[int], None]) -> Callable[[], None]:
    """Tells how many lines the log has whenever it has grown."""
    size = 0

    def look() -> None:
        nonlocal size
        if log.stat().st_size != size:
            size = log.stat().st_size
            progress(log.read_bytes().count(b"\n"))

    return look


def _read_log(log: Path, started: float, workloads: Sequence[str]) -> list[PeerTrial]:
    measured: list[PeerTrial] = []
    for line in log.read_text(encoding="utf-8").splitlines():
        try:
            data = json.loads(line)
        except json.JSONDecodeError:
            break  # the child was killed while it wrote its last line
        measured.append(
            PeerTrial(
                index=len(measured) + 1,
                elapsed_s=data["monotonic"] - started,
                seconds=tuple(data["seconds"] or ()),
                message=data["build_error"] or data["run_error"] or "",
                trace=data["trace"],
                workload=workloads[data["task"]],
            )
        )
    return measured
