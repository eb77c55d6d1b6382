"""Nests of loops read from a scheduled TVM program.

The program is lowered as far as its intermediate buffers have the size of what is allocated at once
(as for TVM's feature extraction); then loops, stores and conditions are read. Loops that are bound
to threads stand around their kernel, one for all of a kind, as in what is launched. The
initialisation of reductions and the exchange among threads that reduce together are left out. What
is no sum of digits of loops (gathers, dynamic sizes, tensor intrinsics) is described closely and
marked approximate.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._arrays import FloatArray
from foretune.describe._affine import Sum, of_loop, values
from foretune.describe._conditions import Condition, share
from foretune.describe._expressions import Expressions, Work, variables, vectors
from foretune.describe._nests import (
    BLOCK,
    PARALLEL,
    SERIAL,
    THREAD,
    UNROLLED,
    VECTORIZED,
    VTHREAD,
    Access,
    Buffer,
    Nests,
    Statement,
    Term,
)

if TYPE_CHECKING:
    from foretune._tvm import IRModule, Target

_KINDS = {0: SERIAL, 1: PARALLEL, 2: VECTORIZED, 3: UNROLLED}
"""By TVM's numbers of kinds of loops; those bound to threads have their own."""
_PRAGMA = "pragma_auto_unroll_max_step"
_EXCHANGE = "tvm_thread_allreduce"
"""What threads exchange when they reduce together."""


def nests_of_program(module: IRModule, target: Target | str | None = None) -> Nests:
    """The nest of a scheduled program, as a batch of one.

    Args:
        module: Tensor programs; of several the statements follow each other.
        target: What it is made for, also as JSON; None to tell by whether there are threads.
    """
    walker = _Walker()
    for function in _functions(_lowered(module, walker)):
        walker.function(function)
    return walker.nests(_is_gpu(target))


def _is_gpu(target: Target | str | None) -> bool | None:
    if target is None:
        return None
    if isinstance(target, str):
        kind = json.loads(target)["kind"] if target.startswith("{") else target.split()[0]
    else:
        kind = str(target.kind.name)
    return str(kind) not in ("llvm", "c")


def _functions(module: Any) -> list[Any]:
    from foretune import _tvm

    return [f for f in module.functions.values() if isinstance(f, _tvm.PrimFunc)]


def _lowered(module: Any, walker: _Walker) -> Any:
    """The program with buffers of the size that is allocated; as it is where that fails."""
    from foretune import _tvm

    passes = _tvm.tvm.s_tir.transform
    try:
        module = _tvm.map_programs(module, _tvm.rooted)
        module = passes.LowerCrossThreadReduction()(module)
        walker.remember_reductions(module)
        for each in (
            passes.LowerInitBlock(),
            passes.PlanAndUpdateBufferAllocationLocation(),
            passes.ConvertBlocksToOpaque(),
            passes.CompactBufferAllocation(),
            passes.LowerMatchBuffer(),
        ):
            module = each(module)
    except Exception:  # TVM raises its own, ValueError, and what C++ throws
        walker.remember_reductions(module)
        walker.give_up()
    return module


@dataclass
class _Loop:
    kind: int
    extent: int
    axis: str
    reduction: bool


class _Walker:
    """Reads functions, statement by statement."""

    def __init__(self) -> None:
        self._read = Expressions()
        self._reductions: set[int] = set()
        self._loops: list[_Loop] = []
        self._buffers: dict[int, int] = {}
        self._parameters: set[int] = set()
        self._found: list[tuple[Any, bool]] = []
        self._path: list[int] = []
        self._conditions: list[Condition] = []
        self._unroll = 0
        self._kernel: dict[str, int] | None = None
        self._stores: list[tuple[_Stored, Statement]] = []

    def remember_reductions(self, module: Any) -> None:
        """Notes the loops that blocks reduce over, before blocks lose their axes."""
        from foretune import _tvm

        waiting = [function.body for function in _functions(module)]
        while waiting:
            node = waiting.pop()
            if type(node).__name__ == "SBlockRealize":
                for axis, value in zip(node.block.iter_vars, node.iter_values, strict=True):
                    if int(axis.iter_type) == 2:
                        self._reductions.update(v.__chandle__() for v in variables(value))
                waiting.append(node.block.body)
            else:
                waiting += [c for c in _tvm.children(node) if isinstance(c, _tvm.tvm.tirx.Stmt)]

    def give_up(self) -> None:
        """Notes that the program could not be lowered."""
        self._read.exact = False

    def function(self, function: Any) -> None:
        """Adds the statements of a function."""
        self._parameters.update(p.__chandle__() for p in function.params)
        self._statement(function.body)

    def nests(self, gpu: bool | None) -> Nests:
        """What was found."""
        # Constants that start what others add to: the program's own are of no other statement.
        computed = {stored.buffer for stored, _ in self._stores if not stored.constant}
        kept = [
            s for stored, s in self._stores if not (stored.constant and stored.buffer in computed)
        ]
        bound = any(loop.kind in (BLOCK, THREAD, VTHREAD) for loop in self._loops)
        return Nests(
            kinds=np.array([[loop.kind for loop in self._loops]], np.int8).reshape(1, -1),
            extents=np.array([[loop.extent for loop in self._loops]], float).reshape(1, -1),
            axes=tuple(loop.axis for loop in self._loops),
            reduction=tuple(loop.reduction for loop in self._loops),
            buffers=tuple(self._buffer(node, parameter) for node, parameter in self._found),
            statements=tuple(kept),
            gpu=bound if gpu is None else gpu,
            approximate=np.array([not self._read.exact]),
        )

    # Statements.

    def _statement(self, node: Any) -> None:
        kind = type(node).__name__
        method = getattr(self, f"_on_{kind}", None)
        if method is not None:
            method(node)
            return
        from foretune import _tvm

        if kind not in ("AllocBuffer", "DeclBuffer", "AssertStmt"):
            self._read.exact = False
        for child in _tvm.children(node):
            if isinstance(child, _tvm.tvm.tirx.Stmt):
                self._statement(child)

    def _on_SeqStmt(self, node: Any) -> None:
        for each in node.seq:
            self._statement(each)

    def _on_For(self, node: Any) -> None:
        step = 1 if node.step is None else self._read.extent(node.step)
        extent = -(-self._read.extent(node.extent) // step)
        pragma = node.annotations.get(_PRAGMA) if node.annotations else None
        unroll = self._unroll
        if pragma is not None:
            self._unroll = int(getattr(pragma, "value", pragma))
        if node.thread_binding is not None:
            tag = str(node.thread_binding.thread_tag)
            self._in_threads(tag, extent, node.loop_var, node.body)
        else:
            loop = self._new(_KINDS.get(int(node.kind), SERIAL), extent, "")
            self._path.append(loop)
            iteration = of_loop(loop, extent).times(step).plus(self._read.integer(node.min))
            self._in_loop(loop, node.loop_var, iteration, node.body)
            self._path.pop()
        self._unroll = unroll

    def _in_loop(self, loop: int, variable: Any, iteration: Sum, body: Any) -> None:
        self._loops[loop].reduction |= variable.__chandle__() in self._reductions
        self._read.scope[variable.__chandle__()] = iteration
        self._statement(body)

    def _in_threads(self, tag: str, extent: int, variable: Any, body: Any) -> None:
        kernel, before = self._kernel, len(self._path)
        if kernel is None:
            self._kernel = {}
            self._launch(body, tag, extent)
        loop = self._thread(tag, extent)
        self._in_loop(loop, variable, of_loop(loop, extent), body)
        if kernel is None:
            del self._path[before:]
        self._kernel = kernel

    def _launch(self, body: Any, tag: str, extent: int) -> None:
        """Puts all loops of threads of a kernel into the path, in the order of the program."""
        from foretune import _tvm

        self._path.append(self._thread(tag, extent))
        waiting = [body]
        while waiting:
            node = waiting.pop()
            if type(node).__name__ == "For" and node.thread_binding is not None:
                inner = str(node.thread_binding.thread_tag)
                if inner not in self._kernel_threads:
                    self._path.append(self._thread(inner, self._read.extent(node.extent)))
            elif type(node).__name__ == "AttrStmt" and str(node.attr_key) == "thread_extent":
                inner = str(node.node.thread_tag)
                if inner not in self._kernel_threads:
                    self._path.append(self._thread(inner, self._read.extent(node.value)))
            waiting += reversed(
                [c for c in _tvm.children(node) if isinstance(c, _tvm.tvm.tirx.Stmt)]
            )

    @property
    def _kernel_threads(self) -> dict[str, int]:
        assert self._kernel is not None
        return self._kernel

    def _thread(self, tag: str, extent: int) -> int:
        """The loop of a kind of threads in this kernel."""
        known = self._kernel_threads.get(tag)
        if known is None:
            name, _, axis = tag.partition(".")
            kinds = {"blockIdx": BLOCK, "threadIdx": THREAD}
            known = self._new(kinds.get(name, VTHREAD), extent, axis or "x")
            self._kernel_threads[tag] = known
        elif self._loops[known].extent != extent:
            # No such program runs.
            self._read.exact = False
            self._loops[known].extent = self._read.extents[known] = max(
                self._loops[known].extent, extent
            )
        return known

    def _new(self, kind: int, extent: int, axis: str) -> int:
        self._loops.append(_Loop(kind, extent, axis, False))
        self._read.extents[len(self._loops) - 1] = extent
        return len(self._loops) - 1

    def _on_AttrStmt(self, node: Any) -> None:
        key = str(node.attr_key)
        if key in ("thread_extent", "virtual_thread"):
            tag = str(node.node.thread_tag) or "vthread.x"
            self._in_threads(tag, self._read.extent(node.value), node.node.var, node.body)
        elif key == _PRAGMA:
            unroll, self._unroll = self._unroll, self._read.extent(node.value)
            self._statement(node.body)
            self._unroll = unroll
        else:
            self._statement(node.body)

    def _on_SBlockRealize(self, node: Any) -> None:
        for axis, value in zip(node.block.iter_vars, node.iter_values, strict=True):
            self._read.scope[axis.var.__chandle__()] = self._read.integer(value)
        self._guarded(node.predicate, True, node.block.body)

    def _on_IfThenElse(self, node: Any) -> None:
        self._guarded(node.condition, True, node.then_case)
        if node.else_case is not None:
            self._guarded(node.condition, False, node.else_case)

    def _guarded(self, condition: Any, holds: bool, body: Any) -> None:
        before = len(self._conditions)
        self._conditions.append(Condition(condition, holds))
        self._statement(body)
        del self._conditions[before:]

    def _on_Bind(self, node: Any) -> None:
        self._read.bind(node)

    def _on_LetStmt(self, node: Any) -> None:
        self._read.bind(node)
        if getattr(node, "body", None) is not None:
            self._statement(node.body)

    def _on_Evaluate(self, node: Any) -> None:
        if type(node.value).__name__ == "IntImm":
            return
        if str(getattr(node.value.op, "name", "")).endswith(_EXCHANGE):
            return
        work = Work()
        self._read.value(node.value, work)
        if work.loads or work.calls:
            # What an intrinsic computes and stores is its own affair.
            self._read.exact = False
            self._add(_Stored(-1, False), work, None)

    def _on_BufferStore(self, node: Any) -> None:
        work = Work()
        # A statement on vectors is one on their elements, in a loop over the longest vector.
        self._read.lanes = max(vectors(node))
        if self._read.lanes > 1:
            self._read.lane = self._new(VECTORIZED, self._read.lanes, "")
            self._path.append(self._read.lane)
        for index in node.indices:
            self._read.gathered(index, work)
        self._read.value(node.value, work)
        target = node.buffer, tuple(self._read.integer(i) for i in node.indices)
        constant = not work.loads and not any(
            v.__chandle__() in self._read.scope for v in variables(node.value)
        )
        self._add(_Stored(self._number(node.buffer), constant), work, target)
        if self._read.lanes > 1:
            self._path.pop()
        self._read.lanes = 1

    def _add(self, stored: _Stored, work: Work, target: tuple[Any, tuple[Sum, ...]] | None) -> None:
        executed, exact = share(self._conditions, self._read.integer, self._read.extents)
        self._read.exact &= exact
        loads = {
            (self._number(buffer), tuple(map(_key, indices))): self._access(buffer, indices, False)
            for buffer, indices in work.loads
        }
        accesses = list(loads.values())
        reduces = False
        if target is not None:
            reduces = (self._number(target[0]), tuple(map(_key, target[1]))) in loads
            accesses.append(self._access(*target, True))
        statement = Statement(
            tuple(self._path),
            tuple(accesses),
            _one(work.operations),
            _one(work.calls),
            _one(work.selects),
            _one(self._unroll),
            reduces,
            _one(executed),
        )
        self._stores.append((stored, statement))

    def _access(self, buffer: Any, indices: tuple[Sum, ...], store: bool) -> Access:
        place = {loop: at for at, loop in enumerate(self._path)}
        terms = []
        for dimension, index in enumerate(indices):
            self._read.exact &= index.exact
            # Iterations that a guard keeps out would go beyond the buffer.
            size = self._read.extent(buffer.shape[dimension])
            for (loop, low, high), coefficient in sorted(
                index.digits.items(), key=lambda item: (place.get(item[0][0], 0), -item[0][1])
            ):
                taken = values((loop, low, high))
                if self._read.lanes == 1:
                    # Vectors go on in the next row.
                    taken = min(taken, math.ceil(size / abs(coefficient)))
                # A digit of a loop that is not around the statement stands still.
                if loop in place and taken > 1:
                    numbers = _one(coefficient), _one(taken), _one(low)
                    terms.append(Term(dimension, place[loop], *numbers))
        return Access(self._number(buffer), store, tuple(terms))

    # Buffers.

    def _number(self, buffer: Any) -> int:
        handle = buffer.__chandle__()
        if handle not in self._buffers:
            self._buffers[handle] = len(self._found)
            self._found.append((buffer, handle in self._parameters))
        return self._buffers[handle]

    def _buffer(self, node: Any, parameter: bool) -> Buffer:
        shape = [float(self._read.extent(size)) for size in node.shape]
        return Buffer(
            str(node.name),
            _scope(str(node.scope())),
            _bytes(str(node.dtype)),
            np.array([shape]).reshape(1, -1),
            parameter,
        )


@dataclass(frozen=True)
class _Stored:
    """Number of the buffer that a statement stores to, and whether it stores the same always."""

    buffer: int
    constant: bool


def _one(value: float) -> FloatArray:
    return np.array([float(value)])


def _key(index: Sum) -> tuple[object, ...]:
    return index.constant, tuple(sorted(index.digits.items()))


def _scope(scope: str) -> str:
    name = scope.partition(".")[0]
    return name if name in ("global", "shared") else "local"


def _bytes(dtype: str) -> int:
    digits = "".join(c for c in dtype.partition("x")[0] if c.isdigit())
    return max(1, int(digits or 8) // 8)
