"""Batches of different structures as few batches: loops of one iteration fill the gaps.

A search looks at hundreds of programs of as many structures, and what is done structure by
structure costs more than what is computed. Loops of one iteration may stand anywhere and mean
nothing (``foretune.describe._nests``), so that structures with the same statements, which only nest
them otherwise, have a common one.

Idea: a loop runs over an interval of statements. Programs join where the same statements share
loops of more than one iteration; each interval then gets as many loops as the structure that has
most of it, those of reductions where any has one. Before → after, of single statements::

    [i 4 reduce] [j 8] A  and  [k 2] [l 16 reduce] A   become   [a] [b reduce] [c] A
    with a, b, c = 1, 4, 8 and 2, 16, 1

Programs of one batch whose shared loops are of one iteration come apart from the others: what they
share is nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from foretune._arrays import BoolArray, IndexArray
from foretune.describe._nests import SERIAL, Access, Buffer, Nests, Statement, Term

Interval = tuple[int, int]
Flags = tuple[bool, ...]

_MOST_LOOPS = 64
"""Loops of a common structure, above which structures are left apart."""


def joined(batches: Sequence[tuple[IndexArray, Nests]]) -> list[tuple[IndexArray, Nests]]:
    """The same programs in fewer batches.

    Args:
        batches: Row numbers and programs of one structure each. Those for GPUs, whose loops are
            bound to axes, stay as they are.

    Returns:
        Row numbers and programs; a program is the same but for loops of one iteration.
    """
    found = [batch for batch in batches if batch[1].gpu]
    groups: dict[object, list[_Part]] = {}
    for rows, nests in batches:
        if nests.gpu:
            continue
        intervals = _intervals(nests)
        if intervals is None:
            found.append((rows, nests))
            continue
        for part in _parts(rows, nests, intervals):
            groups.setdefault((_skeleton(nests), part.shared), []).append(part)
    for group in groups.values():
        for plan, members in _plans(group):
            whole = members[0].rows if len(members) == 1 else None
            rows = np.concatenate([part.rows for part in members]) if whole is None else whole
            found.append((rows, _together(plan, members)))
    return found


@dataclass(frozen=True)
class _Part:
    """Programs of one structure that share the same.

    Attributes:
        rows: Their numbers.
        nests: They.
        intervals: Loops by the first and the last statement in them, those shared for nothing left
            out.
    """

    rows: IndexArray
    nests: Nests
    intervals: dict[Interval, list[int]]

    @property
    def shared(self) -> frozenset[Interval]:
        """Intervals of several statements."""
        return frozenset(each for each in self.intervals if each[0] < each[1])


def _parts(rows: IndexArray, nests: Nests, intervals: dict[Interval, list[int]]) -> list[_Part]:
    """Programs apart by which of their shared loops have more than one iteration."""
    several, patterns, which = _sharing(nests, intervals)
    parts = []
    for number, pattern in enumerate(patterns):
        own = np.flatnonzero(which == number)
        dropped = {each for each, there in zip(several, pattern.tolist(), strict=True) if not there}
        kept = {each: loops for each, loops in intervals.items() if each not in dropped}
        part = nests if len(own) == len(nests) else nests.take(own)
        parts.append(_Part(rows[own], part, kept))
    return parts


def _sharing(
    nests: Nests, intervals: dict[Interval, list[int]]
) -> tuple[list[Interval], BoolArray, IndexArray]:
    """Intervals of several statements; which of them have a loop that iterates, and who has which.

    Returns:
        The intervals, k of them; patterns, shape (p, k); of each program its pattern, shape (n,).
    """
    several = [each for each in intervals if each[0] < each[1]]
    real = np.array(
        [(nests.extents[:, intervals[each]] > 1).any(axis=1) for each in several], dtype=bool
    ).reshape(len(several), len(nests))
    patterns, which = np.unique(real.T, axis=0, return_inverse=True)
    return several, patterns, which.reshape(-1)


def alike(nests: Nests) -> list[IndexArray]:
    """Programs apart by what their statements share: a loop of one iteration is none."""
    intervals = _intervals(nests)
    if intervals is None:
        return [np.arange(len(nests))]
    _, patterns, which = _sharing(nests, intervals)
    return [np.flatnonzero(which == number) for number in range(len(patterns))]


def _skeleton(nests: Nests) -> object:
    """What structures must have in common."""
    return (
        tuple((b.scope, b.bytes, b.shape.shape[1], b.parameter) for b in nests.buffers),
        tuple(
            (s.reduces, tuple((a.buffer, a.store) for a in s.accesses)) for s in nests.statements
        ),
    )


def _intervals(nests: Nests) -> dict[Interval, list[int]] | None:
    """Loops by the first and the last statement in them; None where one skips a statement."""
    seen: dict[int, list[int]] = {}
    for number, statement in enumerate(nests.statements):
        for loop in statement.path:
            seen.setdefault(loop, []).append(number)
    intervals: dict[Interval, list[int]] = {}
    for statement in nests.statements:
        for loop in statement.path:
            within = seen[loop]
            if within[-1] - within[0] + 1 != len(within):
                return None
            own = intervals.setdefault((within[0], within[-1]), [])
            if loop not in own:
                own.append(loop)
    return intervals


Plan = dict[Interval, Flags]
"""Of each interval, for each of its loops whether it is one of a reduction, outermost first."""


def _plans(parts: Sequence[_Part]) -> list[tuple[Plan, list[_Part]]]:
    """Common structures, and which programs each serves: these join the first that takes them."""
    plans: list[tuple[Plan, list[_Part]]] = []
    for part in parts:
        own = {
            interval: tuple(part.nests.reduction[loop] for loop in loops)
            for interval, loops in part.intervals.items()
        }
        for at, (plan, members) in enumerate(plans):
            common = _common(plan, own)
            if common is not None:
                plans[at] = (common, [*members, part])
                break
        else:
            plans.append((own, [part]))
    return plans


def _common(one: Plan, other: Plan) -> Plan | None:
    """A structure that both are part of; None where there would be too much of it."""
    intervals = {**dict.fromkeys(one), **dict.fromkeys(other)}
    plan = {each: _supersequence(one.get(each, ()), other.get(each, ())) for each in intervals}
    return plan if sum(map(len, plan.values())) <= _MOST_LOOPS else None


def _supersequence(one: Flags, other: Flags) -> Flags:
    """The shortest flags that hold both in their order."""
    best: dict[tuple[int, int], Flags] = {}
    for i in range(len(one), -1, -1):
        for j in range(len(other), -1, -1):
            if i == len(one) or j == len(other):
                best[i, j] = (*one[i:], *other[j:])
            elif one[i] == other[j]:
                best[i, j] = (one[i], *best[i + 1, j + 1])
            else:
                first, second = (one[i], *best[i + 1, j]), (other[j], *best[i, j + 1])
                best[i, j] = min(first, second, key=len)
    return best[0, 0]


def _together(plan: Plan, parts: Sequence[_Part]) -> Nests:
    """Programs in their common structure."""
    numbers: dict[Interval, range] = {}
    reduction: list[bool] = []
    # An interval before those within it.
    for interval in sorted(plan, key=lambda each: (each[0], -each[1])):
        numbers[interval] = range(len(reduction), len(reduction) + len(plan[interval]))
        reduction += plan[interval]
    several = [part.nests for part in parts]
    n = sum(map(len, several))
    kinds = np.full((n, len(reduction)), SERIAL, np.int8)
    extents = np.ones((n, len(reduction)))
    maps = []
    start = 0
    for part in parts:
        nests, mapped = part.nests, _mapped(part, numbers, plan)
        own = slice(start, start + len(nests))
        loops = list(mapped)
        kinds[own, [mapped[loop] for loop in loops]] = nests.kinds[:, loops]
        extents[own, [mapped[loop] for loop in loops]] = nests.extents[:, loops]
        maps.append(mapped)
        start += len(nests)
    paths = [
        tuple(
            number
            for (low, high), own in numbers.items()
            if low <= statement <= high
            for number in own
        )
        for statement in range(len(several[0].statements))
    ]
    return Nests(
        kinds=kinds,
        extents=extents,
        axes=("",) * len(reduction),
        reduction=tuple(reduction),
        buffers=_buffers(several),
        statements=tuple(
            _statement(number, path, several, maps) for number, path in enumerate(paths)
        ),
        gpu=False,
        approximate=np.concatenate([nests.approximate for nests in several]),
    )


def _mapped(part: _Part, numbers: dict[Interval, range], plan: Plan) -> dict[int, int]:
    """Of each loop that is kept its number in the common structure."""
    mapped: dict[int, int] = {}
    for interval, loops in part.intervals.items():
        place = -1
        for loop in loops:
            place += 1
            while plan[interval][place] != part.nests.reduction[loop]:
                place += 1
            mapped[loop] = numbers[interval][place]
    return mapped


def _buffers(several: Sequence[Nests]) -> tuple[Buffer, ...]:
    return tuple(
        replace(same[0], shape=np.concatenate([buffer.shape for buffer in same]))
        for same in zip(*(nests.buffers for nests in several), strict=True)
    )


def _statement(
    number: int,
    path: tuple[int, ...],
    several: Sequence[Nests],
    maps: Sequence[dict[int, int]],
) -> Statement:
    same = [nests.statements[number] for nests in several]
    place = {loop: at for at, loop in enumerate(path)}
    # What is dropped is of one iteration and moves nothing: it may stand anywhere.
    moved = [
        [place[mapped[loop]] if loop in mapped else None for loop in statement.path]
        for statement, mapped in zip(same, maps, strict=True)
    ]
    sizes = [len(nests) for nests in several]
    accesses = tuple(
        _access([statement.accesses[at] for statement in same], moved, sizes)
        for at in range(len(same[0].accesses))
    )
    columns = {
        name: np.concatenate([getattr(statement, name) for statement in same])
        for name in ("operations", "calls", "selects", "unroll", "executed")
    }
    return Statement(path=path, accesses=accesses, reduces=same[0].reduces, **columns)


def _access(
    same: Sequence[Access], moved: Sequence[Sequence[int | None]], sizes: Sequence[int]
) -> Access:
    """One access of several structures; a term that one lacks moves nothing there."""
    starts = np.cumsum([0, *sizes]).tolist()
    n = starts[-1]
    terms: dict[tuple[int, int, int], Term] = {}
    for at, (access, places) in enumerate(zip(same, moved, strict=True)):
        met: dict[tuple[int, int], int] = {}
        for term in access.terms:
            place = places[term.place]
            if place is None:
                continue
            spot = (term.dimension, place)
            nth = met[spot] = met.get(spot, -1) + 1
            whole = terms.setdefault((*spot, nth), Term(*spot, np.zeros(n), np.ones(n), np.ones(n)))
            own = slice(starts[at], starts[at + 1])
            whole.coefficient[own] = term.coefficient
            whole.values[own] = term.values
            whole.every[own] = term.every
    return Access(same[0].buffer, same[0].store, tuple(terms[key] for key in sorted(terms)))
