"""One side of a benchmark: a strategy run once on one workload, in a fresh process.

Both foretune and its peer are timed from the start of their process, imports included. What a run
hands back is its incumbents: every candidate that was its best for a while, and since which trial.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretune import _child, cost, search
from foretune.errors import BadInputError, ForetuneError
from foretune.measure import Status
from foretune.metaschedule import PEERS, PeerError, PeerTrial, peer_options, run_peer
from foretune.records import Journal
from foretune.tuning import resolve_names

if TYPE_CHECKING:
    from foretune.hardware import Hardware
    from foretune.workload import Workload

PEER_COST_MODEL = "xgb"


class SideError(ForetuneError):
    """One run of a benchmark failed; the message says why. The benchmark goes on."""


@dataclass(frozen=True)
class Side:
    """What is compared: a strategy with a cost model, or a peer.

    Attributes:
        strategy: Name of a strategy or of a peer.
        cost_model: Name of a cost model; ``"xgb"``, TVM's own, for a peer.
        batch: Candidates per round; fitted to the trials if None. None for a peer.
    """

    strategy: str
    cost_model: str
    batch: int | None = None

    @property
    def name(self) -> str:
        """``STRATEGY+COST_MODEL``, or ``STRATEGY+COST_MODEL@BATCH``, as ``sides`` reads it."""
        batch = "" if self.batch is None else f"@{self.batch}"
        return f"{self.strategy}+{self.cost_model}{batch}"

    @property
    def is_peer(self) -> bool:
        """Whether another tuner runs."""
        return self.strategy in PEERS

    @property
    def note(self) -> str:
        """What a reader of the results must know about this side."""
        return peer_options(self.strategy).note if self.is_peer else ""


def side_of(run: Mapping[str, Any]) -> Side:
    """The side that made a run of a ``foretune.bench/1`` object."""
    return Side(run["strategy"], run["cost_model"], run.get("batch"))


def asks_llm(strategy: str, cost_model: str = "") -> bool:
    """Whether the name of a strategy or of a cost model asks for a language model."""
    proposes = search.proposers.asks_llm(search.split_name(strategy)[1].get("proposer"))
    return bool(proposes or cost.asks_llm(cost_model))


def sides(strategies: Sequence[str], cost_models: Sequence[str]) -> list[Side]:
    """Crosses strategies with cost models; peers bring their own.

    Args:
        strategies: Names of strategies and peers. ``"STRATEGY+COST_MODEL"`` is a single side, and
            ``"@N"`` behind either gives it batches of ``N`` candidates.
        cost_models: For the strategies that name none.

    Raises:
        BadInputError: An unknown strategy or cost model, or one or a batch for a peer.
    """
    for model in cost_models:
        # Where every strategy names its own, nobody else would look at them.
        resolve_names("random", model, {})
    sides: dict[Side, None] = {}
    for given in strategies:
        name, batch = _batch_of(given)
        strategy, plus, own = name.partition("+")
        if strategy in PEERS:
            if batch is not None:
                raise BadInputError(
                    f"{strategy} has batches of its own, but got {given!r}: leave @{batch} out"
                )
            if plus:
                raise BadInputError(
                    f"{strategy} brings its own cost model, but got {name!r}: leave +{own} out"
                )
            sides[Side(strategy, PEER_COST_MODEL)] = None
            continue
        for model in [own] if plus else cost_models:
            try:
                sides[Side(*resolve_names(strategy, model, {}), batch)] = None
            except BadInputError as error:
                raise BadInputError(
                    f"{error}; a benchmark takes peers as strategies, too: {', '.join(PEERS)}"
                ) from error
    return list(sides)


def _batch_of(name: str) -> tuple[str, int | None]:
    """Takes ``@N`` off the end of a side's name; file names may have other ones."""
    matched = re.fullmatch(r"(.+)@(\d+)", name)
    if matched is None:
        return name, None
    if int(matched[2]) < 1:
        raise BadInputError(
            f"`batch >= 1` must hold, but got @{matched[2]} in {name!r}: leave it out for one that "
            "fits the trials"
        )
    return matched[1], int(matched[2])


@dataclass(frozen=True)
class Point:
    """The best-so-far of a run changed here.

    Attributes:
        trials: Trials spent when this candidate became the best (1 for the first).
        elapsed_s: Seconds since the start of the process.
        seconds: What the run itself read, seconds per call.
        candidate: ``Candidate.to_json()``, or None where ``trace`` is given.
        trace: The trace as TVM serialises it, or None.
        confirmed: Whether it was chosen at the end, by timing the last few contenders side by side,
            and is not what was read as best.
    """

    trials: int
    elapsed_s: float
    seconds: float
    candidate: Mapping[str, Any] | None = None
    trace: Any = None
    confirmed: bool = False

    def to_json(self) -> dict[str, Any]:
        """A JSON object; ``Point(**data)`` reverses it."""
        return asdict(self)


@dataclass(frozen=True)
class SideRun:
    """One finished run.

    Attributes:
        trials: Candidates measured.
        failed: Those among them without a valid reading.
        elapsed_s: Seconds from the start of the process to its end.
        points: The incumbents, in order; the last one is what the run returned.
        arrivals: Seconds since the start at which each trial's result was known.
        spent_s: Seconds by purpose, where the tuner tells.
        llm: What a language model was asked, where one was.
    """

    trials: int
    failed: int
    elapsed_s: float
    points: tuple[Point, ...]
    arrivals: tuple[float, ...]
    spent_s: Mapping[str, float]
    llm: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """A JSON object; ``from_json`` reverses it."""
        return {**asdict(self), "points": [p.to_json() for p in self.points]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SideRun:
        """Reads what ``to_json`` wrote."""
        points = tuple(Point(**point) for point in data["points"])
        return cls(**{**data, "points": points, "arrivals": tuple(data["arrivals"])})


def curve(run: SideRun, seconds: Sequence[float | None]) -> list[list[float]]:
    """``[trials, elapsed_s, best_s]`` for every trial from the first valid one on.

    Args:
        run: A finished run.
        seconds: Of each of its incumbents, seconds per call; None leaves it out.
    """
    points: list[list[float]] = []
    for point, value in zip(run.points, seconds, strict=True):
        if value is None:
            continue
        while points and points[-1][0] < point.trials - 1:
            trial = int(points[-1][0]) + 1
            points.append([trial, run.arrivals[trial - 1], points[-1][2]])
        if points and points[-1][0] == point.trials:
            points.pop()
        points.append([point.trials, point.elapsed_s, value])
    while points and points[-1][0] < run.trials:
        trial = int(points[-1][0]) + 1
        points.append([trial, run.arrivals[trial - 1], points[-1][2]])
    return points


def unconfirmed_seconds(run: SideRun, seconds: Sequence[float | None]) -> float | None:
    """Seconds of what a run itself read as best, whatever its tuner chose in the end.

    Args:
        run: A finished run.
        seconds: As for ``curve``.
    """
    pairs = zip(run.points, seconds, strict=True)
    known = [value for point, value in pairs if value is not None and not point.confirmed]
    return known[-1] if known else None


def run_side(
    side: Side,
    workload: Workload,
    hardware: Hardware,
    trials: int,
    seed: int,
    folder: Path,
    timeout_s: float | None = None,
    progress: Callable[[int], None] | None = None,
    llm: str = "",
    transcript: Path | None = None,
) -> SideRun:
    """Runs one side once, in a fresh process.

    Args:
        side: What to run.
        workload: What to tune.
        hardware: What for.
        trials: Candidates to measure.
        seed: Seeds everything random.
        folder: An empty folder for the run's files.
        timeout_s: The run is killed after this.
        progress: Called with the number of trials so far (peers: after every batch).
        llm: The language model of sides whose proposer is ``llm``, as ``foretune.llm.open_session``
            reads it.
        transcript: Where its answers are kept, and known from; in ``folder`` if None.

    Raises:
        SideError: The run failed.
    """
    if side.is_peer:
        try:
            result = run_peer(
                workload, hardware, trials, seed, peer_options(side.strategy), timeout_s, progress
            )
        except PeerError as error:
            raise SideError(str(error)) from error
        return _peer_side(result.trials, result.elapsed_s)
    told = {"llm": llm, "transcript": None if transcript is None else str(transcript)}
    return _run_ours(side, workload, hardware, trials, seed, folder, timeout_s, told)


def _peer_side(trials: Sequence[PeerTrial], elapsed_s: float) -> SideRun:
    points: list[Point] = []
    for trial in trials:
        best = trial.best_s
        if best is not None and (not points or best < points[-1].seconds):
            points.append(Point(trial.index, trial.elapsed_s, best, trace=trial.trace))
    return SideRun(
        trials=len(trials),
        failed=sum(trial.best_s is None for trial in trials),
        elapsed_s=elapsed_s,
        points=tuple(points),
        arrivals=tuple(trial.elapsed_s for trial in trials),
        spent_s={},
    )


def _run_ours(
    side: Side,
    workload: Workload,
    hardware: Hardware,
    trials: int,
    seed: int,
    folder: Path,
    timeout_s: float | None,
    told: Mapping[str, Any],
) -> SideRun:
    request = {
        "hardware": hardware.to_json(),
        "workload": asdict(workload),
        "strategy": side.strategy,
        "cost_model": side.cost_model,
        "trials": trials,
        "batch": side.batch,
        "seed": seed,
        "work_dir": str(folder / "work"),
        "answer": str(folder / "answer.json"),
        **told,
    }
    (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
    epoch, started = time.time(), time.monotonic()
    command = [
        sys.executable,
        str(Path(__file__).with_name("_ours.py")),
        str(folder / "request.json"),
    ]
    ended = _child.run(command, hardware.threads, folder / "output.txt", timeout_s)
    elapsed = time.monotonic() - started
    if ended != 0:
        words = _child.last_lines(folder / "output.txt")
        end = f"no end after {timeout_s} s" if ended is None else _child.how_it_ended(ended)
        raise SideError(f"tuning {workload.name!r} failed ({end}): {words}")
    answer = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
    return _our_side(answer, folder / "work" / "journal.jsonl", workload.key, epoch, elapsed)


def _our_side(
    answer: Mapping[str, Any], journal: Path, key: str, epoch: float, elapsed_s: float
) -> SideRun:
    with Journal(journal, read_only=True) as opened:
        records = [r for r in opened.records(workload=key) if r.is_counted]
    points: list[Point] = []
    for count, record in enumerate(records, start=1):
        best = record.measurement.best_s
        valid = record.measurement.status is Status.OK and best is not None
        if valid and best is not None and (not points or best < points[-1].seconds):
            points.append(Point(count, record.time - epoch, best, candidate=record.decisions))
    llm = answer["result"].get("llm")
    if llm is not None and not llm["answers"] and not llm["cached"]:
        unasked = "it was not asked in so few rounds: give more trials or smaller batches, as S@4"
        raise SideError(f"the language model answered nothing: {llm['left_out'] or unasked}")
    task = answer["result"]["tasks"][0]
    if answer["best"] is not None and points and answer["best"] != points[-1].candidate:
        # The tuner confirmed its last few contenders and chose another one than it read as best.
        points.append(
            Point(len(records), elapsed_s, task["best_s"], candidate=answer["best"], confirmed=True)
        )
    spent = {k: v for k, v in answer["result"].items() if k.endswith("_s") and v is not None}
    return SideRun(
        trials=len(records),
        failed=sum(not r.measurement.seconds for r in records),
        elapsed_s=elapsed_s,
        points=tuple(points),
        arrivals=tuple(r.time - epoch for r in records),
        spent_s=spent,
        llm=llm,
    )
