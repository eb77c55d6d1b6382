"""Nests from loops that are split, fused and put in order, with exact index terms.

A ``Building`` makes one batch of programs of the same structure. Loops run over named axes; what a
loop contributes to its axes survives splitting and fusing; a statement names the loops around it
and, of every access, what each dimension of the buffer is indexed by. Anything that schedules by
primitives can be written in it: templates here, steps of a log elsewhere.

The one piece of arithmetic is the digit, ``coefficient * (loop // every % values)``. Splitting
takes a digit apart, fusing makes one of a longer loop, and a packed layout takes digits of an axis
(``oc // 16``, ``oc % 16``); each gives a digit again where the sizes divide. Where they do not, the
nearest one is taken and the program is marked approximate.

Symbols of shapes: n programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from foretune._arrays import Array, BoolArray, FloatArray, Int8Array
from foretune.describe._nests import SERIAL, Access, Buffer, Nests, Statement, Term

Number: TypeAlias = float | Array


@dataclass(frozen=True)
class Digit:
    """``coefficient * (loop // every % values)``, each float64 of shape (n,)."""

    coefficient: FloatArray
    values: FloatArray
    every: FloatArray


@dataclass(eq=False)
class Loop:
    """A loop around statements; made and changed by a ``Building`` only.

    Attributes:
        extent: Iterations, float64 of shape (n,).
        kind: One of ``KIND_NAMES`` by number, int8 of shape (n,).
        axis: ``"x"``, ``"y"`` or ``"z"`` where it is bound to blocks or threads.
        reduction: Whether it is one of a reduction.
        parts: What it contributes to axes, by their names.
        share: Of its iterations and those of the loop it was split from, the share within the
            extent, float64 of shape (n,).
    """

    extent: FloatArray
    kind: Int8Array
    axis: str
    reduction: bool
    parts: dict[str, list[Digit]]
    share: FloatArray


@dataclass(frozen=True)
class Of:
    """What a dimension is indexed by: ``coefficient * (subject // every % modulo)``.

    Attributes:
        subject: The name of an axis, or a loop whose iteration counts.
        coefficient: Elements of the dimension.
        every, modulo: Which digit of the subject.
        loops: Where given, only these contribute: an array that is local to some loops is not
            moved by those around it.
    """

    subject: str | Loop
    coefficient: Number = 1.0
    every: Number = 1.0
    modulo: Number = np.inf
    loops: tuple[Loop, ...] | None = None


Part: TypeAlias = str | Loop | Of
Index: TypeAlias = Sequence[Part | tuple[Part, ...]]
"""Of each dimension, one part or the sum of several."""
Place: TypeAlias = tuple[int, Index]
"""The number of a buffer and where in it."""


@dataclass
class Building:
    """A batch of n programs under construction.

    Args:
        n: Number of programs.
        gpu: Whether loops are bound to blocks and threads.
    """

    n: int
    gpu: bool = False
    approximate: BoolArray = field(init=False)
    _buffers: list[Buffer] = field(init=False, default_factory=list)
    _statements: list[tuple[tuple[Loop, ...], Statement]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.approximate = np.zeros(self.n, bool)

    def column(self, value: Number) -> FloatArray:
        """A number of each program, float64 of shape (n,)."""
        return np.broadcast_to(np.asarray(value, np.float64), (self.n,))

    def buffer(
        self, name: str, shape: Sequence[Number], scope: str = "global", parameter: bool = True,
        bytes: int = 4,
    ) -> int:  # fmt: skip
        """Adds an array; returns its number."""
        sizes = np.stack([self.column(size) for size in shape], axis=1)
        self._buffers.append(Buffer(name, scope, bytes, sizes, parameter))
        return len(self._buffers) - 1

    def loop(
        self, axis: str, extent: Number, kind: int | Int8Array = SERIAL,
        reduction: bool = False, letter: str = "",
    ) -> Loop:  # fmt: skip
        """A loop over a whole axis.

        Args:
            axis: Name of the axis.
            extent: Iterations.
            kind: One of ``KIND_NAMES`` by number.
            reduction: Whether the axis is one of a reduction.
            letter: ``"x"``, ``"y"`` or ``"z"`` of a loop that is bound.
        """
        size = self.column(extent)
        one = self.column(1.0)
        whole = Digit(one, size, one)
        kinds = np.broadcast_to(np.asarray(kind, np.int8), (self.n,))
        return Loop(size, kinds, letter, reduction, {axis: [whole]}, one)

    def mark(self, loop: Loop, kind: int, where: BoolArray | bool = True, letter: str = "") -> None:
        """Makes it a loop of another kind in some programs (``where``), or in all."""
        loop.kind = np.where(where, np.int8(kind), loop.kind)
        loop.axis = letter or loop.axis

    def split(self, loop: Loop, *factors: Number) -> list[Loop]:
        """Splits a loop, as often as there are factors; the outermost gets what is left.

        ::

            for i in 128:  →  for i0 in 4:
                                  for i1 in 32:   # factors (32,)
        """
        inner: list[Loop] = []
        for factor in reversed(factors):
            loop, below = self._split(loop, self.column(factor))
            inner.append(below)
        return [loop, *reversed(inner)]

    def _split(self, loop: Loop, factor: FloatArray) -> tuple[Loop, Loop]:
        count = np.ceil(loop.extent / factor)
        one = self.column(1.0)
        outer = self._of(loop, count, Digit(factor, count, one))
        inner = self._of(loop, factor, Digit(one, factor, one))
        inner.share = loop.share * loop.extent / (count * factor)
        return outer, inner

    def _of(self, loop: Loop, extent: FloatArray, piece: Digit) -> Loop:
        """A loop that is a piece of another: of its iterations, ``piece``."""
        parts = {
            axis: [self._within(piece, _unbounded(digit, loop.extent), extent) for digit in digits]
            for axis, digits in loop.parts.items()
        }
        return Loop(extent, loop.kind, loop.axis, loop.reduction, parts, self.column(1.0))

    def fuse(self, *loops: Loop) -> Loop:
        """One loop of neighbours, outermost first.

        ::

            for i in 4:             →  for f in 128:   # i = f // 32, j = f % 32
                for j in 32:
        """
        first, *others = loops
        for loop in others:
            first = self._fuse(first, loop)
        return first

    def _fuse(self, outer: Loop, inner: Loop) -> Loop:
        one = self.column(1.0)
        fused = self._of(outer, outer.extent * inner.extent, Digit(one, outer.extent, inner.extent))
        for axis, digits in inner.parts.items():
            piece = Digit(one, inner.extent, one)
            made = [self._within(piece, digit, fused.extent) for digit in digits]
            fused.parts[axis] = [*fused.parts.get(axis, []), *made]
        fused.share = outer.share * inner.share
        fused.reduction = outer.reduction or inner.reduction
        return fused

    def bind(self, loop: Loop, to: Loop) -> FloatArray:
        """Runs a loop by one that is there already, as threads do that copy together.

        Its axes must have names of their own: ``to`` moves them beside those that it has.

        Returns:
            The share of the iterations of ``to`` that have work, float64 of shape (n,), which a
            statement with ``to`` in its path is told as ``executed``.
        """
        for axis, digits in loop.parts.items():
            to.parts[axis] = [*to.parts.get(axis, []), *digits]
        return loop.share * np.minimum(loop.extent / to.extent, 1.0)

    def again(self, loop: Loop) -> Loop:
        """A loop like it, for other statements."""
        return Loop(loop.extent, loop.kind, loop.axis, loop.reduction, dict(loop.parts), loop.share)

    def statement(
        self, path: Sequence[Loop], loads: Sequence[Place], store: Place, *,
        operations: Number = 0.0, calls: Number = 0.0, selects: Number = 0.0, unroll: Number = 0.0,
        reduces: bool = False, executed: Number = 1.0,
    ) -> None:  # fmt: skip
        """Adds a statement; see ``Statement`` for what is not said here.

        What sets a sum to zero is left out, as of programs that are read.

        Args:
            path: Loops around it, outermost first.
            loads: What it reads; the array that it adds to is added to these.
            store: What it writes.
            executed: Share of iterations, beside that of loops that were split unevenly.
        """
        share = self.column(executed)
        for loop in path:
            share = share * loop.share
        places = [*([store] if reduces else []), *loads]
        accesses = [*(self._access(path, *place, False) for place in places),
                    self._access(path, *store, True)]  # fmt: skip
        made = Statement(
            path=(),
            accesses=tuple(accesses),
            operations=self.column(operations),
            calls=self.column(calls),
            selects=self.column(selects),
            unroll=self.column(unroll),
            reduces=reduces,
            executed=share,
        )
        self._statements.append((tuple(path), made))

    def _access(self, path: Sequence[Loop], buffer: int, index: Index, store: bool) -> Access:
        terms = []
        for dimension, parts in enumerate(index):
            for part in parts if isinstance(parts, tuple) else (parts,):
                what = part if isinstance(part, Of) else Of(part)
                terms += self._terms(path, dimension, what)
        return Access(buffer, store, tuple(terms))

    def _terms(self, path: Sequence[Loop], dimension: int, what: Of) -> list[Term]:
        one = self.column(1.0)
        wanted = Digit(
            self.column(what.coefficient), self.column(what.modulo), self.column(what.every)
        )
        whole = bool((wanted.every == 1).all() and np.isinf(wanted.values).all())
        terms = []
        for place, loop in enumerate(path):
            if what.loops is not None and loop not in what.loops:
                continue
            if isinstance(what.subject, Loop):
                digits = [Digit(one, loop.extent, one)] if loop is what.subject else []
            else:
                digits = loop.parts.get(what.subject, [])
            for digit in digits:
                if whole:
                    made = Digit(digit.coefficient * wanted.coefficient, digit.values, digit.every)
                else:
                    made = self._within(digit, wanted, loop.extent)
                    if (made.values == 1).all() and (digit.values > 1).any():
                        continue
                terms.append(Term(dimension, place, made.coefficient, made.values, made.every))
        return terms

    def _within(self, piece: Digit, wanted: Digit, extent: FloatArray) -> Digit:
        """What a piece of a number contributes to one of the number's digits.

        Of ``x = ... + piece + ...``, where the pieces are digits of mixed radix: the part of
        ``wanted.coefficient * (x // wanted.every % wanted.values)`` that the piece makes up.

        Args:
            piece: A digit of a loop.
            wanted: A digit of the number.
            extent: Iterations of the loop.
        """
        above = piece.coefficient >= wanted.every
        step = np.where(above, piece.coefficient / wanted.every, wanted.every / piece.coefficient)
        values = np.where(above, piece.values, np.ceil(piece.values / step))
        room = np.where(above, wanted.values / step, wanted.values)
        kept = np.maximum(np.minimum(values, np.ceil(room)), 1.0)
        # A loop that ends within the digit never wraps, so any border will do.
        last = piece.values * piece.every >= extent
        low = above | last | (piece.values <= step) | (piece.values % step == 0)
        whole = np.where(np.isinf(room), 1.0, room)
        cut = (whole % 1 == 0) & (last | (values % np.maximum(whole, 1.0) == 0))
        nothing = (room < 1) & (1 / np.maximum(whole, 1e-300) % 1 == 0)
        fits = (room >= values) | np.where(room < 1, nothing, cut)
        exact = (piece.values == 1) | ((step % 1 == 0) & low & fits)
        self.approximate = self.approximate | ~exact
        scale = np.where(above, step, 1.0) * wanted.coefficient
        return Digit(scale, kept, np.where(above, piece.every, piece.every * step))

    def nests(self) -> Nests:
        """The programs."""
        loops: list[Loop] = []
        for path, _ in self._statements:
            loops += [loop for loop in path if loop not in loops]
        number = {id(loop): at for at, loop in enumerate(loops)}
        statements = [
            replace(statement, path=tuple(number[id(loop)] for loop in path))
            for path, statement in self._statements
        ]
        return Nests(
            kinds=np.stack([loop.kind for loop in loops], axis=1),
            extents=np.stack([loop.extent for loop in loops], axis=1),
            axes=tuple(loop.axis for loop in loops),
            reduction=tuple(loop.reduction for loop in loops),
            buffers=tuple(self._buffers),
            statements=tuple(statements),
            gpu=self.gpu,
            approximate=self.approximate,
        )


def _unbounded(digit: Digit, extent: FloatArray) -> Digit:
    """The digit without its modulo where the loop ends before it: guards stop pieces of loops."""
    last = digit.values * digit.every >= extent
    return replace(digit, values=np.where(last, np.inf, digit.values))
