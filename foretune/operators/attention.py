"""Attention as one kernel: the scores of a few rows stay in the cache, the rest are never made.

What it computes, for each head ``n``, with the steps that lead from products to scores::

    s[i, j] = steps(scale * sum over d of q[n, i, d] * k[n, j, d])
    y[n, i, :] = sum over j of softmax(s)[i, j] * v[n, j, :]

*Map.* Lanes of a vector are neighbouring rows ``i``: a block of rows of ``q`` is transposed once,
and then scores, their maximum, exponentials and sums are plain vector operations, without a sum
across lanes. Scores of a block lie as ``[j, i]``; the product with ``v`` reads them one number at a
time and ``v`` a vector at a time. Both products keep a tile of sums in registers. With fewer rows
than half a vector (one token is decoded) lanes are neighbours in ``d`` (``attention_few_rows``).

*Memory.* Operands are read where they lie: a ``View`` says where, so that transposes, splits and
repeated heads cost nothing. Scratch is ``rows * (d + L_kv)`` numbers for each thread.

As FlashAttention (Dao et al., 2022) it never writes the matrix of scores; unlike it, it needs no
running maximum, because whole rows of a block fit into the second cache up to some thousand tokens.
"""

from __future__ import annotations

from typing import Any

from foretune.operators._script import Lines, number, parsed
from foretune.operators.attention_few_rows import few_rows
from foretune.operators.attention_form import Attention, Machine, grouped, operands, score


def attention_kernel(attention: Attention, machine: Machine) -> Any:
    """The PrimFunc ``(q, k, v, *masks, y)`` of an attention, on flat buffers."""
    attention = grouped(attention)
    out = Lines()
    if 2 * attention.rows <= machine.lanes and _in_vectors(attention, machine.lanes):
        few_rows(out, attention, machine)
    else:
        _blocks(out, attention, machine)
    return parsed(operands(attention), out)


def _in_vectors(a: Attention, lanes: int) -> bool:
    last = a.query.is_contiguous(2) and a.key.is_contiguous(2)
    return last and a.depth % lanes == 0


def _blocks(out: Lines, a: Attention, machine: Machine) -> None:
    """One job for each block of rows of each head; the last block may be lower."""
    height = machine.lanes * _vectors(a, machine)
    full, rest = divmod(a.rows, height)
    count = full + bool(rest)
    with out.loop("t", a.heads * count, "T.parallel"):
        head, first = f"t // {count}", f"t % {count} * {height}"
        if not full:
            _Block(out, a, machine, rest).write("t", "0")
        elif not rest:
            _Block(out, a, machine, height).write(head, first)
        else:
            with out.block(f"if t % {count} < {full}:"):
                _Block(out, a, machine, height).write(head, first)
            with out.block("else:"):
                _Block(out, a, machine, rest, "z").write(head, str(full * height))


def _vectors(a: Attention, machine: Machine) -> int:
    """Vectors of rows in a block: three, or fewer where scores would leave half the cache."""
    room = machine.l2_bytes // 2 // (4 * machine.lanes * (a.columns + a.depth))
    most = -(-a.rows // machine.lanes)
    return max(1, min(3, room, most))


class _Block:
    """Writes the code of one block of rows.

    Attributes:
        rows: How many count; the others, up to whole vectors, are computed and not stored.
    """

    def __init__(
        self, out: Lines, a: Attention, machine: Machine, rows: int, mark: str = ""
    ) -> None:
        self.out, self.a, self.rows = out, a, rows
        self.lanes, self.sums = machine.lanes, machine.sums
        self.vectors = -(-rows // self.lanes)
        self.height = self.vectors * self.lanes
        self.names = {n: n + mark for n in ("qt", "s", "top", "total", "part", "sums")}

    def write(self, head: str, first: str) -> None:
        """Code for rows from ``first`` of ``head``, both being expressions."""
        out, a, n = self.out, self.a, self.names
        out(f'{n["qt"]} = T.alloc_buffer(({a.depth}, {self.height}), "float32")')
        out(f'{n["s"]} = T.alloc_buffer(({a.columns}, {self.height}), "float32")')
        for name in ("top", "total"):
            shape = f"({self.vectors}, {self.lanes})"
            out(f'{n[name]} = T.alloc_buffer({shape}, "float32")')
        out(f'{n["part"]} = T.alloc_buffer(({self.height},), "float32")')
        self._transpose(head, first)
        self._scores(head, first)
        self._exponentials(first)
        self._values(head, first)

    def _row(self, first: str, row: str) -> str:
        """A row of the attention; rows that do not count are the last one that does."""
        at = f"{first} + {row}"
        return at if self.rows == self.height else f"T.min({at}, {self.a.rows - 1})"

    def _limit(self, first: str) -> str:
        """Columns that some row of the block looks at."""
        if not self.a.causal:
            return str(self.a.columns)
        beyond = self.rows + self.a.columns - self.a.rows
        return f"T.min({self.a.columns}, {first} + {beyond})"

    def _transpose(self, head: str, first: str) -> None:
        out, a = self.out, self.a
        with out.loop("r", self.height), out.loop("d", a.depth):
            source = a.query.index(head, self._row(first, "r"), "d")
            out(f"{self.names['qt']}[d, r] = q[{source}] * {number(a.scale)}")

    def _scores(self, head: str, first: str) -> None:
        out, top = self.out, self.names["top"]
        with out.vectors("w", self.vectors, self.lanes):
            out(f"{top}[w, l] = {number(-float('inf'))}")
            out(f"{self.names['total']}[w, l] = T.float32(0)")
        tall = max(1, self.sums // max(self.vectors, 2) if self.vectors > 1 else self.sums * 2 // 3)
        tiles, rest = divmod(self.a.columns, tall)
        if tiles:
            count = str(tiles)
            if self.a.causal:
                count = f"T.min({tiles}, ({self._limit(first)} + {tall - 1}) // {tall})"
            with out.loop("c", count):
                self._score_tile(head, first, f"c * {tall}", tall)
        if rest:
            at = tiles * tall
            if self.a.causal:
                with out.block(f"if {self._limit(first)} > {at}:"):
                    self._score_tile(head, first, str(at), rest)
            else:
                self._score_tile(head, first, str(at), rest)

    def _score_tile(self, head: str, first: str, column: str, tall: int) -> None:
        """Scores of ``tall`` columns, all rows of the block, and their maximum."""
        out, a, n, lanes = self.out, self.a, self.names, self.lanes
        sums = out.local(n["sums"], tall * self.vectors, lanes)
        tile = out.loop("x", tall, "T.unroll"), out.vectors("w", self.vectors, lanes)
        with out.loop("d", a.depth), tile[0], tile[1]:
            place = f"{sums}[x * {self.vectors} + w, l]"
            key = a.key.index(head, f"{column} + x", "d")
            out(f"{place} = {place} + k[{key}] * {n['qt']}[d, w * {lanes} + l]")
        with out.loop("x", tall, "T.unroll"), out.vectors("w", self.vectors, lanes):
            row = self._row(first, f"w * {lanes} + l")
            value = score(a, f"{sums}[x * {self.vectors} + w, l]", head, row, f"({column} + x)")
            stored = f"{n['s']}[{column} + x, w * {lanes} + l]"
            out(f"{stored} = {value}")
            out(f"{n['top']}[w, l] = T.max({n['top']}[w, l], {stored})")

    def _exponentials(self, first: str) -> None:
        out, n, lanes = self.out, self.names, self.lanes
        top, total = f"{n['top']}[w, l]", f"{n['total']}[w, l]"
        if self.a.safe:
            least = number(-float("inf"))
            with out.vectors("w", self.vectors, lanes):
                out(f"{top} = T.Select({top} == {least}, T.float32(0), {top})")
        with out.loop("j", self._limit(first)), out.vectors("w", self.vectors, lanes):
            place = f"{n['s']}[j, w * {lanes} + l]"
            out(f"{place} = T.exp({place} - {top})")
            out(f"{total} = {total} + {place}")
        with out.vectors("w", self.vectors, lanes):
            part = f"T.float32(1) / {total}"
            if self.a.safe:
                part = f"T.Select({total} == T.float32(0), T.float32(0), {part})"
            out(f"{n['part']}[w * {lanes} + l] = {part}")

    def _values(self, head: str, first: str) -> None:
        out, lanes = self.out, self.lanes
        tall = next(t for t in (6, 4, 3, 2, 1) if self.height % t == 0)
        across = max(1, self.sums // tall)
        wide = across * lanes
        tiles, rest = divmod(self.a.width, wide)
        with out.loop("b", -(-self.rows // tall)):
            if tiles:
                with out.loop("c", tiles):
                    self._value_tile(head, first, tall, across, lanes, f"c * {wide}")
            vectors, single = divmod(rest, lanes)
            if vectors:
                self._value_tile(head, first, tall, vectors, lanes, str(tiles * wide))
            if single:
                at = self.a.width - single
                self._value_tile(head, first, tall, 1, single, str(at))

    def _value_tile(
        self, head: str, first: str, tall: int, across: int, lanes: int, column: str
    ) -> None:
        """``tall`` rows and ``across`` vectors of the result."""
        out, a, n = self.out, self.a, self.names
        sums = out.local(n["sums"], tall * across, lanes)
        tile = out.loop("r", tall, "T.unroll"), out.vectors("w", across, lanes)
        with out.loop("j", self._limit(first)), tile[0], tile[1]:
            place = f"{sums}[r * {across} + w, l]"
            value = a.value.index(head, "j", f"{column} + w * {lanes} + l")
            out(f"{place} = {place} + {n['s']}[j, b * {tall} + r] * v[{value}]")
        with out.loop("r", tall, "T.unroll"):
            row = f"b * {tall} + r"
            with out.block(f"if {row} < {self.rows}:"), out.vectors("w", across, lanes):
                target = a.result.index(head, f"{first} + {row}", f"{column} + w * {lanes} + l")
                value = f"{sums}[r * {across} + w, l] * {n['part']}[{row}]"
                out(f"y[{target}] = {value}")
