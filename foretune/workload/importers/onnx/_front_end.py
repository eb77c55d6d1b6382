"""TVM's own converters, one node at a time."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from foretune import _tvm
from foretune.errors import first_line

_DOMAINS = ("", "ai.onnx", "com.microsoft")
_CONTRIBUTED = frozenset(
    {"BiasGelu", "EmbedLayerNormalization", "FastGelu", "MatMulInteger16", "SkipLayerNormalization"}
)
"""Operators of ONNX Runtime's own domain; TVM's table does not look at domains."""
_WRONG: dict[str, str] = {
    "Attention": "TVM has ONNX Runtime's older operator of this name",
    "RMSNormalization": "TVM indexes the scale of several axes wrongly",
    **dict.fromkeys(
        ("Optional", "OptionalHasElement", "OptionalGetElement"), "optional values are no tensors"
    ),
    **dict.fromkeys(
        ("SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength",
         "ConcatFromSequence", "SplitToSequence", "SequenceAt"),
        "sequences are no tensors",
    ),
    **dict.fromkeys(
        ("NonZero", "Unique", "Compress", "NonMaxSuppression", "AllClassNMS"),
        "the size of the result depends on values",
    ),
}  # fmt: skip
"""Converters that are not used, and why; where ONNX defines such an operator as a function, that is
right."""


class NotConvertedError(Exception):
    """TVM has no converter for a node, or its converter failed."""


def has_converter(node: Any) -> bool:
    """Whether TVM knows an operator of this name."""
    from tvm.relax.frontend.onnx import onnx_frontend

    name = node.op_type
    if node.domain not in _DOMAINS or (node.domain == "com.microsoft") != (name in _CONTRIBUTED):
        return False
    return name not in _WRONG and name in onnx_frontend._get_convert_map()


def why_wrong(node: Any) -> str:
    """Why TVM's converter of a node is not used; empty where there is none."""
    return _WRONG.get(node.op_type, "") if node.domain in ("", "ai.onnx") else ""


def convert(
    builder: Any, node: Any, version: int, inputs: Sequence[Any], attributes: dict[str, Any]
) -> list[Any]:
    """Relax expressions of a node's outputs, as TVM's importer would have them.

    Args:
        builder: A block builder within a function.
        node: What is converted; ``has_converter`` is true for it.
        version: Of the operator set.
        inputs: Relax expressions, None where one is left out.
        attributes: By name.

    Raises:
        NotConvertedError: The converter failed.
    """
    from tvm.relax.frontend.onnx import onnx_frontend

    relax = _tvm.tvm.relax
    converter = onnx_frontend._get_convert_map()[node.op_type].get_converter(version)
    named = {name: given for name, given in zip(node.input, inputs, strict=True) if name}
    given = {**attributes, "tvm_custom": {"name": node.name, "num_outputs": len(node.output)}}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = converter(builder, onnx_frontend.onnx_input(inputs), given, [named, {}])
            result = builder.normalize(result)
            if isinstance(result, relax.Tuple):
                return [builder.normalize(part) for part in result.fields]
            if isinstance(result.ty, relax.TupleType):
                bound = builder.emit(result)
                return [
                    builder.normalize(relax.TupleGetItem(bound, at))
                    for at in range(len(result.ty.fields))
                ]
    except Exception as error:  # converters raise many kinds, from Python and from C++
        raise NotConvertedError(first_line(error)) from error
    return [result]
