"""One operator of an exported graph, as its lowering sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any

import numpy as np

from foretune import _tvm
from foretune.workload.element_types import element_type

Lowering = Callable[["Node"], Any]
"""From a node to its value: an expression, or a sequence of them for an operator with several."""


class NotLoweredError(Exception):
    """A lowering does not cover these arguments of its operator."""


class Node:
    """A call of an ATen operator with its arguments by name, defaults included.

    Attributes:
        name: Of the operator, without its namespace: ``log1p.default``.
        builder: Relax block builder that the lowering emits into.
        fake: PyTorch's own result on fake tensors: shape and dtype of each output.
        raw: Arguments by name; tensors are fake tensors.
        read: Which of several outputs anybody reads: None may stand for the others.
    """

    def __init__(
        self,
        name: str,
        builder: Any,
        fake: Any,
        arguments: dict[str, Any],
        raw: dict[str, Any],
        read: Set[int],
    ) -> None:
        self.name, self.builder, self.fake, self.raw, self.read = name, builder, fake, raw, read
        self._arguments = arguments

    def __getitem__(self, name: str) -> Any:
        """An argument: a Relax expression for a tensor, else the Python value."""
        return self._arguments[name]

    @property
    def first(self) -> Any:
        """The first fake output."""
        return self.fake[0] if isinstance(self.fake, (tuple, list)) else self.fake

    @property
    def shape(self) -> list[int]:
        """Shape of the first output."""
        return [int(extent) for extent in self.first.shape]

    @property
    def dtype(self) -> str:
        """Element type of the first output."""
        return dtype_name(self.first.dtype)

    def shape_of(self, name: str) -> list[int]:
        """Shape of a tensor argument."""
        return [int(extent) for extent in self.raw[name].shape]

    def dtype_of(self, name: str) -> str:
        """Element type of a tensor argument."""
        return dtype_name(self.raw[name].dtype)

    def axis(self, name: str, of: str = "self") -> int:
        """A dimension argument, counted from the front."""
        rank = max(len(self.raw[of].shape), 1)
        return int(self[name]) % rank

    def axes(self, name: str, of: str = "self") -> list[int]:
        """Dimensions from the front; all of them where none is given."""
        rank, given = len(self.raw[of].shape), self[name]
        if given is None or (isinstance(given, (list, tuple)) and not given):
            return list(range(rank))
        listed = given if isinstance(given, (list, tuple)) else [given]
        return sorted(int(axis) % rank for axis in listed) if rank else []

    def emit(self, expression: Any) -> Any:
        """Binds an expression to a variable."""
        return self.builder.emit(expression)

    def te(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Emits a kernel from its definition in TE, under the operator's name."""
        hint = self.name.partition(".")[0].strip("_")
        return self.builder.emit_te(function, *arguments, primfunc_name_hint=hint)

    def const(self, value: Any, dtype: str) -> Any:
        """A constant of rank 0."""
        if dtype == "bool":
            value = bool(value)
        elif dtype.startswith(("int", "uint")):
            value = int(value)
        return _tvm.tvm.relax.const(np.asarray(value, element_type(dtype)), dtype)

    def cast(self, expression: Any, dtype: str) -> Any:
        """The expression in another element type; as it is if it has it."""
        relax = _tvm.tvm.relax
        expression = self.builder.normalize(expression)
        have = str(expression.ty.dtype)
        if have == dtype:
            return expression
        if dtype == "bool":
            return self.emit(relax.op.not_equal(expression, self.const(0, have)))
        return self.emit(relax.op.astype(expression, dtype))

    def comparable(self, name: str) -> Any:
        """A tensor argument in a type whose order and NaN TVM can tell.

        It compares bfloat16 by its bits, and has no order of truth values.
        """
        have = self.dtype_of(name)
        return self.cast(self[name], {"bfloat16": "float32", "bool": "int8"}.get(have, have))

    def reshape(self, expression: Any, shape: Iterable[int]) -> Any:
        """The elements in another shape, sizes of zero included."""
        expression = self.builder.normalize(expression)
        wanted = [int(extent) for extent in shape]
        have = [int(extent) for extent in expression.ty.shape]
        if wanted == have:
            return expression
        if 0 in wanted:
            # TVM reads a 0 as "copy this extent": an empty tensor is made anew.
            return self.full(wanted, 0, str(expression.ty.dtype))
        return self.emit(_tvm.tvm.relax.op.reshape(expression, wanted))

    def broadcast(self, expression: Any, shape: Iterable[int]) -> Any:
        """The elements repeated to a shape."""
        expression = self.builder.normalize(expression)
        wanted = [int(extent) for extent in shape]
        if wanted == [int(extent) for extent in expression.ty.shape]:
            return expression
        return self.emit(_tvm.tvm.relax.op.broadcast_to(expression, wanted))

    def full(self, shape: Sequence[int], value: Any, dtype: str) -> Any:
        """A tensor of one value."""
        relax = _tvm.tvm.relax
        return self.emit(relax.op.full(list(shape), self.const(value, dtype), dtype))


HALF = ("float16", "bfloat16")


def wide(dtype: str) -> str:
    """The type that sums and functions of such numbers are computed in."""
    return "float32" if dtype in HALF else dtype


def dtype_name(dtype: Any) -> str:
    """TVM's name of an element type of PyTorch: they agree where TVM has the type."""
    return str(dtype).removeprefix("torch.")
