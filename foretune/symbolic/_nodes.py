"""The program while a trace is interpreted: loops, blocks and what blocks compute.

It has TVM's structure (a tree of loops with blocks as leaves), but extents are scalars of the
decisions, and blocks refer to loops by number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Union

from foretune.errors import ForetuneError
from foretune.symbolic._index import (
    Atom,
    Digit,
    Index,
    Iterator_,
    number,
    opaque,
    single,
)
from foretune.symbolic._scalar import Algebra, Scalar


class UnsupportedTraceError(ForetuneError):
    """A trace or program has something that the symbolic interpreter does not know.

    Attributes:
        what: The instruction or construct.
    """

    def __init__(self, what: str, why: str) -> None:
        super().__init__(
            f"symbolic programs need known instructions, but {what} {why}: read the features of "
            "its candidates from their programs instead"
        )
        self.what = what


@dataclass(eq=False)
class Buffer:
    """A tensor.

    Attributes:
        name: TVM's name.
        shape: Elements per dimension, outermost first.
        bytes: Size of an element.
        scope: Storage scope, as ``"global"`` or ``"shared"``.
        parameter: Whether it belongs to the caller.
    """

    name: str
    shape: tuple[Scalar, ...]
    bytes: int
    scope: str = "global"
    parameter: bool = False


@dataclass(frozen=True)
class Operation:
    """A node of the expression that a block stores.

    Attributes:
        kind: ``"add_sub"``, ``"mul"``, ``"div_mod"``, ``"cmp"``, ``"math_func"``, ``"other_func"``,
            ``"bool"``, ``"select"``, ``"if"``, or ``"plain"`` for what is not counted.
        floating: Whether the result is a floating-point number.
        args: Operands.
    """

    kind: str
    floating: bool
    args: tuple[Expression, ...]


@dataclass(frozen=True)
class Load:
    """A read of one element."""

    buffer: Buffer
    indices: tuple[Index, ...]


@dataclass(frozen=True)
class Literal:
    """A number or an integer expression of the block's iterators."""

    index: Index | None = None


@dataclass(frozen=True)
class Bound:
    """A comparison of integers: ``low <= index`` or ``index < high``.

    Attributes:
        kind: ``"at_least"`` or ``"below"``; ``"other"`` keeps both operands and is never decided.
        index: What is compared.
        limit: The other side.
    """

    kind: str
    index: Index
    limit: Index


Expression = Union[Operation, Load, Literal, Bound]  # noqa: UP007 - evaluated at run time


@dataclass(eq=False)
class Axis:
    """A block's iterator.

    Attributes:
        atom: Its number.
        extent: Iterations over the whole program.
        reduction: Whether it is reduced over.
        value: What it is in terms of the loops.
    """

    atom: Iterator_
    extent: Scalar
    reduction: bool
    value: Index


@dataclass(eq=False)
class Guard:
    """What is left to do after a loop was split by a number that need not divide its extent.

    Attributes:
        share: Share of the iterations of the new loops in which there is something to do.
        moved: That of a block that was moved under the outermost one and has a loop of its own over
            what the others need.
    """

    share: Scalar
    moved: Scalar


@dataclass(eq=False)
class Loop:
    """A loop of the tree.

    Attributes:
        number: Unique in the program.
        extent: Iterations.
        body: Loops and blocks inside, in order.
        parent: The loop outside; None at the root.
        thread: ``"blockIdx.x"``, ``"vthread.y"``... or empty.
        reduction: Whether a block reduces over it.
        annotations: TVM's loop annotations.
        begins: The guards of uneven splits of which it is, or holds, the outermost loop.
        ends: Those of which it is, or holds, the innermost one.
    """

    number: int
    extent: Scalar
    body: list[Loop | Block] = field(default_factory=list)
    parent: Loop | None = None
    thread: str = ""
    reduction: bool = False
    annotations: dict[str, Any] = field(default_factory=dict)
    begins: tuple[Guard, ...] = ()
    ends: tuple[Guard, ...] = ()


@dataclass(eq=False)
class Block:
    """A computation of one buffer element.

    Attributes:
        name: TVM's name.
        axes: Its iterators.
        target: The buffer it stores to.
        indices: Where, in terms of the axes.
        value: What.
        reduces: Whether it has an initial value.
        parent: The loop around it; None at the root.
        guarded: Whether some iterations of its loops may be skipped, so that more is in the range
            of its indices than it stores.
        annotations: TVM's block annotations.
        alone: Loops of threads of which a single iteration executes it.
    """

    name: str
    axes: list[Axis]
    target: Buffer
    indices: tuple[Index, ...]
    value: Expression
    reduces: bool
    parent: Loop | None = None
    guarded: bool = False
    annotations: dict[str, Any] = field(default_factory=dict)
    alone: tuple[Loop, ...] = ()

    def loops(self) -> list[Loop]:
        """The loops around it, outermost first."""
        around = []
        loop = self.parent
        while loop is not None:
            around.append(loop)
            loop = loop.parent
        return around[::-1]

    def bound(self, index: Index) -> Index:
        """An index of the axes in terms of the loops."""
        values = {axis.atom.index: axis.value for axis in self.axes}

        def of(atom: Atom) -> Index | None:
            if isinstance(atom, Iterator_):
                return values.get(atom.index)
            if isinstance(atom, Digit) and atom.loop in values:
                return _digit_of(atom, values[atom.loop])
            return None

        return index.replace(of)

    def reads(self) -> list[Load]:
        """Loads of other buffers and of its own, in order of the expression."""
        return [node for node in walk(self.value) if isinstance(node, Load)]


def _digit_of(digit: Digit, value: Index) -> Index:
    # A digit of an axis that is one whole loop is that digit of the loop.
    if not value.terms:
        return number(value.algebra, 0)
    ((coefficient, whole), *rest) = value.terms
    if (
        rest
        or not isinstance(whole, Digit)
        or value.constant.constant != 0
        or coefficient.constant != 1
        or whole.low.constant != 1
    ):
        raise UnsupportedTraceError("a digit of an axis", "that is no whole loop is not linear")
    return single(value.algebra, Digit(whole.loop, digit.high, digit.low, digit.leading))


def walk(value: Expression) -> Iterator[Expression]:
    """All nodes of an expression, operands before operations."""
    if isinstance(value, Operation):
        for arg in value.args:
            yield from walk(arg)
    yield value


def rewrite(
    value: Expression,
    index: Callable[[Index], Index],
    load: Callable[[Load], Expression | None] = lambda _: None,
) -> Expression:
    """Applies ``index`` to every index; ``load`` may put something in the place of a load."""
    if isinstance(value, Operation):
        args = tuple(rewrite(a, index, load) for a in value.args)
        return Operation(value.kind, value.floating, args)
    if isinstance(value, Load):
        moved = Load(value.buffer, tuple(index(i) for i in value.indices))
        return load(moved) or moved
    if isinstance(value, Bound):
        return Bound(value.kind, index(value.index), index(value.limit))
    return value if value.index is None else Literal(index(value.index))


_ARITHMETIC = {
    **dict.fromkeys(("Add", "Sub"), "add_sub"),
    **dict.fromkeys(("Div", "Mod", "FloorDiv", "FloorMod"), "div_mod"),
    **dict.fromkeys(("Max", "Min"), "cmp"),
    "Mul": "mul",
}
_COMPARISONS = ("LT", "LE", "GT", "GE", "EQ", "NE")
_INTEGER = {"FloorDiv": "floordiv", "FloorMod": "floormod", "Min": "minimum", "Max": "maximum"}
_SERIAL = 0
"""The kind of a plain loop."""
_PURE = (0, 1)
"""Call effects that count as mathematical functions: annotations of expressions, pure calls."""


class Reader:
    """Makes nodes from a TVM function.

    Args:
        algebra: Who will own the scalars.
    """

    def __init__(self, algebra: Algebra) -> None:
        self.algebra = algebra
        self.buffers: dict[Any, Buffer] = {}
        self.numbers = 0
        self._loops: dict[Any, Loop] = {}

    def fresh(self) -> int:
        """A number for a loop or an iterator."""
        self.numbers += 1
        return self.numbers

    def function(self, function: Any) -> list[Loop | Block]:
        """The top-level loops and blocks of a function.

        Raises:
            UnsupportedTraceError: It has statements other than loops and blocks of one store.
        """
        for parameter in function.params:
            self.buffer(parameter).parameter = True
        root = function.body
        if type(root).__name__ != "SBlockRealize":
            raise UnsupportedTraceError(type(root).__name__, "is no root block")
        return self._statements(root.block.body, None, {})

    def buffer(self, variable: Any) -> Buffer:
        """The buffer of a TVM buffer variable."""
        known = self.buffers.get(variable)
        if known is None:
            shape = tuple(int(getattr(d, "value", 0)) for d in variable.shape)
            if not all(shape):
                raise UnsupportedTraceError(f"buffer {variable.name}", "has a dynamic shape")
            size = int(_dtype_bytes(str(variable.dtype)))
            scalars = tuple(self.algebra.number(d) for d in shape)
            known = Buffer(str(variable.name), scalars, size, str(variable.scope()))
            self.buffers[variable] = known
        return known

    def _statements(
        self, node: Any, parent: Loop | None, scope: dict[Any, Index]
    ) -> list[Loop | Block]:
        kind = type(node).__name__
        if kind == "SeqStmt":
            return [n for each in node.seq for n in self._statements(each, parent, scope)]
        if kind == "For":
            _expect_plain(node)
            extent = self.algebra.number(int(node.extent.value))
            loop = self._loops[node.loop_var] = Loop(self.fresh(), extent, parent=parent)
            one = self.algebra.number(1)
            digit = Digit(loop.number, extent, one, True)
            value = number(self.algebra, 0) if extent.constant == 1 else single(self.algebra, digit)
            loop.body = self._statements(node.body, loop, {**scope, node.loop_var: value})
            return [loop]
        if kind == "SBlockRealize":
            return [self._block(node, parent, scope)]
        raise UnsupportedTraceError(f"statement {kind}", "is not known")

    def _block(self, realize: Any, parent: Loop | None, scope: dict[Any, Index]) -> Block:
        block = realize.block
        if int(getattr(realize.predicate, "value", 0)) != 1:
            raise UnsupportedTraceError(f"block {block.name_hint}", "has a predicate")
        if type(block.body).__name__ != "BufferStore":
            raise UnsupportedTraceError(f"block {block.name_hint}", "is not one store")
        axes = []
        inner: dict[Any, Index] = {}
        for axis, value in zip(block.iter_vars, realize.iter_values, strict=True):
            extent = int(axis.dom.extent.value)
            atom = Iterator_(self.fresh())
            if int(axis.iter_type) == 2 and value in self._loops:
                self._loops[value].reduction = True
            axes.append(
                Axis(
                    atom,
                    self.algebra.number(extent),
                    int(axis.iter_type) == 2,
                    self.integer(value, scope),
                )
            )
            # One iteration: TVM puts the number in its place wherever it simplifies.
            inner[axis.var] = number(self.algebra, 0) if extent == 1 else single(self.algebra, atom)
        store = block.body
        return Block(
            str(block.name_hint),
            axes,
            self.buffer(store.buffer),
            tuple(self.integer(i, inner) for i in store.indices),
            self.expression(store.value, inner),
            block.init is not None,
            parent,
        )

    def expression(self, node: Any, scope: dict[Any, Index]) -> Expression:
        """A stored value."""
        kind = type(node).__name__
        if kind in ("FloatImm", "StringImm"):
            return Literal()
        dtype = str(node.ty)
        if dtype.startswith(("int", "uint")) and kind != "Cast" and not _reads_data(node):
            return Literal(self.integer(node, scope))
        if kind == "TensorLoad":
            return Load(
                self.buffer(node.source), tuple(self.integer(i, scope) for i in node.indices)
            )
        floating = dtype.startswith("float")
        if kind in _ARITHMETIC:
            args = (self.expression(node.a, scope), self.expression(node.b, scope))
            return Operation(_ARITHMETIC[kind], floating, args)
        if kind in _COMPARISONS:
            return self._comparison(kind, node, scope)
        if kind in ("And", "Or"):
            args = (self.expression(node.a, scope), self.expression(node.b, scope))
            return Operation(kind.lower(), False, args)
        if kind == "Not":
            return Operation("bool", False, (self.expression(node.a, scope),))
        if kind == "Cast":
            inside = self.expression(node.value, scope)
            constant = isinstance(inside, Literal) and not (inside.index and inside.index.terms)
            return Literal() if constant else Operation("plain", floating, (inside,))
        if kind == "Select":
            names = ("condition", "true_value", "false_value")
            args3 = tuple(self.expression(getattr(node, n), scope) for n in names)
            return Operation("select", floating, args3)
        if kind == "Call":
            return self._call(node, floating, scope)
        raise UnsupportedTraceError(f"expression {kind}", "is not known")

    def _call(self, node: Any, floating: bool, scope: dict[Any, Index]) -> Expression:
        name = str(getattr(node.op, "name", node.op))
        args = tuple(self.expression(a, scope) for a in node.args)
        if name.endswith("if_then_else"):
            return Operation("if", floating, args)
        effect = node.op.get_attr("TCallEffectKind")
        pure = effect is not None and int(effect) in _PURE
        return Operation("math_func" if pure else "other_func", floating, args)

    def _comparison(self, kind: str, node: Any, scope: dict[Any, Index]) -> Expression:
        if str(node.a.ty).startswith("float") or _reads_data(node.a) or _reads_data(node.b):
            return Operation(
                "cmp", False, (self.expression(node.a, scope), self.expression(node.b, scope))
            )
        a, b = self.integer(node.a, scope), self.integer(node.b, scope)
        one = number(self.algebra, 1)
        if kind in ("GT", "GE"):
            kind, a, b = ("LT" if kind == "GT" else "LE"), b, a
        if kind in ("LT", "LE") and not b.terms:
            return Bound("below", a, b if kind == "LT" else b + one)
        if kind in ("LT", "LE") and not a.terms:
            return Bound("at_least", b, a if kind == "LE" else a + one)
        return Bound("other", a, b)

    def integer(self, node: Any, scope: dict[Any, Index]) -> Index:
        """An integer expression."""
        kind = type(node).__name__
        if kind == "IntImm":
            return number(self.algebra, int(node.value))
        if kind == "Var" and node not in scope:
            raise UnsupportedTraceError(f"variable {node.name}", "is of no axis of its block")
        if kind == "Var":
            return scope[node]
        if kind in ("Add", "Sub", "Mul"):
            a, b = self.integer(node.a, scope), self.integer(node.b, scope)
            if kind == "Add":
                return a + b
            if kind == "Sub":
                return a + b.scaled(self.algebra.number(-1))
            if not b.terms:
                return a.scaled(b.constant)
            if not a.terms:
                return b.scaled(a.constant)
            return opaque("product", a, b)
        if kind in _INTEGER:
            a, b = self.integer(node.a, scope), self.integer(node.b, scope)
            return opaque(_INTEGER[kind], a, b)
        if kind == "Cast":
            return self.integer(node.value, scope)
        raise UnsupportedTraceError(f"integer expression {kind}", "is not known")


def _reads_data(node: Any) -> bool:
    """Whether a number is more than axes and constants: it depends on tensors or on a call."""
    kind = type(node).__name__
    if kind in ("TensorLoad", "Call", "Select"):
        return True
    if kind == "Cast":
        return _reads_data(node.value)
    return any(_reads_data(getattr(node, side)) for side in ("a", "b") if hasattr(node, side))


def _expect_plain(loop: Any) -> None:
    """A program that is to be scheduled has nothing but loops that count from 0 in ones.

    Raises:
        UnsupportedTraceError: This one has been scheduled, or does otherwise.
    """
    step = getattr(loop, "step", None)
    plain = (
        int(loop.kind) == _SERIAL
        and loop.thread_binding is None
        and not loop.annotations
        and int(getattr(loop.min, "value", -1)) == 0
        and (step is None or int(getattr(step, "value", 0)) == 1)
    )
    if not plain:
        raise UnsupportedTraceError(f"loop {loop.loop_var.name}", "is no plain serial loop from 0")


def _dtype_bytes(dtype: str) -> int:
    bits = int("".join(c for c in dtype if c.isdigit()) or 8)
    return max(1, bits // 8)
