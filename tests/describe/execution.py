"""Executes the loops of a scheduled program, written as Python, and notes what each store does."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from foretune.describe import Access, Nests, Statement
from foretune.describe._nests import PARALLEL, VECTORIZED

_OPERATORS = {"Add": "+", "Sub": "-", "Mul": "*", "FloorDiv": "//", "FloorMod": "%", "Div": "/",
              "LT": "<", "LE": "<=", "GT": ">", "GE": ">=", "EQ": "==", "NE": "!=", "And": "and",
              "Or": "or"}  # fmt: skip
Element = tuple[int, ...]
Elements = npt.NDArray[np.int64]


@dataclass
class Executed:
    """What a store did.

    Attributes:
        target: Name of the buffer.
        times: How often it was executed.
        touched: Elements by buffer, what it stores to included.
        computes: Whether it stores something else than a constant.
        operations: Additions, subtractions, multiplications in its value.
        guarded: Whether some of its loads are conditional.
    """

    target: str
    computes: bool
    operations: int
    guarded: bool = False
    times: int = 0
    touched: dict[str, set[Element]] = field(default_factory=dict)


def execute(module: Any) -> list[Executed]:
    """The stores of a program in their order, initialisations of reductions included."""
    writer = _Writer()
    (function,) = module.functions.values()
    writer.statement(function.body, 0, {})
    lines = writer.lines

    def touch(at: int, name: str, *index: int) -> int:
        writer.stores[at].touched.setdefault(name, set()).add(index)
        return 1

    def count(at: int) -> None:
        writer.stores[at].times += 1

    space = {"touch": touch, "count": count, "call": lambda *_: 1,
             "max": max, "min": min}  # fmt: skip
    exec("\n".join(lines), space)
    return writer.stores


class _Writer:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.stores: list[Executed] = []
        self._names: dict[int, str] = {}

    def _name(self, variable: Any) -> str:
        return self._names.setdefault(variable.__chandle__(), f"v{len(self._names)}")

    def statement(self, node: Any, depth: int, threads: dict[str, str]) -> None:
        kind = type(node).__name__
        if kind == "SeqStmt":
            for each in node.seq:
                self.statement(each, depth, threads)
        elif kind == "For":
            name = self._name(node.loop_var)
            tag = "" if node.thread_binding is None else str(node.thread_binding.thread_tag)
            if tag in threads or int(node.extent.value) == 1:
                # Python nests no more than twenty loops.
                self._line(depth, f"{name} = {threads.get(tag, 0)}")
            else:
                self._line(depth, f"for {name} in range({int(node.extent.value)}):")
                depth += 1
            self.statement(node.body, depth, {**threads, **({tag: name} if tag else {})})
        elif kind == "SBlockRealize":
            for axis, value in zip(node.block.iter_vars, node.iter_values, strict=True):
                self._line(depth, f"{self._name(axis.var)} = {self._expression(value)}")
            if int(getattr(node.predicate, "value", 0)) != 1:
                self._line(depth, f"if {self._expression(node.predicate)}:")
                depth += 1
            if node.block.init is not None:
                self.statement(node.block.init, depth, threads)
            self.statement(node.block.body, depth, threads)
        else:
            assert kind == "BufferStore", kind
            self._store(node, depth)

    def _store(self, node: Any, depth: int) -> None:
        self.stores.append(Executed(str(node.buffer.name), False, 0))
        value = self._expression(node.value)
        self._line(depth, f"count({len(self.stores) - 1})")
        self._line(depth, value)
        self._line(depth, self._touch(node.buffer, node.indices))

    def _touch(self, buffer: Any, indices: Any) -> str:
        inside = "".join(f", {self._index(i)}" for i in indices)
        return f"touch({len(self.stores) - 1}, {str(buffer.name)!r}{inside})"

    def _index(self, node: Any) -> str:
        before = [(s.computes, s.operations) for s in self.stores[-1:]]
        text = self._expression(node)
        for store, (computes, operations) in zip(self.stores[-1:], before, strict=True):
            store.computes, store.operations = computes, operations
        return text

    def _expression(self, node: Any) -> str:
        kind = type(node).__name__
        if kind == "Var":
            return self._name(node)
        if kind in ("IntImm", "FloatImm"):
            return "1.0" if kind == "FloatImm" else str(int(node.value))
        if kind in _OPERATORS:
            if self.stores and kind in ("Add", "Sub", "Mul") and str(node.ty).startswith("float"):
                self.stores[-1].operations += 1
            return f"({self._expression(node.a)} {_OPERATORS[kind]} {self._expression(node.b)})"
        if kind in ("Max", "Min"):
            return f"{kind.lower()}({self._expression(node.a)}, {self._expression(node.b)})"
        if kind == "Cast":
            return self._expression(node.value)
        if kind == "TensorLoad":
            self.stores[-1].computes = True
            return self._touch(node.source, node.indices)
        assert kind == "Call", kind
        choice = str(node.op.name).endswith("if_then_else")
        if not choice:
            return f"call({', '.join(map(self._expression, node.args))})"
        condition = self._index(node.args[0])
        self.stores[-1].guarded = True
        first, second = map(self._expression, node.args[1:])
        return f"({first} if {condition} else {second})"

    def _line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)


def iterations(nests: Nests, statement: Statement, row: int = 0) -> float:
    """How often a statement is executed."""
    product = np.prod([nests.extents[row, loop] for loop in statement.path])
    return float(product * statement.executed[row])


def elements(nests: Nests, statement: Statement, access: Access, row: int = 0) -> Elements:
    """The elements that an access touches, from the first one in each dimension on.

    Shape (dimensions, elements), in a fixed order.
    """
    sizes = [int(nests.extents[row, loop]) for loop in statement.path]
    index = np.zeros((nests.buffers[access.buffer].shape.shape[1], 1), int)
    for place, size in enumerate(sizes):
        own = [term for term in access.terms if term.place == place]
        if not own:
            continue
        loop = np.arange(size)
        step = np.zeros((len(index), size))
        for term in own:
            digit = loop // int(term.every[row]) % int(term.values[row])
            step[term.dimension] += term.coefficient[row] * digit
        index = (index[:, :, None] + step.astype(int)[:, None, :]).reshape(len(index), -1)
        index = np.unique(index, axis=1)
    return index - index.min(axis=1, keepdims=True)


def normalised(found: set[Element]) -> Elements:
    """Elements counted from the smallest index in each dimension, as ``elements`` gives them."""
    index = np.unique(np.array(sorted(found), int).T.reshape(-1, len(found)), axis=1)
    return index - index.min(axis=1, keepdims=True)


def shape_of_path(nests: Nests, statement: Statement, row: int = 0) -> list[tuple[int, str, int]]:
    """Kind, axis and extent of the loops of more than one iteration, parallel neighbours joined."""
    loops = [
        (int(nests.kinds[row, loop]), nests.axes[loop], int(nests.extents[row, loop]))
        for loop in statement.path
        if nests.extents[row, loop] > 1
    ]
    joined: list[tuple[int, str, int]] = []
    for (kind, axis), members in itertools.groupby(loops, lambda each: each[:2]):
        extents = [extent for _, _, extent in members]
        one = kind in (PARALLEL, VECTORIZED)
        joined += [(kind, axis, e) for e in ([int(np.prod(extents))] if one else extents)]
    return joined
