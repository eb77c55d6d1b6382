"""The columns of a store.

The layout is MetaSchedule's (after Ansor, "Ansor: Generating High-Performance Tensor Programs for
Deep Learning", OSDI 2020, appendix B): of the five buffers with the most cache lines touched, the
rest are zero. Nearly every column is a signed logarithm, ``sign(x) * log2(1 + |x|)``; the others
are flags.
"""

from __future__ import annotations

from collections.abc import Iterator

from foretune._per_store import BUFFERS, CURVE_POINTS, OPERATIONS
from foretune.features.table import Column, Row, Table

FEATURE_VERSION = 1
"""Number of the layout. Raised whenever a column changes its place or meaning."""

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
    ("is_read", "flag", "the buffer is read"),
    ("is_write", "flag", "it is written"),
    ("is_read_write", "flag", "it is read and written"),
    ("bytes", "log2(1 + bytes)", "accessed, as often as they are"),
    ("unique_bytes", "log2(1 + bytes)", "accessed, each counted once"),
    ("lines", "log2(1 + cache lines)", "accessed, as often as they are"),
    ("unique_lines", "log2(1 + cache lines)", "accessed, each counted once"),
    ("reuse_loop", "flag", "a loop around it accesses the same elements again"),
    ("reuse_serial", "flag", "another statement under a loop around it does"),
    ("reuse_none", "flag", "nothing does"),
    ("reuse_distance_iterations", "log2(1 + iterations)", "between accesses of an element"),
    ("reuse_distance_bytes", "log2(1 + bytes)", "accessed between accesses of an element"),
    ("reuse_count", "log2(1 + accesses)", "of an element"),
    ("bytes_per_reuse", "log2(1 + bytes)", "accessed per access of an element"),
    ("unique_bytes_per_reuse", "log2(1 + bytes)", "the same, each counted once"),
    ("lines_per_reuse", "log2(1 + cache lines)", "accessed per access of an element"),
    ("unique_lines_per_reuse", "log2(1 + cache lines)", "the same, each counted once"),
    (
        "innermost_stride",
        "log2(1 + elements)",
        "between iterations of the innermost loop",
    ),
)


def _annotated(kind: str) -> Iterator[Row]:
    """Columns of loops of one annotation."""
    yield f"{kind}.loops", "log2(1 + loops)", "with this annotation"
    yield f"{kind}.product", "log2(1 + iterations)", "of all of them"
    yield f"{kind}.innermost", "log2(1 + iterations)", "of the innermost of them"
    for position in _POSITIONS:
        yield f"{kind}.at_{position}", "flag", "where the innermost of them is"


TABLE = Table(
    {
        "arithmetic": [
            (f"arith.{operation}", "log2(1 + operations)", "of this kind, in all executions")
            for operation in OPERATIONS
        ],
        **{kind: _annotated(kind) for kind in ("vectorize", "unroll", "parallel")},
        "gpu": [
            ("gpu.is_gpu", "flag", "the target is a GPU"),
            *((f"gpu.block_{axis}", "log2(1 + blocks)", "along this axis") for axis in "xyz"),
            *((f"gpu.thread_{axis}", "log2(1 + threads)", "along this axis") for axis in "xyz"),
            ("gpu.vthread", "log2(1 + threads)", "virtual ones"),
        ],
        "access": [
            (f"access{buffer}.{name}", unit, meaning)
            for buffer in range(BUFFERS)
            for name, unit, meaning in _ACCESS
        ],
        "intensity": [
            (
                f"intensity.{point}",
                "log2(1 + operations/byte)",
                "once inner loops with this part of all operations have run",
            )
            for point in range(CURVE_POINTS)
        ],
        "allocation": [
            ("alloc.size", "log2(1 + bytes)", "of the buffer that is stored to"),
            ("alloc.elements_times_outer", "log2(1 + elements)", "allocated in all"),
            ("alloc.outer_product", "log2(1 + iterations)", "of the loops around the allocation"),
            ("alloc.inner_product", "log2(1 + iterations)", "of the loops inside it"),
        ],
        "outer": [
            ("outer.product", "log2(1 + iterations)", "of all loops around the store"),
            ("outer.loops", "log2(1 + loops)", "around the store"),
            ("outer.auto_unroll", "log2(1 + steps)", "that the compiler may unroll"),
        ],
    }
)

PER_STORE = len(TABLE)
"""Number of columns, 164."""


def columns() -> tuple[Column, ...]:
    """The 164 columns in order."""
    return TABLE.columns
