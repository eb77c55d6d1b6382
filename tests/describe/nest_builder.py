"""Small programs written down as nests, for tests that know what they do."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from foretune.describe import KIND_NAMES, Access, Buffer, Nests, Statement, Term
from foretune.hardware import Device

DESKTOP = Device(
    "desktop",
    "A desktop of eight cores",
    "cpu",
    {
        "cores": 8,
        "simd_fp32_lanes": 8,
        "fp32_flop_per_cycle_per_core": 32,
        "l1d_kib_per_core": 32,
        "l2_kib": 8 * 512,
        "l3_kib": 32 * 1024,
        "boost_mhz": 4000,
        "memory_gb_per_s": 50,
    },
)
"""What the bounds of kernels are known for."""

Loop = tuple[Any, str]
"""Extent (or one of each program) and kind."""


@dataclass
class Line:
    """``store <- loads`` inside loops.

    Attributes:
        path: Names of loops, ``"i j k"``.
        store: ``"C[i, 8*jo+ji]"``.
        loads: The same.
        operations, calls, unroll, reduces: Of the statement.
    """

    path: str
    store: str
    loads: Sequence[str] = ()
    operations: float = 2.0
    calls: float = 0.0
    unroll: float = 0.0
    reduces: bool = False
    executed: float = 1.0
    selects: float = field(default=0.0)


def program(
    loops: Mapping[str, Loop],
    buffers: Mapping[str, Sequence[float]],
    lines: Sequence[Line],
    *,
    scratch: Sequence[str] = (),
    element: int | Mapping[str, int] = 4,
) -> Nests:
    """A batch: as many programs as the longest of the extents.

    Args:
        loops, buffers, lines: What there is; of buffers the shapes.
        scratch: Buffers that are neither inputs nor outputs.
        element: Bytes of an element, of all buffers or by name (4 of others).
    """
    names, arrays = list(loops), list(buffers)
    n = max(np.size(extent) for extent, _kind in loops.values())
    extents = np.stack([_row(extent, n) for extent, _kind in loops.values()], axis=1)
    kinds = np.stack(
        [np.full(n, KIND_NAMES.index(kind), dtype=np.int8) for _extent, kind in loops.values()],
        axis=1,
    )
    statements = []
    for line in lines:
        path = tuple(names.index(name) for name in line.path.split())
        texts = [*line.loads, line.store]
        accesses = tuple(
            _access(text, text is texts[-1], path, names, arrays, extents) for text in texts
        )
        statements.append(
            Statement(
                path,
                accesses,
                operations=_row(line.operations, n),
                calls=_row(line.calls, n),
                selects=_row(line.selects, n),
                unroll=_row(line.unroll, n),
                reduces=line.reduces,
                executed=_row(line.executed, n),
            )
        )
    return Nests(
        kinds=kinds,
        extents=extents,
        axes=("",) * len(names),
        reduction=tuple(name.startswith(("k", "r")) for name in names),
        buffers=tuple(
            Buffer(
                name,
                "global",
                element if isinstance(element, int) else element.get(name, 4),
                np.stack([_row(size, n) for size in shape], axis=1),
                name not in scratch,
            )
            for name, shape in buffers.items()
        ),
        statements=tuple(statements),
        gpu=False,
        approximate=np.zeros(n, dtype=bool),
    )


def _row(value: Any, n: int) -> np.ndarray:
    return np.broadcast_to(np.asarray(value, dtype=np.float64), (n,)).copy()


def _access(
    text: str,
    store: bool,
    path: tuple[int, ...],
    names: list[str],
    arrays: list[str],
    extents: np.ndarray,
) -> Access:
    name, inside = re.fullmatch(r"(\w+)\[(.*)\]", text).groups()
    terms = []
    for dimension, index in enumerate(inside.split(",")):
        for part in index.replace(" ", "").split("+"):
            factor, loop = part.split("*") if "*" in part else ("1", part)
            if not loop or loop == "0":
                continue
            number = names.index(loop)
            n = len(extents)
            terms.append(
                Term(
                    dimension,
                    path.index(number),
                    _row(float(factor), n),
                    extents[:, number].copy(),
                    np.ones(n),
                )
            )
    return Access(arrays.index(name), store, tuple(terms))
