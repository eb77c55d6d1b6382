"""TVM's per-store features: one row for each buffer that a scheduled program stores to.

The layout is MetaSchedule's (after Ansor, "Ansor: Generating High-Performance Tensor Programs for
Deep Learning", appendix B), 164 columns in five groups: 57 of computation, 5 x 18 of buffer
accesses (the five buffers with the most cache lines touched, the rest zero), 10 of the arithmetic
intensity curve, 4 of allocation, 3 of the loops outside. Nearly every column is a signed logarithm,
``sign(x) * log2(1 + |x|)``; the others are flags.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from foretune.errors import IllegalCandidateError

if TYPE_CHECKING:
    from foretune.space import Candidate
    from foretune.workload import Workload

FloatArray = npt.NDArray[np.float64]

FEATURE_VERSION = 1
"""Number of the layout. Raised whenever a column changes its place or meaning."""

BUFFERS = 5
"""Buffers described per store."""
CURVE_POINTS = 10
"""Points on the arithmetic intensity curve."""
_CACHE_LINE_BYTES = 64


@dataclass(frozen=True)
class Column:
    """One feature.

    Attributes:
        name: Group and quantity, for example ``"access0.bytes"``.
        unit: What is counted, as ``"log2(1 + bytes)"``, or ``"flag"`` for 0 and 1.
    """

    name: str
    unit: str


def _log(unit: str) -> str:
    return f"log2(1 + {unit})"


_FLOAT_OPS = ("mad", "add_sub", "mul", "div_mod", "cmp", "math_func", "other_func")
_POSITIONS = (
    "none",
    "inner_spatial",
    "middle_spatial",
    "outer_spatial",
    "inner_reduce",
    "middle_reduce",
    "outer_reduce",
    "mixed",
)
_ACCESS = (
    ("is_read", "flag"),
    ("is_write", "flag"),
    ("is_read_write", "flag"),
    ("bytes", _log("bytes")),
    ("unique_bytes", _log("bytes")),
    ("lines", _log("cache lines")),
    ("unique_lines", _log("cache lines")),
    ("reuse_loop", "flag"),
    ("reuse_serial", "flag"),
    ("reuse_none", "flag"),
    ("reuse_distance_iterations", _log("iterations")),
    ("reuse_distance_bytes", _log("bytes")),
    ("reuse_count", _log("accesses")),
    ("bytes_per_reuse", _log("bytes")),
    ("unique_bytes_per_reuse", _log("bytes")),
    ("lines_per_reuse", _log("cache lines")),
    ("unique_lines_per_reuse", _log("cache lines")),
    ("innermost_stride", _log("elements")),
)


def _computation() -> list[Column]:
    names = [f"{kind}_{op}" for kind in ("float", "int") for op in _FLOAT_OPS]
    columns = [Column(f"arith.{n}", _log("operations")) for n in (*names, "bool_op", "select_op")]
    for kind in ("vectorize", "unroll", "parallel"):
        columns.append(Column(f"{kind}.loops", _log("loops")))
        columns += [Column(f"{kind}.{n}", _log("iterations")) for n in ("product", "innermost")]
        columns += [Column(f"{kind}.at_{position}", "flag") for position in _POSITIONS]
    columns.append(Column("gpu.is_gpu", "flag"))
    columns += [
        Column(f"gpu.{axis}_{d}", _log(unit))
        for axis, unit in (("block", "blocks"), ("thread", "threads"))
        for d in "xyz"
    ]
    columns.append(Column("gpu.vthread", _log("threads")))
    return columns


@functools.lru_cache(maxsize=1)
def columns() -> tuple[Column, ...]:
    """The 164 columns in order."""
    return (
        *_computation(),
        *(Column(f"access{b}.{name}", unit) for b in range(BUFFERS) for name, unit in _ACCESS),
        *(Column(f"intensity.{p}", _log("operations/byte")) for p in range(CURVE_POINTS)),
        Column("alloc.size", _log("bytes")),
        Column("alloc.elements_times_outer", _log("elements")),
        Column("alloc.outer_product", _log("iterations")),
        Column("alloc.inner_product", _log("iterations")),
        Column("outer.product", _log("iterations")),
        Column("outer.loops", _log("loops")),
        Column("outer.auto_unroll", _log("steps")),
    )


PER_STORE = len(columns())
"""Number of columns, 164."""


def extract_per_store(candidates: Sequence[Candidate], threads: int = 0) -> list[FloatArray | None]:
    """Per-store features of candidates, 1 to 3 ms each beside replaying them.

    Args:
        candidates: May belong to several workloads and hardware.
        threads: Candidates worked on at once (TVM releases the interpreter lock); 0: one per
            core of the affinity mask, at most 8.

    Returns:
        For each candidate a float64 array of shape (stores, 164), or None if it is illegal.
    """
    threads = threads or min(8, len(os.sched_getaffinity(0)))
    contexts = {t: _context(t) for t in {c.hardware.target for c in candidates}}

    def extract(candidate: Candidate) -> FloatArray | None:
        return _extract(candidate, contexts[candidate.hardware.target])

    if threads == 1 or len(candidates) == 1:
        return [extract(c) for c in candidates]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(extract, candidates))


@functools.lru_cache(maxsize=16)
def _context(target: str) -> Any:
    # TVM reads nothing but the target from it.
    from foretune import _tvm

    return _tvm.make_context(None, _tvm.Target(json.loads(target)))


def _extract(candidate: Candidate, context: Any) -> FloatArray | None:
    try:
        module = candidate.apply()
    except IllegalCandidateError:
        return None
    return _rows_of(module, context)


def extract_untransformed(workload: Workload) -> FloatArray:
    """Per-store features of a workload's own program, as those of a CPU; shape (stores, 164)."""
    return _rows_of(workload.module, _context('{"kind": "llvm"}'))


def _rows_of(module: Any, context: Any) -> FloatArray:
    from foretune import _tvm

    schedule = _tvm.Schedule(module, seed=1, debug_mask="none", error_render_level="none")
    measured = _tvm.meta_schedule.MeasureCandidate(schedule, [])
    found = _extractor().extract_from(context, [measured])
    return np.asarray(found[0].numpy(), dtype=np.float64)


def _extractor() -> Any:
    from foretune import _tvm

    return _tvm.meta_schedule.feature_extractor.PerStoreFeature(
        BUFFERS, CURVE_POINTS, _CACHE_LINE_BYTES, False
    )
