"""What a tensor program does with each of its parameters: reads it, writes it, or both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def parameter_roles(function: Any) -> tuple[str, ...]:
    """The role of each parameter of a PrimFunc, in order.

    Returns:
        ``"input"`` if it is never written, ``"output"`` if it is written before it is read, else
        ``"inout"``.
    """
    parameters = list(function.params)
    first: dict[int, str] = {}
    written: set[int] = set()
    for use, buffer in _uses(function.body, declared=False):
        at = parameter_position(buffer, parameters)
        if at is not None:
            first.setdefault(at, use)
            if use == "write":
                written.add(at)
    return tuple(
        "input" if at not in written else "output" if first[at] == "write" else "inout"
        for at in range(len(parameters))
    )


def parameter_position(buffer: Any, parameters: list[Any]) -> int | None:
    """Which parameter a buffer is. By identity: two parameters may have the same name."""
    return next((at for at, var in enumerate(parameters) if var.same_as(buffer)), None)


def _uses(node: Any, declared: bool) -> Iterator[tuple[str, Any]]:
    """``("read" or "write", buffer)`` for everything below ``node``, in program order.

    Blocks declare what they use, and loads and stores count only outside of those that do. A nested
    block comes before the block around it, which claims to read what its parts hand to one another.
    """
    from foretune import _tvm

    kind = type(node).__name__
    inside = declared or (kind == "SBlock" and bool(node.reads or node.writes))
    for child in _tvm.children(node):
        # Of what a block declares only nested blocks matter, and expressions may be deep.
        if not inside or isinstance(child, _tvm.tvm.tirx.Stmt):
            yield from _uses(child, inside)
    if kind == "SBlock":
        reads = [("read", region.source) for region in node.reads]
        writes = [("write", region.source) for region in node.writes]
        # A reduction that starts its result itself does not need what was there before.
        yield from (reads + writes if node.init is None else writes + reads)
    elif kind == "BufferStore" and not declared:
        yield "write", node.buffer
    elif kind == "TensorLoad" and not declared:
        yield "read", node.source
