"""A node as the tables of lowerings see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from foretune._arrays import Array
from foretune.workload.importers.onnx._types import Expected
from foretune.workload.importers.onnx._values import Value


class NotLoweredError(Exception):
    """This form of an operator has no lowering: for example, an axis known at run time only."""


class UseConverterError(Exception):
    """For this form of an operator TVM's converter is right."""


@dataclass(frozen=True)
class Node:
    """One node with inputs of known type.

    Attributes:
        builder: Relax block builder within the function.
        proto: The ``NodeProto``.
        version: Of the operator set.
        inputs: Values by position, None where one is left out.
        outputs: What ONNX infers, None for an output that is left out.
        attributes: By name, as Python has them; strings as ``str``.
    """

    builder: Any
    proto: Any
    version: int
    inputs: Sequence[Value | None]
    outputs: Sequence[Expected | None]
    attributes: Mapping[str, Any]

    def emit(self, expression: Any) -> Any:
        """Binds an expression to a variable, whose type is known then."""
        return self.builder.emit(self.builder.normalize(expression))

    def te(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Emits a kernel from its definition in TE, under the operator's name."""
        hint = str(self.proto.op_type).lower()
        return self.builder.emit_te(function, *arguments, primfunc_name_hint=hint)

    def value(self, at: int) -> Value:
        """An input that must be there."""
        value = self.optional(at)
        if value is None:
            raise NotLoweredError(f"input {at} is left out")
        return value

    def optional(self, at: int) -> Value | None:
        """An input, or None."""
        return self.inputs[at] if at < len(self.inputs) else None

    def __getitem__(self, at: int) -> Any:
        """Relax expression of an input."""
        return self.value(at).expression

    def get(self, at: int) -> Any | None:
        """Relax expression of an input, or None."""
        value = self.optional(at)
        return None if value is None else value.expression

    def constant(self, at: int, default: Any = None) -> Array | Any:
        """The array of an input that decides sizes or axes; ``default`` if it is left out.

        Raises:
            NotLoweredError: It is known at run time only.
        """
        value = self.optional(at)
        if value is None:
            return default
        if value.array is None:
            raise NotLoweredError(f"input {at} is known at run time only")
        return value.array

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute."""
        return self.attributes.get(name, default)

    def integers(self, name: str, at: int | None = None) -> list[int] | None:
        """Integers that older operator sets have as an attribute and newer ones as an input."""
        if name in self.attributes:
            return [int(v) for v in self.attributes[name]]
        if at is None:
            return None
        array = self.constant(at)
        return None if array is None else [int(v) for v in array.reshape(-1)]

    def output_shape(self, at: int = 0) -> tuple[int, ...]:
        """Static shape of an output.

        Raises:
            NotLoweredError: ONNX cannot infer it.
        """
        expected = self.outputs[at]
        if expected is None or expected.shape is None or None in expected.shape:
            raise NotLoweredError("the size of an output is not known")
        return tuple(int(extent) for extent in expected.shape if extent is not None)

    def output_dtype(self, at: int = 0) -> str:
        """Element type of an output."""
        expected = self.outputs[at]
        if expected is None or expected.dtype is None:
            raise NotLoweredError("the type of an output is not known")
        return expected.dtype

    @property
    def axis(self) -> int:
        """Attribute ``axis`` as it stands, 0 by default."""
        return int(self.attributes.get("axis", 0))

    def wants(self, at: int) -> bool:
        """Whether somebody may read that output."""
        return at < len(self.outputs) and self.outputs[at] is not None


def with_text(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The same with strings as ``str``."""
    return {name: _text(value) for name, value in attributes.items()}


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8")
    if isinstance(value, list):
        return [_text(part) for part in value]
    return value


Lowering = Callable[[Node], Any]
"""Returns one Relax expression, or one for each output, None where nobody reads it."""
