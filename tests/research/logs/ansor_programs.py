"""Programs of Ansor's written by hand or drawn, and what their nests say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from foretune.dataset import Program
from foretune.describe import KIND_NAMES, Nests, Term
from foretune.space.actions import Action
from foretune_research.logs import nests_of_programs

PARALLEL, VECTORIZED, UNROLLED, VTHREAD, BLOCK, THREAD = 3, 2, 1, 4, 5, 6
"""Ansor's numbers of annotations."""
THREADS = KIND_NAMES.index("thread")


def program(steps: Sequence[list]) -> Program:
    """A program as the reader of logs makes it: lists among the arguments become one row."""
    actions = []
    for code, *given in steps:
        args: list = []
        for each in given:
            args += each if isinstance(each, list) else [each]
        actions.append(Action(code, tuple(args)))
    return Program(actions=actions)


def nests_of(key: str, *programs: Sequence[list]) -> Nests:
    """Nests of programs that have one structure."""
    ((rows, nests),) = nests_of_programs([program(steps) for steps in programs], key, "", "")
    assert rows.tolist() == list(range(len(programs)))
    return nests


def loops(nests: Nests, at: int, row: int = 0) -> list[str]:
    """The loops around a statement: ``"serial 4"``, ``"thread.x 8"``, ``"serial 3 sum"``."""
    out = []
    for loop in nests.statements[at].path:
        name = KIND_NAMES[int(nests.kinds[row, loop])]
        axis = f".{nests.axes[loop]}" if nests.axes[loop] else ""
        summed = " sum" if nests.reduction[loop] else ""
        out.append(f"{name}{axis} {nests.extents[row, loop]:g}{summed}")
    return out


def touched(nests: Nests, at: int, access: int, row: int = 0) -> np.ndarray:
    """Elements of an access in one program, counted from the first, shape (elements, rank)."""
    statement = nests.statements[at]
    found = statement.accesses[access]
    sizes = nests.extents[row, list(statement.path)].astype(int)
    now = np.indices(sizes).reshape(len(sizes), -1)
    index = np.zeros((nests.buffers[found.buffer].shape.shape[1], now.shape[1]))
    for term in found.terms:
        digit = np.floor(now[term.place] / term.every[row]) % term.values[row]
        index[term.dimension] += term.coefficient[row] * digit
    return np.unique(index, axis=1).T.astype(int)


def copied_plainly(nests: Nests) -> Nests:
    """Copies into shared memory by a loop per dimension in place of threads that share the work.

    What threads copy together is digits of one number, which is described closely where sizes do
    not divide; where the copied box lies and how large it is, is not.
    """
    kinds, extents = nests.kinds, nests.extents
    made = []
    count = len(nests.axes)
    for statement in nests.statements:
        store = statement.accesses[-1]
        buffer = nests.buffers[store.buffer]
        if buffer.scope != "shared":
            made.append(statement)
            continue
        moved = {term.place for term in store.terms}
        kept = [
            at
            for at, loop in enumerate(statement.path)
            if at not in moved or kinds[0, loop] == THREADS
        ]
        place = {at: new for new, at in enumerate(kept)}
        rank = buffer.shape.shape[1]
        kinds = np.concatenate([kinds, np.zeros((len(nests), rank), np.int8)], axis=1)
        extents = np.concatenate([extents, buffer.shape], axis=1)
        one = np.ones(len(nests))
        whole = [Term(d, len(kept) + d, one, buffer.shape[:, d], one) for d in range(rank)]
        base = [
            replace(term, place=place[term.place])
            for term in statement.accesses[0].terms
            if term.place in place and term.place not in moved
        ]
        accesses = (
            replace(statement.accesses[0], terms=(*base, *whole)),
            replace(store, terms=tuple(whole)),
        )
        path = (*(statement.path[at] for at in kept), *range(count, count + rank))
        count += rank
        made.append(replace(statement, path=path, accesses=accesses, executed=one))
    more = count - len(nests.axes)
    return replace(
        nests,
        kinds=kinds,
        extents=extents,
        axes=(*nests.axes, *[""] * more),
        reduction=(*nests.reduction, *[False] * more),
        statements=tuple(made),
    )


def parts(draw: np.random.Generator, extent: int, count: int) -> list[int]:
    """Lengths of ``count`` inner parts of a split that divides."""
    out = []
    for _ in range(count):
        divisors = [d for d in range(1, extent + 1) if extent % d == 0]
        out.append(int(draw.choice(divisors)))
        extent //= out[-1]
    return out[::-1]


def tiled_for_threads(
    draw: np.random.Generator,
    spatial: Sequence[int],
    summed: Sequence[int],
    inputs: Sequence[tuple[int, int]],
    inlined: Sequence[int] = (),
) -> list[list]:
    """What Ansor's sketch for GPUs makes of one operation: tiles in shared and local memory.

    Args:
        draw: Draws lengths.
        spatial: Extents of the output.
        summed: Extents of the sum.
        inputs: Of each input its stage and its number of dimensions, last stage first.
        inlined: Stages that are computed where they are read.
    """
    rank, sums = len(spatial), len(summed)
    stage = max(number for number, _ in inputs) + 1
    stage = max(stage, *(number + 1 for number in inlined)) if inlined else stage
    steps: list[list] = [["CHW", stage, "local"]]
    at = 0
    for extent in spatial:
        steps.append(["SP", stage, at, extent, parts(draw, extent, 4), 1])
        at += 5
    for extent in summed:
        steps.append(["SP", stage, at, extent, parts(draw, extent, 2), 1])
        at += 3
    space = [[5 * a + level for a in range(rank)] for level in range(5)]
    sum_ = [[5 * rank + 3 * a + level for a in range(sums)] for level in range(3)]
    steps.append(["RE", stage, [*space[0], *space[1], *space[2], *sum_[0], *sum_[1], *space[3],
                                *sum_[2], *space[4]]])  # fmt: skip
    steps += [["FSP", stage + 1, 4 * a, 1 + a, 3] for a in range(rank)]
    steps.append(["RE", stage + 1, [4 * a + level for level in range(4) for a in range(rank)]])
    steps.append(["CA", stage, stage + 1, 3 * rank - 1])
    copies: list[tuple[int, int]] = []
    for number, dimensions in inputs:
        steps.append(["CHR", number, "shared", [stage]])
        stage += 1
        copies = [(copy + 1, d) for copy, d in copies] + [(number + 1, dimensions)]
        steps.append(["CA", number + 1, stage, 3 * rank + sums - 1])
    steps += [["CI", number] for number in inlined]
    last = stage + 1
    for level, kind in enumerate((BLOCK, VTHREAD, THREAD)):
        steps.append(["FU", last, [level + a for a in range(rank)]])
        steps.append(["AN", last, level, kind])
    for copy, dimensions in copies:
        steps.append(["FU", copy, list(range(dimensions))])
        steps.append(["SP", copy, 0, 0, [int(draw.choice([1, 1, 2]))], 1])
        steps.append(["AN", copy, 1, VECTORIZED])
        steps.append(["FFSP", copy, 0, list(range(1, rank + 1)), 1, 1])
        steps.append(["AN", copy, 1, THREAD])
    steps.append(["PR", stage, 0, "auto_unroll_max_step$64"])
    return steps
