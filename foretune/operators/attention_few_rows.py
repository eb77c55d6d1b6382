"""Attention of few rows, as when one token is decoded: ``k`` and ``v`` stream through once.

Lanes of a vector are neighbours in ``d`` for the scores, neighbouring columns for exponentials, and
neighbours in the values' last axis for the result: all operands are read as they lie.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretune.operators._script import Lines, number
from foretune.operators.attention_form import score

if TYPE_CHECKING:
    from foretune.operators.attention_form import Attention, Machine

_COLUMNS = 4


def few_rows(out: Lines, a: Attention, machine: Machine) -> None:
    """Adds the code: one job for each head.

    Args:
        out: Takes it.
        a: Its depth fills vectors; queries and keys are contiguous along it.
        machine: What it is shaped for.
    """
    lanes, rows = machine.lanes, a.rows
    with out.loop("n", a.heads, "T.parallel"):
        out(f's = T.alloc_buffer(({rows}, {a.columns}), "float32")')
        out(f'top = T.alloc_buffer(({rows},), "float32")')
        out(f'part = T.alloc_buffer(({rows},), "float32")')
        with out.loop("r", rows, "T.unroll"):
            out(f"top[r] = {number(-float('inf'))}")
        tall = max(1, min(_COLUMNS, machine.sums // rows))
        tiles, rest = divmod(a.columns, tall)
        if tiles:
            with out.loop("c", tiles):
                _scores(out, a, lanes, f"c * {tall}", tall)
        if rest:
            _scores(out, a, lanes, str(tiles * tall), rest)
        _exponentials(out, a, lanes)
        _values(out, a, machine)


def _scores(out: Lines, a: Attention, lanes: int, column: str, tall: int) -> None:
    sums = out.local("sums", tall * a.rows, lanes)
    tile = out.loop("x", tall, "T.unroll"), out.vectors("r", a.rows, lanes)
    with out.loop("d", a.depth // lanes), tile[0], tile[1]:
        place = f"{sums}[x * {a.rows} + r, l]"
        key = a.key.index("n", f"{column} + x", f"d * {lanes} + l")
        query = a.query.index("n", "r", f"d * {lanes} + l")
        out(f"{place} = {place} + k[{key}] * q[{query}]")
    with out.loop("x", tall, "T.unroll"), out.loop("r", a.rows, "T.unroll"):
        total = out.total(f"{sums}[x * {a.rows} + r, T.ramp(0, 1, {lanes})]", lanes)
        value = score(a, f"({total} * {number(a.scale)})", "n", "r", f"({column} + x)")
        out(f"s[r, {column} + x] = {value}")
        out(f"top[r] = T.max(top[r], s[r, {column} + x])")


def _exponentials(out: Lines, a: Attention, lanes: int) -> None:
    tiles, rest = divmod(a.columns, lanes)
    with out.loop("r", a.rows):
        if a.safe:
            least = number(-float("inf"))
            out(f"top[r] = T.Select(top[r] == {least}, T.float32(0), top[r])")
        sums = out.local("sums", 1, lanes)
        for count, at, width in ((tiles, "j * {lanes}", lanes), (1, str(tiles * lanes), rest)):
            if not count or not width:
                continue
            column = at.format(lanes=lanes)
            with out.loop("j", count), out.loop("l", width, "T.vectorized"):
                place = f"s[r, {column} + l]"
                out(f"{place} = T.exp({place} - top[r])")
                out(f"{sums}[0, l] = {sums}[0, l] + {place}")
        total = out.total(f"{sums}[0, T.ramp(0, 1, {lanes})]", lanes)
        out(f"part[r] = {total}")
        whole = "T.float32(1) / part[r]"
        if a.safe:
            whole = f"T.Select(part[r] == T.float32(0), T.float32(0), {whole})"
        out(f"part[r] = {whole}")


def _values(out: Lines, a: Attention, machine: Machine) -> None:
    lanes = machine.lanes
    most = max(1, machine.sums // a.rows)
    tiles, rest = divmod(a.width, most * lanes)
    vectors, single = divmod(rest, lanes)
    if tiles:
        with out.loop("c", tiles):
            _value_tile(out, a, most, lanes, f"c * {most * lanes}")
    if vectors:
        _value_tile(out, a, vectors, lanes, str(tiles * most * lanes))
    if single:
        _value_tile(out, a, 1, single, str(a.width - single))


def _value_tile(out: Lines, a: Attention, count: int, lanes: int, column: str) -> None:
    sums = out.local("sums", a.rows * count, lanes)
    tile = out.loop("r", a.rows, "T.unroll"), out.vectors("w", count, lanes)
    with out.loop("j", a.columns), tile[0], tile[1]:
        place = f"{sums}[r * {count} + w, l]"
        value = a.value.index("n", "j", f"{column} + w * {lanes} + l")
        out(f"{place} = {place} + s[r, j] * v[{value}]")
    with out.loop("r", a.rows, "T.unroll"), out.vectors("w", count, lanes):
        target = a.result.index("n", "r", f"{column} + w * {lanes} + l")
        out(f"y[{target}] = {sums}[r * {count} + w, l] * part[r]")
