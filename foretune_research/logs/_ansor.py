"""Nests of the programs of Ansor's logs.

Programs of a workload whose steps differ in numbers only are followed and described together
(``_ansor_steps``, ``_ansor_bounds``, ``_ansor_nests``); the computation is that which the key names
(``_ansor_operators``). Files in this order: operators, stages, steps, bounds, nests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from foretune._arrays import FloatArray, IndexArray
from foretune.describe._nests import Nests
from foretune_research.logs._ansor_nests import nests
from foretune_research.logs._ansor_operators import (
    NotDescribedError,
    Operation,
    computation,
    knows,
)
from foretune_research.logs._ansor_steps import Follower, Shape, parsed

if TYPE_CHECKING:
    from foretune.dataset import Program
    from foretune.space.actions import Action


def matches(programs: Sequence[Program], workload: str) -> bool:
    """Whether these are programs of Ansor's, of an operator that is known here."""
    return knows(workload) and all(program.candidate is None for program in programs[:1])


def build(
    programs: Sequence[Program], workload: str, reasons: Counter[str] | None = None
) -> list[tuple[IndexArray, Nests]]:
    """Nests of programs by the structure of their steps.

    Args:
        programs: Of a log, with the actions that its reader made of steps.
        workload: The key.
        reasons: Counts the programs that are in no batch, by reason.

    Returns:
        Rows of the programs and their nests, one entry per structure.
    """
    counter: Counter[str] = Counter() if reasons is None else reasons
    try:
        operations = computation(workload)
    except NotDescribedError as failure:
        counter[str(failure)] += len(programs)
        return []
    out = []
    for shape, (rows, numbers) in _by_structure(programs, counter).items():
        try:
            table = np.array(numbers, float).reshape(len(rows), -1)
            kept, made = _followed(operations, shape, table)
        except NotDescribedError as failure:
            counter[str(failure)] += len(rows)
            continue
        counter["extents that are not the operator's"] += len(rows) - len(kept)
        if len(kept):
            out.append((np.asarray(rows, np.intp)[kept], made))
    return out


def _by_structure(
    programs: Sequence[Program], reasons: Counter[str]
) -> dict[tuple[Shape, ...], tuple[list[int], list[list[float]]]]:
    """Rows, and the numbers in a row each, of programs with the same structure."""
    # The reader makes one object of equal actions, which are many.
    known: dict[int, tuple[Shape, tuple[float, ...]]] = {}

    def of(action: Action) -> tuple[Shape, tuple[float, ...]]:
        found = known.get(id(action))
        if found is None:
            found = known[id(action)] = parsed(action)
        return found

    groups: dict[tuple[Shape, ...], tuple[list[int], list[list[float]]]] = {}
    for row, program in enumerate(programs):
        try:
            steps = [of(action) for action in program.actions]
        except NotDescribedError as failure:
            reasons[str(failure)] += 1
            continue
        rows, numbers = groups.setdefault(tuple(shape for shape, _ in steps), ([], []))
        rows.append(row)
        numbers.append([value for _, values in steps for value in values])
    return groups


def _followed(
    operations: Sequence[Operation], shape: tuple[Shape, ...], numbers: FloatArray
) -> tuple[IndexArray, Nests]:
    """The rows that are described, of those given, and their nests."""
    counts = [_numbers_of(step) for step in shape]
    columns = np.split(numbers, np.cumsum(counts)[:-1], axis=1) if counts else []
    follower = Follower(operations, shape, columns, len(numbers))
    made = nests(follower.stages, len(numbers))
    kept = np.flatnonzero(follower.consistent)
    return kept, made if len(kept) == len(numbers) else made.take(kept)


def _numbers_of(step: Shape) -> int:
    if step[0] == "SP":
        return int(step[3]) + 1
    return {"PR": 1, "SA": 2}.get(step[0], 0)
