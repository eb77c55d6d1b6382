"""Where the elements of a tensor lie in another one that holds them in another order.

A view is an offset, and for each axis a list of factors ``(extent, stride)``, the outer one first:
index ``x`` of an axis with factors ``(4, 100), (8, 2)`` lies at ``x // 8 * 100 + x % 8 * 2``. A
stride of 0 repeats. Transposes, reshapes, splits and broadcasts of a view are views again, as long
as an axis need not be cut where its factors are not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

Factor = tuple[int, int]
Axis = tuple[Factor, ...]


@dataclass(frozen=True)
class View:
    """A tensor in the memory of another.

    Attributes:
        size: Elements of the other tensor, which is contiguous.
        axes: Factors of each axis, the outer first.
        offset: Of the first element.
    """

    size: int
    axes: tuple[Axis, ...]
    offset: int = 0

    @classmethod
    def of(cls, shape: Sequence[int]) -> View:
        """A contiguous tensor in its own memory."""
        axes, stride = [], math.prod(shape)
        for extent in shape:
            stride //= max(extent, 1)
            axes.append(_merged([(extent, stride)]))
        return cls(math.prod(shape), tuple(axes))

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent of each axis."""
        return tuple(_extent(axis) for axis in self.axes)

    def permuted(self, order: Sequence[int]) -> View:
        """Axis ``i`` is axis ``order[i]`` of this view."""
        return replace(self, axes=tuple(self.axes[axis] for axis in order))

    def reshaped(self, shape: Sequence[int]) -> View | None:
        """Other axes with the same elements in the same order; None where it is no view."""
        if math.prod(shape) != math.prod(self.shape):
            return None
        left = [factor for axis in self.axes for factor in axis]
        axes = []
        for extent in shape:
            taken, left_over = _taken(left, extent)
            if taken is None:
                return None
            axes.append(_merged(taken))
            left = left_over
        return replace(self, axes=tuple(axes))

    def broadcast(self, shape: Sequence[int]) -> View | None:
        """Axes of extent 1, and those that are missing in front, repeated."""
        front = len(shape) - len(self.axes)
        if front < 0:
            return None
        axes = [(), *[()] * (front - 1), *self.axes] if front else list(self.axes)
        found = []
        for axis, extent in zip(axes, shape, strict=True):
            own = _extent(axis)
            if own not in (1, extent):
                return None
            found.append(axis if own == extent else ((extent, 0),))
        return replace(self, axes=tuple(found))

    def narrowed(self, axis: int, begin: int, extent: int) -> View | None:
        """A range of one axis."""
        factors = self.axes[axis]
        if len(factors) > 1:
            return None
        stride = factors[0][1] if factors else 0
        kept: Axis = _merged([(extent, stride)])
        axes = (*self.axes[:axis], kept, *self.axes[axis + 1 :])
        return replace(self, axes=axes, offset=self.offset + begin * stride)

    def repeated(self, axis: int, times: int) -> View:
        """Each index of an axis ``times`` times in a row."""
        axes = list(self.axes)
        axes[axis] = _merged([*axes[axis], (times, 0)])
        return replace(self, axes=tuple(axes))

    def is_contiguous(self, axis: int) -> bool:
        """Whether neighbours along an axis are neighbours in memory."""
        return all(stride == 1 for _, stride in self.axes[axis]) and len(self.axes[axis]) < 2

    def shared(self) -> int:
        """How many neighbouring indices of the first axis are the same elements."""
        return self.axes[0][-1][0] if self.axes[0] and self.axes[0][-1][1] == 0 else 1

    def grouped(self, times: int) -> View | None:
        """The innermost ``times`` of axis 0 as the outer part of axis 1; None if it is no view."""
        heads, rows, *others = self.shape
        split = self.reshaped((heads // times, times * rows, *others))
        return split if heads % times == 0 else None

    def ungrouped(self, times: int) -> View | None:
        """Axis 0 without ``times`` repeats of each index."""
        heads, *others = self.shape
        if heads % times:
            return None
        split = self.reshaped((heads // times, times, *others))
        return None if split is None else replace(split, axes=(split.axes[0], *split.axes[2:]))

    def index(self, *at: str) -> str:
        """The place of an element in TVMScript, its indices being expressions."""
        terms = [str(self.offset)] if self.offset else []
        for name, axis in zip(at, self.axes, strict=True):
            inner = _extent(axis)
            for place, (extent, stride) in enumerate(axis):
                inner //= extent
                term = f"({name})" if inner == 1 else f"({name}) // {inner}"
                if place:
                    term = f"({term}) % {extent}"
                if stride:
                    terms.append(term if stride == 1 else f"({term}) * {stride}")
        return " + ".join(terms) or "0"


def _extent(axis: Axis) -> int:
    return math.prod(extent for extent, _ in axis)


def _merged(factors: Sequence[Factor]) -> Axis:
    """The fewest factors that say the same."""
    found: list[Factor] = []
    for extent, stride in factors:
        if extent == 1:
            continue
        outer = 1
        if found and found[-1][1] == extent * stride:
            outer = found.pop()[0]
        found.append((outer * extent, stride))
    return tuple(found)


def _taken(factors: Sequence[Factor], extent: int) -> tuple[list[Factor] | None, list[Factor]]:
    """Outer factors that make up ``extent``, and the rest."""
    left, taken = list(factors), []
    while extent > 1:
        if not left:
            return None, left
        own, stride = left.pop(0)
        if extent % own == 0:
            taken.append((own, stride))
            extent //= own
        elif own % extent == 0:
            inner = own // extent
            taken.append((extent, stride * inner))
            left.insert(0, (inner, stride))
            extent = 1
        else:
            return None, left
    return taken, left
