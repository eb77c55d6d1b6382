"""What tokens say of a statement and of each loop around it, in numbers.

Symbols: n programs; a statement has a path of P loops and accesses; ``place`` is a position in the
path, 0 outermost. What is *inside* a place are the loops behind it, so that there are P + 1 levels:
level p has the loops at places p and more run, level P none.

All quantities are logarithms (base 2), shares of 0 to 1, or 0 and 1, so that no column explodes on
sizes that training did not have. Loops of one iteration change none of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foretune.describe import (
    BLOCK,
    KIND_NAMES,
    PARALLEL,
    THREAD,
    UNROLLED,
    VECTORIZED,
    VTHREAD,
    Access,
    Nests,
    Statement,
)
from foretune.hardware import Device

Array = npt.NDArray[np.float64]

AXES = ("x", "y", "z")
CACHES = 3
LOADS = 4
"""Loads of a statement that have columns of their own; further ones are counted."""
_FAR = 24.0
"""A ratio's logarithm at most."""
_STEP = 12.0
"""Logarithm of the bytes of a step at most: every further step misses caches and pages alike."""

LOOP_COLUMNS: tuple[str, ...] = (
    *(f"kind_{name}" for name in KIND_NAMES),
    *(f"axis_{name}" for name in AXES),
    "reduction",
    "extent",
    "run",
    "around",
    "inside",
    "depth",
    "below",
    "bytes_inside",
    "bytes",
    *(f"bytes_over_cache_{level + 1}" for level in range(CACHES)),
    "reuse",
    "loads_still",
    "loads_contiguous",
    "loads_step",
    "store_still",
    "store_contiguous",
    "unroll_room",
    "unrolled_whole",
    "extent_over_lanes",
    "lanes_filled",
    "run_over_units",
    "units_filled",
)
"""Of a loop, as one statement in it sees it; a token has the mean over statements by work."""

_ACCESS = (
    "present",
    "shared",
    "local",
    "parameter",
    "element_bytes",
    "inner_still",
    "inner_contiguous",
    "inner_step",
    "lane_still",
    "lane_contiguous",
    "lane_step",
    "bytes",
    "reuse",
)
STATEMENT_COLUMNS: tuple[str, ...] = (
    "executions",
    "operations",
    "calls",
    "selects",
    "reduces",
    "executed",
    "unroll",
    "loops",
    "loads",
    "intensity",
    "accumulators",
    *(f"{name}_extent" for name in KIND_NAMES[1:]),
    "bytes",
    *(f"bytes_over_cache_{level + 1}" for level in range(CACHES)),
    *(f"store_{name}" for name in _ACCESS),
    *(f"load{number}_{name}" for number in range(LOADS) for name in _ACCESS),
)
"""Of a statement."""


@dataclass(frozen=True)
class Machine:
    """What columns compare sizes with.

    Attributes:
        units: Cores (multiprocessors).
        lanes: Of a vector of floats, or threads of a warp.
        caches: Bytes of each level that one core reaches, nearest first; a level that there is not
            is as large as the one before.
    """

    units: float
    lanes: float
    caches: tuple[float, ...]

    @classmethod
    def of(cls, device: Device | None, gpu: bool) -> Machine:
        """Of a device; a middling one of its kind where it is not known."""
        if device is None:
            if gpu:
                return cls(64.0, 32.0, (2.0**16, 2.0**22, 2.0**22))
            return cls(8.0, 8.0, (2.0**15, 2.0**19, 2.0**24))
        if device.kind == "gpu":
            last = device.value("last_level_cache_mib") * 2.0**20
            levels = [device.value("shared_kib_per_unit") * 2.0**10]
            levels += [device.value("l2_kib") * 2.0**10, last]
            return cls(device.value("units"), device.value("warp"), _rising(levels))
        cores = device.value("cores")
        levels = [device.value("l1d_kib_per_core"), device.value("l2_kib") / cores]
        levels = [2.0**10 * kib for kib in (*levels, device.value("l3_kib"))]
        lanes = device.value("simd_fp32_lanes_of_the_compiled_code")
        return cls(cores, lanes, _rising(levels))


def _rising(levels: Sequence[float]) -> tuple[float, ...]:
    return tuple(np.maximum.accumulate(np.array(levels)).tolist())


@dataclass(frozen=True)
class Seen:
    """What is said of a statement.

    Attributes:
        work: Of the whole statement, in operations of any kind, shape (n,).
        loops: Shape (n, P, len(LOOP_COLUMNS)).
        statement: Shape (n, len(STATEMENT_COLUMNS)).
    """

    work: Array
    loops: Array
    statement: Array


def log2(values: Array) -> Array:
    """Base-2 logarithm of what is at least 1; less counts as 1."""
    found: Array = np.log2(np.maximum(values, 1.0))
    return found


def _ratio(values: Array, to: Array | float) -> Array:
    found: Array = np.clip(np.log2(np.maximum(values, 1e-9) / to), -_FAR, _FAR)
    return found


def _filled(count: Array, to: float) -> Array:
    """Share of places that are used where ``count`` things are dealt to ``to`` in rounds."""
    found: Array = count / (np.ceil(count / to) * to)
    return found


@dataclass(frozen=True)
class _Path:
    """The loops around a statement.

    Attributes:
        kinds, extents: Shape (n, P).
        live: Whether a loop has more than one iteration, shape (n, P).
        inside: Iterations of the loops of a level, shape (n, P + 1).
        last: Place of the innermost live loop, -1 for none, shape (n,).
        lane: Place of the loop over vector lanes or threads of a warp, -1 for none, shape (n,).
    """

    kinds: npt.NDArray[np.int8]
    extents: Array
    live: npt.NDArray[np.bool_]
    inside: Array
    last: npt.NDArray[np.intp]
    lane: npt.NDArray[np.intp]

    @classmethod
    def of(cls, nests: Nests, statement: Statement) -> _Path:
        """Of a statement."""
        places = list(statement.path)
        kinds, extents = nests.kinds[:, places], nests.extents[:, places]
        live = extents > 1
        x_axis = np.array([nests.axes[loop] in ("", "x") for loop in places], dtype=bool)
        lanes = live & ((kinds == VECTORIZED) | ((kinds == THREAD) & x_axis))
        return cls(kinds, extents, live, _suffix_products(extents), _last(live), _last(lanes))

    def run(self) -> Array:
        """Of each loop the iterations of it and its neighbours of the same kind, shape (n, P)."""
        n, places = self.extents.shape
        run, total = self.extents.copy(), np.ones(n)
        kind = np.full(n, -1, dtype=np.int8)
        starts = np.zeros((n, places), dtype=bool)
        for place in range(places):
            live = self.live[:, place]
            fresh = live & (self.kinds[:, place] != kind)
            total = np.where(fresh, 1.0, total) * self.extents[:, place]
            kind = np.where(live, self.kinds[:, place], kind)
            starts[:, place] = fresh
            run[:, place] = total
        # What stands in the last of a run is that of all of it.
        whole: Array = run.copy()
        at_end = np.ones(n)
        fresh_behind = np.ones(n, dtype=bool)
        for place in reversed(range(places)):
            live = self.live[:, place]
            at_end = np.where(live & fresh_behind, run[:, place], at_end)
            whole[:, place] = np.where(live, at_end, 1.0)
            fresh_behind = np.where(live, starts[:, place], fresh_behind)
        return whole


def _suffix_products(values: Array) -> Array:
    """Products of the columns from each on, and 1: shape (n, P) -> (n, P + 1)."""
    n, places = values.shape
    found = np.ones((n, places + 1))
    found[:, :places] = np.cumprod(values[:, ::-1], axis=1)[:, ::-1]
    return found


def _last(there: npt.NDArray[np.bool_]) -> npt.NDArray[np.intp]:
    """Of each row the last column that holds, -1 for none."""
    places = there.shape[1]
    if not places:
        return np.full(len(there), -1, dtype=np.intp)
    back = there[:, ::-1].argmax(axis=1)
    return np.where(there.any(axis=1), places - 1 - back, -1)


@dataclass(frozen=True)
class _Moved:
    """How an access moves with the loops of its statement.

    Attributes:
        touched: Bytes of the buffer that the loops of a level touch, shape (n, P + 1).
        steps: Bytes from one iteration of a loop to the next; 0 where it stands still or moves in
            some iterations only, shape (n, P).
    """

    touched: Array
    steps: Array

    @classmethod
    def of(cls, nests: Nests, access: Access, places: int) -> _Moved:
        """Of one access."""
        buffer = nests.buffers[access.buffer]
        n, rank = buffer.shape.shape
        strides = _suffix_products(buffer.shape)[:, 1:]
        spans, values = np.zeros((n, places, rank)), np.ones((n, places))
        steps = np.full((n, places), np.inf)
        for term in access.terms:
            size = np.abs(term.coefficient)
            spans[:, term.place, term.dimension] += size * (term.values - 1.0)
            values[:, term.place] *= term.values
            moves = (term.every <= 1) & (term.values > 1) & (size > 0)
            step = np.where(moves, size * strides[:, term.dimension], np.inf)
            steps[:, term.place] = np.minimum(steps[:, term.place], step)
        reach = np.zeros((n, places + 1, rank))
        reach[:, :places] = np.cumsum(spans[:, ::-1], axis=1)[:, ::-1]
        box = np.minimum(1.0 + reach, np.maximum(buffer.shape, 1.0)[:, None, :]).prod(axis=2)
        touched = np.minimum(box, _suffix_products(values)) * buffer.bytes
        return cls(touched, np.where(np.isinf(steps), 0.0, steps) * buffer.bytes)

    def at(self, place: npt.NDArray[np.intp]) -> Array:
        """The step of one loop of each program, 0 without one, shape (n,)."""
        if not self.steps.shape[1]:
            return np.zeros(len(place))
        found = np.take_along_axis(self.steps, np.maximum(place, 0)[:, None], axis=1)[:, 0]
        step: Array = np.where(place < 0, 0.0, found)
        return step


def seen(nests: Nests, statement: Statement, machine: Machine) -> Seen:
    """What is said of a statement and of the loops around it."""
    path = _Path.of(nests, statement)
    places = path.extents.shape[1]
    moved = [_Moved.of(nests, access, places) for access in statement.accesses]
    by_buffer: dict[int, Array] = {}
    for access, move in zip(statement.accesses, moved, strict=True):
        held = by_buffer.get(access.buffer)
        larger = move.touched if held is None else np.maximum(held, move.touched)
        by_buffer[access.buffer] = larger
    touched = sum(by_buffer.values(), np.zeros_like(path.inside))
    cost = statement.operations + 4.0 * statement.calls + statement.selects + len(moved)
    work = path.inside[:, 0] * statement.executed * cost
    loops = _loop_columns(nests, statement, path, moved, touched, machine)
    return Seen(work, loops, _statement_columns(nests, statement, path, moved, touched, machine))


def _loop_columns(
    nests: Nests,
    statement: Statement,
    path: _Path,
    moved: Sequence[_Moved],
    touched: Array,
    machine: Machine,
) -> Array:
    n, places = path.extents.shape
    inside, run = path.inside[:, 1:], path.run()
    live = path.live.astype(np.float64)
    depth = np.cumsum(live, axis=1) - live
    around = path.inside[:, :1] / path.inside[:, :-1]
    of_axes = [np.array([nests.axes[loop] == axis for loop in statement.path]) for axis in AXES]
    reduction = np.array([nests.reduction[loop] for loop in statement.path], dtype=np.float64)
    bytes_inside, bytes_all = touched[:, 1:], touched[:, :-1]
    executed = path.inside[:, :-1] * max(1, len(moved)) * 4.0
    unroll = statement.unroll[:, None]
    body = path.extents * inside
    columns = [
        *(path.kinds == kind for kind in range(len(KIND_NAMES))),
        *(np.broadcast_to(axis, (n, places)) for axis in of_axes),
        np.broadcast_to(reduction, (n, places)),
        log2(path.extents),
        log2(run),
        log2(around),
        log2(inside),
        depth / 8.0,
        (live.sum(axis=1, keepdims=True) - depth - live) / 8.0,
        log2(bytes_inside),
        log2(bytes_all),
        *(_ratio(bytes_all, cache) for cache in machine.caches),
        _ratio(executed, np.maximum(bytes_all, 1.0)),
        *_steps(statement, nests, moved, store=False),
        *_steps(statement, nests, moved, store=True)[:2],
        np.where(unroll > 0, _ratio(np.broadcast_to(unroll, body.shape), body), -_FAR),
        unroll >= body,
        _ratio(path.extents, machine.lanes),
        _filled(path.extents, machine.lanes),
        _ratio(run, machine.units),
        _filled(run, machine.units),
    ]
    return np.stack(columns, axis=2).astype(np.float64)


def _steps(
    statement: Statement, nests: Nests, moved: Sequence[_Moved], store: bool
) -> tuple[Array, Array, Array]:
    """Of each loop: shares of accesses that stand still and that go on by one element, mean step.

    Shape (n, P) each.
    """
    shape = (len(nests), len(statement.path))
    still, contiguous, steps = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    count = 0
    for access, move in zip(statement.accesses, moved, strict=True):
        if access.store is not store:
            continue
        count += 1
        still += move.steps == 0
        contiguous += move.steps == nests.buffers[access.buffer].bytes
        steps += np.minimum(log2(move.steps), _STEP)
    return still / max(1, count), contiguous / max(1, count), steps / max(1, count)


def _statement_columns(
    nests: Nests,
    statement: Statement,
    path: _Path,
    moved: Sequence[_Moved],
    touched: Array,
    machine: Machine,
) -> Array:
    n = len(nests)
    executions = path.inside[:, 0] * statement.executed
    total = touched[:, 0]
    kinds = (PARALLEL, VECTORIZED, UNROLLED, BLOCK, THREAD, VTHREAD)
    by_kind = [np.where(path.kinds == kind, path.extents, 1.0).prod(axis=1) for kind in kinds]
    stores = [m for a, m in zip(statement.accesses, moved, strict=True) if a.store]
    loads = [(a, m) for a, m in zip(statement.accesses, moved, strict=True) if not a.store]
    columns = [
        log2(executions),
        log2(1.0 + statement.operations),
        log2(1.0 + statement.calls),
        log2(1.0 + statement.selects),
        np.full(n, float(statement.reduces)),
        statement.executed,
        log2(1.0 + statement.unroll),
        path.live.sum(axis=1) / 8.0,
        np.full(n, np.log2(1.0 + len(loads))),
        _ratio(executions * np.maximum(statement.operations, 1.0), np.maximum(total, 1.0)),
        log2(_accumulators(path, stores)),
        *map(log2, by_kind),
        log2(total),
        *(_ratio(total, cache) for cache in machine.caches),
    ]
    store = [(a, m) for a, m in zip(statement.accesses, moved, strict=True) if a.store][:1]
    for chosen, room in ((store, 1), (loads[:LOADS], LOADS)):
        for access, move in chosen:
            columns += _access_columns(nests, access, move, path, executions)
        columns += [np.zeros(n)] * (len(_ACCESS) * (room - len(chosen)))
    return np.stack(columns, axis=1)


def _accumulators(path: _Path, stores: Sequence[_Moved]) -> Array:
    """Elements stored by the loops within the innermost one that the store does not follow.

    These are sums that can be in flight at once; without such a loop, all of the inner ones.
    """
    n, places = path.extents.shape
    if not stores:
        return np.ones(n)
    held = path.live & (stores[0].steps == 0) & (path.kinds != THREAD)
    level = _last(held) + 1
    found: Array = np.take_along_axis(path.inside, np.minimum(level, places)[:, None], axis=1)[:, 0]
    return found


def _access_columns(
    nests: Nests, access: Access, move: _Moved, path: _Path, executions: Array
) -> list[Array]:
    n, buffer = len(nests), nests.buffers[access.buffer]
    columns = [
        np.ones(n),
        np.full(n, float(buffer.scope == "shared")),
        np.full(n, float(buffer.scope == "local")),
        np.full(n, float(buffer.parameter)),
        np.full(n, np.log2(buffer.bytes)),
    ]
    for place in (path.last, path.lane):
        step, there = move.at(place), place >= 0
        columns += [
            (there & (step == 0)).astype(np.float64),
            (there & (step == buffer.bytes)).astype(np.float64),
            np.minimum(log2(step), _STEP),
        ]
    elements = move.touched[:, 0] / buffer.bytes
    return [*columns, log2(move.touched[:, 0]), _ratio(executions, np.maximum(elements, 1.0))]
