"""Programs of AutoTVM's logs: knobs of a template, in columns, and the templates by name.

A log names a template and the values of its knobs. Programs of one workload with the same knobs,
and the same values of those that change the order of loops, are one batch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from foretune.dataset import Program
from foretune.describe._nests import FloatArray, Nests
from foretune.describe.logs._shapes import NoShapeError
from foretune.space.actions import Action

Rows = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Tiles:
    """The knobs of n programs of one template.

    Attributes:
        n: Number of programs.
        sizes: Of each split, what it splits an axis into, outermost first, float64 (n,) each.
        options: Values of the other knobs, one per program; those of reorders and annotations are
            tuples.
    """

    n: int
    sizes: Mapping[str, Sequence[FloatArray]]
    options: Mapping[str, Sequence[Any]]

    def number(self, name: str) -> FloatArray:
        """Values of an option, float64 of shape (n,)."""
        return np.asarray(self.options[name], np.float64)


@dataclass(frozen=True)
class Template:
    """How to rebuild the programs of one of AutoTVM's templates, or of those with some knobs.

    Attributes:
        splits: From the arguments of a workload, the extent that each split divides.
        build: Makes the nests from the arguments and the knobs.
        options: The knobs beside the splits, without which nothing is made.
        orders: Those of them that change more than sizes and kinds of loops.
        uneven: Splits whose last tile may be cut.
    """

    splits: Callable[[Sequence[Any]], Mapping[str, int]]
    build: Callable[[Sequence[Any], Tiles], Nests]
    options: tuple[str, ...] = ()
    orders: tuple[str, ...] = ()
    uneven: tuple[str, ...] = ()


def nests_of_log(
    templates: Mapping[str, Sequence[Template]], programs: Sequence[Program], workload: str
) -> list[tuple[Rows, Nests]]:
    """Nests of programs by the templates; those whose knobs are not the template's are in none.

    Args:
        templates: By the name of the task; of several, the first that has the knobs counts.
        programs: Programs of one workload.
        workload: Its key.
    """
    name, args = task_of(workload)
    made = []
    orders = {name for template in templates.get(name, ()) for name in template.orders}
    for rows, knobs in _alike([program.actions for program in programs], orders):
        for template in templates.get(name, ()):
            try:
                extents = template.splits(args)
            except NoShapeError:
                continue
            if extents.keys() | set(template.options) <= knobs.keys():
                kept, tiles = _tiles(rows, knobs, extents, template.uneven)
                if len(kept):
                    made.append((kept, template.build(args, tiles)))
                break
    return made


def task_of(workload: str) -> tuple[str, Sequence[Any]]:
    """Name and arguments of the task that is an AutoTVM workload's key; empty for any other."""
    try:
        name, args = json.loads(workload)
    except (TypeError, ValueError):
        return "", ()
    return (name, args) if isinstance(name, str) and isinstance(args, list) else ("", ())


def _alike(
    programs: Sequence[Sequence[Action]], orders: Collection[str]
) -> list[tuple[Rows, dict[str, list[tuple[Any, ...]]]]]:
    """Rows of programs that are one batch, and the values of each of their knobs."""
    batches: dict[Any, tuple[list[int], list[Sequence[Action]]]] = {}
    for row, actions in enumerate(programs):
        key = tuple(
            (action.kind, action.args[0], len(action.args), action.args[1:]
             if action.kind == "re" or action.args[0] in orders else ())
            for action in actions
        )  # fmt: skip
        rows, alike = batches.setdefault(key, ([], []))
        rows.append(row)
        alike.append(actions)
    made = []
    for rows, alike in batches.values():
        columns = zip(*alike, strict=True)
        knobs = {
            str(column[0].args[0]): [action.args[1:] for action in column] for column in columns
        }
        made.append((np.asarray(rows, np.intp), knobs))
    return made


def _tiles(
    rows: Rows,
    knobs: Mapping[str, list[tuple[Any, ...]]],
    extents: Mapping[str, int],
    uneven: Collection[str],
) -> tuple[Rows, Tiles]:
    """Those rows whose splits divide their axes, and their knobs."""
    good = np.ones(len(rows), bool)
    sizes: dict[str, FloatArray] = {}
    for name, extent in extents.items():
        try:
            factors = np.array(knobs[name], np.float64)
        except (TypeError, ValueError):
            return rows[:0], Tiles(0, {}, {})
        if factors.shape[1] < 2:
            return rows[:0], Tiles(0, {}, {})
        inner = np.maximum(factors[:, 1:], 1).prod(axis=1)
        left = np.ceil(extent / inner) if name in uneven else extent / inner
        factors[:, 0] = np.where(factors[:, 0] == -1, left, factors[:, 0])
        product = inner * factors[:, 0]
        good &= (factors >= 1).all(axis=1) & (factors % 1 == 0).all(axis=1)
        good &= (product >= extent) if name in uneven else (product == extent)
        sizes[name] = factors
    kept = np.flatnonzero(good)
    options = {
        name: [values[row][0] if len(values[row]) == 1 else values[row] for row in kept.tolist()]
        for name, values in knobs.items()
        if name not in extents
    }
    columns = {name: list(factors[kept].T) for name, factors in sizes.items()}
    return rows[kept], Tiles(len(kept), columns, options)
