"""Scheduling actions as tokens: the input of sequence models, without any program.

Idea: a schedule primitive becomes one row, the one-hot of its kind followed by its arguments as
small numbers; a program becomes a sequence of rows, cropped and padded (TLP: Zhai et al., ASPLOS
2023, section 4). Numbers are scaled as sign(x) log2(1 + |x|); names become the small numbers of
``name_number``.

All candidates of a sketch share their rows but for the numbers that were sampled, so that a sketch
is read once and its candidates are filled in as columns. Deviations from TLP: logarithms instead of
raw integers, and loops by place and level instead of by a vocabulary of the training data.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._arrays import BoolArray, Float32Array, FloatArray
from foretune.errors import BadInputError
from foretune.features.tokens._names import (
    KINDS,
    PARAMETER,
    is_location,
    kind_index,
    location_names,
    name_number,
    scaled,
)
from foretune.space import Action, Choice
from foretune.space.actions import Slot, Step, skeleton_of

if TYPE_CHECKING:
    from foretune.hardware import Hardware


TOKEN_VERSION = 1
"""Number of the layout. Raised whenever a number changes its place or meaning."""

REFERENCE_KINDS = ("AN", "CA", "CHR", "CHW", "CI", "FSP", "FU", "PR", "RE", "RF", "SP")
"""The eleven primitives that TLP tells apart."""

_AS_REFERENCE = {
    "split": "SP",
    "reorder": "RE",
    "fuse": "FU",
    "annotate": "PR",
    "bind": "AN",
    "vectorize": "AN",
    "parallel": "AN",
    "unroll": "AN",
    "compute_at": "CA",
    "reverse_compute_at": "CA",
    "CR": "CA",
    "compute_inline": "CI",
    "reverse_compute_inline": "CI",
    "cache_read": "CHR",
    "cache_write": "CHW",
    "rfactor": "RF",
    "FFSP": "FSP",
}
"""Primitive of TLP for a kind that is none of its own; the others get no one-hot."""


def token_vocabulary(reference: bool = False) -> tuple[str, ...]:
    """What the first numbers of a token stand for, in order.

    Args:
        reference: TLP's eleven primitives instead of all kinds.
    """
    return REFERENCE_KINDS if reference else KINDS


def action_tokens(
    programs: Sequence[Any],
    machine: Hardware | None = None,
    steps: int = 40,
    width: int = 64,
    *,
    reference: bool = False,
) -> tuple[Float32Array, BoolArray]:
    """Tokens of the first ``steps`` actions of programs.

    Args:
        programs: Each with its ``candidate``, or with ``actions``, or with a ``configuration``
            (then every parameter counts as one action); ``foretune.dataset.Program``.
        machine: Not looked at: an action is the same on every machine.
        steps: Actions kept; shorter sequences are padded with zeros.
        width: Numbers per action: the one-hot, then arguments as far as they fit.
        reference: Whether the one-hot is over TLP's eleven primitives.

    Returns:
        float32 of shape (n, steps, width), and bool of shape (n, steps): where an action is.

    Raises:
        BadInputError: There is no room for a single argument, or for a step.
    """
    room = width - len(token_vocabulary(reference))
    if room < 1 or steps < 1:
        raise BadInputError(
            f"`steps >= 1` and `width > {width - room}` must hold, but got steps={steps}, "
            f"width={width}: a token is a one-hot of {width - room} kinds and its arguments"
        )
    tokens = np.zeros((len(programs), steps, width), dtype=np.float32)
    mask = np.zeros((len(programs), steps), dtype=bool)
    own: dict[str, list[int]] = {}
    for row, program in enumerate(programs):
        if program.candidate is not None:
            own.setdefault(program.candidate.sketch.key, []).append(row)
            continue
        made = [_foreign(action, width, reference) for action in actions_of(program)[:steps]]
        if made:
            tokens[row, : len(made)] = made
        mask[row, : len(made)] = True
    for rows in own.values():
        candidates = [programs[row].candidate for row in rows]
        template = _template(candidates[0].sketch, width, reference)
        tokens[rows], mask[rows] = template.fill(candidates, steps)
    return tokens, mask


def actions_of(program: Any) -> Sequence[Action]:
    """The actions of a program; the parameters of a configuration count as actions."""
    actions: Sequence[Action] = program.actions
    if actions or program.configuration is None:
        return actions
    return [
        Action(PARAMETER, (name, value if isinstance(value, (int, float)) else str(value)))
        for name, value in sorted(program.configuration.items())
    ]


def argument_number(argument: Any, axes: Any) -> float:
    """One argument of an action as a small number."""
    return name_number(argument, axes) if isinstance(argument, str) else scaled(argument)


def encode(action: Action, axes: Any, width: int, reference: bool) -> Float32Array:
    """The token of one action, shape (width,)."""
    token = _one_hot(action.kind, width, reference)
    start = len(token_vocabulary(reference))
    numbers = [argument_number(argument, axes) for argument in action.args[: width - start]]
    token[start : start + len(numbers)] = numbers
    return token


@functools.lru_cache(maxsize=1 << 16)
def _foreign(action: Action, width: int, reference: bool) -> Float32Array:
    return encode(action, {}, width, reference)


def _one_hot(kind: str, width: int, reference: bool) -> Float32Array:
    token = np.zeros(width, dtype=np.float32)
    at = kind_index(kind)
    if not reference:
        token[at] = 1.0
        return token
    code = _AS_REFERENCE.get(KINDS[at], KINDS[at])
    if code in REFERENCE_KINDS:
        token[REFERENCE_KINDS.index(code)] = 1.0
    return token


@dataclass(frozen=True)
class _Fill:
    """Where in a token a decision goes."""

    step: int
    column: int
    slot: Slot


class _Template:
    """The tokens of a sketch with the places that decisions fill in.

    Args:
        sketch: Whose actions.
        width: Numbers per token.
        reference: As in ``action_tokens``.
    """

    def __init__(self, sketch: Any, width: int, reference: bool) -> None:
        self._sketch = sketch
        steps = skeleton_of(sketch)
        self._base = np.zeros((len(steps), width), dtype=np.float32)
        self._fills: list[_Fill] = []
        self._switches = [(at, step.switch) for at, step in enumerate(steps) if step.switch >= 0]
        start = len(token_vocabulary(reference))
        for at, step in enumerate(steps):
            self._base[at] = _one_hot(step.kind, width, reference)
            self._take_arguments(at, step, start, width)

    def _take_arguments(self, at: int, step: Step, start: int, width: int) -> None:
        for column, argument in enumerate(step.args[: width - start], start):
            if isinstance(argument, Slot):
                self._fills.append(_Fill(at, column, argument))
            else:
                self._base[at, column] = argument_number(argument, self._sketch.axes)

    def fill(self, candidates: Sequence[Any], steps: int) -> tuple[Float32Array, BoolArray]:
        """Tokens of candidates of the sketch, (n, steps, width) and (n, steps)."""
        n, length = len(candidates), len(self._base)
        full = np.repeat(self._base[None], n, axis=0)
        numbers = self._numbers(candidates)
        for fill in self._fills:
            full[:, fill.step, fill.column] = numbers[fill.slot]
        off = np.zeros((n, len(self._switches)), dtype=np.int64)
        for column, (_, variable) in enumerate(self._switches):
            values = np.array(self._sketch.variables[variable].values)
            off[:, column] = values[[c.decisions[variable] for c in candidates]] == 0
        tokens = np.zeros((n, steps, full.shape[2]), dtype=np.float32)
        mask = np.zeros((n, steps), dtype=bool)
        # Few patterns exist: parallel and vectorise on or off.
        patterns = off @ (1 << np.arange(len(self._switches)))
        for pattern in np.unique(patterns).tolist():
            rows = np.flatnonzero(patterns == pattern)
            gone = {at for column, (at, _) in enumerate(self._switches) if pattern >> column & 1}
            there = [at for at in range(length) if at not in gone][:steps]
            tokens[rows, : len(there)] = full[rows][:, there]
            mask[rows, : len(there)] = True
        return tokens, mask

    def _numbers(self, candidates: Sequence[Any]) -> dict[Slot, FloatArray]:
        """Slot -> its number in each candidate, shape (n,)."""
        slots = {fill.slot for fill in self._fills}
        numbers: dict[Slot, FloatArray] = {}
        located: list[dict[int, float]] = []
        if any(is_location(self._sketch, slot) for slot in slots):
            names = location_names(self._sketch)
            located = [names.numbers(c.decisions) for c in candidates]
        for slot in slots:
            variable = self._sketch.variables[slot.variable]
            if is_location(self._sketch, slot):
                numbers[slot] = np.array([place[slot.variable] for place in located])
                continue
            decided = [c.decisions[slot.variable] for c in candidates]
            if isinstance(variable, Choice):
                values = np.array([scaled(value) for value in variable.values])
                numbers[slot] = values[decided]
            else:
                factors = np.array([tile[slot.part] for tile in decided], dtype=np.float64)
                numbers[slot] = np.log2(1.0 + factors)
        return numbers


@functools.lru_cache(maxsize=512)
def _template(sketch: Any, width: int, reference: bool) -> _Template:
    return _Template(sketch, width, reference)
