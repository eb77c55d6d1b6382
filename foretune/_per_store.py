"""The layout of TVM's per-store features: ``features`` names it, ``symbolic`` computes it."""

from __future__ import annotations

BUFFERS = 5
"""Buffers described per store."""
CURVE_POINTS = 10
"""Points on the arithmetic intensity curve."""
CACHE_LINE_BYTES = 64

NUMBER_OPERATIONS = ("mad", "add_sub", "mul", "div_mod", "cmp", "math_func", "other_func")
"""Counted operations on floating-point numbers, and in the same way on integers."""
OPERATIONS = (
    *(f"{kind}_{operation}" for kind in ("float", "int") for operation in NUMBER_OPERATIONS),
    "bool_op",
    "select_op",
)
"""All counted operations in the order of their columns."""
