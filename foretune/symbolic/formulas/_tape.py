"""Scalars of symbolic programs over batches of points, compiled into few operations on many rows.

Idea: equal parts occur once. What is left is a graph of a few hundred operations, each on a row of
numbers, one per point; evaluated one by one they cost their call and not their arithmetic. So
operations of one kind that wait for nothing become one instruction, which gathers the rows of all
operands and writes a block of rows (``_kernels``). Instructions are chosen greedily: the kind of
which the largest part can be done. Rows stand in the order in which instructions write them.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from foretune.symbolic import Algebra, Scalar, Symbol
from foretune.symbolic.formulas._kernels import KERNELS, Kernel, Node
from foretune.symbolic.formulas._operators import Operators

if TYPE_CHECKING:
    import torch

_WIDEST = 4
"""Operands of a sum or product; longer ones are put together from such, for all to be alike."""
_COMPARISONS = ("less", "at_most", "equal")
_EXTREMES = {"maximum": 1.0, "minimum": -1.0}

_Reference = tuple[int, bool]
"""A node, and whether ``1 - x`` takes its place."""


class Tape:
    """Scalars compiled into instructions.

    Args:
        algebra: Who owns them.
        variables: Columns of a batch.
        outputs: What is computed.
    """

    def __init__(
        self, algebra: Algebra, variables: Sequence[Scalar], outputs: Sequence[Scalar]
    ) -> None:
        import torch

        graph = _Graph(algebra, variables)
        ends = [graph.scalar(output) for output in outputs]
        self._plan, order = _scheduled(graph.nodes)
        self._rows = len(order)
        self._variables = len(variables)
        self._constants = torch.tensor(
            [[node.variant] for node in graph.nodes[len(variables) :] if node.kind == "constant"],
            dtype=torch.float64,
        ).reshape(-1, 1)
        self._ends = torch.tensor([order[end] for end in ends], dtype=torch.int64)

    def __len__(self) -> int:
        """Number of operations per point."""
        return self._rows - self._variables - len(self._constants)

    @property
    def instructions(self) -> int:
        """Number of operations on many rows."""
        return len(self._plan)

    def __call__(self, points: torch.Tensor, operators: Operators) -> torch.Tensor:
        """Values of the outputs, shape (outputs, n); gradients go through to the points.

        Args:
            points: Numbers of the variables, shape (n, variables), float64.
            operators: Exact or smooth.
        """
        import torch

        if not (torch.is_grad_enabled() and points.requires_grad):
            return self.run(points, operators)[0]
        values: torch.Tensor = _differentiable().apply(points, self, operators)
        return values

    def run(
        self, points: torch.Tensor, operators: Operators, kept: list[torch.Tensor] | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The outputs and all rows; adds the operands of each instruction to ``kept``."""
        rows = points.new_empty(self._rows, len(points))
        rows[: self._variables] = points.T
        rows[self._variables : self._variables + len(self._constants)] = self._constants
        for each in self._plan:
            x = rows.index_select(0, each.operands).view(*each.shape, -1)
            rows[each.start : each.stop] = each.kernel.forward(operators, x)
            if kept is not None:
                kept.append(x)
        return rows.index_select(0, self._ends), rows

    def gradient(
        self,
        operators: Operators,
        kept: Sequence[torch.Tensor],
        rows: torch.Tensor,
        g: torch.Tensor,
    ) -> torch.Tensor:
        """The gradient of the points, shape (n, variables), from that of the outputs."""
        gradients = rows.new_zeros(rows.shape).index_add_(0, self._ends, g)
        for each, x in zip(reversed(self._plan), reversed(kept), strict=True):
            where = slice(each.start, each.stop)
            back = each.kernel.backward(operators, x, rows[where], gradients[where])
            gradients.index_add_(0, each.operands, back.reshape(-1, back.shape[-1]))
        return gradients[: self._variables].T


@functools.cache
def _differentiable() -> Any:
    """Running a tape as one step of automatic differentiation."""
    import torch

    class Running(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, points: torch.Tensor, tape: Tape, operators: Operators) -> Any:
            ctx.tape, ctx.operators, ctx.kept = tape, operators, []
            values, ctx.rows = tape.run(points, operators, ctx.kept)
            return values

        @staticmethod
        def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
            slopes = ctx.tape.gradient(ctx.operators, ctx.kept, ctx.rows, *gradients)
            return slopes, None, None

    return Running


@dataclass(frozen=True)
class _Instruction:
    """Operations of one kind, whose results are the rows from ``start`` to ``stop``.

    ``operands`` are rows, the first operand of all operations first; ``shape`` is that of them.
    """

    kernel: Kernel
    start: int
    stop: int
    operands: torch.Tensor
    shape: tuple[int, int]


class _Graph:
    """The operations of scalars, equal ones shared.

    Attributes:
        nodes: Variables first; the next two are the constants 0 and 1.
    """

    def __init__(self, algebra: Algebra, variables: Sequence[Scalar]) -> None:
        self.nodes: list[Node] = [Node("variable") for _ in variables]
        self._algebra = algebra
        self._known: dict[Node, int] = {}
        self._symbols: dict[int, _Reference] = {
            v.symbol.index: (i, False) for i, v in enumerate(variables)
        }
        self._scalars: dict[object, _Reference] = {}
        for value in (0.0, 1.0):
            self._constant(value)

    def scalar(self, scalar: Scalar) -> int:
        """The node of a scalar."""
        # Symbols are numbered after those that they need: none is met too deep in a recursion.
        for index in sorted(self._missing(scalar)):
            self._symbols[index] = self._symbol(self._algebra.symbols[index])
        return self._plain(self._polynomial(scalar))

    def _missing(self, scalar: Scalar) -> set[int]:
        missing: set[int] = set()
        waiting = _symbols(scalar)
        while waiting:
            index = waiting.pop()
            if index not in missing and index not in self._symbols:
                missing.add(index)
                for argument in self._algebra.symbols[index].args:
                    waiting += _symbols(argument)
        return missing

    def _symbol(self, symbol: Symbol) -> _Reference:
        args = [self._polynomial(arg) for arg in symbol.args]
        kind = symbol.kind
        if kind == "sum":
            return args[0]
        if kind == "not":
            return _turned(args[0])
        if kind == "and":
            return self._product(args)
        if kind == "or":
            return _turned(self._product([_turned(arg) for arg in args]))
        if kind == "choose" and args[0][1]:
            args = [_turned(args[0]), args[2], args[1]]
        operands = tuple(self._plain(arg) for arg in args)
        if kind in _COMPARISONS:
            return self._node("comparison", operands, variant=float(_COMPARISONS.index(kind)))
        if kind in _EXTREMES:
            return self._node("extreme", operands, variant=_EXTREMES[kind])
        return self._node(kind, operands)

    def _polynomial(self, scalar: Scalar) -> _Reference:
        known = self._scalars.get(scalar.key)
        if known is None:
            known = self._scalars[scalar.key] = self._sum(
                [self._term(monomial, float(number)) for monomial, number in scalar.key]
            )
        return known

    def _term(
        self, monomial: tuple[tuple[int, int], ...], number: float
    ) -> tuple[_Reference, float]:
        if not monomial:
            return self._constant(number), 1.0
        above = [self._symbols[s] for s, power in monomial for _ in range(power)]
        below = [self._symbols[s] for s, power in monomial for _ in range(-power)]
        upper = self._product(above)
        if below:
            operands = self._plain(upper), self._plain(self._product(below))
            upper = self._node("quotient", operands)
        return upper, number

    def _sum(self, terms: Sequence[tuple[_Reference, float]]) -> _Reference:
        if not terms:
            return self._constant(0.0)
        if len(terms) == 1:
            ((only, number),) = terms
            return only if number == 1 else self._product([only, self._constant(number)])
        while len(terms) > _WIDEST:
            parts = [terms[at : at + _WIDEST] for at in range(0, len(terms), _WIDEST)]
            terms = [(self._sum(part), 1.0) if len(part) > 1 else part[0] for part in parts]
        operands = tuple(self._plain(reference) for reference, _ in terms)
        return self._node("linear", operands, tuple(number for _, number in terms))

    def _product(self, factors: Sequence[_Reference]) -> _Reference:
        if len(factors) < 2:
            return factors[0] if factors else self._constant(1.0)
        while len(factors) > _WIDEST:
            parts = [factors[at : at + _WIDEST] for at in range(0, len(factors), _WIDEST)]
            factors = [self._product(part) for part in parts]
        operands = tuple(node for node, _ in factors)
        return self._node("product", operands, tuple(float(turned) for _, turned in factors))

    def _plain(self, reference: _Reference) -> int:
        """The node of a reference that is not negated."""
        node, negated = reference
        return self._node("product", (node,), (1.0,))[0] if negated else node

    def _constant(self, value: float) -> _Reference:
        return self._node("constant", variant=value)

    def _node(
        self,
        kind: str,
        operands: tuple[int, ...] = (),
        numbers: tuple[float, ...] = (),
        variant: float = 0.0,
    ) -> _Reference:
        node = Node(kind, operands, numbers, variant)
        place = self._known.get(node)
        if place is None:
            place = self._known[node] = len(self.nodes)
            self.nodes.append(node)
        return place, False


def _turned(reference: _Reference) -> _Reference:
    return reference[0], not reference[1]


def _scheduled(nodes: Sequence[Node]) -> tuple[list[_Instruction], dict[int, int]]:
    """Instructions, and the row of each node."""
    leaves = [at for at, node in enumerate(nodes) if not node.operands]
    rows = {at: row for row, at in enumerate(leaves)}
    constants = {node.variant: rows[at] for at, node in enumerate(nodes) if node.kind == "constant"}
    total = Counter(node.kind for node in nodes)
    users: dict[int, list[int]] = {}
    waiting: dict[int, int] = {}
    ready: dict[str, list[int]] = {}
    for at, node in enumerate(nodes):
        if at in rows:
            continue
        needed = {operand for operand in node.operands if operand not in rows}
        waiting[at] = len(needed)
        for operand in needed:
            users.setdefault(operand, []).append(at)
        if not needed:
            ready.setdefault(node.kind, []).append(at)
    plan = []
    while ready:
        kind = max(ready, key=lambda each: (len(ready[each]) / total[each], each))
        done = ready.pop(kind)
        total[kind] -= len(done)
        plan.append(_instruction([nodes[at] for at in done], rows, constants))
        rows.update(zip(done, range(len(rows), len(rows) + len(done)), strict=True))
        for user in (user for at in done for user in users.get(at, ())):
            waiting[user] -= 1
            if not waiting[user]:
                ready.setdefault(nodes[user].kind, []).append(user)
    return plan, rows


def _instruction(
    nodes: Sequence[Node], rows: Mapping[int, int], constants: Mapping[float, int]
) -> _Instruction:
    import torch

    kind = KERNELS[nodes[0].kind]
    width = max(len(node.operands) for node in nodes)
    missing = constants[kind.padding]
    operands = [
        [rows[node.operands[at]] if at < len(node.operands) else missing for node in nodes]
        for at in range(width)
    ]
    return _Instruction(
        kind(nodes, width),
        len(rows),
        len(rows) + len(nodes),
        torch.tensor(operands, dtype=torch.int64).reshape(-1),
        (width, len(nodes)),
    )


def _symbols(scalar: Scalar) -> list[int]:
    return [symbol for monomial in scalar.terms for symbol, _ in monomial]
