"""Programs written as TVMScript: kernels whose order of computation is final."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from foretune import _tvm

_OPAQUE = 8
"""TVM's number for: nothing is fused with it."""


class Lines:
    """Lines of a program, indented by the loops that are open."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._depth = 1
        self._locals = 0

    def __call__(self, text: str) -> None:
        """Adds a line."""
        self.lines.append("    " * self._depth + text)

    @contextlib.contextmanager
    def block(self, head: str) -> Iterator[None]:
        """What is added inside stands below ``head``."""
        self(head)
        self._depth += 1
        yield
        self._depth -= 1

    @contextlib.contextmanager
    def loop(self, name: str, extent: int | str, kind: str = "range") -> Iterator[None]:
        """A loop; ``kind`` is ``range``, ``T.parallel``, ``T.unroll`` or ``T.vectorized``."""
        with self.block(f"for {name} in {kind}({extent}):"):
            yield

    @contextlib.contextmanager
    def vectors(self, name: str, count: int, lanes: int) -> Iterator[None]:
        """The lanes ``l`` of ``count`` vectors."""
        with self.loop(name, count, "T.unroll"), self.loop("l", lanes, "T.vectorized"):
            yield

    def local(self, name: str, count: int, lanes: int, value: float = 0.0) -> str:
        """A name of ``count`` vectors in registers, each number being ``value``."""
        self._locals += 1
        name = f"{name}{self._locals}"
        self(f'{name} = T.alloc_buffer(({count}, {lanes}), "float32")')
        with self.vectors("w", count, lanes):
            self(f"{name}[w, l] = {number(value)}")
        return name

    def across(self, vector: str, lanes: int, combine: Callable[[str, str], str]) -> str:
        """The lanes of a vector combined, in pairs; lanes are a power of two."""
        while lanes > 2:
            self._locals += 1
            name = f"part{self._locals}"
            self(f'{name} = T.alloc_buffer(({lanes},), "float32")')
            self(f"{name}[T.ramp(0, 1, {lanes})] = {vector}")
            whole = f"{name}[T.ramp(0, 1, {lanes})]"
            lanes //= 2
            vector = combine(
                *(f'T.vector{half}("float32x{lanes}", {whole})' for half in ("low", "high"))
            )
        if lanes == 1:
            return vector
        # LLVM has no number where TVM asks for the half of a pair.
        self._locals += 1
        pair = f"pair{self._locals}"
        self(f'{pair} = T.alloc_buffer((2,), "float32")')
        self(f"{pair}[T.ramp(0, 1, 2)] = {vector}")
        return combine(f"{pair}[0]", f"{pair}[1]")

    def total(self, vector: str, lanes: int) -> str:
        """The sum of the lanes of a vector."""
        return self.across(vector, lanes, lambda one, other: f"({one} + {other})")


def number(value: float) -> str:
    """A float32 as TVMScript has it."""
    return (
        f'T.float32("{value}")'
        if value in (float("inf"), -float("inf"))
        else (f"T.float32({value!r})")
    )


def parsed(operands: Sequence[tuple[str, int, str]], lines: Lines) -> Any:
    """The program of these lines: no task is made of it, and nothing is fused with it.

    Args:
        operands: Name, size and type of each flat argument.
        lines: The body.
    """
    given = ", ".join(f'{name}: T.Buffer(({size},), "{kind}")' for name, size, kind in operands)
    head = ["@T.prim_func", f"def main({given}):", '    T.func_attr({"tirx.noalias": True})']
    function = _tvm.tvm.script.from_source("\n".join([*head, *lines.lines]))
    # TVM's passes over networks take a block around everything for granted.
    function = _tvm.rooted(function).without_attr("global_symbol")
    return function.with_attr("op_pattern", _OPAQUE).with_attr("tirx.is_scheduled", True)
