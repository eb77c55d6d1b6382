"""Executes nests with numbers: whether they compute what the operator does is then one comparison.

Loops over threads are executed at once, so that what threads copy together is there when it is
read; local arrays are one per thread.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from itertools import groupby

import numpy as np

from foretune.dataset import Program
from foretune.describe import Access, Nests, Statement
from foretune.describe._nests import THREAD
from foretune.space.actions import Action


def workload(template: str, data: list, weights: list, *rest: object) -> str:
    """Key of a workload with two tensors."""
    tensors = [["TENSOR", data, "float32"], ["TENSOR", weights, "float32"]]
    return json.dumps([template, [*tensors, *rest]])


def program(**knobs: object) -> Program:
    """A program of an AutoTVM log: tuples are splits, lists other knobs of several values."""
    actions = []
    for name, value in knobs.items():
        if isinstance(value, tuple):
            actions.append(Action("sp", (name, -1, *value)))
        elif isinstance(value, list):
            kind = "an" if isinstance(value[0], str) else "re"
            actions.append(Action(kind, (name, *value)))
        else:
            actions.append(Action("ot", (name, value)))
    return Program(actions=actions)


def run(nests: Nests, row: int, given: Mapping[int, np.ndarray]) -> list[np.ndarray]:
    """Arrays after one program has run.

    Args:
        nests: The batch.
        row: The program; none of its splits may be uneven.
        given: Arrays by the number of their buffer. What would store to them is not executed, so
            that padding can be given, too.

    Returns:
        Arrays of buffers by number.
    """
    return _Machine(nests, row, given).run()


class _Machine:
    def __init__(self, nests: Nests, row: int, given: Mapping[int, np.ndarray]) -> None:
        self.nests, self.row, self.given = nests, row, given
        self.extents = nests.extents[row].astype(int).tolist()
        self.arrays = [given.get(number) for number in range(len(nests.buffers))]
        self.threads: list[int] = []
        self.lanes = np.zeros((0, 1), int)

    def run(self) -> list[np.ndarray]:
        kept = [s for s in self.nests.statements if s.accesses[-1].buffer not in self.given]
        for _, kernel in groupby(kept, key=lambda statement: statement.path[0]):
            self._launch(list(kernel))
        return self.arrays

    def _launch(self, kernel: list[Statement]) -> None:
        loops = list(dict.fromkeys(loop for statement in kernel for loop in statement.path))
        self.threads = [at for at in loops if self.nests.kinds[self.row, at] == THREAD]
        team = [self.extents[at] for at in self.threads]
        self.lanes = np.indices(team).reshape(len(team), math.prod(team))
        for number in {access.buffer for statement in kernel for access in statement.accesses}:
            if self.arrays[number] is None:
                buffer = self.nests.buffers[number]
                shape = [self.lanes.shape[1], *buffer.shape[self.row].astype(int)]
                self.arrays[number] = np.full(
                    shape if buffer.scope == "local" else shape[1:], np.nan
                )
        now = dict(zip(self.threads, self.lanes, strict=True))
        self._inside([(statement.path, statement) for statement in kernel], now)

    def _inside(self, todo: list[tuple[tuple[int, ...], Statement]], now: dict) -> None:
        if len(todo) == 1:
            self._execute(todo[0][1], self._all_at_once(todo[0][0], now))
            return
        for loop, group in groupby(todo, key=lambda each: (each[0] or (None,))[0]):
            if loop is None:
                for _, statement in group:
                    self._execute(statement, now)
                continue
            rest = [(path[1:], statement) for path, statement in group]
            if loop in self.threads:
                self._inside(rest, now)
                continue
            for value in range(self.extents[loop]):
                self._inside(rest, {**now, loop: value})

    def _all_at_once(self, path: tuple[int, ...], now: dict) -> dict:
        """All iterations of loops with nothing else inside, beside the threads."""
        loops = [loop for loop in path if loop not in self.threads]
        extents = [self.extents[loop] for loop in loops]
        values = np.indices(extents).reshape(len(loops), math.prod(extents), 1)
        return {**now, **dict(zip(loops, values, strict=True))}

    def _execute(self, statement: Statement, now: dict) -> None:
        *loads, store = statement.accesses
        places = [self._at(access, statement, now) for access in loads]
        values = [self.arrays[a.buffer][at] for a, at in zip(loads, places, strict=True)]
        into = self._at(store, statement, now)
        if statement.reduces:
            self._start(statement, store, into, now)
            added = np.prod(np.broadcast_arrays(*values[1:]), axis=0)
            np.add.at(self.arrays[store.buffer], into, added)
        else:
            self.arrays[store.buffer][into] = values[0]

    def _start(self, statement: Statement, store: Access, into: tuple, now: dict) -> None:
        """Sets to zero what is added to for the first time: nests leave that out."""
        local = self.nests.buffers[store.buffer].scope == "local"
        moving = {statement.path[term.place] for term in store.terms}
        over = [
            loop for loop in statement.path if self.nests.reduction[loop] and loop not in moving
            and not (local and loop in self.threads)
        ]  # fmt: skip
        shape = np.broadcast_shapes(*(np.shape(index) for index in into))
        first = np.all([np.broadcast_to(now[loop] == 0, shape) for loop in over], axis=0)
        places = tuple(np.broadcast_to(index, shape)[first] for index in into)
        self.arrays[store.buffer][places] = 0.0

    def _at(self, access: Access, statement: Statement, now: dict) -> tuple:
        buffer = self.nests.buffers[access.buffer]
        lanes = (self.lanes.shape[1],)
        zero = np.zeros(np.broadcast_shapes(lanes, *(np.shape(v) for v in now.values())), int)
        index = [zero] * buffer.shape.shape[1]
        for term in access.terms:
            loop = statement.path[term.place]
            every, values = int(term.every[self.row]), int(term.values[self.row])
            step = int(term.coefficient[self.row])
            index[term.dimension] = index[term.dimension] + step * (now[loop] // every % values)
        own = (np.arange(self.lanes.shape[1]),) if buffer.scope == "local" else ()
        return (*own, *index)


def executed(nests: Nests, statement: Statement) -> np.ndarray:
    """How often a statement is executed, float64 of shape (n,)."""
    return nests.extents[:, list(statement.path)].prod(axis=1) * statement.executed


def conv(data: np.ndarray, weights: np.ndarray, stride: tuple, dilation: tuple) -> np.ndarray:
    """A convolution NCHW by its definition; depthwise where weights have one input channel."""
    n, ci, height, width = data.shape
    co, cw, kh, kw = weights.shape
    oh = (height - (kh - 1) * dilation[0] - 1) // stride[0] + 1
    ow = (width - (kw - 1) * dilation[1] - 1) // stride[1] + 1
    out = np.zeros((n, co, oh, ow))
    for y in range(kh):
        for x in range(kw):
            top, left = y * dilation[0], x * dilation[1]
            seen = data[:, :, top : top + oh * stride[0] : stride[0],
                        left : left + ow * stride[1] : stride[1]][:, :, :oh, :ow]  # fmt: skip
            if cw == 1 and ci == co:
                out += seen * weights[None, :, 0, y, x, None, None]
            else:
                out += np.einsum("nchw,oc->nohw", seen, weights[:, :, y, x])
    return out
