"""Measures small spaces of ours whole, for the search benchmark on replay (``data/small``).

Every candidate of every space is measured as in tuning, but none is cut short. Extents with few
divisors keep the spaces small. Records are kept in the work directory; called again, it goes on
where it was interrupted. Once all are measured, they are written as a data set.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.results import ROOT, say, table
from foretune import _tvm
from foretune.dataset import StoredWorkload, load, write_dataset
from foretune.errors import BadInputError
from foretune.evaluate.tables import MeasuredSpace, every_candidate
from foretune.hardware import Hardware, probe
from foretune.measure import LocalMeasurer, MeasurePolicy, Measurer
from foretune.records import Journal, Record
from foretune.space import Space
from foretune.workload import Workload
from foretune.workload.training import operator_kind

SMALLEST, LARGEST = 60, 1500
"""Candidates of a space that is measured whole."""
_ORIGIN = "everything"
_NEVER = 1e9
_BATCH = 64
_TARGET = ROOT / "data" / "small"


def row_sum() -> Any:
    """Sums of 16384 rows of 127."""
    te = _tvm.tvm.te
    x, k = te.placeholder((16384, 127), name="x"), te.reduce_axis((0, 127), name="k")
    return [x, te.compute((16384,), lambda i: te.sum(x[i, k], axis=k), name="y")]


def row_maximum() -> Any:
    """Largest entries of 2048 rows of 961."""
    te = _tvm.tvm.te
    x, k = te.placeholder((2048, 961), name="x"), te.reduce_axis((0, 961), name="k")
    return [x, te.compute((2048,), lambda i: te.max(x[i, k], axis=k), name="y")]


def global_average() -> Any:
    """Mean over 7x7 positions of 49152 channels."""
    te = _tvm.tvm.te
    x, k = te.placeholder((49, 49152), name="x"), te.reduce_axis((0, 49), name="k")
    return [x, te.compute((49152,), lambda i: te.sum(x[k, i] * (1.0 / 49), axis=k), name="y")]


def max_pool() -> Any:
    """Max pooling 3x3 stride 2, 1x113x113x64."""
    te = _tvm.tvm.te
    x = te.placeholder((1, 113, 113, 64), name="x")
    a, b = te.reduce_axis((0, 3), name="a"), te.reduce_axis((0, 3), name="b")
    return [
        x,
        te.compute(
            (1, 56, 56, 64),
            lambda n, i, j, c: te.max(x[n, 2 * i + a, 2 * j + b, c], axis=[a, b]),
            name="y",
        ),
    ]


def vector_matrix() -> Any:
    """A vector of 1021 by a matrix of 1021x1021."""
    te = _tvm.tvm.te
    x, w = te.placeholder((1, 1021), name="x"), te.placeholder((1021, 1021), name="w")
    k = te.reduce_axis((0, 1021), name="k")
    return [x, w, te.compute((1, 1021), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k), name="y")]


WORKLOADS: Mapping[str, Callable[[], Any]] = {
    f"small_{build.__name__}": build
    for build in (row_sum, row_maximum, global_average, max_pool, vector_matrix)
}


def workload(name: str) -> Workload:
    """A workload of ``WORKLOADS``."""
    function = _tvm.tvm.te.create_prim_func(WORKLOADS[name]())
    return Workload.from_module(function, name)


def space_of(name: str, hardware: Hardware) -> Space:
    """Its space.

    Raises:
        BadInputError: It has fewer candidates than a search needs, or more than are measured.
    """
    space = Space.generate(workload(name), hardware)
    if not SMALLEST <= space.size <= LARGEST:
        raise BadInputError(
            f"`{SMALLEST} <= candidates <= {LARGEST}` must hold, but the space of {name} has "
            f"{space.size}: choose another shape"
        )
    return space


def measure(
    space: Space, journal: Journal, measurer: Measurer, deadline: float | None
) -> list[Record]:
    """Measures what the journal lacks, until the deadline; all records with their candidates."""
    journal.add_workload(space.workload)
    journal.add_hardware(space.hardware)
    known = {r.candidate_key: r for r in journal.records(space.workload.key, space.hardware.key)}
    candidates = list(every_candidate(space))
    waiting = [candidate for candidate in candidates if candidate.key not in known]
    for start in range(0, len(waiting), _BATCH):
        if deadline is not None and time.monotonic() >= deadline:
            break
        environment = measurer.environment()
        for candidate, measurement in measurer.measure(waiting[start : start + _BATCH]):
            record = Record.of(candidate, measurement, _ORIGIN, environment)
            journal.append(record)
            known[candidate.key] = record
        say(f"{space.workload.name}: {len(known)} of {len(candidates)}")
    return [replace(known[c.key], candidate=c) for c in candidates if c.key in known]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--time", type=float, help="seconds after which no batch is begun")
    parser.add_argument("--work-dir", type=Path, default=Path("foretune-work/small_spaces"))
    parser.add_argument("--output", type=Path, default=_TARGET)
    parser.add_argument("--plan", action="store_true", help="show the spaces and measure nothing")
    options = parser.parse_args(arguments)
    hardware = probe(measure=True)
    spaces = [space_of(name, hardware) for name in options.workloads.split(",")]
    print(_plan(spaces), flush=True)
    if options.plan:
        return
    deadline = None if options.time is None else time.monotonic() + options.time
    options.work_dir.mkdir(parents=True, exist_ok=True)
    records = []
    policy = MeasurePolicy(cut_factor=_NEVER)
    with (
        Journal(options.work_dir / "journal.jsonl") as journal,
        LocalMeasurer(hardware, policy) as measurer,
    ):
        for space in spaces:
            records += measure(space, journal, measurer, deadline)
    missing = sum(1 for space in spaces for _ in every_candidate(space)) - len(records)
    if missing:
        say(f"{missing} candidates are left: call again to go on")
        return
    pack(spaces, hardware, records, options.output)


def pack(spaces: list[Space], hardware: Hardware, records: list[Record], path: Path) -> None:
    """Writes the records as a data set and reads it again as tables."""
    stored = [StoredWorkload(space.workload, operator_kind(space.workload)) for space in spaces]
    sketches = [sketch for space in spaces for sketch in space.sketches]
    write_dataset(path, stored, [hardware], sketches, records)
    for group in load(path):
        found = MeasuredSpace(group)
        say(
            f"{group.name}: {found.size} candidates, {int(group.valid.sum())} valid, best "
            f"{found.optimum_s * 1e3:.4f} ms, {found.good(1.05)} within 5 %"
        )
    size = sum(file.stat().st_size for file in path.iterdir())
    say(f"written: {path}, {size / 1e3:.0f} kB")


def _plan(spaces: list[Space]) -> str:
    return table(
        ["workload", "operator kind", "candidates"],
        [[s.workload.name, operator_kind(s.workload), str(s.size)] for s in spaces],
    )


if __name__ == "__main__":
    main()
