"""TVM's per-store features: one row for each buffer that a scheduled program stores to.

The layout is MetaSchedule's (after Ansor, "Ansor: Generating High-Performance Tensor Programs for
Deep Learning", appendix B), 164 columns in five groups: 57 of computation, 5 x 18 of buffer
accesses (the five buffers with the most cache lines touched, the rest zero), 10 of the arithmetic
intensity curve, 4 of allocation, 3 of the loops outside. Nearly every column is a signed logarithm,
``sign(x) * log2(1 + |x|)``; the others are flags.
"""

from __future__ import annotations

import functools

from foretune._per_store import BUFFERS, CURVE_POINTS, OPERATIONS
from foretune.features.table import Column

FEATURE_VERSION = 1
"""Number of the layout. Raised whenever a column changes its place or meaning."""


def _log(unit: str) -> str:
    return f"log2(1 + {unit})"


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
    columns = [Column(f"arith.{operation}", _log("operations")) for operation in OPERATIONS]
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
