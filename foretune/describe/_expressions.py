"""What expressions of TVM programs are: indices as sums of digits, values as work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from foretune.describe._affine import Sum, canonical, divided
from foretune.describe._conditions import always

_ARITHMETIC = ("Add", "Sub", "Mul", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "LShift", "RShift")
_DIVISIONS = ("Div", "Mod", "FloorDiv", "FloorMod")
_COMPARISONS = ("LT", "LE", "GT", "GE", "EQ", "NE")
_EXTREMES = ("Max", "Min")
_FREE_CALLS = ("likely", "reinterpret", "assume", "builtin.assume")
_PURE = (0, 1)
"""Effects of calls that are functions of their arguments."""


@dataclass
class Work:
    """What one execution of a statement does.

    Attributes:
        loads: Buffer and indices of each load.
        operations, calls, selects: As in ``Statement``.
    """

    loads: list[tuple[Any, tuple[Sum, ...]]] = field(default_factory=list)
    operations: float = 0
    calls: float = 0
    selects: float = 0


class Expressions:
    """Reads expressions.

    Attributes:
        exact: Whether everything read so far is described exactly.
        extents: Iterations of loops.
        scope: Variables that are indices, by handle.
        lanes: Elements of the longest vector of the statement at hand.
        lane: The loop over them.
    """

    def __init__(self) -> None:
        self.exact = True
        self.extents: dict[int, int] = {}
        self.scope: dict[int, Sum] = {}
        self.lanes = 1
        self.lane = -1
        self._values: dict[int, Any] = {}

    def bind(self, node: Any) -> None:
        """Notes what a variable stands for."""
        self._values[node.var.__chandle__()] = node.value

    # Values.

    def value(self, node: Any, work: Work) -> None:
        """Adds what is done to compute a value."""
        kind = type(node).__name__
        if kind == "TensorLoad":
            for index in node.indices:
                self.gathered(index, work)
            work.loads.append((node.source, tuple(self.integer(i) for i in node.indices)))
        elif kind == "Var":
            bound = self._values.get(node.__chandle__())
            if bound is not None:
                self.value(bound, work)
        elif kind == "Let":
            self.bind(node)
            self.value(node.body, work)
        elif kind == "Call":
            self._call(node, work)
        elif kind not in ("IntImm", "FloatImm", "StringImm", "Ramp"):
            self._operation(kind, node, work)

    def _operation(self, kind: str, node: Any, work: Work) -> None:
        from foretune import _tvm

        if not _computes(node):
            # Numbers of iterations: the compiler steps through them.
            return
        share_ = lanes_of(node) / self.lanes
        if kind in _ARITHMETIC:
            work.operations += share_
        elif kind in _DIVISIONS:
            work.calls += share_
        elif kind in (*_COMPARISONS, *_EXTREMES, "Select"):
            work.selects += share_
        for child in _tvm.children(node):
            self.value(child, work)

    def _call(self, node: Any, work: Work) -> None:
        name = str(getattr(node.op, "name", node.op)).rpartition("tirx.")[2]
        if name.endswith("if_then_else"):
            work.selects += not always(node.args[0], self.integer)
        elif name == "fma":
            work.operations += 2
        elif "intrin" in name:
            # Multiply-adds of whole vectors: of as many elements as the longest has.
            work.operations += 2
            self.exact = False
        elif name not in _FREE_CALLS:
            effect = node.op.get_attr("TCallEffectKind") if hasattr(node.op, "get_attr") else None
            work.calls += lanes_of(node) / self.lanes
            self.exact &= effect is not None and int(effect) in _PURE
        for argument in node.args:
            self.value(argument, work)

    def gathered(self, index: Any, work: Work) -> None:
        """Adds the loads that an index depends on."""
        from foretune import _tvm

        waiting = [index]
        while waiting:
            node = waiting.pop()
            if type(node).__name__ == "TensorLoad":
                self.value(node, work)
            else:
                waiting += _tvm.children(node)

    # Indices.

    def extent(self, node: Any) -> int:
        """A number of iterations; the most there can be where it varies, 1 where it is unknown."""
        constant = self.integer(node)
        if constant.digits or not constant.exact:
            self.exact = False
        return max(1, int(constant.bounds[1]))

    def integer(self, node: Any) -> Sum:
        """An index as a sum of digits."""
        return canonical(self._sum(node), self.extents)

    def _sum(self, node: Any) -> Sum:
        kind = type(node).__name__
        if kind == "IntImm":
            return Sum(int(node.value))
        if kind == "Var":
            return self._variable(node)
        if kind in ("Add", "Sub"):
            return self._sum(node.a).plus(self._sum(node.b), 1 if kind == "Add" else -1)
        if kind in ("Cast", "Broadcast"):
            return self._sum(node.value)
        if kind == "Ramp":
            every = max(1, self.lanes // lanes_of(node))
            digit = self.lane, every, self.lanes
            return self._sum(node.base).plus(Sum(0, {digit: self._sum(node.stride).constant}))
        if kind in ("Mul", *_DIVISIONS, *_EXTREMES):
            return self._product(kind, self._sum(node.a), self._sum(node.b))
        return Sum(exact=False)

    def _variable(self, node: Any) -> Sum:
        handle = node.__chandle__()
        if handle in self.scope:
            return self.scope[handle]
        if handle in self._values:
            return self._sum(self._values[handle])
        return Sum(exact=False)

    def _product(self, kind: str, a: Sum, b: Sum) -> Sum:
        if kind in _EXTREMES:
            return _extreme(kind, a, b)
        if kind == "Mul" and (not a.digits or not b.digits):
            return b.times(a.constant) if not a.digits else a.times(b.constant)
        if kind == "Mul":
            return a.times(b.bounds[1]).loosely()
        if b.digits or b.constant < 1:
            return a.loosely()
        quotient, rest = divided(a, int(b.constant), self.extents)
        return quotient if kind in ("Div", "FloorDiv") else rest


def _extreme(kind: str, a: Sum, b: Sum) -> Sum:
    (low, high), (other_low, other_high) = a.bounds, b.bounds
    if high <= other_low or other_high <= low:
        return a if (high <= other_low) == (kind == "Min") else b
    return (a if len(a.digits) >= len(b.digits) else b).loosely()


def variables(node: Any) -> list[Any]:
    from foretune import _tvm

    variables, waiting = [], [node]
    while waiting:
        each = waiting.pop()
        if type(each).__name__ == "Var":
            variables.append(each)
        else:
            waiting += _tvm.children(each)
    return variables


def _computes(node: Any) -> bool:
    """Whether an operation is one on elements, or on real numbers."""
    from foretune import _tvm

    if str(getattr(node, "ty", "")).startswith(("float", "bfloat")):
        return True
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if type(each).__name__ in ("TensorLoad", "Call"):
            return True
        waiting += _tvm.children(each)
    return False


def lanes_of(node: Any) -> int:
    """Elements of a vector; 1 for a number."""
    count = str(getattr(node, "ty", "")).partition("x")[2]
    return int(count) if count.isdigit() else 1


def vectors(node: Any) -> Iterator[int]:
    """Elements of all vectors in a statement."""
    from foretune import _tvm

    waiting = [node]
    while waiting:
        each = waiting.pop()
        yield lanes_of(each)
        waiting += _tvm.children(each)
