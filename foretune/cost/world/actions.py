"""Populations as rows of a table of distinct actions: what a rollout goes through.

Idea: naming the actions of a candidate costs two tenths of a millisecond, more than all the rest of
a score. Candidates of a sketch have the same steps, with slots for their decisions; so a step is
named once per value of its slots, and looked up for all candidates at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._arrays import BoolArray, Float32Array, IntArray
from foretune.space import Action, Candidate, Choice, ComputeLocation, Sketch
from foretune.space.actions import Slot, Step, skeleton_of
from foretune.world import action_text, steps_of
from foretune.world.transition import NUMBERS, ActionTable

if TYPE_CHECKING:
    from foretune.workload import Workload


_SKETCHES = 256
_ACTIONS = 200_000
"""Of each, so many are kept. Beyond, sketches are forgotten, whose actions stay known; and actions,
with everything."""
_ABSENT = -1


@dataclass(frozen=True)
class Route:
    """The steps of all candidates with one structure: they differ in numbers only.

    Attributes:
        workload: Of the candidates.
        steps: In order, with the numbers of the candidate that was asked about.
        at: Those whose numbers decisions fill in, shape (V,).
        slots: Of each such number, the place of its step in ``at``, its own among the step's eight,
            and what fills it in: a factor of a tile, or the value of a choice.
    """

    workload: Workload
    steps: ActionTable
    at: IntArray
    slots: tuple[tuple[int, int, Slot], ...]


class _Steps:
    """The steps of a sketch, and the rows of those that were named.

    Args:
        sketch: Of which.
        number: Gives an action its row.
    """

    def __init__(self, sketch: Sketch, number: Callable[[Action], int]) -> None:
        self._sketch = sketch
        self._number = number
        self._steps = [(step, _variables(step)) for step in skeleton_of(sketch)]
        self._known: list[dict[Any, int]] = [{} for _ in self._steps]

    def rows(self, candidates: Sequence[Candidate]) -> IntArray:
        """Rows of the steps of candidates, shape (n, steps), -1 for one that is not there."""
        columns: list[Sequence[Any]] = list(zip(*(c.decisions for c in candidates), strict=True))
        self._name_locations(columns)
        table = np.empty((len(candidates), len(self._steps)), dtype=np.int64)
        for at, ((step, variables), known) in enumerate(zip(self._steps, self._known, strict=True)):
            if not variables:
                table[:, at] = self._row(step, variables, (), known)
                continue
            keys: Sequence[Any] = list(zip(*(columns[v] for v in variables), strict=True))
            # In the order of candidates: that of a set differs between processes, and what is
            # learned from the table with it.
            for key in dict.fromkeys(keys):
                if key not in known:
                    self._row(step, variables, key, known)
            table[:, at] = [known[key] for key in keys]
        return table

    def slots(self, there: BoolArray) -> list[tuple[int, int, Slot]]:
        """Step, place and slot of each number that is filled in, of the steps that are there."""
        kept = [step for (step, _), is_there in zip(self._steps, there, strict=True) if is_there]
        return [
            (at, place, arg)
            for at, step in enumerate(kept)
            for place, arg in enumerate([a for a in step.args if self._is_number(a)][:NUMBERS])
            if isinstance(arg, Slot)
        ]

    def _is_number(self, arg: Any) -> bool:
        if isinstance(arg, Slot):
            return not isinstance(self._sketch.variables[arg.variable], ComputeLocation)
        return not isinstance(arg, str)

    def _name_locations(self, columns: list[Sequence[Any]]) -> None:
        """Puts names in place of locations, which mean what those decided earlier say."""
        order = self._sketch.location_order
        decided = list(zip(*(columns[variable] for variable in order), strict=True))
        for place, variable in enumerate(order):
            name = self._sketch.locations.name
            names = {
                key: name(variable, key[:-1], key[-1])
                for key in {each[: place + 1] for each in decided}
            }
            columns[variable] = [names[each[: place + 1]] for each in decided]

    def _row(
        self, step: Step, variables: Sequence[int], key: tuple[Any, ...], known: dict[Any, int]
    ) -> int:
        if key not in known:
            given = dict(zip(variables, key, strict=True))
            known[key] = _ABSENT
            if step.switch < 0 or self._value(Slot(step.switch), given) != 0:
                args = (self._value(a, given) if isinstance(a, Slot) else a for a in step.args)
                for action in steps_of([Action(step.kind, tuple(args))]):
                    known[key] = self._number(action)
        return known[key]

    def _value(self, slot: Slot, given: Mapping[int, Any]) -> Any:
        variable, decision = self._sketch.variables[slot.variable], given[slot.variable]
        if isinstance(variable, Choice):
            return variable.values[decision]
        return decision if isinstance(variable, ComputeLocation) else decision[slot.part]


def _variables(step: Step) -> tuple[int, ...]:
    variables = {arg.variable for arg in step.args if isinstance(arg, Slot)}
    return tuple(sorted(variables | ({step.switch} if step.switch >= 0 else set())))


class ActionBook:
    """Numbers distinct actions, and reads the text of each once.

    Two actions are the same if their texts are, whatever workload they belong to.

    Args:
        read: Texts of n actions to float32 of shape (n, e): ``Reader.actions``.
    """

    def __init__(self, read: Callable[[Sequence[str]], Float32Array]) -> None:
        self._read = read
        self._forget()

    def _forget(self) -> None:
        self._rows: dict[str, int] = {}
        self._actions: list[Action] = []
        self._sketches: dict[str, _Steps] = {}
        self._kinds: list[str] = []
        self._numbers = _Growing()
        self._texts = _Growing()

    def __len__(self) -> int:
        return len(self._actions)

    @property
    def texts(self) -> list[str]:
        """The texts of all actions there are, by row."""
        return list(self._rows)

    def paths(self, candidates: Sequence[Candidate]) -> tuple[IntArray, IntArray]:
        """The steps of candidates.

        Returns:
            Rows of ``table()``, shape (n, longest), 0 behind the last step of each, and the numbers
            of steps, shape (n,).
        """
        by_sketch: dict[str, list[int]] = {}
        for at, candidate in enumerate(candidates):
            by_sketch.setdefault(candidate.sketch.key, []).append(at)
        parts = [
            (own, self._of(candidates[own[0]].sketch).rows([candidates[i] for i in own]))
            for own in by_sketch.values()
        ]
        lengths = np.zeros(len(candidates), dtype=np.int64)
        for own, part in parts:
            lengths[own] = (part >= 0).sum(axis=1)
        rows = np.zeros((len(candidates), int(lengths.max(initial=0))), dtype=np.int64)
        there = np.arange(rows.shape[1]) < lengths[:, None]
        for own, part in parts:
            packed = np.zeros((len(own), rows.shape[1]), dtype=np.int64)
            packed[there[own]] = part[part >= 0]
            rows[own] = packed
        return rows, lengths

    def route(self, candidate: Candidate) -> Route:
        """What the candidates with this one's structure go through."""
        known = self._of(candidate.sketch)
        (row,) = known.rows([candidate])
        there = row >= 0
        slots = known.slots(there)
        at = sorted({step for step, _, _ in slots})
        return Route(
            candidate.workload,
            self.some(row[there]),
            np.array(at, dtype=np.int64),
            tuple((at.index(step), place, slot) for step, place, slot in slots),
        )

    def table(self) -> ActionTable:
        """All actions there are, those of the latest ``paths`` among them."""
        self._read_new()
        return ActionTable(tuple(self._kinds), self._numbers.rows, self._texts.rows)

    def some(self, rows: IntArray) -> ActionTable:
        """Those of ``table()`` with these rows."""
        self._read_new()
        kinds = tuple([self._kinds[row] for row in rows.tolist()])
        return ActionTable(kinds, self._numbers.rows[rows], self._texts.rows[rows])

    def _read_new(self) -> None:
        known = len(self._kinds)
        if known < len(self) or not known:
            texts = list(itertools.islice(self._rows, known, None))
            new = ActionTable.of(self._actions[known:], self._read(texts))
            self._kinds += new.kinds
            self._numbers.append(new.numbers)
            self._texts.append(new.texts)

    def trim(self) -> None:
        """Forgets what has become much. Rows given before may mean nothing then."""
        if len(self._actions) > _ACTIONS:
            self._forget()
        elif len(self._sketches) > _SKETCHES:
            self._sketches.clear()

    def _of(self, sketch: Sketch) -> _Steps:
        steps = self._sketches.get(sketch.key)
        if steps is None:
            steps = self._sketches[sketch.key] = _Steps(sketch, self._numbering(sketch.axes))
        return steps

    def _numbering(self, axes: Mapping[str, Sequence[str]]) -> Callable[[Action], int]:
        def number(action: Action) -> int:
            text = action_text(action, axes)
            row = self._rows.setdefault(text, len(self._actions))
            if row == len(self._actions):
                self._actions.append(action)
            return row

        return number


class _Growing:
    """Rows of a matrix to which rows are added, without copying all of them each time."""

    def __init__(self) -> None:
        self._held: Float32Array | None = None
        self._count = 0

    @property
    def rows(self) -> Float32Array:
        """All that were added, shape (n, columns)."""
        assert self._held is not None, "something has to be added first"
        return self._held[: self._count]

    def append(self, rows: Float32Array) -> None:
        """Adds rows."""
        count = self._count + len(rows)
        if self._held is None or count > len(self._held):
            room = np.empty((max(count, 2 * self._count), rows.shape[1]), dtype=np.float32)
            if self._held is not None:
                room[: self._count] = self.rows
            self._held = room
        self._held[self._count : count] = rows
        self._count = count
