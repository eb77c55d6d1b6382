"""Kernels of Kernel Tuner's benchmarks as nests of loops, from the values of their parameters.

A cache of Kernel Tuner names parameters and no program. Two kernels of its benchmark collection are
known here: the convolution of one image with one filter, and dedispersion, the sum over radio
channels that are shifted by a delay which depends on the channel and the row. What parameters mean
was read from the kernels' sources (AutoTuningAssociation/benchmark_hub); none of that is copied.

``block_size_*`` are threads, ``tile_size_*`` the outputs of a thread, in strides of the block for
the convolution and, by ``tile_stride_*``, of the block or of one for dedispersion. ``use_padding``
widens rows of shared memory so that rows of threads do not meet in a bank. ``read_only`` chooses a
way to load and says nothing here. The convolution's filter lies in constant memory, from which
multiply-adds read without a load, so that it has no access.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from foretune._arrays import FloatArray, IndexArray
from foretune.describe._nests import BLOCK, THREAD, UNROLLED, Nests
from foretune_research.logs._building import Building, Loop, Of

if TYPE_CHECKING:
    from foretune.dataset import Program

Columns = Mapping[str, FloatArray]

_BANKS = 32
_CHANNELS, _MOST_DELAY = 1536, 650
"""Of the dedispersion: channels, and samples behind the last that the delays reach."""
_LOWEST_MHZ, _CHANNEL_MHZ, _ROW_STEP = 1425.0, 0.1953125, 0.02
_DELAY, _SAMPLE_S = 4148.808, 4.096e-5
"""Seconds (of MHz squared) of delay for a unit of dispersion measure; seconds of a sample."""


def matches(programs: Sequence[Program], workload: str) -> bool:
    """Whether programs are configurations of a kernel that is known here.

    Args:
        programs: Programs of one workload.
        workload: Its key, ``[kernel name, [sizes]]`` as JSON.
    """
    known = _kernel(workload)
    if known is None or not programs or programs[0].configuration is None:
        return False
    return set(_KERNELS[known[0]][0]) <= programs[0].configuration.keys()


def as_run_on(hardware: str, programs: Sequence[Program], workload: str) -> Sequence[Program]:
    """Programs as the source for some hardware reads their parameters.

    The convolution for AMD's GPUs (HIP) always goes by way of shared memory: times with and without
    ``use_shmem`` do not differ there.

    Args:
        hardware: Name of the device in the cache.
        programs: Programs of one workload.
        workload: Its key.
    """
    known = _kernel(workload)
    if known is None or known[0] != "convolution_kernel" or "AMD" not in hardware.upper().split():
        return programs
    return [type(p)(configuration={**(p.configuration or {}), "use_shmem": 1}) for p in programs]


def build(programs: Sequence[Program], workload: str) -> list[tuple[IndexArray, Nests]]:
    """Nests of configurations, by structure.

    Args:
        programs: Programs of which ``matches`` is true.
        workload: The key of their workload.
    """
    known = _kernel(workload)
    assert known is not None
    name, size = known
    names, builder = _KERNELS[name]
    table = np.array([[float((p.configuration or {}).get(c, 0)) for c in names] for p in programs])
    columns = dict(zip(names, table.T, strict=True))
    return [
        (rows, builder({c: v[rows] for c, v in columns.items()}, size))
        for rows in _structures(columns)
    ]


def _structures(columns: Columns) -> list[IndexArray]:
    """Rows whose programs have the same loops: those with and those without shared memory."""
    shared = columns.get("use_shmem")
    if shared is None:
        return [np.arange(len(next(iter(columns.values()))))]
    split = [np.flatnonzero(shared != 0), np.flatnonzero(shared == 0)]
    return [rows for rows in split if len(rows)]


def _kernel(workload: str) -> tuple[str, tuple[int, ...]] | None:
    try:
        name, size = json.loads(workload)
        sizes = tuple(int(s) for s in size)
    except (ValueError, TypeError):
        return None
    return (name, sizes) if name in _KERNELS and len(sizes) >= 2 else None


def _convolution(columns: Columns, size: tuple[int, ...]) -> Nests:
    """The image's rows are y, its columns x; without shared memory every tap is loaded anew."""
    bx, by = columns["block_size_x"], columns["block_size_y"]
    tx, ty = columns["tile_size_x"], columns["tile_size_y"]
    taps_x, taps_y = columns["filter_width"], columns["filter_height"]
    width, height = float(size[0]), float(size[1])
    b = Building(len(bx), gpu=True)
    image = b.buffer("image", [height + taps_y - 1, width + taps_x - 1])
    result = b.buffer("result", [height, width])
    sums = b.buffer("sums", [ty, tx], "local", parameter=False)
    grid_y, grid_x, row, column = threads = _threads(b, height, width, columns)
    corner_y, corner_x = Of(grid_y, by * ty), Of(grid_x, bx * tx)
    inside = _inside(height, by * ty) * _inside(width, bx * tx)
    # Where blocks do not divide the image, every load and store asks whether it is inside.
    guards = np.where(inside < 1, 2.0, 0.0)
    source = image
    moved_y: tuple[Of, ...] = (corner_y,)
    moved_x: tuple[Of, ...] = (corner_x,)
    if columns["use_shmem"].any():
        rows, row_width = by * ty + taps_y - 1, bx * tx + taps_x - 1
        padding = np.where(columns["use_padding"] != 0, _padding(bx, row_width), 0.0)
        source = b.buffer("tile", [rows, row_width + padding], "shared", parameter=False)
        turns_y, turns_x = np.ceil(rows / by), np.ceil(row_width / bx)
        i = b.loop("copied rows", turns_y, UNROLLED)
        j = b.loop("copied columns", turns_x, UNROLLED)
        fill_y, fill_x = (Of(row), Of(i, by)), (Of(column), Of(j, bx))
        b.statement(
            [*threads, i, j],
            [(image, [(corner_y, *fill_y), (corner_x, *fill_x)])],
            (source, [fill_y, fill_x]),
            selects=guards,
            executed=rows / (turns_y * by) * (row_width / (turns_x * bx)),
        )
        moved_y, moved_x = (), ()
    tap_y = b.loop("tap rows", taps_y, UNROLLED, reduction=True)
    tap_x = b.loop("tap columns", taps_x, UNROLLED, reduction=True)
    i, j = b.loop("rows", ty, UNROLLED), b.loop("columns", tx, UNROLLED)
    y, x = (*moved_y, Of(row), Of(i, by)), (*moved_x, Of(column), Of(j, bx))
    b.statement(
        [*threads, tap_y, tap_x, i, j],
        [(source, [(*y, Of(tap_y)), (*x, Of(tap_x))])],
        (sums, [i, j]),
        operations=2.0,
        reduces=True,
    )
    i, j = b.again(i), b.again(j)
    b.statement(
        [*threads, i, j],
        [(sums, [i, j])],
        (result, [(corner_y, Of(row), Of(i, by)), (corner_x, Of(column), Of(j, bx))]),
        selects=guards,
        executed=inside,
    )
    return b.nests()


def _threads(b: Building, height: float, width: float, columns: Columns) -> tuple[Loop, ...]:
    """Blocks along y and x, threads along y and x."""
    by, bx = columns["block_size_y"], columns["block_size_x"]
    rows, row_width = by * columns["tile_size_y"], bx * columns["tile_size_x"]
    return (
        b.loop("block rows", np.ceil(height / rows), BLOCK, letter="y"),
        b.loop("block columns", np.ceil(width / row_width), BLOCK, letter="x"),
        b.loop("thread rows", by, THREAD, letter="y"),
        b.loop("thread columns", bx, THREAD, letter="x"),
    )


def _padding(threads: FloatArray, width: FloatArray) -> FloatArray:
    """Columns that put neighbouring rows of threads into different banks, where that is wanted."""
    over = width - threads
    wanted = (threads % _BANKS != 0) & (over % _BANKS != 0)
    return np.where(wanted, -over % _BANKS, 0.0)


def _inside(size: float, part: FloatArray) -> FloatArray:
    """Share of the parts that lies within the size."""
    return np.asarray(size / (np.ceil(size / part) * part))


def _dedispersion(columns: Columns, size: tuple[int, ...]) -> Nests:
    """Samples are x, dispersion measures y. A row's delay is what its channels have on average."""
    bx, by = columns["block_size_x"], columns["block_size_y"]
    tx, ty = columns["tile_size_x"], columns["tile_size_y"]
    samples, measures = float(size[0]), float(size[1])
    b = Building(len(bx), gpu=True)
    received = b.buffer("samples", [_CHANNELS, samples + _MOST_DELAY], bytes=1)
    delays = b.buffer("delays", [_CHANNELS])
    total = b.buffer("total", [1.0], "local", parameter=False)
    result = b.buffer("result", [measures, samples])
    grid_y, grid_x, row, column = threads = _threads(b, measures, samples, columns)
    x, y = b.loop("tile columns", tx), b.loop("tile rows", ty)
    channel = b.loop("channels", _CHANNELS, reduction=True)
    apart_x, apart_y = columns["tile_stride_x"] != 0, columns["tile_stride_y"] != 0
    sample = [
        (grid_x, bx * tx),
        (column, np.where(apart_x, 1.0, tx)),
        (x, np.where(apart_x, bx, 1.0)),
    ]
    measure = [
        (grid_y, by * ty),
        (row, np.where(apart_y, 1.0, ty)),
        (y, np.where(apart_y, by, 1.0)),
    ]
    delayed = [*sample, *((loop, step * _mean_delay()) for loop, step in measure)]
    inside = _inside(samples, bx * tx) * _inside(measures, by * ty)
    path = [*threads, x, y, channel]
    b.statement(
        path,
        [(delays, [channel]), (received, [channel, tuple(Of(*part) for part in delayed)])],
        (total, [()]),
        operations=2.0,
        # The delay to an integer, the sample to a floating-point number.
        calls=2.0,
        reduces=True,
        executed=inside,
    )
    store = [tuple(Of(*part) for part in parts) for parts in (measure, sample)]
    b.statement(path[:-1], [(total, [()])], (result, store), executed=inside)
    nests = b.nests()
    return replace(nests, approximate=np.ones(len(nests), bool))


def _mean_delay() -> float:
    """Samples by which neighbouring rows differ, over all channels."""
    mhz = _LOWEST_MHZ + np.arange(_CHANNELS) * _CHANNEL_MHZ
    seconds = _DELAY * (mhz**-2.0 - mhz[-1] ** -2.0)
    return float(_ROW_STEP * (seconds / _SAMPLE_S).mean())


_Builder = Callable[[Columns, tuple[int, ...]], Nests]
_KERNELS: dict[str, tuple[tuple[str, ...], _Builder]] = {
    "convolution_kernel": (
        (
            "block_size_x", "block_size_y", "tile_size_x", "tile_size_y", "filter_width",
            "filter_height", "use_shmem", "use_padding",
        ),
        _convolution,
    ),
    "dedispersion_kernel": (
        (
            "block_size_x", "block_size_y", "tile_size_x", "tile_size_y", "tile_stride_x",
            "tile_stride_y",
        ),
        _dedispersion,
    ),
}  # fmt: skip
"""Parameters that a kernel must have, and how it is built."""
