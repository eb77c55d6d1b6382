"""Writing a tensor program as a short text in which nothing depends on names or addresses.

A loop is called by its depth (``i0`` is the outermost), an axis of a block by its place and kind
(``s1``, ``r4``: spatial, reduction), a buffer by its first occurrence. So two programs that differ
in names only have one text, and a statement has one text wherever it stands: those that did not
change since the last program are not read again, for reading TVM's nodes is what takes the time.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_REMEMBERED = 4096
"""Statements kept per writer; with them every object whose handle their texts hold stays alive."""
_BINARY = {
    "Or": ("|", 1),
    "And": ("&", 2),
    "LT": ("<", 3),
    "LE": ("<=", 3),
    "GT": (">", 3),
    "GE": (">=", 3),
    "EQ": ("==", 3),
    "NE": ("!=", 3),
    "Add": ("+", 4),
    "Sub": ("-", 4),
    "Mul": ("*", 5),
    "Div": ("/", 5),
    "Mod": ("%%", 5),
    "FloorDiv": ("//", 5),
    "FloorMod": ("%", 5),
}
"""Node -> how it is written and how strongly it binds."""
_LOOP_KINDS = {1: ":parallel", 2: ":vector", 3: ":unroll"}
_AXIS_KINDS = {0: "s", 2: "r"}
"""Spatial and reduction; any other kind is opaque."""
_VARIABLE = "\0{}\0"
_BLOCK = "\1"
_NUMBERED = re.compile("\0(\\d+)\0|\1")
_VENDOR = "meta_schedule."


class ProgramWriter:
    """Writes programs that have most statements in common, as those of one workload do.

    It holds the statements that it remembers, at most some thousands.
    """

    def __init__(self) -> None:
        self._lines: dict[int, tuple[Any, list[str]]] = {}
        self._buffers: dict[int, tuple[Any, str]] = {}
        self._names: dict[int, str] = {}

    def text(self, module: Any) -> str:
        """The text of the one function of a module."""
        if len(self._lines) > _REMEMBERED:
            # All at once: a handle in a text must never be taken by a younger object.
            self._lines.clear()
            self._buffers.clear()
        self._names.clear()
        (function,) = module.functions.values()
        parameters = [_number(self._buffer(p)) for p in function.params if _is_buffer(p)]
        return self._numbered("\n".join(self._root(function.body)), parameters)

    def _root(self, body: Any) -> Iterator[str]:
        """The lines of a function's body, whose outermost block has no loops around it."""
        if type(body).__name__ == "SBlockRealize" and not len(body.block.iter_vars):
            annotations = _annotations(body.block.annotations)
            if annotations:
                yield f"root{annotations}"
            body = body.block.body
        parts = body.seq if type(body).__name__ == "SeqStmt" else [body]
        for part in parts:
            yield from self._remembered(part)

    def _remembered(self, statement: Any) -> list[str]:
        """The lines of a statement that has nothing around it that it could refer to."""
        handle = statement.__chandle__()
        if handle not in self._lines:
            self._lines[handle] = statement, self._statement(statement, 0, 0)
        return self._lines[handle][1]

    def _numbered(self, text: str, parameters: Sequence[int]) -> str:
        """Gives blocks, buffers and free variables their numbers and declares the buffers."""
        buffers = {handle: f"b{at}" for at, handle in enumerate(parameters)}
        free: dict[int, str] = {}
        blocks = itertools.count()

        def name(found: re.Match[str]) -> str:
            if found[1] is None:
                return f"k{next(blocks)}"
            handle = int(found[1])
            if handle in self._buffers:
                return buffers.setdefault(handle, f"b{len(buffers)}")
            return free.setdefault(handle, f"n{len(free)}")

        body = _NUMBERED.sub(name, text)
        declared = [
            f"{each}:{_NUMBERED.sub(name, self._buffers[handle][1])}"
            for handle, each in buffers.items()
        ]
        given, own = declared[: len(parameters)], declared[len(parameters) :]
        head = [" ".join([word, *each]) for word, each in (("arg", given), ("tmp", own)) if each]
        return "\n".join([*head, body])

    # Statements. ``loops`` and ``axes`` count those that are in scope and give the next its name.

    def _statement(self, node: Any, loops: int, axes: int) -> list[str]:
        kind = type(node).__name__
        if kind == "For":
            return self._loops(node, loops, axes)
        if kind == "SBlockRealize":
            return self._block(node, loops, axes)
        if kind == "SeqStmt":
            return [line for each in node.seq for line in self._statement(each, loops, axes)]
        if kind == "BufferStore":
            target = self._access(node.buffer, node.indices)
            return [f"{target}={self._expression(node.value).replace(target, '_')}"]
        if kind == "Bind":
            return [f"{self._variable(node.var)}={self._expression(node.value)}"]
        if kind == "Evaluate":
            return [self._expression(node.value)]
        if kind == "IfThenElse":
            lines = [f"if {self._expression(node.condition)}"]
            lines += _indented(self._statement(node.then_case, loops, axes))
            if node.else_case is not None:
                lines += ["else", *_indented(self._statement(node.else_case, loops, axes))]
            return lines
        return self._other(node, loops, axes)

    def _other(self, node: Any, loops: int, axes: int) -> list[str]:
        from foretune import _tvm

        inside: list[Any] = []
        outside: list[Any] = []
        for child in _tvm.children(node):
            (inside if isinstance(child, _tvm.tvm.tirx.Stmt) else outside).append(child)
        key = str(getattr(node, "attr_key", ""))
        words = [type(node).__name__.lower(), *([key] if key else [])]
        lines = [" ".join([*words, *(self._expression(each) for each in outside)])]
        for each in inside:
            lines += _indented(self._statement(each, loops, axes))
        return lines

    def _loops(self, node: Any, loops: int, axes: int) -> list[str]:
        words = ["for"]
        while type(node).__name__ == "For":
            name = self._names[node.loop_var.__chandle__()] = f"i{loops}"
            first, extent = self._expression(node.min), self._expression(node.extent)
            kind = _LOOP_KINDS.get(int(node.kind), "")
            if node.thread_binding is not None:
                kind = f":{node.thread_binding.thread_tag}"
            step = "" if node.step is None else f":step{self._expression(node.step)}"
            words.append(
                f"{name}={'' if first == '0' else first + ':'}{extent}{step}{kind}"
                f"{_annotations(node.annotations)}"
            )
            node = node.body
            loops += 1
        return [" ".join(words), *_indented(self._statement(node, loops, axes))]

    def _block(self, node: Any, loops: int, axes: int) -> list[str]:
        block = node.block
        # Values are in terms of the loops and axes outside: read before the new names are set.
        values = [self._expression(value) for value in node.iter_values]
        names = [
            _AXIS_KINDS.get(int(axis.iter_type), "o") + str(axes + at)
            for at, axis in enumerate(block.iter_vars)
        ]
        words = [_BLOCK, *(f"{name}={value}" for name, value in zip(names, values, strict=True))]
        condition = self._expression(node.predicate)
        if condition != "1":
            words += ["if", condition]
        head = " ".join(words) + _annotations(block.annotations)
        return [head, *_indented(self._contents(block, names, loops, axes))]

    def _contents(self, block: Any, names: Sequence[str], loops: int, axes: int) -> list[str]:
        handle = block.__chandle__()
        # A store refers to nothing outside its block: it is the same wherever the block stands.
        lasting = type(block.body).__name__ == "BufferStore" and not axes
        if lasting and handle in self._lines:
            return self._lines[handle][1]
        for axis, name in zip(block.iter_vars, names, strict=True):
            self._names[axis.var.__chandle__()] = name
        axes += len(names)
        lines = [
            f"match {self._variable(match.buffer)}={self._expression(match.source)}"
            for match in block.match_buffers
        ]
        body = self._statement(block.body, loops, axes)
        if block.init is not None:
            lines += self._initial(self._statement(block.init, loops, axes), body)
        lines += body
        if lasting:
            self._lines[handle] = block, lines
        return lines

    @staticmethod
    def _initial(init: list[str], body: list[str]) -> list[str]:
        """The initialisation, which names its target where the body's first store has another."""
        target = body[0].partition("=")[0]
        if len(init) == 1 and init[0].startswith(f"{target}="):
            return [f"init {init[0][len(target) + 1 :]}"]
        return ["init", *_indented(init)]

    # Expressions.

    def _expression(self, node: Any, outside: int = 0) -> str:
        """The text of an expression, in brackets where what is outside binds more strongly."""
        kind = type(node).__name__
        if kind == "Var":
            return self._variable(node)
        if kind == "IntImm":
            return str(node.value)
        if kind in _BINARY:
            symbol, strength = _BINARY[kind]
            left, right = self._expression(node.a, strength), self._expression(node.b, strength + 1)
            text = f"{left}{symbol}{right}"
            return f"({text})" if strength < outside else text
        if kind == "TensorLoad":
            return self._access(node.source, node.indices)
        if kind == "FloatImm":
            return f"{node.value:.4g}"
        if kind == "Call":
            name = getattr(node.op, "name", None) or node.op.name_hint
            return f"{str(name).rpartition('.')[2]}({self._list(node.args)})"
        if kind == "StringImm":
            return f"'{node.value}'"
        if kind == "TensorRegion":
            return self._access(node.source, node.region)
        if kind == "Range":
            extent = self._expression(node.extent)
            return self._expression(node.min) + ("" if extent == "1" else f"+:{extent}")
        return self._function(node, kind)

    def _function(self, node: Any, kind: str) -> str:
        from foretune import _tvm

        name = str(node.ty.dtype) if kind == "Cast" else kind.lower()
        return f"{name}({self._list(_tvm.children(node))})"

    def _list(self, nodes: Any) -> str:
        return ",".join(self._expression(each) for each in nodes)

    def _access(self, buffer: Any, indices: Any) -> str:
        return f"{self._buffer(buffer)}[{self._list(indices)}]"

    def _variable(self, node: Any) -> str:
        name = self._names.get(node.__chandle__())
        if name is not None:
            return name
        return self._buffer(node) if _is_buffer(node) else _VARIABLE.format(node.__chandle__())

    def _buffer(self, node: Any) -> str:
        handle = node.__chandle__()
        if handle not in self._buffers:
            kind = node.ty
            words = ["x".join(self._expression(size) for size in kind.shape) or "scalar"]
            words += [] if str(kind.dtype) == "float32" else [str(kind.dtype)]
            words += [] if kind.storage_scope in ("", "global") else [str(kind.storage_scope)]
            self._buffers[handle] = node, ":".join(words)
        return _VARIABLE.format(handle)


def _is_buffer(variable: Any) -> bool:
    return type(variable.ty).__name__ == "BufferType"


def _number(placeholder: str) -> int:
    return int(placeholder.strip("\0"))


def _indented(lines: Sequence[str]) -> list[str]:
    return [f" {line}" for line in lines]


def _annotations(given: Mapping[str, Any]) -> str:
    named = {str(name).removeprefix(_VENDOR): _plain(value) for name, value in given.items()}
    return "".join(f"@{name}={named[name]}" for name in sorted(named))


def _plain(value: Any) -> str:
    """The value of an annotation; of one that is an object its class, for it has an address."""
    value = getattr(value, "value", value)
    if isinstance(value, (bool, int, float, str)):
        return re.sub(r"\s+", "", str(value))
    try:
        return ",".join(_plain(each) for each in value)
    except TypeError:
        return type(value).__name__
