"""Cold weights are fetched while the ones before them are computed with.

A product of few rows reads each weight a few times: the first time from memory, then from a cache.
The processor's own prefetcher follows the first pass and rests in the others, so that memory and
arithmetic take turns. Before → after, where ``m`` does not change which weights are read::

    for o, m, k:                         for o, m, k:
        y[m, o] += x[m, k] * W[o, k]         prefetch a line of W[o + 1]: one pass over m and k
                                             fetches each of its lines once
                                             y[m, o] += x[m, k] * W[o, k]

So the next weights arrive evenly over the whole time. It is done to parameters that are marked as
cold, where a weight is used a few times to a few hundred times: with one use there is nothing to
overlap, and with many memory takes no part of the time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from foretune import _tvm
from foretune.codegen._llvm import with_code
from foretune.workload import cold_weights, walk
from foretune.workload.model import element_type

if TYPE_CHECKING:
    from foretune._tvm import IRModule

_LINE = 64
"""Bytes of a line of the caches, on every processor this is for."""
_EFFECT = "memory(inaccessiblemem: readwrite) nounwind willreturn"
"""Of the instruction, to LLVM: it is not left out, and touches no number of the program. LLVM's own
prefetch may, as far as LLVM knows, so that running sums would go through memory."""
_MOST_USES = 400
_FARTHEST_BYTES = 256 << 10
"""Of what is fetched ahead: with what is computed with, half of a usual second cache."""
_MOST_AT_ONCE = 8
_SYMBOL = "foretune_fetch"
_CODE = f"""
define void @{_SYMBOL}(ptr %place) alwaysinline {{
  call void asm sideeffect "prefetcht1 ($0)", "r"(ptr %place) {_EFFECT}
  ret void
}}
"""


def prefetch_weights(module: IRModule) -> IRModule:
    """The same module, whose tensor programs fetch cold weights ahead."""
    return _tvm.map_programs(module, _fetching)


@dataclass(frozen=True)
class _Read:
    """A block that multiplies with a cold parameter, in its loops.

    Attributes:
        buffer: The parameter.
        indices: Where it reads, in terms of the loops.
        loops: All loops around the block, the outermost first.
        at: Position of the innermost loop of a sum: what follows is a tile in registers.
        uses: How often the block reads each element.
    """

    buffer: Any
    indices: Sequence[Any]
    loops: Sequence[Any]
    at: int
    uses: float

    def reads_along(self, loop: Any) -> bool:
        """Whether what is read depends on a loop."""
        used = _tvm.tvm.tirx.analysis.undefined_vars
        return any(loop.loop_var in list(used(index)) for index in self.indices)


def _fetching(function: Any) -> Any:
    marked = cold_weights(function)
    if marked is None:
        return function
    cold = {function.params[at] for at in marked.parameters}
    tirx = _tvm.tvm.tirx
    outer: list[Any] = []

    def loop(value: Any, mutator: Any) -> Any:
        outer.append(value)
        read = _read(outer, cold)
        body = mutator.mutate(value.body)
        outer.pop()
        fetches = [] if read is None else _fetches(read)
        if fetches:
            body = tirx.SeqStmt([*fetches, body])
        if body.same_as(value.body):
            return value
        return tirx.For(
            value.loop_var, value.min, value.extent, value.kind, body, value.thread_binding,
            value.annotations,
        )  # fmt: skip

    changed = _tvm.structural_mutate(function, [(tirx.For, loop)])
    return function if changed.same_as(function) else with_code(changed, _CODE)


def _read(outer: Sequence[Any], cold: set[Any]) -> _Read | None:
    """The block below the last of the loops, if that is where the innermost sum is."""
    tirx, s_tir = _tvm.tvm.tirx, _tvm.tvm.s_tir
    loops, body = list(outer), outer[-1].body
    while isinstance(body, tirx.For):
        loops.append(body)
        body = body.body
    if not isinstance(body, s_tir.SBlockRealize) or body.block.init is not None:
        return None
    block = body.block
    bound = {
        iter_var.var: value
        for iter_var, value in zip(block.iter_vars, body.iter_values, strict=True)
    }
    along = {
        var
        for iter_var, value in zip(block.iter_vars, body.iter_values, strict=True)
        if iter_var.iter_type == tirx.IterVar.CommReduce
        for var in tirx.analysis.undefined_vars(value)
    }
    sums = [at for at, each in enumerate(loops) if each.loop_var in along and _extent(each) > 1]
    if not sums or sums[-1] != len(outer) - 1 or not all(_extent(each) for each in loops):
        return None
    load = _load(block.body, cold)
    if load is None:
        return None
    indices = [_substituted(index, bound) for index in load.indices]
    iterations = math.prod(_extent(each) for each in loops)
    uses = iterations / math.prod(int(extent) for extent in load.source.shape)
    return _Read(load.source, indices, loops, sums[-1], uses)


def _load(body: Any, cold: set[Any]) -> Any:
    """The one place at which a block reads a cold parameter."""
    kind = _tvm.tvm.ir.TensorLoad
    found = [node for node in walk(body) if isinstance(node, kind) and node.source in cold]
    return found[0] if len(found) == 1 else None


def _fetches(read: _Read) -> list[Any]:
    """What fetches the lines of the next weights, a few in each turn of the innermost sum."""
    if not 1 < read.uses <= _MOST_USES:
        return []
    first = _last_parallel(read.loops) + 1
    for at in range(first, read.at):
        loop = read.loops[at]
        if _extent(loop) < 2 or read.reads_along(loop):
            continue
        around = [each for each in read.loops[:at] if _extent(each) > 1 and read.reads_along(each)]
        chunk = _chunk(read, at) if around else None
        if chunk is not None and chunk.size <= _FARTHEST_BYTES:
            return chunk.fetches(read, at, around[-1])
    return []


def _last_parallel(loops: Sequence[Any]) -> int:
    kinds = _tvm.tvm.tirx.ForKind
    return max((at for at, loop in enumerate(loops) if loop.kind == kinds.PARALLEL), default=-1)


@dataclass(frozen=True)
class _Chunk:
    """The weights that are read again and again below a loop.

    Attributes:
        starts: First element along each axis, in terms of the loops around.
        extents: Elements along each axis.
        size: Bytes.
    """

    starts: Sequence[Any]
    extents: Sequence[int]
    size: int

    def fetches(self, read: _Read, at: int, before: Any) -> list[Any]:
        """Prefetches of the chunk that is read in the next turn of the loop ``before``."""
        tirx = _tvm.tvm.tirx
        width = self.size // math.prod(self.extents)
        *axes, last = self.extents
        # Rows of a line, or lines of a row.
        rows = max(1, _LINE // (last * width))
        if last * width > _LINE or (axes[-1] % rows if axes else rows > 1):
            return []
        axes = [*axes[:-1], axes[-1] // rows] if axes else []
        lines = math.prod(axes)
        inside = read.loops[at : read.at + 1]
        turns = math.prod(_extent(loop) for loop in inside)
        each, every = -(-lines // turns), max(1, turns // lines)
        if each > _MOST_AT_ONCE:
            return []
        turn = _linear(inside)
        step = {before.loop_var: before.loop_var + 1}
        starts = [_substituted(start, step) for start in self.starts]
        found = []
        for number in range(each):
            line = turn // every if each == 1 else turn * each + number
            places = _digits(line, axes)
            if places:
                places[-1] = places[-1] * rows
            indices = [s + p for s, p in zip(starts, [*places, 0], strict=True)]
            address = tirx.address_of(read.buffer[tuple(indices)])
            found.append(tirx.Evaluate(tirx.call_extern("void", _SYMBOL, address)))
        return found


def _chunk(read: _Read, at: int) -> _Chunk | None:
    """What is read below a loop; None where it is no box."""
    tirx = _tvm.tvm.tirx
    inner = read.loops[at:]
    zeros = {loop.loop_var: tirx.const(0, loop.loop_var.ty.dtype) for loop in inner}
    starts, extents = [], []
    for index in read.indices:
        extent = _range(index, inner)
        if extent is None:
            return None
        starts.append(_substituted(index, zeros))
        extents.append(extent)
    width = element_type(str(read.buffer.dtype)).itemsize
    return _Chunk(starts, extents, math.prod(extents) * width)


def _range(index: Any, loops: Sequence[Any]) -> int | None:
    """How many numbers in a row an index takes in some loops; None where there are gaps."""
    factors = _tvm.tvm.sym.detect_linear_equation(index, [loop.loop_var for loop in loops])
    if not factors:
        return None
    taken, count = 1, 1
    for factor, loop in zip(factors[:-1], loops, strict=True):
        value = getattr(factor, "value", None)
        if value is None or value < 0:
            return None
        taken += int(value) * (_extent(loop) - 1)
        count *= _extent(loop) if value else 1
    return taken if taken == count else None


def _substituted(expression: Any, values: Mapping[Any, Any]) -> Any:
    """An expression with values in place of variables."""
    return _tvm.structural_mutate(
        expression, [(_tvm.tvm.ir.Var, lambda value, _mutator: values.get(value, value))]
    )


def _linear(loops: Sequence[Any]) -> Any:
    """The number of the turn in a nest of loops."""
    turn: Any = 0
    for loop in loops:
        turn = turn * _extent(loop) + loop.loop_var
    return turn


def _digits(number: Any, axes: Sequence[int]) -> list[Any]:
    """The place along each axis of an element that is counted along all of them."""
    places: list[Any] = []
    for axis in reversed(axes):
        places.append(number % axis if len(places) + 1 < len(axes) else number)
        number = number // axis
    return places[::-1]


def _extent(loop: Any) -> int:
    value = getattr(loop.extent, "value", None)
    return int(value) if isinstance(value, int) else 0
