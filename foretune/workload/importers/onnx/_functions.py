"""Operators that are functions of others: the model's own, and those that ONNX defines so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from foretune.workload.importers.onnx._values import Value, element_kind


def body_of(
    schema: Any, node: Any, inputs: Sequence[Value | None], opsets: Mapping[str, int]
) -> Any | None:
    """The ``FunctionProto`` that ONNX defines an operator by; None if it is a primitive one."""
    import onnx

    version = opsets[schema.domain]
    function = onnx.FunctionProto()
    if schema.has_context_dependent_function:
        versions = [v for v in schema.context_dependent_function_opset_versions if v <= version]
        types = [_type(value) for value in inputs]
        for candidate in sorted(versions, reverse=True):
            try:
                data = schema.get_context_dependent_function_with_opset_version(
                    candidate, node.SerializeToString(), types
                )
            except Exception:  # raised where this form of the operator has no body
                continue
            if data:
                function.ParseFromString(data)
                return function
    if schema.has_function:
        versions = [v for v in schema.function_opset_versions if v <= version]
        if versions:
            function.ParseFromString(schema.get_function_with_opset_version(max(versions)))
            return function
    return None


def bound_body(function: Any, node: Any) -> Iterator[Any]:
    """Nodes of a function with the attributes of its caller in place of references to them."""
    import onnx

    given = {a.name: a for a in function.attribute_proto}
    if onnx.defs.has(node.op_type, node.domain):
        schema = onnx.defs.get_schema(node.op_type, domain=node.domain)
        for name, declared in schema.attributes.items():
            if name in function.attribute and declared.default_value.name:
                given.setdefault(name, declared.default_value)
    given.update({a.name: a for a in node.attribute})
    for child in function.node:
        result = onnx.NodeProto()
        result.CopyFrom(child)
        _bind(result, given)
        yield result


def _bind(node: Any, given: Mapping[str, Any]) -> None:
    import onnx

    attributes = []
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            if attribute.ref_attr_name not in given:
                continue
            bound = onnx.AttributeProto()
            bound.CopyFrom(given[attribute.ref_attr_name])
            bound.name = attribute.name
            attributes.append(bound)
            continue
        for graph in (attribute.g, *attribute.graphs):
            for child in graph.node:
                _bind(child, given)
        attributes.append(attribute)
    copies = [onnx.AttributeProto.FromString(a.SerializeToString()) for a in attributes]
    del node.attribute[:]
    node.attribute.extend(copies)


def _type(value: Value | None) -> bytes:
    import onnx

    if value is None:
        return b""
    kind = onnx.helper.make_tensor_type_proto(element_kind(value.dtype), value.shape)
    data: bytes = kind.SerializeToString()
    return data
