"""Programs of AutoTVM's logs: knobs of a template, in columns, and the templates by name.

A log names a template and the values of its knobs. Programs of one workload with the same knobs,
and the same values of those that change the order of loops, are one batch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from foretune._arrays import FloatArray, IndexArray
from foretune.dataset import Program
from foretune.describe._nests import Nests
from foretune.space.actions import Action
from foretune_research.logs._shapes import NoShapeError


@dataclass(frozen=True)
class Tiles:
    """The knobs of n programs of one template.

    Attributes:
        n: Number of programs.
        sizes: Of each split, what it splits an axis into, outermost first, float64 (n,) each.
        numbers: Of each option with one, float64 of shape (n,).
        words: Of each reorder and annotation, a tuple per program.
    """

    n: int
    sizes: Mapping[str, Sequence[FloatArray]]
    numbers: Mapping[str, FloatArray]
    words: Mapping[str, Sequence[tuple[Any, ...]]]


Splits: TypeAlias = Mapping[str, tuple[int, int]]
"""Of each split, the extent that it divides and into how many parts."""


@dataclass(frozen=True)
class Template:
    """How to rebuild the programs of one of AutoTVM's templates, or of those with some knobs.

    Attributes:
        splits: The splits of a workload with these arguments.
        build: Makes the nests from the arguments and the knobs.
        numbers: Options that are numbers, without which nothing is made.
        orders: Reorders, each with the number of loops, 0 for an option that changes the order of
            loops: programs with different ones are no batch.
        annotations: Annotations, each with the number of loops.
        uneven: Splits whose last tile may be cut.
    """

    splits: Callable[[Sequence[Any]], Splits]
    build: Callable[[Sequence[Any], Tiles], Nests]
    numbers: tuple[str, ...] = ()
    orders: Mapping[str, int] = field(default_factory=dict)
    annotations: Mapping[str, int] = field(default_factory=dict)
    uneven: tuple[str, ...] = ()

    @property
    def options(self) -> set[str]:
        """All knobs but splits."""
        return {*self.numbers, *self.orders, *self.annotations}


def nests_of_log(
    templates: Mapping[str, Sequence[Template]], programs: Sequence[Program], workload: str
) -> list[tuple[IndexArray, Nests]]:
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
                splits = template.splits(args)
            except NoShapeError:
                continue
            if splits.keys() | template.options <= knobs.keys():
                kept, tiles = _tiles(rows, knobs, splits, template)
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
) -> list[tuple[IndexArray, dict[str, list[tuple[Any, ...]]]]]:
    """Rows of programs that are one batch, and the values of each of their knobs."""
    batches: dict[Any, tuple[list[int], list[Sequence[Action]]]] = {}
    for row, actions in enumerate(programs):
        key = tuple(
            (action.args[:1], len(action.args),
             action.args[1:] if action.args[:1] and action.args[0] in orders else ())
            for action in actions
        )  # fmt: skip
        rows, alike = batches.setdefault(key, ([], []))
        rows.append(row)
        alike.append(actions)
    made = []
    for rows, alike in batches.values():
        columns = zip(*alike, strict=True)
        knobs = {
            str(column[0].args[0]): [action.args[1:] for action in column]
            for column in columns
            if column[0].args
        }
        made.append((np.asarray(rows, np.intp), knobs))
    return made


def _tiles(
    rows: IndexArray, knobs: Mapping[str, list[tuple[Any, ...]]], splits: Splits, template: Template
) -> tuple[IndexArray, Tiles]:
    """Those rows whose knobs are of the template, and their knobs."""
    good = np.ones(len(rows), bool)
    sizes, numbers = {}, {}
    for name, (extent, parts) in splits.items():
        factors = _table(knobs[name], parts)
        inner = np.maximum(factors[:, 1:], 1).prod(axis=1)
        left = np.ceil(extent / inner) if name in template.uneven else extent / inner
        factors[:, 0] = np.where(factors[:, 0] == -1, left, factors[:, 0])
        product = inner * factors[:, 0]
        good &= (factors >= 1).all(axis=1) & (factors % 1 == 0).all(axis=1)
        good &= (product >= extent) if name in template.uneven else (product == extent)
        sizes[name] = factors
    for name in template.numbers:
        numbers[name] = _table(knobs[name], 1)[:, 0]
        good &= np.isfinite(numbers[name])
    for name, loops in template.orders.items():
        if loops:
            good &= [sorted(map(str, row)) == sorted(map(str, range(loops)))
                     for row in knobs[name]]  # fmt: skip
    for name, loops in template.annotations.items():
        good &= [len(row) == loops for row in knobs[name]]
    kept = np.flatnonzero(good)
    named = [*template.annotations, *template.orders]
    return rows[kept], Tiles(
        len(kept),
        {name: list(factors[kept].T) for name, factors in sizes.items()},
        {name: column[kept] for name, column in numbers.items()},
        {name: [knobs[name][row] for row in kept.tolist()] for name in named},
    )


def _table(values: Sequence[tuple[Any, ...]], width: int) -> FloatArray:
    """Values as float64 of shape (n, width); NaN in rows of others."""
    try:
        table = np.array(values, np.float64)
        if table.shape == (len(values), width):
            return table
    except (TypeError, ValueError):
        if len(values) > 1:
            return np.concatenate([_table([row], width) for row in values])
    return np.full((len(values), width), np.nan)
