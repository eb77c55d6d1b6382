"""Layer norm, RMS norm and softmax of rows that are contiguous, each as one kernel.

A row is read from memory once; further passes over it find it in the first cache::

    layer norm   sum; sum of squared differences to the mean; result
    RMS norm     sum of squares; result
    softmax      maximum; exponentials, their sum; result

Rows are shared out among threads. Sums run in several vectors at once, so that no addition waits
for the one before it, and round less than one number after the other would. The variance is that of
differences: a mean of squares less a squared mean loses all places where the mean is large.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from foretune.operators._script import Lines, number, parsed

LAYER_NORM, RMS_NORM, SOFTMAX = "layer_norm", "rms_norm", "softmax"
_VECTORS = 4
"""Of partial sums."""


@dataclass(frozen=True)
class Rows:
    """A function of each row.

    Attributes:
        kind: ``layer_norm``, ``rms_norm`` or ``softmax``.
        rows: How many.
        columns: Numbers in each.
        epsilon: Added to the variance or the mean square.
        scale: Whether the result is multiplied by weights.
        center: Whether a bias is added.
    """

    kind: str
    rows: int
    columns: int
    epsilon: float = 0.0
    scale: bool = False
    center: bool = False


def rows_kernel(function: Rows, lanes: int) -> Any:
    """The PrimFunc ``(x, [weight,] [bias,] y)`` on flat float32 buffers."""
    writer = _Writer(function, lanes)
    size = function.rows * function.columns
    operands = [("x", size, "float32")]
    operands += [("g", function.columns, "float32")] if function.scale else []
    operands += [("b", function.columns, "float32")] if function.center else []
    with writer.out.loop("r", function.rows, "T.parallel"):
        {LAYER_NORM: writer.layer_norm, RMS_NORM: writer.rms_norm, SOFTMAX: writer.softmax}[
            function.kind
        ]()
    return parsed([*operands, ("y", size, "float32")], writer.out)


class _Writer:
    def __init__(self, function: Rows, lanes: int) -> None:
        self.out, self.function, self.lanes = Lines(), function, lanes

    def layer_norm(self) -> None:
        columns = number(1 / self.function.columns)
        self._value("mean", f"{self._sum('x[{at}]')} * {columns}")
        centred = "(x[{at}] - mean[0])"
        self._value("part", f"{self._sum(f'{centred} * {centred}')} * {columns}")
        self._normalised(centred)

    def rms_norm(self) -> None:
        squares = self._sum("x[{at}] * x[{at}]")
        self._value("part", f"{squares} * {number(1 / self.function.columns)}")
        self._normalised("x[{at}]")

    def softmax(self) -> None:
        self._value("top", self._reduced(lambda a, b: f"T.max({a}, {b})", "x[{at}]", -float("inf")))

        def exponential(at: str) -> str:
            self.out(f"y[{at}] = T.exp(x[{at}] - top[0])")
            return f"y[{at}]"

        total = self._reduced(lambda a, b: f"({a} + {b})", exponential, 0.0)
        self._value("part", f"T.float32(1) / {total}")
        self._each(lambda at, _: self.out(f"y[{at}] = y[{at}] * part[0]"))

    def _normalised(self, value: str) -> None:
        epsilon = number(self.function.epsilon)
        self.out(f"part[0] = T.float32(1) / T.sqrt(part[0] + {epsilon})")

        def store(at: str, column: str) -> None:
            result = f"{value.format(at=at)} * part[0]"
            if self.function.scale:
                result = f"{result} * g[{column}]"
            if self.function.center:
                result = f"{result} + b[{column}]"
            self.out(f"y[{at}] = {result}")

        self._each(store)

    def _value(self, name: str, value: str) -> None:
        """A number of the row."""
        self.out(f'{name} = T.alloc_buffer((1,), "float32")')
        self.out(f"{name}[0] = {value}")

    def _each(self, write: Callable[[str, str], None]) -> None:
        """Writes what happens to each number of the row, given its place and its column."""
        lanes, columns = self.lanes, self.function.columns
        tiles, rest = divmod(columns, lanes)
        for count, width, begin in ((tiles, lanes, 0), (min(rest, 1), rest, tiles * lanes)):
            if count:
                with self.out.loop("c", count), self.out.loop("l", width, "T.vectorized"):
                    column = f"c * {width} + {begin} + l"
                    write(f"r * {columns} + ({column})", column)

    def _sum(self, value: str) -> str:
        return self._reduced(lambda a, b: f"({a} + {b})", value, 0.0)

    def _reduced(
        self,
        combine: Callable[[str, str], str],
        value: str | Callable[[str], str],
        neutral: float,
    ) -> str:
        """Adds the code of a reduction of the row; an expression of its result.

        Args:
            combine: Two expressions to one.
            value: Of the place ``{at}``.
            neutral: What changes nothing.
        """
        out, lanes, columns = self.out, self.lanes, self.function.columns
        of = (lambda at: value.format(at=at)) if isinstance(value, str) else value
        vectors = max(1, min(_VECTORS, columns // lanes))
        sums = out.local("sums", vectors, lanes, neutral)
        tiles, left = divmod(columns, vectors * lanes)
        if tiles:
            with out.loop("c", tiles), out.vectors("w", vectors, lanes):
                at = f"r * {columns} + (c * {vectors * lanes} + w * {lanes} + l)"
                out(f"{sums}[w, l] = {combine(f'{sums}[w, l]', of(at))}")
        whole, rest = divmod(left, lanes)
        for count, width, begin in (
            (whole, lanes, columns - left),
            (min(rest, 1), rest, columns - rest),
        ):
            if count:
                with out.loop("c", count), out.loop("l", width, "T.vectorized"):
                    at = f"r * {columns} + ({begin} + c * {width} + l)"
                    out(f"{sums}[0, l] = {combine(f'{sums}[0, l]', of(at))}")
        vector = f"{sums}[0, T.ramp(0, 1, {lanes})]"
        for other in range(1, vectors):
            vector = combine(vector, f"{sums}[{other}, T.ramp(0, 1, {lanes})]")
        return out.across(vector, lanes, combine)
