"""Test and retest: the same candidates measured twice, at least half an hour apart.

``python -m benchmarks.retest first`` measures and writes a file; ``... second`` measures the same
candidates again, compares, and prints. Ours and MetaSchedule's builder and runner take turns,
workload by workload, on the same candidates.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.results import Conditions, conditions, publish, read_json, say, table
from foretune import _tvm
from foretune.bench import write_json
from foretune.errors import BadInputError
from foretune.hardware import Hardware
from foretune.measure import LocalMeasurer, MeasurePolicy, Status
from foretune.metaschedule import measure_candidate
from foretune.space import Candidate, Space
from foretune.workload import Workload, load_input

WORKLOADS = ("matmul_512", "conv2d_3x3", "depthwise_3x3", "attention_qk", "softmax")
OURS, PEER = "foretune", "metaschedule"
_NEVER = 1e9
_TITLE = "Test and retest of measurements"
Reading = dict[str, Any]


def _candidates(name: str, hardware: Hardware, count: int) -> list[Candidate]:
    workload = load_input(name)
    assert isinstance(workload, Workload), f"{name} is a model: name a single tensor program"
    space = Space.generate(workload, hardware)
    return space.sample(np.random.default_rng(0), count)


def measure_ours(hardware: Hardware, candidates: Sequence[Candidate]) -> dict[str, Reading]:
    """Candidate key to status and seconds, measured as in tuning, but none is cut short."""
    with LocalMeasurer(hardware, MeasurePolicy(cut_factor=_NEVER)) as measurer:
        return {
            candidate.key: {
                "status": measured.status.value,
                "seconds": measured.best_s,
                "quiet": any(measured.quiet),
            }
            for candidate, measured in measurer.measure(candidates)
        }


def measure_theirs(hardware: Hardware, candidates: Sequence[Candidate]) -> dict[str, Reading]:
    """The same through MetaSchedule's LocalBuilder and LocalRunner with their defaults."""
    ms = _tvm.meta_schedule
    target = hardware.tvm_target()
    options = json.loads(hardware.target)

    def load() -> None:
        # Spares each builder worker the import of every intrinsic: it would count against the
        # first candidate's build timeout. It changes nothing about the timing.
        from foretune import _tvm

        _tvm.load_intrinsics(_tvm.Target(options))

    builder = ms.builder.LocalBuilder(initializer=load)
    runner = ms.runner.LocalRunner()
    device = hardware.runtime_device
    theirs = [measure_candidate(candidate) for candidate in candidates]
    built = builder.build([ms.builder.BuilderInput(c.sch.mod, target) for c in theirs])
    found: dict[str, Reading] = {}
    for candidate, their, result in zip(candidates, theirs, built, strict=True):
        seconds, message = None, str(result.error_msg or "")
        if result.artifact_path is not None:
            given = ms.runner.RunnerInput(result.artifact_path, device, their.args_info)
            ran = runner.run([given])[0].result()
            if ran.run_secs is not None:
                seconds = float(np.mean([float(s) for s in ran.run_secs]))
            message = str(ran.error_msg or "")
            Path(result.artifact_path).unlink(missing_ok=True)
        status = Status.OK if seconds is not None else Status.RUN_ERROR
        found[candidate.key] = {
            "status": status.value,
            "seconds": seconds,
            "message": message[-300:],
        }
    return found


SIDES = {OURS: measure_ours, PEER: measure_theirs}
CHOICES: dict[str, dict[str, Callable[[Reading], bool]]] = {
    OURS: {
        "all that were timed twice": lambda reading: True,
        "with a quiet reading both times": lambda reading: reading["quiet"],
    },
    PEER: {"all that were timed twice": lambda reading: True},
}


def _phase(options: argparse.Namespace, hardware: Hardware) -> dict[str, Any]:
    began = time.time()
    readings: dict[str, dict[str, dict[str, Reading]]] = {side: {} for side in SIDES}
    for name in options.workloads.split(","):
        candidates = _candidates(name, hardware, options.candidates)
        for side, measure in SIDES.items():
            readings[side][name] = measure(hardware, candidates)
            say(f"{name}  {side}: {len(readings[side][name])} candidates measured")
    return {"began": began, "ended": time.time(), "readings": readings}


def log_ratios(
    first: dict[str, dict[str, Reading]],
    second: dict[str, dict[str, Reading]],
    chosen: Callable[[Reading], bool] = lambda reading: True,
) -> list[float]:
    """Absolute log ratios of the seconds of the candidates that both phases timed and chose."""
    found = []
    for name, readings in first.items():
        for key, one in readings.items():
            other = second.get(name, {}).get(key)
            if other is None or one["seconds"] is None or other["seconds"] is None:
                continue
            if not (chosen(one) and chosen(other)):
                continue
            found.append(abs(float(np.log(one["seconds"] / other["seconds"]))))
    return found


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("phase", choices=["first", "second"])
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--candidates", type=int, default=40, help="per workload")
    parser.add_argument("--gap", type=float, default=1800.0, help="least seconds between phases")
    parser.add_argument("--work-dir", type=Path, default=Path("foretune-work/retest"))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    where = conditions("retest", [0])
    # TVM's workers inherit it; its default is half of the cores.
    os.environ["TVM_NUM_THREADS"] = str(where.hardware.threads)
    options.work_dir.mkdir(parents=True, exist_ok=True)
    path = options.work_dir / "first.json"
    if options.phase == "first":
        write_json(path, _phase(options, where.hardware))
        print(f"written: {path}; run the second phase after {options.gap:.0f} s")
        return
    first = read_json(path)
    waited = time.time() - first["ended"]
    if waited < options.gap:
        raise BadInputError(
            f"{options.gap:.0f} s must lie between the phases, but it has been {waited:.0f} s: "
            "wait, or pass --gap"
        )
    second = _phase(options, where.hardware)
    _report(first, second, where, options)


def _failures(readings: dict[str, dict[str, Reading]]) -> int:
    return sum(one["seconds"] is None for named in readings.values() for one in named.values())


def _report(
    first: dict[str, Any], second: dict[str, Any], where: Conditions, options: argparse.Namespace
) -> None:
    rows, data = [], []
    for side in SIDES:
        for what, chosen in CHOICES[side].items():
            ratios = log_ratios(first["readings"][side], second["readings"][side], chosen)
            # Nothing to compare is a result too: it must not look as if nobody had tried.
            median, high = np.percentile(ratios, [50, 95]) if ratios else (np.nan, np.nan)
            data.append({"side": side, "candidates": what, "count": len(ratios),
                         "median": median, "p95": high, "ratios": ratios})  # fmt: skip
            rows.append([side, what, str(len(ratios)), f"{median:.4f}", f"{high:.4f}"])
    failed = ", ".join(
        f"{side} {sum(_failures(phase['readings'][side]) for phase in (first, second))}"
        for side in SIDES
    )
    gap = second["began"] - first["ended"]
    body = table(
        ["measured by", "candidates", "count", "median |log ratio|", "95th percentile"], rows
    ) + (
        f"\n\n{options.candidates} random candidates of each of {options.workloads}; "
        f"{gap / 60:.1f} minutes from the end of the first phase to the start of the second. "
        "Every candidate gets the readings of the default policy; in tuning, one that is over "
        "three times slower than the best is cut short, which is switched off here. "
        f"Measurements that failed: {failed}."
    )
    result = {"rows": data, "first": first, "second": second}
    publish("retest", _TITLE, body, result, where.end(), options.write)


if __name__ == "__main__":
    main()
