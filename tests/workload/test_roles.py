"""What a program does with its parameters."""

from __future__ import annotations

from typing import Any

import pytest
from tvm.script import tirx as T

from foretune.workload import parameter_roles


@T.prim_func(s_tir=True)
def started(x: T.Buffer((8, 16), "float32"), y: T.Buffer((8,), "float32")) -> None:  # type: ignore[valid-type]
    for i, k in T.grid(8, 16):
        with T.sblock("y"):
            row, at = T.axis.remap("SR", [i, k])
            with T.init():
                y[row] = T.float32(0)
            y[row] = y[row] + x[row, at]


@T.prim_func(s_tir=True)
def added(x: T.Buffer((8, 16), "float32"), y: T.Buffer((8,), "float32")) -> None:  # type: ignore[valid-type]
    for i, k in T.grid(8, 16):
        with T.sblock("y"):
            row, at = T.axis.remap("SR", [i, k])
            T.reads(y[row], x[row, at])
            T.writes(y[row])
            y[row] = y[row] + x[row, at]


@T.prim_func(s_tir=True)
def without_blocks(
    x: T.Buffer((32,), "float32"),  # type: ignore[valid-type]
    y: T.Buffer((32,), "float32"),  # type: ignore[valid-type]
    z: T.Buffer((32,), "float32"),  # type: ignore[valid-type]
) -> None:
    for i in range(32):
        x[i] = x[i] + y[i]
        z[i] = x[i]


@T.prim_func(s_tir=True)
def nested(x: T.Buffer((8, 16), "float32"), y: T.Buffer((8, 16), "float32")) -> None:  # type: ignore[valid-type]
    for i in range(8):
        with T.sblock("row"):
            row = T.axis.spatial(8, i)
            T.reads(x[row, 0:16], y[row, 0:16])
            T.writes(y[row, 0:16])
            for j in range(16):
                with T.sblock("copy"):
                    at = T.axis.spatial(16, j)
                    y[row, at] = x[row, at]
            for j in range(16):
                with T.sblock("twice"):
                    at = T.axis.spatial(16, j)
                    y[row, at] = y[row, at] * T.float32(2)


@T.prim_func(s_tir=True)
def unused(x: T.Buffer((32,), "float32"), y: T.Buffer((32,), "float32")) -> None:  # type: ignore[valid-type]
    for i in range(32):
        with T.sblock("y"):
            at = T.axis.spatial(32, i)
            y[at] = T.float32(1)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (started, ("input", "output")),
        (added, ("input", "inout")),
        (nested, ("input", "output")),
        (without_blocks, ("inout", "input", "output")),
        (unused, ("input", "output")),
    ],
    ids=[
        "a sum with a start",
        "a sum that is added",
        "nested blocks",
        "without blocks",
        "an unused input",
    ],
)
def test_a_role_says_whether_a_parameter_is_read_before_it_is_written(
    function: Any, expected: tuple[str, ...]
) -> None:
    assert parameter_roles(function) == expected
