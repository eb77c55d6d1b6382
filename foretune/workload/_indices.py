"""Which parameters of a tensor program end up as an index, and how far they may reach."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from foretune.workload._roles import parameter_position


def walk(node: Any) -> Iterator[Any]:
    """Every statement and expression below a node, parents first."""
    from foretune import _tvm

    stack = [node]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(reversed(_tvm.children(top)))


def index_limits(function: Any) -> dict[int, int]:
    """Position of each parameter whose values end up as an index, and what they must stay below.

    Values are followed through the stages in between, because indices are often cast and reshaped
    before they are used: so TVM imports PyTorch's embedding. Out of bounds nothing checks them.
    """
    given = _given(function)
    used: list[tuple[Any, int]] = []  # an index, and the length of the dimension it indexes
    for node in walk(function.body):
        kind = type(node).__name__
        if kind == "BufferStore":
            used += _indices(node.buffer, node.indices)
        elif kind == "TensorLoad":
            used += _indices(node.source, node.indices)
    parameters = list(function.params)
    limits: dict[int, int] = {}
    for index, extent in used:
        for at in _origins(index, parameters, given):
            limits[at] = min(limits.get(at, extent), extent)
    return limits


def value_sources(function: Any, output: int) -> set[int]:
    """Positions of the parameters that the values of parameter ``output`` are made of.

    Not of those that only say where a value is read.
    """
    parameters = list(function.params)
    given = _given(function)
    values = [value for target, value in given if target.same_as(parameters[output])]
    sources = [_origins(value, parameters, given) for value in values]
    return set().union(*sources) - {output}


def _given(function: Any) -> list[tuple[Any, Any]]:
    """Each buffer or variable, with a value it takes."""
    given: list[tuple[Any, Any]] = []
    for node in walk(function.body):
        kind = type(node).__name__
        if kind == "BufferStore":
            given.append((node.buffer, node.value))
        elif kind in ("Bind", "Let"):
            given.append((node.var, node.value))
    return given


def _indices(buffer: Any, indices: Any) -> list[tuple[Any, int]]:
    """Each index with the length of its dimension, where that is fixed."""
    shape = getattr(buffer, "shape", None) or ()
    return [
        (index, int(extent))
        for index, extent in zip(indices, shape, strict=False)
        if hasattr(extent, "value")
    ]


def _origins(index: Any, parameters: list[Any], given: Sequence[tuple[Any, Any]]) -> set[int]:
    """Positions of the parameters that an index takes its values from, through other buffers too.

    All of them where one of these buffers is filled by something that cannot be looked into.
    """
    origins: set[int] = set()
    seen: list[Any] = []
    pending = [index]
    while pending:
        for source in _values(pending.pop()):
            if any(source.same_as(other) for other in seen):
                continue
            seen.append(source)
            at = parameter_position(source, parameters)
            values = [value for target, value in given if target.same_as(source)]
            if at is not None:
                origins.add(at)
            elif not values and hasattr(source, "shape"):
                return set(range(len(parameters)))
            pending += values
    return origins


def _values(expression: Any) -> Iterator[Any]:
    """The buffers and variables an expression takes its value from; not those that say where."""
    from foretune import _tvm

    stack = [expression]
    while stack:
        node = stack.pop()
        if type(node).__name__ == "TensorLoad":
            yield node.source
        elif isinstance(node, _tvm.tvm.ir.Var):
            yield node
        else:
            stack.extend(_tvm.children(node))
