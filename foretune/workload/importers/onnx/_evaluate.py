"""Computing a node at import, when its inputs are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from foretune._arrays import Array
from foretune.workload.importers.onnx._types import Expected
from foretune.workload.importers.onnx._values import Value, blank

_SHAPE_ONLY = frozenset({"Shape", "Size", "EyeLike"})
"""Operators that depend on the shape of their input alone."""
_QUANTISED = frozenset({"QuantizeLinear", "DequantizeLinear"})
"""Kept, so that a weight stays in its bytes until a rewrite has seen what it is multiplied with."""
_BYTES = frozenset({"int8", "uint8", "int16", "uint16", "int32", "float16", "float32"})
_GROWTH = 2
_SMALL = 1 << 22
"""Bytes that a result may have anyway; above, at most ``_GROWTH`` times its inputs."""


def evaluate(
    node: Any,
    schema: Any,
    inputs: Sequence[Value | None],
    expected: Sequence[Expected | None],
    opsets: Mapping[str, int],
) -> list[Value | None] | None:
    """The outputs of a node whose inputs are constants, by ONNX's reference; None if it has none.

    A result that would be much larger than what it is made of is left to the compiler.
    """
    given = [value for value in inputs if value is not None]
    known = all(value.array is not None for value in given)
    shape_only = node.op_type in _SHAPE_ONLY and not node.domain
    if not (known or shape_only) or _is_random(schema):
        return None
    if node.op_type in _QUANTISED and inputs[0] is not None and inputs[0].dtype in _BYTES:
        return None
    size = sum(_bytes(type_) for type_ in expected if type_ is not None)
    if size > max(_SMALL, _GROWTH * sum(value.bytes for value in given)):
        return None
    arrays = {
        name: value.array if value.array is not None else blank(value.shape, value.dtype)
        for name, value in zip(node.input, inputs, strict=True)
        if value is not None
    }
    results = _run(node, arrays, opsets)
    if results is None:
        return None
    values: list[Value | None] = []
    for wanted, result in zip(expected, results, strict=True):
        if wanted is None:
            values.append(None)
            continue
        if not isinstance(result, (np.ndarray, np.generic)) or result.dtype == object:
            return None
        array = np.asarray(result)
        if wanted.dtype is not None and str(array.dtype) != wanted.dtype:
            return None
        value = Value.constant(array)
        if not wanted.fits(value):
            return None
        values.append(value)
    return values


def _run(node: Any, arrays: Mapping[str, Array], opsets: Mapping[str, int]) -> list[Any] | None:
    import onnx
    from onnx.reference import ReferenceEvaluator

    value = onnx.helper.make_tensor_value_info
    kind = onnx.helper.np_dtype_to_tensor_dtype
    unknown = onnx.helper.make_empty_tensor_value_info
    graph = onnx.helper.make_graph(
        [node],
        "one",
        [value(name, kind(array.dtype), array.shape) for name, array in arrays.items()],
        [unknown(name) for name in node.output if name],
    )
    imports = [onnx.helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    try:
        model = onnx.helper.make_model(graph, opset_imports=imports)
        with np.errstate(all="ignore"):
            results = iter(ReferenceEvaluator(model).run(None, dict(arrays)))
    except Exception:  # the reference raises whatever NumPy does, and lacks some operators
        return None
    return [next(results) if name else None for name in node.output]


def _is_random(schema: Any | None) -> bool:
    if schema is None:
        return True
    return str(schema.node_determinism).endswith("NonDeterministic")


def _bytes(expected: Expected) -> int:
    if expected.shape is None or expected.dtype is None or expected.dtype == "object":
        return 0
    known = [extent for extent in expected.shape if extent is not None]
    return Value(tuple(known), expected.dtype).bytes
