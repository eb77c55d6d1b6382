"""What runs of tuners on one network found, measured again side by side.

What a tuner says of its own bests does not compare with what another one says of its own: they time
differently, and each picked its luckiest reading. So the incumbents of all runs are measured again
by one measurer, those of one task interleaved with its untuned program. With these readings a
run's estimate of the network's latency follows over time: the weighted sum of what it would have
shipped for each task, the default schedule where it had nothing yet. In the end the networks
themselves are compared: the bests of every run are compiled by the same builder, and the artifacts
of one seed are timed in rounds.

Readings are kept task by task, so that an interrupted comparison goes on.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks._tuner.runs import Incumbent, NetworkRun
from benchmarks.cells import digest
from benchmarks.results import read_json
from foretune import engines
from foretune.bench import compare, write_json
from foretune.errors import ForetuneError, NothingMeasuredError
from foretune.graph import Extraction, compile_model
from foretune.hardware import Hardware
from foretune.measure import LocalMeasurer, Measurer
from foretune.metaschedule import candidate_of_trace
from foretune.space import Candidate, Space
from foretune.workload import Model, Workload

STEP = 0.99
"""An incumbent that takes more than this share of the last one measured again is left out."""

Say = Callable[[str], None]
Steps = Mapping[str, Sequence[tuple[float, Candidate]]]
"""Workload key to the seconds since when, and the candidates that, a run had for its best."""
Readings = Mapping[str, Mapping[str, float]]
"""Workload key to the seconds per call of candidates, by their keys."""


@dataclass(frozen=True)
class Network:
    """A network whose tuners are compared.

    Attributes:
        model: The network.
        hardware: What it is tuned for.
        extraction: How it was taken apart.
        spaces: Workload key to its space; operators without one are no tasks.
    """

    model: Model
    hardware: Hardware
    extraction: Extraction
    spaces: Mapping[str, Space]

    @classmethod
    def of(cls, model: Model, hardware: Hardware, extraction: Extraction) -> Network:
        """Generates the spaces of a network that was taken apart."""
        spaces = {}
        for workload in extraction.workloads:
            try:
                spaces[workload.key] = Space.generate(workload, hardware)
            except ForetuneError:
                continue
        return cls(model, hardware, extraction, spaces)

    @property
    def tasks(self) -> list[Workload]:
        """The workloads that are tuned."""
        return [w for w in self.extraction.workloads if w.key in self.spaces]

    def default(self, key: str) -> Candidate:
        """What a task ships without tuning."""
        space = self.spaces[key]
        return space.default if space.default is not None else space.untuned


def steps_of(run: NetworkRun, network: Network, time_s: float = math.inf) -> Steps:
    """A run's incumbents as candidates, those left out that hardly gained.

    Args:
        run: The run.
        network: Whose tasks.
        time_s: What it came to know later than this, in a last batch for example, does not count.
    """
    steps = {}
    for key, found in run.incumbents.items():
        in_time = thinned([each for each in found if each.elapsed_s <= time_s])
        if key in network.spaces and in_time:
            space = network.spaces[key]
            steps[key] = [(each.elapsed_s, _candidate(each, space)) for each in in_time]
    return steps


def thinned(incumbents: Sequence[Incumbent]) -> list[Incumbent]:
    """The first one, the last one, and every one that gains ``STEP`` over the last one kept.

    Before → after, in seconds: ``2, 1.99, 1.5, 1.49`` → ``2, 1.5, 1.49``.
    """
    kept: list[Incumbent] = []
    for each in incumbents:
        if not kept or each is incumbents[-1] or each.seconds <= STEP * kept[-1].seconds:
            kept.append(each)
    return kept


def _candidate(incumbent: Incumbent, space: Space) -> Candidate:
    if incumbent.candidate is None:
        return candidate_of_trace(incumbent.trace, space)
    return space.candidate(incumbent.candidate)


def measured_again(
    network: Network, runs: Mapping[str, Steps], measurer: Measurer, root: Path, say: Say
) -> Readings:
    """Seconds per call of every candidate of all runs, and of what tuning has to beat.

    Args:
        network: Whose tasks.
        runs: By name.
        measurer: Who measures.
        root: Where the readings are kept; the same runs are not measured twice.
        say: Told after every task.
    """
    pools = {
        key: [space.untuned, network.default(key)]
        + [candidate for steps in runs.values() for _, candidate in steps.get(key, ())]
        for key, space in network.spaces.items()
    }
    names = {key: sorted({c.key for c in pool}) for key, pool in pools.items()}
    file = root / f"readings-{digest([network.hardware.key, names])}.json"
    readings: dict[str, dict[str, float]] = read_json(file) if file.exists() else {}
    for done, task in enumerate(network.tasks, start=1):
        if task.key in readings:
            continue
        readings[task.key] = compare(measurer, pools[task.key])
        write_json(file, readings)
        say(f"task {done} of {len(pools)}: {len(names[task.key])} programs measured again")
    return readings


def curve(steps: Steps, network: Network, readings: Readings) -> list[list[float]]:
    """``[elapsed_s, latency_s]`` of the network, from nothing on, whenever a task changed.

    Args:
        steps: Of one run.
        network: Whose tasks; the latency is their weighted sum.
        readings: Of all programs; one without a reading is passed over.
    """
    weights = {task.key: task.weight for task in network.tasks}
    now = {key: _reading(readings, key, network.default(key)) for key in weights}
    changes = [
        (elapsed, key, seconds)
        for key, found in steps.items()
        for elapsed, candidate in found
        if (seconds := readings[key].get(candidate.key)) is not None
    ]
    # Results of a peer's batch arrive together: among them the order stays.
    changes.sort(key=lambda change: change[0])
    points = [[0.0, sum(weights[key] * seconds for key, seconds in now.items())]]
    for elapsed, key, seconds in changes:
        now[key] = seconds
        points.append([elapsed, sum(weights[k] * value for k, value in now.items())])
    return points


def _reading(readings: Readings, key: str, candidate: Candidate) -> float:
    """A baseline's; the slowest program of the task stands in for one that cannot be read.

    Raises:
        NothingMeasuredError: No program of the task can be read.
    """
    found = readings[key].get(candidate.key)
    if found is None and not readings[key]:
        raise NothingMeasuredError(
            f"at least 1 program of every task must be measurable, but of {key} none is: leave the "
            "network out, or see why with `foretune tune`"
        )
    return found if found is not None else max(readings[key].values())


def unread(network: Network, readings: Readings) -> list[list[str]]:
    """Task and ``"untuned"`` or ``"default"``, of baselines for which another reading stands in."""
    baselines = [
        (task, name, baseline.key)
        for task in network.tasks
        for name, baseline in (
            ("untuned", network.spaces[task.key].untuned),
            ("default", network.default(task.key)),
        )
    ]
    return [[task.name, name] for task, name, key in baselines if key not in readings[task.key]]


def untuned_s(network: Network, readings: Readings) -> float:
    """The weighted sum of the untuned programs."""
    return sum(
        task.weight * _reading(readings, task.key, network.spaces[task.key].untuned)
        for task in network.tasks
    )


def shipped(steps: Steps, readings: Readings) -> dict[str, Candidate]:
    """What a run would have compiled: the last program of each task that could be read again."""
    return {
        key: valid[-1]
        for key, found in steps.items()
        if (valid := [c for _, c in found if c.key in readings[key]])
    }


def whole_networks(
    network: Network,
    bests: Mapping[str, Mapping[str, Candidate]],
    rounds: int,
    root: Path,
    say: Say,
) -> dict[str, Any]:
    """The artifacts of several sides, timed in turns: the JSON of ``engines.compare`` by side.

    Args:
        network: What is compiled.
        bests: Side to what it would have compiled.
        rounds: Readings of each artifact.
        root: Where results are kept; the same programs are not timed twice.
        say: Told what happens.
    """
    hardware = network.hardware
    names = {side: {k: c.key for k, c in found.items()} for side, found in bests.items()}
    file = root / f"whole-{digest([network.model.name, hardware.key, names, rounds])}.json"
    if file.exists():
        kept: dict[str, Any] = read_json(file)
        return kept
    with tempfile.TemporaryDirectory(prefix="foretune-tuners-") as folder:
        paths = {}
        for number, (side, found) in enumerate(bests.items()):
            artifact = compile_model(network.model, hardware, found, network.extraction)
            paths[side] = artifact.save(Path(folder) / f"side{number}.so")
        compared = engines.compare(
            network.model, paths, [], threads=hardware.threads, rounds=rounds, progress=say
        )
    results = {side: result.to_json() for side, result in compared.items()}
    if not any(result.get("error") for result in results.values()):
        # What failed may have failed by the machine, and is tried again.
        write_json(file, results)
    return results


def compared(
    network: Network,
    runs: Sequence[NetworkRun],
    rounds: int,
    root: Path,
    say: Say,
    time_s: float = math.inf,
) -> dict[str, Any]:
    """Everything the tables need of one network.

    Args:
        network: The network.
        runs: Of all sides and seeds, at least one.
        rounds: Readings of each artifact; 0 to compare no whole networks.
        root: Where readings are kept.
        say: Told what happens.
        time_s: What runs came to know later does not count.

    Returns:
        ``tasks``, ``untuned_s``, ``default_s``, ``unread``: tasks without a reading of one of these
        two, ``runs``: each with its ``curve``, and ``whole``: seed to the results of each side.
    """
    steps = {run.folder: steps_of(run, network, time_s) for run in runs}
    with LocalMeasurer(network.hardware) as measurer:
        readings = measured_again(network, steps, measurer, root, say)
    rows = [
        {
            "side": run.side,
            "seed": run.seed,
            "elapsed_s": run.elapsed_s,
            "trials": run.trials,
            "failed": run.failed,
            "reached": run.reached,
            "curve": curve(steps[run.folder], network, readings),
        }
        for run in runs
    ]
    whole = {}
    for seed, of_seed in _by_seed(runs) if rounds else ():
        say(f"whole networks of seed {seed}")
        bests = {run.side: shipped(steps[run.folder], readings) for run in of_seed}
        whole[str(seed)] = whole_networks(network, bests, rounds, root, say)
    return {
        "tasks": len(network.tasks),
        "untuned_s": untuned_s(network, readings),
        "default_s": curve({}, network, readings)[0][1],
        "unread": unread(network, readings),
        "runs": rows,
        "whole": whole,
    }


def _by_seed(runs: Sequence[NetworkRun]) -> Iterator[tuple[int, list[NetworkRun]]]:
    for seed in sorted({run.seed for run in runs}):
        yield seed, [run for run in runs if run.seed == seed]
