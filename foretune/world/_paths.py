"""Paths through states as arrays: what the transition model learns from and is asked about.

Symbols: a path of T actions goes through T + 1 states. States and actions are numbers of rows: of a
matrix of encoded states, and of a table of distinct actions.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from foretune._arrays import BoolArray, Float32Array, IntArray
from foretune.errors import BadInputError
from foretune.features.tokens import argument_number
from foretune.space import Action

NUMBERS = 8
"""Numbers kept of an action; a tile of five factors and what else TVM's rules give fit."""


@dataclass(frozen=True)
class ActionTable:
    """Distinct actions as numbers.

    Attributes:
        kinds: Of each of A actions.
        numbers: float32 of shape (A, 8): sign(x) log2(1 + |x|) of the numbers among its arguments
            in order, the first 8, filled up with zeros.
        texts: float32 of shape (A, e): its text as numbers, those that the encoder's backbone makes
            of it (``StateEncoder.pooled``) or counts of its words.
    """

    kinds: tuple[str, ...]
    numbers: Float32Array
    texts: Float32Array

    def __post_init__(self) -> None:
        shape = (len(self.kinds), NUMBERS)
        if self.numbers.shape != shape or self.texts.ndim != 2 or len(self.texts) != shape[0]:
            raise BadInputError(
                f"a table of {shape[0]} actions must have numbers of shape {shape} and as many "
                f"texts, but got shapes {self.numbers.shape} and {self.texts.shape}: make it with "
                "ActionTable.of"
            )

    def __len__(self) -> int:
        return len(self.kinds)

    @classmethod
    def of(cls, actions: Sequence[Action], texts: Float32Array) -> ActionTable:
        """The table of actions whose texts are encoded already, float32 of shape (A, e)."""
        numbers = np.zeros((len(actions), NUMBERS), dtype=np.float32)
        for row, action in zip(numbers, actions, strict=True):
            own = [argument_number(a, {}) for a in action.args if not isinstance(a, str)]
            row[: len(own)] = own[:NUMBERS]
        return cls(tuple(action.kind for action in actions), numbers, texts)


@dataclass(frozen=True)
class Paths:
    """What was seen of how actions change states.

    A step that changes nothing may be left out, or be there with the same state before and after.

    Attributes:
        states: float32 of shape (S, d), of length 1: distinct states.
        actions: The distinct actions.
        steps: Of each of P paths, the T + 1 states and the T actions; T is at least 1.
        workload: Of shape (P,): equal numbers for paths of one workload.
    """

    states: Float32Array
    actions: ActionTable
    steps: Sequence[tuple[IntArray, IntArray]]
    workload: IntArray

    def __post_init__(self) -> None:
        if len(self.workload) != len(self.steps):
            raise BadInputError(
                f"every path must have a workload, but got {len(self.steps)} paths and "
                f"{len(self.workload)} workloads: give one number per path"
            )
        for number, (states, actions) in enumerate(self.steps):
            if not 1 <= len(actions) == len(states) - 1:
                raise BadInputError(
                    f"a path of T >= 1 actions must have T + 1 states, but path {number} has "
                    f"{len(actions)} actions and {len(states)} states: leave out those without "
                    "actions"
                )
        self._check("states", self.flat_states, len(self.states))
        self._check("actions", self.flat_actions, len(self.actions))

    def _check(self, name: str, rows: IntArray, there: int) -> None:
        if len(rows) and not 0 <= rows.min() <= rows.max() < there:
            raise BadInputError(
                f"{name} of paths must be rows from 0 to {there - 1}, but got {rows.min()} to "
                f"{rows.max()}: paths and table belong to one another"
            )

    def __len__(self) -> int:
        return len(self.steps)

    @cached_property
    def lengths(self) -> IntArray:
        """T of each path."""
        return np.array([len(actions) for _, actions in self.steps], dtype=np.int64)

    @cached_property
    def starts(self) -> IntArray:
        """Where each path begins in ``flat_actions``; path p begins p later in ``flat_states``."""
        return np.cumsum(self.lengths) - self.lengths

    @cached_property
    def flat_states(self) -> IntArray:
        """The states of all paths, one path after the other."""
        return np.concatenate([np.zeros(0, np.int64), *(states for states, _ in self.steps)])

    @cached_property
    def flat_actions(self) -> IntArray:
        """The actions of all paths, one path after the other."""
        return np.concatenate([np.zeros(0, np.int64), *(actions for _, actions in self.steps)])

    @cached_property
    def initial(self) -> IntArray:
        """The first state of each path."""
        return self.state_at(np.arange(len(self)), np.zeros(len(self), np.int64))

    @cached_property
    def terminal(self) -> IntArray:
        """The last state of each path."""
        return self.state_at(np.arange(len(self)), self.lengths)

    def state_at(self, path: IntArray, step: IntArray) -> IntArray:
        """States of paths after so many of their actions, of the shape of both."""
        states: IntArray = self.flat_states[self.starts[path] + path + step]
        return states

    def matrix(self) -> IntArray:
        """The actions of all paths, shape (P, longest), zeros behind the last of a path."""
        padded = np.zeros((len(self), int(self.lengths.max())), dtype=np.int64)
        there = np.arange(padded.shape[1]) < self.lengths[:, None]
        padded[there] = self.flat_actions
        return padded


@dataclass(frozen=True)
class Windows:
    """Parts of paths.

    Attributes:
        path: Of each.
        start: Actions of the path before it.
        length: Actions in it.
    """

    path: IntArray
    start: IntArray
    length: IntArray

    def __len__(self) -> int:
        return len(self.path)

    def some(self, at: IntArray) -> Windows:
        """Those with these numbers."""
        return Windows(self.path[at], self.start[at], self.length[at])


def windows_of(paths: Paths, horizon: int, rng: np.random.Generator, whole: bool) -> Windows:
    """Every path cut at random into windows of ``horizon`` actions, so that each is in one of them.

    Args:
        paths: What is cut.
        horizon: Actions of a window at most; 0: whole paths.
        rng: Decides.
        whole: Take the first window alone: those that begin with a path's initial state.
    """
    rows: list[tuple[int, int, int]] = []
    for path, length in enumerate(paths.lengths.tolist()):
        if horizon == 0 or horizon >= length:
            cuts = [0, length]
        elif whole:
            cuts = [0, horizon]
        else:
            cuts = [0, *range(int(rng.integers(1, horizon + 1)), length, horizon), length]
        rows += [(path, a, b - a) for a, b in itertools.pairwise(cuts)]
    path_of, start, long = np.array(rows, dtype=np.int64).T
    return Windows(path_of, start, long)


@dataclass(frozen=True)
class Draw:
    """Windows with what they are to be told from.

    Attributes:
        first: States they begin with, shape (n,).
        actions: Shape (n, longest), 0 behind the last.
        targets: States after each action, shape (n, longest).
        mask: Which of these are there, bool of the same shape.
        negatives: Other states, shape (n, longest, N).
    """

    first: IntArray
    actions: IntArray
    targets: IntArray
    mask: BoolArray
    negatives: IntArray

    @classmethod
    def of(
        cls, paths: Paths, windows: Windows, cross: int, same: int, rng: np.random.Generator
    ) -> Draw:
        """Windows with negatives for every step.

        Args:
            paths: Where they are from.
            windows: Which.
            cross: Negatives from other paths: every other one from the same workload, at the same
                step where that path is as long. By chance it is the path itself; such negatives
                equal the target, and the loss leaves them out.
            same: Negatives from other steps of the same path.
            rng: Decides.
        """
        n, longest = len(windows), int(windows.length.max())
        mask = np.arange(longest) < windows.length[:, None]
        step = windows.start[:, None] + np.minimum(np.arange(longest), windows.length[:, None] - 1)
        path = np.broadcast_to(windows.path[:, None], step.shape)
        shape = (n, longest)
        other = _others(paths, windows.path, (*shape, cross), rng)
        at_step = np.minimum(step[..., None] + 1, paths.lengths[other])
        own = np.broadcast_to(path[..., None], (*shape, same))
        anywhere = (rng.random(own.shape) * (paths.lengths[own] + 1)).astype(np.int64)
        negatives = [paths.state_at(other, at_step), paths.state_at(own, anywhere)]
        return cls(
            paths.state_at(windows.path, windows.start),
            np.where(mask, paths.flat_actions[paths.starts[path] + step], 0),
            paths.state_at(path, step + 1),
            mask,
            np.concatenate(negatives, axis=2),
        )


def _others(
    paths: Paths, path: IntArray, shape: tuple[int, ...], rng: np.random.Generator
) -> IntArray:
    """Paths at random: every other one of the same workload, the rest of any."""
    by_workload = np.argsort(paths.workload, kind="stable")
    ordered = paths.workload[by_workload]
    own = paths.workload[path].reshape(-1, 1, 1)
    low, high = np.searchsorted(ordered, own, "left"), np.searchsorted(ordered, own, "right")
    low, high = np.broadcast_to(low, shape).copy(), np.broadcast_to(high, shape).copy()
    low[..., 1::2], high[..., 1::2] = 0, len(paths)
    drawn: IntArray = by_workload[low + (rng.random(shape) * (high - low)).astype(np.int64)]
    return drawn


@dataclass(frozen=True)
class Plan:
    """In which order action sequences are rolled out, each common beginning once.

    Attributes:
        parent: Of each step, the state each result comes from, a number within the step before
            (of the first: a row of the initial states).
        action: Of each step, the action that leads to each result.
        ending: Of each step and before the first, the sequences that end there.
        place: Of these, which result they end with.
    """

    parent: tuple[IntArray, ...]
    action: tuple[IntArray, ...]
    ending: tuple[IntArray, ...]
    place: tuple[IntArray, ...]

    @classmethod
    def of(cls, start: IntArray, actions: IntArray, lengths: IntArray) -> Plan:
        """A plan for sequences.

        Args:
            start: Shape (n,): the initial state of each.
            actions: Shape (n, T).
            lengths: Shape (n,): what is behind is not looked at.
        """
        parent, action, ending, place = [], [], [], []
        node = start.astype(np.int64)
        count = int(actions.max(initial=0)) + 1
        for step in range(int(lengths.max(initial=0)) + 1):
            ends = np.flatnonzero(lengths == step)
            ending.append(ends)
            place.append(node[ends])
            going = np.flatnonzero(lengths > step)
            if not len(going):
                break
            pairs, back = np.unique(node[going] * count + actions[going, step], return_inverse=True)
            parent.append(pairs // count)
            action.append(pairs % count)
            node[going] = back
        return cls(tuple(parent), tuple(action), tuple(ending), tuple(place))

    @property
    def steps(self) -> int:
        """States that are computed."""
        return sum(len(each) for each in self.action)


@dataclass(frozen=True)
class TransitionEpoch:
    """What was seen of one pass over the paths.

    Attributes:
        member: Number of the network.
        horizon: Actions of a window at most; 0: whole paths.
        loss: Mean over the steps.
        held_out: Mean of 1 - cos(p_T, z_T) over the validation paths; NaN without any, and, where
            no epoch is chosen by it, for all epochs but every tenth and the last.
    """

    member: int
    horizon: int
    loss: float
    held_out: float
