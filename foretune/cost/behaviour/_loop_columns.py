"""What tokens say of a statement and of each loop around it, in numbers.

Symbols: R statements of programs, P loops around them, A accesses; see ``_statements``.

All quantities are logarithms (base 2), shares of 0 to 1, or 0 and 1, so that no column explodes on
sizes that training did not have. Loops of one iteration change none of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretune._arrays import BoolArray, FloatArray, IndexArray, Int8Array
from foretune.cost.behaviour._statements import Statements, suffix_products
from foretune.describe import (
    BLOCK,
    KIND_NAMES,
    PARALLEL,
    THREAD,
    UNROLLED,
    VECTORIZED,
    VTHREAD,
)
from foretune.hardware import Device

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
    """What is said of statements.

    Attributes:
        work: Of the whole statement, in operations of any kind, shape (R,).
        loops: Shape (R, P, len(LOOP_COLUMNS)).
        statements: Shape (R, len(STATEMENT_COLUMNS)).
    """

    work: FloatArray
    loops: FloatArray
    statements: FloatArray


def log2(values: FloatArray) -> FloatArray:
    """Base-2 logarithm of what is at least 1; less counts as 1."""
    logs: FloatArray = np.log2(np.maximum(values, 1.0))
    return logs


def _ratio(values: FloatArray, to: FloatArray | float) -> FloatArray:
    ratios: FloatArray = np.clip(np.log2(np.maximum(values, 1e-9) / to), -_FAR, _FAR)
    return ratios


def _filled(count: FloatArray, to: float) -> FloatArray:
    """Share of places that are used where ``count`` things are dealt to ``to`` in rounds."""
    shares: FloatArray = count / (np.ceil(count / to) * to)
    return shares


def seen(statements: Statements, machine: Machine) -> Seen:
    """What is said of statements and of the loops around them."""
    facts = statements.facts
    inside = suffix_products(statements.extents)
    accesses = statements.present.sum(axis=1)
    cost = facts["operations"] + 4.0 * facts["calls"] + facts["selects"] + accesses
    of_arrays = np.zeros_like(statements.touched)
    rows = np.arange(len(of_arrays))[:, None]
    np.maximum.at(of_arrays, (rows, statements.first), statements.touched)
    touched = of_arrays.sum(axis=1)
    return Seen(
        inside[:, 0] * facts["executed"] * cost,
        _loop_columns(statements, inside, touched, machine),
        _statement_columns(statements, inside, touched, machine),
    )


def _loop_columns(
    statements: Statements, inside: FloatArray, touched: FloatArray, machine: Machine
) -> FloatArray:
    extents, kinds = statements.extents, statements.kinds
    live = extents > 1
    run = _run(kinds, extents, live)
    depth: FloatArray = np.cumsum(live, axis=1) - live.astype(np.float64)
    unroll = statements.facts["unroll"][:, None]
    body = extents * inside[:, 1:]
    accesses = np.maximum(statements.present.sum(axis=1), 1)[:, None]
    loads, stores = statements.present & ~statements.store, statements.store
    columns = [
        *(kinds == kind for kind in range(len(KIND_NAMES))),
        *(statements.axes == axis for axis in range(len(AXES))),
        statements.reduction,
        log2(extents),
        log2(run),
        log2(inside[:, :1] / inside[:, :-1]),
        log2(inside[:, 1:]),
        depth / 8.0,
        (live.sum(axis=1, keepdims=True) - depth - live) / 8.0,
        log2(touched[:, 1:]),
        log2(touched[:, :-1]),
        *(_ratio(touched[:, :-1], cache) for cache in machine.caches),
        _ratio(inside[:, :-1] * accesses * 4.0, np.maximum(touched[:, :-1], 1.0)),
        _share(statements.steps == 0, loads),
        _share(statements.steps == statements.element[:, :, None], loads),
        _share(np.minimum(log2(statements.steps), _STEP), loads),
        _share(statements.steps == 0, stores),
        _share(statements.steps == statements.element[:, :, None], stores),
        np.where(unroll > 0, _ratio(unroll, body), -_FAR),
        unroll >= body,
        _ratio(extents, machine.lanes),
        _filled(extents, machine.lanes),
        _ratio(run, machine.units),
        _filled(run, machine.units),
    ]
    return np.stack(columns, axis=2, dtype=np.float64)


def _share(values: FloatArray, of: BoolArray) -> FloatArray:
    """Mean over some accesses, 0 without any: (R, A, P), (R, A) -> (R, P)."""
    total = np.einsum("rap,ra->rp", values.astype(np.float64), of.astype(np.float64))
    shares: FloatArray = total / np.maximum(of.sum(axis=1), 1)[:, None]
    return shares


def _run(kinds: Int8Array, extents: FloatArray, live: BoolArray) -> FloatArray:
    """Of each loop the iterations of it and its neighbours of the same kind, shape (R, P)."""
    rows, places = extents.shape
    so_far, total = np.ones((rows, places)), np.ones(rows)
    kind = np.full(rows, -1, dtype=np.int8)
    starts = np.zeros((rows, places), dtype=bool)
    for place in range(places):
        here = live[:, place]
        starts[:, place] = here & (kinds[:, place] != kind)
        total = np.where(starts[:, place], 1.0, total) * extents[:, place]
        kind = np.where(here, kinds[:, place], kind)
        so_far[:, place] = total
    # What stands at the last of a run is that of all of it.
    whole, at_end = np.ones((rows, places)), np.ones(rows)
    run_ended = np.ones(rows, dtype=bool)
    for place in reversed(range(places)):
        here = live[:, place]
        at_end = np.where(here & run_ended, so_far[:, place], at_end)
        whole[:, place] = np.where(here, at_end, 1.0)
        run_ended = np.where(here, starts[:, place], run_ended)
    return whole


def _last(there: BoolArray) -> IndexArray:
    """Of each row the last column that holds, -1 for none."""
    places = there.shape[1]
    if not places:
        return np.full(len(there), -1, dtype=np.intp)
    back = there[:, ::-1].argmax(axis=1)
    return np.where(there.any(axis=1), places - 1 - back, -1)


def _statement_columns(
    statements: Statements, inside: FloatArray, touched: FloatArray, machine: Machine
) -> FloatArray:
    facts, extents, kinds = statements.facts, statements.extents, statements.kinds
    live = extents > 1
    executions, total = inside[:, 0] * facts["executed"], touched[:, 0]
    chosen = (PARALLEL, VECTORIZED, UNROLLED, BLOCK, THREAD, VTHREAD)
    by_kind = [np.where(kinds == kind, extents, 1.0).prod(axis=1) for kind in chosen]
    loads = (statements.present & ~statements.store).sum(axis=1)
    columns = [
        log2(executions),
        log2(1.0 + facts["operations"]),
        log2(1.0 + facts["calls"]),
        log2(1.0 + facts["selects"]),
        facts["reduces"],
        facts["executed"],
        log2(1.0 + facts["unroll"]),
        live.sum(axis=1) / 8.0,
        np.log2(1.0 + loads),
        _ratio(executions * np.maximum(facts["operations"], 1.0), np.maximum(total, 1.0)),
        log2(_accumulators(statements, inside)),
        *map(log2, by_kind),
        log2(total),
        *(_ratio(total, cache) for cache in machine.caches),
    ]
    own = _access_columns(statements, executions)
    rows, width = len(executions), len(_ACCESS)
    slots = np.zeros((rows, 1 + LOADS, width))
    count = min(1 + LOADS, own.shape[1])
    slots[:, :count] = own[:, :count]
    return np.concatenate([np.stack(columns, axis=1), slots.reshape(rows, -1)], axis=1)


def _accumulators(statements: Statements, inside: FloatArray) -> FloatArray:
    """Elements stored by the loops within the innermost one that the store does not follow.

    These are sums that can be in flight at once; without such a loop, all of the inner ones.
    """
    held = (statements.extents > 1) & (statements.steps[:, 0] == 0) & (statements.kinds != THREAD)
    level = _last(held) + 1
    counts: FloatArray = np.take_along_axis(inside, level[:, None], axis=1)[:, 0]
    return np.where(statements.store[:, 0], counts, 1.0)


def _access_columns(statements: Statements, executions: FloatArray) -> FloatArray:
    """Of each access, shape (R, A, len(_ACCESS)); 0 of those that are not there."""
    extents, kinds, steps = statements.extents, statements.kinds, statements.steps
    live = extents > 1
    lanes = live & ((kinds == VECTORIZED) | ((kinds == THREAD) & (statements.axes <= 0)))
    columns = [
        statements.present,
        statements.scope == 1,
        statements.scope == 2,
        statements.parameter,
        np.log2(statements.element),
    ]
    for place in (_last(live), _last(lanes)):
        there = (place >= 0)[:, None]
        if steps.shape[2]:
            at = np.maximum(place, 0)[:, None, None]
            step = np.where(there, np.take_along_axis(steps, at, axis=2)[:, :, 0], 0.0)
        else:
            step = np.zeros(statements.present.shape)
        columns += [
            there & (step == 0),
            there & (step == statements.element),
            np.minimum(log2(step), _STEP),
        ]
    elements = np.maximum(statements.touched[:, :, 0] / statements.element, 1.0)
    columns += [log2(statements.touched[:, :, 0]), _ratio(executions[:, None], elements)]
    table = np.stack(columns, axis=2, dtype=np.float64)
    table[~statements.present] = 0.0
    return table
