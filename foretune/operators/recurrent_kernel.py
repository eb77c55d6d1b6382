"""The steps of a recurrent layer as one kernel: one direction, all steps.

Idea: in every step the hidden state is multiplied by the recurrent weights, a product of few rows
that reads all weights. They lie in panels: what one tile of hidden units reads of all gates, in
order. A tile's sums stay in registers until its new cell and hidden state are written::

    for step:
        for tile of hidden units, in parallel:
            for row tile of the batch:
                sums[gate, unit] = sum over k of h[k] * panel[k, gate, unit]
                c, y[step] = cell(gates of the inputs + sums, c)
        h = y[step]

A projected layer multiplies what its cells show by a second matrix in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from foretune._arrays import Array
from foretune.operators._script import Lines, parsed
from foretune.operators.recurrent import GRU, LSTM, RNN_RELU, Recurrence

_SUMS_OF_ONE_ROW, _SUMS_OF_MANY = 8, 4
"""Vectors of sums in a tile of so many rows: enough to hide what an addition waits."""
_WORTH_THREADS = 1 << 14
"""Multiplications of a step from which on it is shared out among threads."""


@dataclass(frozen=True)
class Columns:
    """Neighbouring hidden units: ``count`` tiles of ``vectors`` vectors of ``lanes``.

    Attributes:
        begin: First unit.
        count: Of tiles.
        vectors: Of units in a tile.
        lanes: Of a vector.
    """

    begin: int
    count: int
    vectors: int
    lanes: int

    @property
    def width(self) -> int:
        """Units of a tile."""
        return self.vectors * self.lanes


def columns_of(total: int, gates: int, batch: int, lanes: int) -> list[Columns]:
    """Tiles that make up all units: of several vectors, of one, and of what is left."""
    sums = _SUMS_OF_ONE_ROW if batch == 1 else _SUMS_OF_MANY
    whole, rest = divmod(total, lanes)
    vectors = min(max(1, sums // gates), max(1, whole))
    tiles, single = divmod(whole, vectors)
    groups = [
        Columns(0, tiles, vectors, lanes),
        Columns(tiles * vectors * lanes, single, 1, lanes),
        Columns(whole * lanes, min(rest, 1), 1, rest),
    ]
    return [each for each in groups if each.count]


def panels(weight: Array, places: tuple[int, ...], columns: list[Columns]) -> Array:
    """``[G * H, K]`` as one row of numbers, in the order in which a kernel reads them.

    Tile after tile: ``[K, gate, unit]``, gates in the order of ``places``.
    """
    hidden = weight.shape[0] // len(places)
    gates = weight.reshape(len(places), hidden, -1)[list(places)]
    parts = []
    for each in columns:
        own = gates[:, each.begin : each.begin + each.count * each.width]
        own = own.reshape(len(places), each.count, each.width, -1)
        parts.append(own.transpose(1, 3, 0, 2).reshape(-1))
    return np.ascontiguousarray(np.concatenate(parts))


def recurrence_kernel(what: Recurrence, lanes: int, sums: int) -> Any:
    """The PrimFunc on flat float32 buffers.

    ``(gates, weight, [bias,] hidden, [cell,] [projection,] y, last_hidden, [last_cell])``; weight
    and projection are ``panels``.

    Args:
        what: The layer.
        lanes: Numbers in a vector register.
        sums: Registers for sums.
    """
    return _Writer(what, lanes, sums).program()


class _Writer:
    def __init__(self, what: Recurrence, lanes: int, sums: int) -> None:
        self.out, self.what, self.lanes, self.sums = Lines(), what, lanes, sums

    def program(self) -> Any:
        out, what = self.out, self.what
        shown, state = what.batch * what.width, what.batch * what.hidden
        self._copy("hT", "h0", shown)
        if what.kind == LSTM:
            self._copy("cT", "c0", state)
        if what.projected:
            out(f'm = T.alloc_buffer(({state},), "float32")')
        with out.loop("s", what.steps):
            self._product("w", "hT", what.width, what.hidden, what.gates, self._cell)
            if what.projected:
                self._product("p", "m", what.hidden, what.width, 1, self._projected)
            self._copy("hT", "y", shown, f"{self._step()} * {shown}")
        return parsed([(name, size, "float32") for name, size in self._operands()], out)

    def _operands(self) -> Iterator[tuple[str, int]]:
        what = self.what
        shown, state = what.batch * what.width, what.batch * what.hidden
        yield "g", what.steps * what.gates * state
        yield "w", what.gates * what.hidden * what.width
        if what.biased:
            yield "b", what.gates * what.hidden
        yield "h0", shown
        if what.kind == LSTM:
            yield "c0", state
        if what.projected:
            yield "p", what.hidden * what.width
        yield "y", what.steps * shown
        yield "hT", shown
        if what.kind == LSTM:
            yield "cT", state

    def _step(self) -> str:
        return f"({self.what.steps - 1} - s)" if self.what.reverse else "s"

    def _copy(self, target: str, source: str, size: int, begin: str = "0") -> None:
        tiles, rest = divmod(size, self.lanes)
        for count, width, first in ((tiles, self.lanes, 0), (min(rest, 1), rest, size - rest)):
            if count:
                with self.out.loop("i", count), self.out.loop("l", width, "T.vectorized"):
                    at = f"{first} + i * {width} + l"
                    self.out(f"{target}[{at}] = {source}[{begin} + {at}]")

    def _product(
        self, weight: str, data: str, depth: int, width: int, gates: int, finish: Any
    ) -> None:
        """Code of a product with panels, and of what becomes of its sums.

        Args:
            weight: Name of the panels.
            data: Name of the rows.
            depth: Numbers of a row.
            width: Units of the result.
            gates: Sums of a unit.
            finish: Given sums by gate, row and unit: writes the code that uses them.
        """
        out, batch, begin = self.out, self.what.batch, 0
        worth = batch * depth * width * gates >= _WORTH_THREADS
        for columns in columns_of(width, gates, batch, self.lanes):
            vectors = gates * columns.vectors
            tall = -(-batch // -(-batch // max(1, self.sums // vectors)))
            kind = "T.parallel" if worth and columns.count > 1 else "range"
            with out.loop("j", columns.count, kind):
                tiles, rest = divmod(batch, tall)
                for count, rows, first in ((tiles, tall, 0), (min(rest, 1), rest, batch - rest)):
                    if not count:
                        continue
                    with out.loop("r", count):
                        row = f"({first} + r * {rows} + x)"
                        panel = f"{weight}[{begin} + j * {depth * vectors * columns.lanes}"
                        sums = self._sums(columns, rows, vectors, panel, f"{data}[{row}", depth)
                        unit = f"{columns.begin} + j * {columns.width} + v * {columns.lanes} + l"
                        tile = out.loop("x", rows, "T.unroll")
                        with tile, out.vectors("v", columns.vectors, columns.lanes):
                            places = [
                                f"x * {vectors} + {gate * columns.vectors} + v"
                                for gate in range(gates)
                            ]
                            finish([f"{sums}[{at}, l]" for at in places], row, f"({unit})")
            begin += columns.count * columns.width * gates * depth

    def _sums(
        self, columns: Columns, rows: int, vectors: int, panel: str, data: str, depth: int
    ) -> str:
        """Code of the sums of a tile; the name of where they are, by row and vector."""
        out = self.out
        sums = out.local("sums", rows * vectors, columns.lanes)
        tile = out.loop("x", rows, "T.unroll"), out.vectors("v", vectors, columns.lanes)
        with out.loop("k", depth), tile[0], tile[1]:
            place = f"{sums}[x * {vectors} + v, l]"
            number = f"{panel} + (k * {vectors} + v) * {columns.lanes} + l]"
            out(f"{place} = {place} + {data} * {depth} + k] * {number}")
        return sums

    def _cell(self, sums: list[str], row: str, unit: str) -> None:
        out, what = self.out, self.what
        hidden, all_gates = what.hidden, what.gates * what.hidden
        base = f"({self._step()} * {what.batch} + {row}) * {all_gates}"
        entered = [f"g[{base} + {place * hidden} + {unit}]" for place in what.places]
        if what.biased:
            sums = [
                f"({total} + b[{place * hidden} + {unit}])"
                for total, place in zip(sums, what.places, strict=True)
            ]
        gates = [f"({one} + {other})" for one, other in zip(entered, sums, strict=True)]
        state = f"{row} * {hidden} + {unit}"
        if what.kind == LSTM:
            kept, new = f"T.sigmoid({gates[2]}) * cT[{state}]", f"T.tanh({gates[3]})"
            out(f"cT[{state}] = {kept} + T.sigmoid({gates[0]}) * {new}")
            shown = f"T.sigmoid({gates[1]}) * T.tanh(cT[{state}])"
        elif what.kind == GRU:
            update = f"T.sigmoid({gates[0]})"
            new = f"T.tanh({entered[2]} + T.sigmoid({gates[1]}) * {sums[2]})"
            shown = f"(T.float32(1) - {update}) * {new} + {update} * hT[{state}]"
        elif what.kind == RNN_RELU:
            shown = f"T.max({gates[0]}, T.float32(0))"
        else:
            shown = f"T.tanh({gates[0]})"
        if what.projected:
            out(f"m[{state}] = {shown}")
        else:
            out(f"y[{self._step()} * {what.batch * hidden} + {state}] = {shown}")

    def _projected(self, sums: list[str], row: str, unit: str) -> None:
        what = self.what
        place = f"{self._step()} * {what.batch * what.width} + {row} * {what.width} + {unit}"
        self.out(f"y[{place}] = {sums[0]}")
