"""What ONNX says about the outputs of a node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from foretune._arrays import Array
from foretune.workload.importers.onnx._values import Value, blank, element_kind, element_type

_KNOWN = 4096
"""Elements of a constant up to which the inference may read it: shapes, axes, scales."""


def attributes_of(proto: Any) -> dict[str, Any]:
    """Attributes by name, strings as bytes."""
    import onnx

    return {a.name: onnx.helper.get_attribute_value(a) for a in proto.attribute}


class Expected(NamedTuple):
    """Type of an output as far as it is known."""

    shape: tuple[int | None, ...] | None
    dtype: str | None

    @property
    def is_empty(self) -> bool:
        """Whether it is known to have no element."""
        return (
            self.dtype is not None
            and self.shape is not None
            and (0 in self.shape and None not in self.shape)
        )

    def blank(self) -> Array:
        """The one array of a type without elements."""
        assert self.shape is not None and self.dtype is not None
        return blank([extent or 0 for extent in self.shape], self.dtype)

    def fits(self, value: Value) -> bool:
        """Whether a value is of this type."""
        if self.dtype is not None and self.dtype != value.dtype:
            return False
        if self.shape is None:
            return True
        return len(self.shape) == len(value.shape) and all(
            wanted is None or wanted == extent
            for wanted, extent in zip(self.shape, value.shape, strict=True)
        )


def schema_of(node: Any, opsets: Mapping[str, int]) -> Any | None:
    """ONNX's definition of an operator in the set that the node means; None if it has none."""
    import onnx

    domain = "" if node.domain == "ai.onnx" else node.domain
    version = opsets.get(domain)
    if version is None:
        return None
    try:
        return onnx.defs.get_schema(node.op_type, version, domain)
    except onnx.defs.SchemaError:
        return None


def infer(
    schema: Any, node: Any, inputs: Sequence[Value | None], opsets: Mapping[str, int]
) -> list[Expected | None]:
    """Types of a node's outputs; None for one that is left out.

    Args:
        schema: Of ``schema_of``.
        node: Its inputs are named as in ``inputs``.
        inputs: Values by position; None where one is left out.
        opsets: Domain to version.

    Raises:
        onnx.shape_inference.InferenceError: The node does not fit its inputs.
    """
    import onnx

    types, data = {}, {}
    for name, value in zip(node.input, inputs, strict=True):
        if value is None:
            continue
        kind = element_kind(value.dtype)
        types[name] = onnx.helper.make_tensor_type_proto(kind, value.shape)
        if value.array is not None and value.array.size <= _KNOWN:
            data[name] = onnx.numpy_helper.from_array(value.array, name)
    imports = [onnx.helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    inferred = onnx.shape_inference.infer_node_outputs(
        schema, node, types, data, opset_imports=imports
    )
    expected = [_expected(inferred.get(name)) if name else None for name in node.output]
    return _of_runtime(node, inputs, expected)


def _of_runtime(
    node: Any, inputs: Sequence[Value | None], expected: list[Expected | None]
) -> list[Expected | None]:
    """Types as ONNX Runtime has them where it deviates: dilated pools with implicit padding.

    It pads for the kernel without its dilations, so that such a pool shrinks; models are made,
    and proven, with that runtime.
    """
    if node.op_type not in ("AveragePool", "LpPool", "MaxPool") or node.domain:
        return expected
    attributes = attributes_of(node)
    dilations = attributes.get("dilations", [])
    data = inputs[0]
    if not attributes.get("auto_pad", b"").startswith(b"SAME") or set(dilations) <= {1}:
        return expected
    assert data is not None
    shape = list(data.shape[:2])
    strides = attributes.get("strides", [1] * len(dilations))
    for at, extent in enumerate(data.shape[2:]):
        kernel = attributes["kernel_shape"][at]
        padded = max(extent, (-(-extent // strides[at]) - 1) * strides[at] + kernel)
        shape.append((padded - dilations[at] * (kernel - 1) - 1) // strides[at] + 1)
    return [None if type_ is None else Expected(tuple(shape), type_.dtype) for type_ in expected]


def _expected(kind: Any | None) -> Expected:
    if kind is None or not kind.HasField("tensor_type"):
        return Expected(None, None)
    tensor = kind.tensor_type
    dtype = element_type(tensor.elem_type) if tensor.elem_type else None
    if not tensor.HasField("shape"):
        return Expected(None, dtype)
    return Expected(
        tuple(int(d.dim_value) if d.HasField("dim_value") else None for d in tensor.shape.dim),
        dtype,
    )
