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
import numpy.typing as npt

from foretune.cost.behaviour._loop_columns import (
    LOOP_COLUMNS,
    STATEMENT_COLUMNS,
    Array,
    Machine,
    Seen,
    seen,
)
from foretune.describe import Nests
from foretune.hardware import FACTORS, Device

TOKEN_VERSION = 1
"""Raised whenever a column changes its meaning."""

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


@dataclass(frozen=True)
class Tokens:
    """Programs as tokens.

    Attributes:
        rows: float32 of shape (n, MOST_TOKENS, len(COLUMNS)); a program's tokens stand first.
        mask: bool of shape (n, MOST_TOKENS): which are there. The device's always is.
    """

    rows: npt.NDArray[np.float32]
    mask: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.rows)


def tokens(
    nests: Nests,
    device: Device | None,
    decisions: Sequence[Sequence[tuple[int, ...] | int]] = (),
) -> Tokens:
    """Reads programs as tokens.

    Args:
        nests: n programs of one structure.
        device: What they run on; None where it is not known: sizes are then compared with a
            middling device of the kind, and the device's token says that it is not known.
        decisions: Of each program its decisions, a tuple of factors (a tile) or a number (a
            choice); none if empty. A program's tile (4, 32) becomes ``tile=1, factor0=2,
            factor1=5``.
    """
    machine = Machine.of(device, nests.gpu)
    each = [seen(nests, statement, machine) for statement in nests.statements]
    slots, live = _slots(nests, each)
    parts = [_device_token(device, nests.gpu, len(nests)), slots]
    there = [np.ones((len(nests), 1), dtype=bool), live]
    priority = [np.full((len(nests), 1), np.inf), slots[:, :, _SHARE]]
    if decisions:
        table, given = _decision_tokens(decisions)
        parts.append(table)
        there.append(given)
        priority.append(np.zeros(given.shape))
    return _packed(
        np.concatenate(parts, axis=1),
        np.concatenate(there, axis=1),
        np.concatenate(priority, axis=1),
    )


def _slots(nests: Nests, each: Sequence[Seen]) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Loops and statements in the order of the program; which of them there are."""
    n = len(nests)
    order = _order(nests)
    at = {what: slot for slot, what in enumerate(order)}
    rows = np.zeros((n, len(order), len(COLUMNS)))
    live = np.ones((n, len(order)), dtype=bool)
    total = sum((one.work for one in each), np.zeros(n))
    weights = np.zeros((n, len(order)))
    for number, (statement, one) in enumerate(zip(nests.statements, each, strict=True)):
        place = number / 16.0
        share = one.work / np.maximum(total, 1e-30)
        slot = at["statement", number]
        rows[:, slot, COLUMNS.index("is_statement")] = 1.0
        rows[:, slot, _OF_STATEMENT] = one.statement
        rows[:, slot, _ORDER] = place
        rows[:, slot, _SHARE] = share
        held = [at["loop", loop] for loop in statement.path]
        if not held:
            continue
        # A loop's columns are summed by work and divided by the work in it at the end.
        weight = np.maximum(one.work, 1e-30)[:, None]
        rows[:, held, _OF_LOOP] += weight[:, :, None] * one.loops
        weights[:, held] += weight
        rows[:, held, _SHARE] += share[:, None]
        rows[:, held, _STATEMENTS] += 1.0
        rows[:, held, _ORDER] = np.where(
            rows[:, held, _STATEMENTS] > 1, rows[:, held, _ORDER], place
        )
    loops = [slot for (kind, _), slot in at.items() if kind == "loop"]
    rows[:, loops, _OF_LOOP] /= np.maximum(weights[:, loops], 1e-30)[:, :, None]
    rows[:, loops, COLUMNS.index("is_loop")] = 1.0
    rows[:, loops, _STATEMENTS] = np.log2(1.0 + rows[:, loops, _STATEMENTS])
    live[:, loops] = nests.extents[:, [order[slot][1] for slot in loops]] > 1
    return rows, live


def _order(nests: Nests) -> list[tuple[str, int]]:
    """``("loop", number)`` and ``("statement", number)`` as a printed program has them."""
    order: dict[tuple[str, int], None] = {}
    for number, statement in enumerate(nests.statements):
        order.update({("loop", loop): None for loop in statement.path})
        order["statement", number] = None
    return list(order)


def _device_token(device: Device | None, gpu: bool, n: int) -> Array:
    row = np.zeros(len(COLUMNS))
    row[COLUMNS.index("is_device")] = 1.0
    own = [float(device is not None), float(gpu)]
    for factor in FACTORS:
        has = device is not None and device.kind in factor.kinds
        own.append(np.log2(1.0 + device.value(factor.name)) if device is not None and has else 0.0)
    row[_OF_DEVICE] = own
    return np.broadcast_to(row, (n, 1, len(COLUMNS)))


def _decision_tokens(
    decisions: Sequence[Sequence[tuple[int, ...] | int]],
) -> tuple[Array, npt.NDArray[np.bool_]]:
    longest = max(map(len, decisions))
    rows = np.zeros((len(decisions), longest, len(COLUMNS)))
    given = np.zeros((len(decisions), longest), dtype=bool)
    first = _OF_DECISION.start
    for program, own in enumerate(decisions):
        for place, decision in enumerate(own):
            tile = isinstance(decision, tuple)
            factors = decision if isinstance(decision, tuple) else (1 + max(0, decision),)
            row = rows[program, place]
            row[COLUMNS.index("is_decision")] = 1.0
            row[_ORDER] = place / 16.0
            row[first + (0 if tile else 1)] = 1.0
            kept = np.log2(np.maximum(np.array(factors[:_FACTORS], dtype=np.float64), 1.0))
            row[first + 2 : first + 2 + len(kept)] = kept
            given[program, place] = True
    return rows, given


def _packed(rows: Array, there: npt.NDArray[np.bool_], priority: Array) -> Tokens:
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
