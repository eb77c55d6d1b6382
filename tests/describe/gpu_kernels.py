"""Small kernels as nests, by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foretune.describe import Access, Buffer, Nests, Statement, Term
from foretune.hardware import Device

SERIAL, UNROLLED, BLOCK, THREAD, VECTORIZED, VTHREAD = 0, 3, 4, 5, 2, 6

A100 = Device(
    "a100",
    "NVIDIA A100-PCIE-40GB",
    "gpu",
    {
        "units": 108,
        "fp32_lanes": 6912,
        "warp": 32,
        "registers_kib_per_unit": 256,
        "shared_kib_per_unit": 164,
        "l1_kib_per_unit": 192,
        "max_threads_per_unit": 2048,
        "max_threads_per_block": 1024,
        "l2_kib": 40960,
        "base_mhz": 765,
        "boost_mhz": 1410,
        "memory_gb_per_s": 1555,
        "peak_fp32_gflops": 19500,
    },
)

Loop = tuple[int, float, str]
"""Kind, extent, axis."""


def access(
    buffer: int, index: Sequence[dict[int, float]], loops: Sequence[Loop], store: bool = False
) -> Access:
    """An access whose path is all loops; ``index``: coefficient of each loop, by dimension."""
    terms = [
        Term(d, loop, np.array([float(by)]), np.array([loops[loop][1]]), np.ones(1))
        for d, moves in enumerate(index)
        for loop, by in moves.items()
    ]
    return Access(buffer, store, tuple(terms))


def statement(
    path: Sequence[int],
    accesses: Sequence[Access],
    operations: float = 0.0,
    reduces: bool = False,
    unroll: float = 0.0,
) -> Statement:
    """A statement of one program that is always executed."""
    zero = np.zeros(1)
    return Statement(
        tuple(path), tuple(accesses), zero + operations, zero, zero, zero + unroll, reduces,
        np.ones(1),
    )  # fmt: skip


def buffer(name: str, scope: str, *shape: float, size: int = 4) -> Buffer:
    """A buffer of one program."""
    return Buffer(name, scope, size, np.array([[float(s) for s in shape]]), scope == "global")


def nests(
    loops: Sequence[Loop], buffers: Sequence[Buffer], statements: Sequence[Statement]
) -> Nests:
    """One program."""
    return Nests(
        kinds=np.array([[kind for kind, _, _ in loops]], np.int8),
        extents=np.array([[float(extent) for _, extent, _ in loops]]),
        axes=tuple(axis for _, _, axis in loops),
        reduction=(False,) * len(loops),
        buffers=tuple(buffers),
        statements=tuple(statements),
        gpu=True,
        approximate=np.zeros(1, bool),
    )


def copy(stride: int, blocks: int = 1024, threads: int = 256, scope: str = "global") -> Nests:
    """``b[i] = a[i * stride]``, one element a thread; ``scope`` is where ``a`` lies."""
    loops = [(BLOCK, blocks, "x"), (THREAD, threads, "x")]
    n = blocks * threads
    source = [{0: threads * stride, 1: stride}] if scope == "global" else [{1: stride}]
    length = n * stride if scope == "global" else threads * stride
    return nests(
        loops,
        [buffer("a", scope, length), buffer("b", "global", n)],
        [
            statement(
                (0, 1),
                [access(0, source, loops), access(1, [{0: threads, 1: 1}], loops, store=True)],
                operations=1.0,
            )
        ],
    )


def product(size: int, tile: int, inner: int = 16) -> Nests:
    """``C = A B`` of square matrices: 16 x 16 threads, ``tile`` x ``tile`` results each, A and B
    by way of shared memory."""
    per_block = 16 * tile
    blocks = size // per_block
    loops: list[Loop] = [
        (BLOCK, blocks, "y"), (BLOCK, blocks, "x"), (THREAD, 16, "y"), (THREAD, 16, "x"),
        (SERIAL, size // inner, ""),
        (SERIAL, per_block * inner // 256, ""), (SERIAL, per_block * inner // 256, ""),
        (SERIAL, inner, ""), (UNROLLED, tile, ""), (UNROLLED, tile, ""),
        (UNROLLED, tile, ""), (UNROLLED, tile, ""),
    ]  # fmt: skip
    buffers = [
        buffer("A", "global", size, size), buffer("B", "global", size, size),
        buffer("C", "global", size, size), buffer("As", "shared", inner, per_block),
        buffer("Bs", "shared", inner, per_block), buffer("c", "local", tile, tile),
    ]  # fmt: skip
    head = (0, 1, 2, 3, 4)

    def at(
        number: int, index: Sequence[dict[int, float]], path: tuple[int, ...], store: bool = False
    ) -> Access:
        terms = [
            Term(
                d,
                path.index(loop),
                np.array([float(by)]),
                np.array([float(loops[loop][1])]),
                np.ones(1),
            )
            for d, moves in enumerate(index)
            for loop, by in moves.items()
        ]
        return Access(number, store, tuple(terms))

    a_path, b_path = (*head, 5), (*head, 6)
    math = (*head, 7, 8, 9)
    out = (0, 1, 2, 3, 10, 11)
    return nests(
        loops,
        buffers,
        [
            # Rows of a tile of A are the threads' y, columns of one of B their x.
            statement(a_path, [
                at(0, [{0: per_block, 2: 1, 5: 16}, {4: inner, 3: inner / 16}], a_path),
                at(3, [{3: inner / 16}, {2: 1, 5: 16}], a_path, True),
            ]),
            statement(b_path, [
                at(1, [{4: inner, 2: inner / 16}, {1: per_block, 3: 1, 6: 16}], b_path),
                at(4, [{2: inner / 16}, {3: 1, 6: 16}], b_path, True),
            ]),
            statement(math, [
                at(3, [{7: 1}, {2: tile, 8: 1}], math), at(4, [{7: 1}, {3: tile, 9: 1}], math),
                at(5, [{8: 1}, {9: 1}], math), at(5, [{8: 1}, {9: 1}], math, True),
            ], operations=2.0, reduces=True),
            statement(out, [
                at(5, [{10: 1}, {11: 1}], out),
                at(2, [{0: per_block, 2: tile, 10: 1}, {1: per_block, 3: tile, 11: 1}], out, True),
            ]),
        ],
    )  # fmt: skip
