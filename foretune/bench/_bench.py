"""The loop of ``foretune bench``: run, write down, re-measure side by side, summarise.

What a tuner says about its own best is not comparable with what another one says about its own:
they time differently, and each picked its luckiest reading. So every candidate that was a best of
any run is measured again, those of all sides interleaved with the untuned program, by one measurer.
``curve`` holds these readings; ``reported`` holds what each run itself believed.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from filelock import FileLock, Timeout

from foretune import _tvm
from foretune._files import write_json
from foretune.bench._elsewhere import fill
from foretune.bench._sides import (
    Point,
    Side,
    SideError,
    SideRun,
    asks_llm,
    curve,
    run_side,
    side_of,
    sides,
    unconfirmed_seconds,
)
from foretune.bench._summary import summarise
from foretune.cluster import Cluster
from foretune.errors import BadInputError, IllegalCandidateError, NothingMeasuredError
from foretune.hardware import Hardware, probe
from foretune.llm import identity
from foretune.measure import LocalMeasurer, Measurer
from foretune.metaschedule import candidate_of_trace
from foretune.space import Candidate, Space
from foretune.tuning import prepare
from foretune.workload import Workload

if TYPE_CHECKING:
    from foretune.measure import MeasurePolicy

SCHEMA = "foretune.bench/1"
_ANSWERS = ".jsonl"
"""Ends the names of files with a language model's answers, which cost money."""
_LONGEST_NAME = 80
"""Characters of a strategy or cost model in a file's name, which has 255 at most."""
Say = Callable[[str], None]


def run_bench(
    workloads: Sequence[str | Workload],
    strategies: Sequence[str],
    trials: int,
    seeds: int | Sequence[int] = 1,
    *,
    peer_trials: int | None = None,
    own_trials: Mapping[str, int] | None = None,
    own_seeds: Mapping[str, int] | None = None,
    cost_models: Sequence[str] = ("default",),
    hardware: Hardware | None = None,
    path: str | Path | None = None,
    work_dir: str | Path | None = None,
    policy: MeasurePolicy | None = None,
    timeout_s: float | None = None,
    state: str | Callable[[Side], str] = "",
    llm: str = "",
    progress: Say | None = None,
    cluster: Cluster | None = None,
) -> dict[str, Any]:
    """Runs strategies against one another on workloads and says which finds faster programs.

    Args:
        workloads: INPUTs of the command line, or workloads. A model counts as the workloads it
            consists of, each run on its own.
        strategies: Names of strategies, or of peers (``"metaschedule"``, ``"metaschedule-warm"``),
            as ``sides`` reads them: also ``"STRATEGY+COST_MODEL"`` and, for batches of ``N``,
            ``"STRATEGY@N"``.
        trials: Measured candidates per run.
        seeds: Runs per workload and side, with seeds 0, 1, 2..., or the seeds themselves. Processes
            whose calls differ in seeds or in workloads can share a ``work_dir``; a call with all of
            them then puts together what they found.
        peer_trials: Measured candidates per run of a peer, if not as many.
        own_trials: The same for some of ``strategies``, by their names there. No side is compared
            beyond the trials of its runs.
        own_seeds: The first so many of ``seeds`` only, for some of ``strategies``, by their names
            there.
        cost_models: Crossed with the strategies that name none; peers bring their own.
        hardware: What to tune for; the machine at hand if None.
        path: The result is written here after every run. Finished runs are kept beside it until
            all are, so that an interrupted benchmark is resumed by the same call.
        work_dir: Where finished runs are kept for good, and found again by later calls with the
            same arguments. Beside ``path`` and not for good if None. Calls side by side, one per
            core for example, share the work: what one is at, the others leave to it until the end.
        policy: How the final, interleaved comparison is measured.
        timeout_s: A single run is killed after this and counts as failed.
        state: Tells runs of our own sides apart that other code or other trained weights made: a
            finished one is found again only under the same text, which becomes part of a file
            name. One text for all, or one for each side. Runs of peers are found under any.
        llm: The language model of strategies with the proposer ``llm``, for example ``mcts:llm``,
            as ``foretune.llm.open_session`` reads it, with this process's environment. Its answers
            are kept beside the runs, and beside ``path`` for good, as a transcript of each.
        progress: Called with one line of text per event.
        cluster: Whose nodes, of this machine's processor, make the runs, a workload and seed at a
            time on each; the comparison of all seeds is made here. None makes all here.

    Returns:
        The ``foretune.bench/1`` object.

    Raises:
        BadInputError: An unknown name, an unreadable input, or a number below one.
        NothingMeasuredError: Every run failed; ``path`` is written all the same, and says why.
        RecordError: A file cannot be written.
    """
    chosen = _seeds(seeds)
    for name, value in (("trials", trials), ("peer_trials", peer_trials)):
        if value is not None and value < 1:
            raise BadInputError(f"`{name} >= 1` must hold, but got {name}={value}")
    contestants = sides(strategies, cost_models)
    own = _own("trials", own_trials or {}, strategies, cost_models)
    first = _own("seeds", own_seeds or {}, strategies, cost_models)
    asks = [
        side.strategy if asks_llm(side.strategy) else side.cost_model
        for side in contestants
        if not side.is_peer and asks_llm(side.strategy, side.cost_model)
    ]
    if asks and not llm:
        raise BadInputError(
            f"{asks[0]!r} needs a language model, but got none: give --llm MODEL@URL, in Python "
            "llm='MODEL@URL', or leave the strategy out"
        )
    if llm and not asks:
        raise BadInputError(
            "a language model is for strategies whose proposer is 'llm' and for the cost model "
            f"behaviour:scores=llm, but none of {', '.join(strategies)} asks one: name mcts:llm or "
            "evolutionary:llm, or leave it out"
        )
    if not contestants or not workloads:
        raise BadInputError("a benchmark needs at least one workload and one strategy")
    hardware = hardware or probe(measure=True)
    programs = _programs(workloads, hardware)
    target = None if path is None else Path(path)
    with tempfile.TemporaryDirectory(prefix="foretune-bench-") as temporary:
        folder = Path(work_dir or (temporary if target is None else f"{target}.runs"))
        bench = _Bench(
            contestants,
            hardware,
            trials,
            peer_trials,
            own,
            {side: chosen[:count] for side, count in first.items()},
            policy,
            timeout_s,
            state,
            llm,
            progress or _silent,
            folder,
            target,
        )
        # The same turn for a seed by itself as among all.
        groups = [
            (seed * len(programs) + place, (seed, workload))
            for seed, (place, workload) in itertools.product(chosen, enumerate(programs))
        ]
        if cluster is not None:
            call = partial(
                run_bench,
                trials=trials,
                peer_trials=peer_trials,
                cost_models=cost_models,
                hardware=hardware,
                policy=policy,
                timeout_s=timeout_s,
                state=state,
            )
            due = []
            for seed, workload in (group for _, group in groups):
                if not bench.is_finished(seed, workload):
                    counts = own_seeds or {}
                    names = [n for n in strategies if seed in chosen[: counts.get(n, len(chosen))]]
                    due.append((seed, workload, {n: (own_trials or {}).get(n) for n in names}))
            fill(cluster, call, due, folder, bench.say)
        # Those that another call is at come last: they are finished then, or left by it.
        left = [group for group in groups if not bench.group(*group, wait=False)]
        for group in left:
            bench.group(*group, wait=True)
        for workload in programs:
            bench.settle(workload)
    if work_dir is None and target is not None:
        _clear(folder)
    result = bench.result()
    if not result["runs"]:
        failures = result["failures"]
        raise NothingMeasuredError(
            f"all {len(failures)} runs of the benchmark failed, the first one so: "
            f"{failures[0]['error']}"
        )
    return result


def _silent(text: str) -> None:
    del text


def _seeds(given: int | Sequence[int]) -> list[int]:
    if isinstance(given, int):
        if given < 1:
            raise BadInputError(f"`seeds >= 1` must hold, but got seeds={given}")
        return list(range(given))
    chosen = list(dict.fromkeys(given))
    if not chosen or min(chosen) < 0:
        raise BadInputError(
            f"seeds must be some numbers from 0 on, but got seeds={chosen}: name them, or give a "
            "count"
        )
    return chosen


def _own(
    what: str, given: Mapping[str, int], strategies: Sequence[str], cost_models: Sequence[str]
) -> dict[Side, int]:
    for name, count in given.items():
        if name not in strategies:
            raise BadInputError(
                f"{what} of their own are for strategies of the benchmark, but {name!r} is none of "
                f"{', '.join(strategies)}: name it there, too"
            )
        if count < 1:
            raise BadInputError(f"`own_{what} >= 1` must hold, but got {count} for {name!r}")
    return {side: given[name] for name in given for side in sides([name], cost_models)}


def _clear(folder: Path) -> None:
    """Removes finished runs, but not what a language model was paid for."""
    for file in folder.iterdir():
        if file.suffix != _ANSWERS:
            file.unlink()
    with suppress(OSError):
        folder.rmdir()


def _programs(workloads: Sequence[str | Workload], hardware: Hardware) -> list[Workload]:
    programs: dict[str, Workload] = {}
    for given in workloads:
        for workload in prepare(given, hardware).workloads:
            programs.setdefault(workload.key, workload)
    return list(programs.values())


class _Bench:
    """The runs made so far, on disk and in memory."""

    def __init__(
        self,
        contestants: Sequence[Side],
        hardware: Hardware,
        trials: int,
        peer_trials: int | None,
        own_trials: Mapping[Side, int],
        own_seeds: Mapping[Side, Sequence[int]],
        policy: MeasurePolicy | None,
        timeout_s: float | None,
        state: str | Callable[[Side], str],
        llm: str,
        say: Say,
        folder: Path,
        path: Path | None,
    ) -> None:
        self.contestants = list(contestants)
        self.hardware = hardware
        self.trials = trials
        self.peer_trials = peer_trials
        self.own_trials = own_trials
        self.own_seeds = own_seeds
        self.policy = policy
        self.timeout_s = timeout_s
        self.state = state
        self.llm = llm
        self.llm_identity = identity(llm) if llm else ""
        self.say = say
        self.folder = folder
        self.path = path
        self._rows: dict[int, list[dict[str, Any]]] = {}
        self.started = time.time()
        self._spaces: dict[str, Space] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInputError(
                f"finished runs cannot be kept in {folder} ({error.strerror}): choose another place"
            ) from error

    @property
    def runs(self) -> list[dict[str, Any]]:
        """All runs made or found so far, in the order of their groups."""
        return [row for turn in sorted(self._rows) for row in self._rows[turn]]

    def is_finished(self, seed: int, workload: Workload) -> bool:
        """Whether every run of a group is found from an earlier call."""
        return all(
            self._file(self._row(side, workload, seed)).exists()
            for side in self.contestants
            if seed in self.own_seeds.get(side, (seed,))
        )

    def group(self, turn: int, of: tuple[int, Workload], wait: bool) -> bool:
        """Runs every side once on one workload with one seed, then compares their incumbents.

        The order of the sides changes from group to group, so that no side always runs first.

        Args:
            turn: Number of the group.
            of: Seed and workload.
            wait: Whether to wait for another call that is at this group.

        Returns:
            Whether that was done; else another call is at it.
        """
        seed, workload = of
        lock = FileLock(self.folder / f"{workload.key}-{self.hardware.key}-{seed}.lock")
        try:
            lock.acquire(timeout=-1 if wait else 0)
        except Timeout:
            self.say(f"{workload.name}  seed {seed}: another call is at it")
            return False
        try:
            self._run_group(workload, seed, turn)
        finally:
            lock.release()
        return True

    def _run_group(self, workload: Workload, seed: int, turn: int) -> None:
        shift = turn % len(self.contestants)
        rows = self._rows.setdefault(turn, [])
        for side in [*self.contestants[shift:], *self.contestants[:shift]]:
            if seed in self.own_seeds.get(side, (seed,)):
                rows.append(self._run(side, workload, seed))
                self._write()
        self._compare(workload, [row for row in rows if "error" not in row])

    def settle(self, workload: Workload) -> None:
        """Compares the incumbents of all seeds of a workload in one sitting.

        What a program takes differs between sittings that are hours apart by more than one search
        is ahead of another.
        """
        with FileLock(self.folder / f"{workload.key}-{self.hardware.key}.lock"):
            rows = [row for row in self.runs if row["key"] == workload.key and "error" not in row]
            self._compare(workload, rows)

    def result(self) -> dict[str, Any]:
        """The ``foretune.bench/1`` object of what has been run."""
        done = [row for row in self.runs if "curve" in row and "error" not in row]
        return {
            "schema": SCHEMA,
            "hardware": self.hardware.to_json(),
            "trials": self.trials,
            **({} if self.peer_trials is None else {"peer_trials": self.peer_trials}),
            "started": self.started,
            "versions": _tvm.versions(),
            "notes": {side.strategy: side.note for side in self.contestants if side.note},
            "runs": [{k: v for k, v in row.items() if k != "raw"} for row in done],
            "failures": [row for row in self.runs if "error" in row],
            "summary": summarise(done, self.trials, np.random.default_rng(0)),
        }

    def _trials_of(self, side: Side) -> int:
        others = (self.peer_trials or self.trials) if side.is_peer else self.trials
        return self.own_trials.get(side, others)

    def _state_of(self, side: Side) -> str:
        return self.state(side) if callable(self.state) else self.state

    def _file(self, row: Mapping[str, Any]) -> Path:
        side = side_of(row)
        parts = [row["key"], self.hardware.key]
        parts += [_file_name(side.strategy), _file_name(side.cost_model)]
        parts += [self._trials_of(side), row["seed"]]
        if side.batch is not None:
            parts.append(f"batch{side.batch}")
        if not side.is_peer and (state := self._state_of(side)):
            parts.append(_file_name(state))
        if self.llm and asks_llm(side.strategy, side.cost_model):
            parts.append(self.llm_identity)
        return self.folder / ("-".join(map(str, parts)) + ".json")

    def _row(self, side: Side, workload: Workload, seed: int) -> dict[str, Any]:
        return {
            "workload": workload.name,
            "key": workload.key,
            "strategy": side.strategy,
            "cost_model": side.cost_model,
            **({} if side.batch is None else {"batch": side.batch}),
            "seed": seed,
            "budget": self._trials_of(side),
        }

    def _run(self, side: Side, workload: Workload, seed: int) -> dict[str, Any]:
        row = self._row(side, workload, seed)
        label = f"{workload.name}  {side.name}  seed {seed}"
        saved = self._file(row)
        asked = bool(self.llm) and asks_llm(side.strategy, side.cost_model)
        if saved.exists():
            self.say(f"{label}: found from an earlier call")
            # Weights are told apart by what is in them: their file may have had another name.
            return {**json.loads(saved.read_text(encoding="utf-8")), **row}
        began = time.time()
        try:
            with tempfile.TemporaryDirectory(prefix="foretune-run-") as folder:
                run = run_side(
                    side,
                    workload,
                    self.hardware,
                    row["budget"],
                    seed,
                    Path(folder),
                    self.timeout_s,
                    llm=self.llm,
                    transcript=saved.with_suffix(_ANSWERS) if asked else None,
                )
        except SideError as error:
            self.say(f"{label}: failed: {error}")
            return {**row, "error": str(error)}
        rate = run.trials / run.elapsed_s
        self.say(f"{label}: {run.trials} trials in {run.elapsed_s:.1f} s, {rate:.2f}/s")
        if run.llm is not None and run.llm["left_out"]:
            self.say(f"{label}: the language model was left out: {run.llm['left_out']}")
        row |= {
            "began": began,
            "elapsed_s": run.elapsed_s,
            "trials_per_s": rate,
            "trials": run.trials,
            "failed": run.failed,
            "spent_s": dict(run.spent_s),
            **({} if run.llm is None else {"llm": dict(run.llm)}),
            "reported": curve(run, [point.seconds for point in run.points]),
            "raw": run.to_json(),
        }
        self._save(row)
        return row

    def _compare(self, workload: Workload, rows: Sequence[dict[str, Any]]) -> None:
        """Measures the incumbents of all rows again, interleaved, and fills in the curves.

        Rows that have been compared with one another, by whichever call, are left as they are.
        """
        for row in rows:
            row.update(self._compared(row))
        sittings = {row.get("compared") for row in rows}
        if len(sittings) <= 1 and None not in sittings:
            return
        if workload.key not in self._spaces:
            self._spaces[workload.key] = Space.generate(workload, self.hardware)
        space = self._spaces[workload.key]
        finished = [SideRun.from_json(row["raw"]) for row in rows]
        pools = [[_candidate(point, space) for point in run.points] for run in finished]
        with LocalMeasurer(self.hardware, self.policy) as measurer:
            seconds = compare(measurer, [space.untuned, *(c for pool in pools for c in pool)])
        compared = time.time()
        for row, run, pool in zip(rows, finished, pools, strict=True):
            row["compared"] = compared
            row["untuned_s"] = seconds.get(space.untuned.key)
            confirmed = [seconds.get(candidate.key) for candidate in pool]
            row["curve"] = curve(run, confirmed)
            row["unconfirmed_s"] = unconfirmed_seconds(run, confirmed)
            best = row["curve"][-1][2] if row["curve"] else None
            self.say(
                f"{workload.name}  {side_of(row).name}  "
                f"seed {row['seed']}: best {_ms(best)}, untuned {_ms(row['untuned_s'])}"
            )
            self._save(row)
        self._write()

    def _compared(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """What the last comparison of a finished run has left, which may be another call's."""
        saved = json.loads(self._file(row).read_text(encoding="utf-8"))
        names = ("compared", "untuned_s", "curve", "unconfirmed_s")
        return {name: saved[name] for name in names if name in saved}

    def _save(self, row: Mapping[str, Any]) -> None:
        write_json(self._file(row), row)

    def _write(self) -> None:
        if self.path is not None:
            write_json(self.path, self.result())


def compare(measurer: Measurer, candidates: Sequence[Candidate]) -> dict[str, float]:
    """Seconds per call of distinct candidates, measured interleaved, by candidate key.

    A candidate that could not be measured is left out.
    """
    distinct = list({candidate.key: candidate for candidate in candidates}.values())
    seconds = {}
    for candidate, measurement in zip(distinct, measurer.compare(distinct), strict=True):
        best = measurement.best_s
        if best is not None and measurement.ran:
            seconds[candidate.key] = best
    return seconds


def _candidate(point: Point, space: Space) -> Candidate:
    if point.candidate is not None:
        try:
            return space.candidate(point.candidate)
        except IllegalCandidateError as error:
            raise BadInputError(
                f"an earlier run's candidate no longer fits its space ({error}): "
                "run again with an empty work directory"
            ) from error
    return candidate_of_trace(point.trace, space)


def _ms(seconds: float | None) -> str:
    return "unknown" if seconds is None else f"{seconds * 1e3:.4f} ms"


def _file_name(name: str) -> str:
    """A strategy or cost model with its options, as a part of a file's name.

    Before → after: ``gradient:weights=/a/net.npz`` → ``gradient:weights=net.8d1f0c5e21aa``. Files
    are told apart by what is in them, wherever they are; other names that no file can have, or
    that differ in such letters only, by a digest.
    """
    words = []
    for word in name.split(":"):
        option, equals, value = word.rpartition("=")
        path = Path(value)
        if os.path.isfile(value) and (path.suffix == ".npz" or os.sep in value):
            value = f"{path.stem}.{_digest(path.read_bytes())}"
        words.append(f"{option}{equals}{value}")
    told = ":".join(words)
    plain = re.sub(r"[^A-Za-z0-9_.:=+,@ -]", "_", told)[:_LONGEST_NAME]
    return told if plain == told else f"{plain}.{_digest(os.fsencode(told))}"


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=6).hexdigest()
