"""Cold weights are fetched while the ones before them are computed with.

A product of few rows reads each weight a few times: the first time from memory, then from a cache.
The processor's own prefetcher follows the first pass and rests in the others, so that memory and
arithmetic take turns. Before → after, where ``m`` does not change which weights are read::

    for o, m, k:                         for o, m, k:
        y[m, o] += x[m, k] * W[o, k]         prefetch a line of W[o + 1]: one pass over m and k
                                             fetches each of its lines, one or a few times
                                             y[m, o] += x[m, k] * W[o, k]

So the next weights arrive evenly over the whole time. It is done to parameters that are marked as
cold, where a weight is used a few times to a few hundred times: with one use there is nothing to
overlap, and with many memory takes no part of the time.
"""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from foretune import _tvm
from foretune.codegen._llvm import with_code
from foretune.workload import cold_weights, walk
from foretune.workload.element_types import element_type

if TYPE_CHECKING:
    from foretune._tvm import IRModule
    from foretune.hardware import Hardware

_LINE = 64
"""Bytes of a line of the caches, on every processor this is for."""
_EFFECT = "memory(inaccessiblemem: readwrite) nounwind willreturn"
"""Of the instruction, to LLVM: it is not left out, and touches no number of the program. LLVM's own
prefetch may, as far as LLVM knows, so that running sums would go through memory."""
_MOST_USES = 400
_FARTHEST_BYTES = 256 << 10
"""Of what is fetched ahead: with what is computed with, half of a usual second cache."""
_WORK = 10
"""Vectors that are computed with for each line that is fetched, at least."""
_SYMBOL = "foretune_fetch"
_INSTRUCTIONS = dict.fromkeys(("x86_64", "amd64"), "prefetcht1 ($0)")
_INSTRUCTIONS |= dict.fromkeys(("aarch64", "arm64"), "prfm pldl2keep, [$0]")
_CODE = f"""
define void @{_SYMBOL}(ptr %place) alwaysinline {{{{
  call void asm sideeffect "{{instruction}}", "r"(ptr %place) {_EFFECT}
  ret void
}}}}
"""


def prefetch_weights(module: IRModule, hardware: Hardware) -> IRModule:
    """The same module, whose tensor programs fetch cold weights ahead."""
    instruction = _instruction(hardware)
    if not instruction:
        return module
    code = _CODE.format(instruction=instruction)
    return _tvm.map_programs(module, lambda function: _fetching(function, code))


def _instruction(hardware: Hardware) -> str:
    """What fetches a line into the second cache; empty where that is not known."""
    machine = json.loads(hardware.target).get("mtriple", "") or platform.machine()
    names = (name for name in _INSTRUCTIONS if machine.lower().startswith(name))
    return _INSTRUCTIONS.get(next(names, ""), "")


@dataclass(frozen=True)
class _Read:
    """A block that multiplies with a cold parameter, in its loops.

    Attributes:
        buffer: The parameter.
        indices: Where it reads, in terms of the loops.
        loops: All loops around the block, the outermost first.
        last_sum: Position of the innermost loop of a sum: what follows is a tile in registers.
        uses: How often the block reads each element.
    """

    buffer: Any
    indices: Sequence[Any]
    loops: Sequence[Any]
    last_sum: int
    uses: float

    def reads_along(self, loop: Any) -> bool:
        """Whether what is read depends on a loop."""
        return any(loop.loop_var in _variables(index) for index in self.indices)


@dataclass(frozen=True)
class _Chunk:
    """The weights that are read again and again below a loop.

    Attributes:
        starts: First element along each axis, in terms of the loops around.
        extents: Elements along each axis.
        whole_rows: Whether these are all elements along the last axis.
        width: Bytes of an element.
    """

    starts: Sequence[Any]
    extents: Sequence[int]
    whole_rows: bool
    width: int

    @property
    def size(self) -> int:
        """Bytes."""
        return math.prod(self.extents) * self.width

    @property
    def rows(self) -> int:
        """Rows of the last axis in a line of the cache; 0 where they do not fill lines."""
        bytes_of_row = self.extents[-1] * self.width
        rows = _LINE // bytes_of_row if bytes_of_row <= _LINE else 0
        fits = len(self.extents) > 1 and rows and self.extents[-2] % rows == 0
        fits = fits and (rows == 1 or self.whole_rows)
        return rows if fits and rows * bytes_of_row == _LINE else 0

    @property
    def axes(self) -> list[int]:
        """Lines along each axis but the last."""
        *axes, rows = self.extents[:-1]
        return [*axes, rows // self.rows]


@dataclass(frozen=True)
class _Plan:
    """Where what is fetched.

    Attributes:
        chunk: What is read in each turn of ``around``.
        around: The loop whose next turn is fetched for.
        first, last: Positions of the outermost and the innermost loop over which the lines are
            spread.
        each: Lines in each turn of these loops.
    """

    chunk: _Chunk
    around: Any
    first: int
    last: int
    each: int


def _fetching(function: Any, code: str) -> Any:
    marked = cold_weights(function)
    if marked is None:
        return function
    cold = {function.params[at] for at in marked.parameters}
    tirx = _tvm.tvm.tirx
    outer: list[Any] = []

    def loop(value: Any, mutator: Any) -> Any:
        nest, block = _nest(value)
        if block is not None:
            loops = [*outer, *nest]
            return _with_fetches(value, loops, len(outer), _read(loops, block, cold))
        outer.append(value)
        body = mutator.mutate(value.body)
        outer.pop()
        return value if body.same_as(value.body) else _around(value, body)

    changed = _tvm.structural_mutate(function, [(tirx.For, loop)])
    return function if changed.same_as(function) else with_code(changed, code)


def _nest(outermost: Any) -> tuple[list[Any], Any]:
    """Loops with nothing else between them, and the one block in them; None if there is more."""
    tirx, s_tir = _tvm.tvm.tirx, _tvm.tvm.s_tir
    loops, body = [outermost], outermost.body
    while isinstance(body, tirx.For):
        loops.append(body)
        body = body.body
    alone = isinstance(body, s_tir.SBlockRealize) and body.block.init is None
    if not alone or any(isinstance(node, tirx.For) for node in walk(body.block.body)):
        return loops, None
    return loops, body


def _around(loop: Any, body: Any) -> Any:
    """The same loop around something else."""
    return _tvm.tvm.tirx.For(
        loop.loop_var, loop.min, loop.extent, loop.kind, body, loop.thread_binding,
        loop.annotations,
    )  # fmt: skip


def _with_fetches(nest: Any, loops: Sequence[Any], first: int, read: _Read | None) -> Any:
    """A nest, the ``first`` of all loops around its block, that fetches what is planned."""
    plan = None if read is None else _plan(read)
    if read is None or plan is None or plan.last < first:
        return nest
    body: Any = _tvm.tvm.tirx.SeqStmt([*_fetches(read, plan), loops[plan.last].body])
    for each in reversed(loops[first : plan.last + 1]):
        body = _around(each, body)
    return body


def _read(loops: Sequence[Any], realized: Any, cold: set[Any]) -> _Read | None:
    """What a block reads of cold weights, if it sums products with them."""
    tirx = _tvm.tvm.tirx
    if not all(_extent(each) for each in loops):
        return None
    load = _load(realized.block.body, cold)
    if load is None:
        return None
    axes = list(zip(realized.block.iter_vars, realized.iter_values, strict=True))
    summed = {
        var
        for axis, value in axes
        if axis.iter_type == tirx.IterVar.CommReduce
        for var in _variables(value)
    }
    sums = [at for at, each in enumerate(loops) if each.loop_var in summed and _extent(each) > 1]
    if not sums:
        return None
    bound = {axis.var: value for axis, value in axes}
    indices = [_substituted(index, bound) for index in load.indices]
    known = {each.loop_var for each in loops}
    if any(not _is_number(index) or set(_variables(index)) - known for index in indices):
        return None  # Vectors, or variables of the block's own: an instruction's.
    iterations = math.prod(_extent(each) for each in loops)
    uses = iterations / math.prod(int(extent) for extent in load.source.shape)
    return _Read(load.source, indices, loops, sums[-1], uses)


def _variables(expression: Any) -> list[Any]:
    return list(_tvm.tvm.tirx.analysis.undefined_vars(expression))


def _is_number(index: Any) -> bool:
    return "x" not in str(index.ty.dtype)


def _load(body: Any, cold: set[Any]) -> Any:
    """The one place at which a block reads a cold parameter."""
    kind = _tvm.tvm.ir.TensorLoad
    loads = [node for node in walk(body) if isinstance(node, kind) and node.source in cold]
    return loads[0] if len(loads) == 1 else None


def _plan(read: _Read) -> _Plan | None:
    """What to fetch below the outermost loop that reads a chunk several times; None for nothing."""
    if not 1 < read.uses <= _MOST_USES:
        return None
    for first in range(_last_parallel(read.loops) + 1, read.last_sum):
        if _extent(read.loops[first]) < 2 or read.reads_along(read.loops[first]):
            continue
        around = [e for e in read.loops[:first] if _extent(e) > 1 and read.reads_along(e)]
        chunk = _chunk(read, first) if around else None
        if chunk is None or not chunk.rows or chunk.size > _FARTHEST_BYTES:
            continue
        lines = math.prod(chunk.axes)
        for last in range(read.last_sum, first - 1, -1):
            each = -(-lines // _turns(read.loops[first : last + 1]))
            if each * _WORK <= _tile(read.loops[last + 1 :]):
                return _Plan(chunk, around[-1], first, last, each)
    return None


def _last_parallel(loops: Sequence[Any]) -> int:
    kinds = _tvm.tvm.tirx.ForKind
    return max((at for at, loop in enumerate(loops) if loop.kind == kinds.PARALLEL), default=-1)


def _turns(loops: Sequence[Any]) -> int:
    return math.prod(_extent(loop) for loop in loops)


def _tile(loops: Sequence[Any]) -> int:
    """Vectors that some loops compute with."""
    kinds = _tvm.tvm.tirx.ForKind
    return _turns([loop for loop in loops if loop.kind != kinds.VECTORIZED])


def _fetches(read: _Read, plan: _Plan) -> list[Any]:
    """Prefetches of the lines of the next chunk, some in each turn of the loops."""
    tirx = _tvm.tvm.tirx
    inside, axes = read.loops[plan.first : plan.last + 1], plan.chunk.axes
    every = max(1, _turns(inside) // math.prod(axes))
    turn = _linear(inside)
    step = {plan.around.loop_var: plan.around.loop_var + 1}
    starts = [_substituted(start, step) for start in plan.chunk.starts]
    fetches = []
    for number in range(plan.each):
        line = turn // every if plan.each == 1 else turn * plan.each + number
        *places, row = _digits(line, axes)
        offsets = [*places, row * plan.chunk.rows, 0]
        indices = [start + offset for start, offset in zip(starts, offsets, strict=True)]
        address = tirx.address_of(read.buffer[tuple(indices)])
        fetches.append(tirx.Evaluate(tirx.call_extern("void", _SYMBOL, address)))
    return fetches


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
    whole = extents[-1] == int(read.buffer.shape[-1])
    return _Chunk(starts, extents, whole, element_type(str(read.buffer.dtype)).itemsize)


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
