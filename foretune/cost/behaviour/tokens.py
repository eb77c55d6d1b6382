"""Programs as tokens for a small network: the device, one per loop, per statement, per decision.

Idea: a nest of loops in numbers (``foretune.describe.Nests``) is read off, not compiled, so that a
batch costs some array operations. The first token is the device by its data sheet, so that it is
the prefix of all programs asked about on it. Then stand loops and statements in the order of the
program, each loop before what it holds, and at last decisions, where they are given. Loops of one
iteration say nothing and have no token; names have no part in anything.

A token has the columns ``COLUMNS``: what it is, and a section for each kind of token, 0 elsewhere.
A loop's section is the mean over the statements in it, weighted by their work.
``foretune.cost.behaviour._loop_columns`` says what the columns of loops and statements are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretune._arrays import BoolArray, Float32Array
from foretune.cost.behaviour._loop_columns import (
    LOOP_COLUMNS,
    STATEMENT_COLUMNS,
    Machine,
    seen,
)
from foretune.cost.behaviour._statements import Member, Statements, alike
from foretune.describe import Nests
from foretune.hardware import FACTORS, Device

TOKEN_VERSION = 1
"""Raised whenever a column changes its meaning."""

_LEAST = 1e-12
"""Weight of a statement at least, so that loops around ones without work have a mean, too."""

MOST_TOKENS = 64
"""Tokens of a program at most; of longer ones those of least work are left out."""

_KINDS = ("device", "loop", "statement", "decision")
_PLACE = ("order", "statements", "work_share")
_FACTORS = 4
_DEVICE = ("known", "gpu", *(factor.name for factor in FACTORS))
_DECISION = ("tile", "choice", *(f"factor{number}" for number in range(_FACTORS)))
COLUMNS: tuple[str, ...] = (
    *(f"is_{kind}" for kind in _KINDS),
    *_PLACE,
    *(f"loop.{name}" for name in LOOP_COLUMNS),
    *(f"statement.{name}" for name in STATEMENT_COLUMNS),
    *(f"device.{name}" for name in _DEVICE),
    *(f"decision.{name}" for name in _DECISION),
)
"""Names of the columns. Sizes are base-2 logarithms, ``*_over_*`` those of ratios."""


def _section(prefix: str) -> slice:
    at = [number for number, name in enumerate(COLUMNS) if name.startswith(prefix)]
    return slice(at[0], at[-1] + 1)


_OF_LOOP, _OF_STATEMENT = _section("loop."), _section("statement.")
_OF_DEVICE, _OF_DECISION = _section("device."), _section("decision.")
_ORDER, _STATEMENTS, _SHARE = (COLUMNS.index(name) for name in _PLACE)
_IS_DEVICE, _IS_LOOP, _IS_STATEMENT, _IS_DECISION = range(len(_KINDS))

Decided = Sequence[Sequence[tuple[int, ...] | int]]
"""Of each program its decisions: factors of tiles, numbers of choices and locations."""


@dataclass(frozen=True)
class Tokens:
    """Programs as tokens.

    Attributes:
        rows: float32 of shape (n, MOST_TOKENS, len(COLUMNS)); a program's tokens stand first.
        mask: bool of shape (n, MOST_TOKENS): which are there. The device's always is.
    """

    rows: Float32Array
    mask: BoolArray

    def __len__(self) -> int:
        return len(self.rows)


def tokens(nests: Nests, device: Device | None, decisions: Decided = ()) -> Tokens:
    """Reads programs of one structure as tokens; see ``tokens_of``."""
    return tokens_of([nests], device, decisions)


def tokens_of(batches: Sequence[Nests], device: Device | None, decisions: Decided = ()) -> Tokens:
    """Reads programs as tokens.

    Args:
        batches: n programs of one or more structures, one batch after the other; at least one.
        device: What they run on; None where it is not known: sizes are then compared with a
            middling device of the kind, and the device's token says that it is not known.
        decisions: Of each program its decisions, a tuple of factors (a tile) or a number (a
            choice); none if empty. A program's tile (4, 32) becomes ``tile=1, factor0=2,
            factor1=5``.
    """
    gpu = batches[0].gpu
    rows, live = _slots(batches, Machine.of(device, gpu))
    parts = [_device_token(device, gpu, len(rows)), rows]
    there = [np.ones((len(rows), 1), dtype=bool), live]
    priority = [np.full((len(rows), 1), np.inf, np.float32), rows[:, :, _SHARE]]
    if decisions:
        table, given = _decision_tokens(decisions)
        parts.append(table)
        there.append(given)
        priority.append(np.zeros(given.shape, np.float32))
    return _packed(
        np.concatenate(parts, axis=1),
        np.concatenate(there, axis=1),
        np.concatenate(priority, axis=1),
    )


def _slots(batches: Sequence[Nests], machine: Machine) -> tuple[Float32Array, BoolArray]:
    """Loops and statements in the order of the programs; which of them there are."""
    orders = [_order(nests) for nests in batches]
    sizes = [len(nests) for nests in batches]
    n, longest = sum(sizes), max(map(len, orders))
    # What fills up a path is added to one slot more, which is left out at the end.
    rows = np.zeros((n, longest + 1, len(COLUMNS)), np.float32)
    live = np.zeros((n, longest), dtype=bool)
    members: list[Member] = []
    first = 0
    for nests, order, size in zip(batches, orders, sizes, strict=True):
        at = {what: slot for slot, what in enumerate(order)}
        own = slice(first, first + size)
        loops = [slot for (kind, _), slot in at.items() if kind == "loop"]
        live[own, : len(order)] = True
        live[own, loops] = nests.extents[:, [order[slot][1] for slot in loops]] > 1
        rows[own, loops, _IS_LOOP] = 1.0
        for number, statement in enumerate(nests.statements):
            slots = tuple(at["loop", loop] for loop in statement.path)
            slot = at["statement", number]
            members.append(Member(nests, statement, number, first, slots, slot))
        first += size
    if members:
        _fill(rows, [Statements.of(part) for part in alike(members)], machine)
    return rows[:, :-1], live


def _fill(rows: Float32Array, parts: Sequence[Statements], machine: Machine) -> None:
    """Writes what is said of statements and loops to where their tokens stand."""
    n, slots = rows.shape[:2]
    read = [seen(part, machine) for part in parts]
    total = np.zeros(n)
    for part, one in zip(parts, read, strict=True):
        np.add.at(total, part.program, one.work)
    weights, held, work = (np.zeros((n, slots)) for _ in range(3))
    order = np.full((n, slots), np.inf)
    for part, one in zip(parts, read, strict=True):
        program, slot = part.program, part.slot
        share = one.work / np.maximum(total[program], 1e-30)
        rows[program, slot, _IS_STATEMENT] = 1.0
        rows[program, slot, _OF_STATEMENT] = one.statements
        rows[program, slot, _ORDER] = part.number / 16.0
        rows[program, slot, _SHARE] = share
        around = (program[:, None], part.slots)
        np.add.at(weights, around, np.maximum(share, _LEAST)[:, None])
        np.add.at(held, around, 1.0)
        np.add.at(work, around, share[:, None])
        np.minimum.at(order, around, part.number[:, None] / 16.0)
    for part, one in zip(parts, read, strict=True):
        # A loop has the mean over the statements in it, by their work.
        share = one.work / np.maximum(total[part.program], 1e-30)
        around = (part.program[:, None], part.slots)
        weight = np.maximum(share, _LEAST)[:, None] / weights[around]
        own = (weight[:, :, None] * one.loops).astype(np.float32)
        np.add.at(rows[:, :, _OF_LOOP], around, own)
    of_loops = held > 0
    rows[of_loops, _ORDER] = order[of_loops]
    rows[of_loops, _STATEMENTS] = np.log2(1.0 + held[of_loops])
    rows[of_loops, _SHARE] = work[of_loops]


def _order(nests: Nests) -> list[tuple[str, int]]:
    """``("loop", number)`` and ``("statement", number)`` as a printed program has them."""
    order: dict[tuple[str, int], None] = {}
    for number, statement in enumerate(nests.statements):
        order.update({("loop", loop): None for loop in statement.path})
        order["statement", number] = None
    return list(order)


def _device_token(device: Device | None, gpu: bool, n: int) -> Float32Array:
    row = np.zeros(len(COLUMNS), np.float32)
    row[_IS_DEVICE] = 1.0
    own = [float(device is not None), float(gpu)]
    for factor in FACTORS:
        has = device is not None and device.kind in factor.kinds
        own.append(np.log2(1.0 + device.value(factor.name)) if device is not None and has else 0.0)
    row[_OF_DEVICE] = own
    return np.broadcast_to(row, (n, 1, len(COLUMNS)))


def _decision_tokens(
    decisions: Decided,
) -> tuple[Float32Array, BoolArray]:
    longest = max(map(len, decisions))
    rows = np.zeros((len(decisions), longest, len(COLUMNS)), np.float32)
    given = np.zeros((len(decisions), longest), dtype=bool)
    first = _OF_DECISION.start
    for program, own in enumerate(decisions):
        for place, decision in enumerate(own):
            tile = isinstance(decision, tuple)
            factors = decision if isinstance(decision, tuple) else (1 + max(0, decision),)
            row = rows[program, place]
            row[_IS_DECISION] = 1.0
            row[_ORDER] = place / 16.0
            row[first + (0 if tile else 1)] = 1.0
            kept = np.log2(np.maximum(np.array(factors[:_FACTORS], dtype=np.float64), 1.0))
            row[first + 2 : first + 2 + len(kept)] = kept
            given[program, place] = True
    return rows, given


def _packed(rows: Float32Array, there: BoolArray, priority: Float32Array) -> Tokens:
    """The tokens that there are at the front, in their order; the weightiest if too many."""
    n, slots = there.shape
    if slots > MOST_TOKENS:
        worth = np.where(there, priority, -np.inf)
        ranks = np.argsort(np.argsort(-worth, axis=1, kind="stable"), axis=1, kind="stable")
        there = there & (ranks < MOST_TOKENS)
    order = np.argsort(~there, axis=1, kind="stable")[:, :MOST_TOKENS]
    packed = np.zeros((n, MOST_TOKENS, len(COLUMNS)), dtype=np.float32)
    mask = np.zeros((n, MOST_TOKENS), dtype=bool)
    mask[:, : order.shape[1]] = np.take_along_axis(there, order, axis=1)
    packed[:, : order.shape[1]] = np.take_along_axis(rows, order[:, :, None], axis=1)
    packed[~mask] = 0.0
    return Tokens(packed, mask)
