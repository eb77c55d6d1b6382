"""The walk over a graph, from inputs to outputs, that makes the Relax function."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretune import _tvm
from foretune.errors import (
    BadInputError,
    UnsupportedModelError,
    UnsupportedOperatorsError,
    first_line,
)
from foretune.workload.importers.onnx import _front_end
from foretune.workload.importers.onnx._control import CONTROL, UnknownControlError
from foretune.workload.importers.onnx._evaluate import evaluate
from foretune.workload.importers.onnx._functions import body_of, bound_body
from foretune.workload.importers.onnx._load import read_by
from foretune.workload.importers.onnx._node import (
    Node,
    NotLoweredError,
    UseConverterError,
    with_text,
)
from foretune.workload.importers.onnx._table import LOWERINGS
from foretune.workload.importers.onnx._types import Expected, attributes_of, infer, schema_of
from foretune.workload.importers.onnx._values import MISSING, Missing, Slot, Value, element_type

if TYPE_CHECKING:
    from foretune._tvm import IRModule

Scope = MutableMapping[str, Slot]

_EXECUTABLE = frozenset(
    {"bool", "bfloat16", "float16", "float32", "float64"}
    | {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
)
"""Element types of kernels; narrower ones may be weights that are converted at import."""


def walk(proto: Any, path: Path, original_names: Collection[str]) -> IRModule:
    """A Relax module whose ``main`` computes the graph of a prepared model.

    Args:
        proto: What ``prepare`` returned.
        path: For messages.
        original_names: Tensors of the file, to propose where to cut it.

    Raises:
        UnsupportedOperatorsError: Nodes that nothing here can compile; all of them.
    """
    return _Walk(proto, path).run(original_names)


class _Walk:
    """State of one walk.

    Attributes:
        builder: Relax block builder; lowerings emit into it.
    """

    def __init__(self, proto: Any, path: Path) -> None:
        self.builder = _tvm.tvm.relax.BlockBuilder()
        self._proto, self._path = proto, path
        self._functions = {(f.domain, f.name, f.overload): f for f in proto.functions}
        self._refused: dict[str, list[str]] = {}
        self._reasons: dict[str, str] = {}
        self._frontier: dict[str, None] = {}
        self._outermost: Any = None

    def run(self, original_names: Collection[str]) -> IRModule:
        relax, graph = _tvm.tvm.relax, self._proto.graph
        opsets = _opsets(self._proto.opset_import)
        scope: dict[str, Slot] = {}
        parameters = []
        left_out: dict[str, str] = {}
        for value in graph.input:
            shape, dtype = _type_of(value, self._path)
            if dtype not in _EXECUTABLE:
                # Whatever reads it is refused by its own name; it itself where nothing does.
                scope[value.name] = Value(shape, dtype)
                left_out[value.name] = dtype
                continue
            parameter = relax.Var(value.name, relax.TensorType(shape, dtype))
            parameters.append(parameter)
            scope[value.name] = Value.computed(parameter)
        names = [value.name for value in graph.output]
        with self.builder.function("main", parameters):
            with self.builder.dataflow():
                self._initialise(graph, scope)
                for node in graph.node:
                    self._outermost = (node, scope)
                    self.node(node, scope, opsets)
                fields = [] if self._refused else [_field(scope, name) for name in names]
                whole = fields[0] if len(fields) == 1 else relax.Tuple(fields)
                result = self.builder.emit_output(whole)
            self.builder.emit_func_output(result)
        if self._refused:
            inputs = {value.name for value in graph.input}
            ready = {name: None for name in names if _is_computed(scope.get(name))}
            until = [
                name
                for name in {**self._frontier, **ready}
                if name in original_names and name not in inputs
            ]
            raise UnsupportedOperatorsError(str(self._path), self._refused, until, self._reasons)
        for name, dtype in left_out.items():
            raise UnsupportedModelError(
                f"{self._path}: input {name!r} holds {dtype}, which no kernel takes, and no "
                "operator reads its values: take it out of the graph's inputs"
            )
        module: IRModule = self.builder.get()
        return module

    def subgraph(
        self, graph: Any, inputs: Sequence[Slot], scope: Scope, opsets: Mapping[str, int]
    ) -> list[Slot]:
        """Walks the body of a control operator, which sees the names around it."""
        inner: Scope = ChainMap({}, scope)
        inner.update({v.name: given for v, given in zip(graph.input, inputs, strict=True)})
        self._initialise(graph, inner)
        for node in graph.node:
            self.node(node, inner, opsets)
        return [inner.get(value.name) for value in graph.output]

    def emit(self, expression: Any) -> Value:
        """Binds an expression to a variable."""
        normal = self.builder.normalize(expression)
        if isinstance(normal, (_tvm.tvm.ir.GenericConst, _tvm.tvm.relax.Var)):
            return Value.computed(normal)
        return Value.computed(self.builder.emit(normal))

    def node(self, node: Any, scope: Scope, opsets: Mapping[str, int]) -> None:
        """Gives each output of a node its value in ``scope``."""
        inputs = [scope.get(name, MISSING) if name else None for name in node.input]
        if any(isinstance(scope.get(name), Missing) for name in read_by(node)):
            if not self._is_known(node, opsets):
                self.refuse(node)
            results: Sequence[Slot] = [MISSING] * len(node.output)
        else:
            results = self._compute(node, [_given(value) for value in inputs], scope, opsets)
        for name, result in zip(node.output, results, strict=False):
            if name:
                scope[name] = result

    def refuse(self, node: Any, reason: str = "") -> list[Slot]:
        """Notes a node that cannot be compiled, and why where that is known."""
        domain = "" if node.domain in ("", "ai.onnx") else f"{node.domain}."
        name = node.name or next((name for name in node.output if name), "")
        nodes = self._refused.setdefault(f"{domain}{node.op_type}", [])
        if not nodes and reason:
            self._reasons[f"{domain}{node.op_type}"] = reason
        if name not in nodes:
            nodes.append(name)
        outer, scope = self._outermost
        self._frontier.update({n: None for n in read_by(outer) if _is_computed(scope.get(n))})
        return [MISSING] * len(node.output)

    def _compute(
        self, node: Any, inputs: list[Value | None], scope: Scope, opsets: Mapping[str, int]
    ) -> Sequence[Slot]:
        function = self._functions.get((node.domain, node.op_type, node.overload))
        if function is not None:
            return self._call(node, function, inputs, opsets)
        domain = "" if node.domain == "ai.onnx" else node.domain
        if not domain and node.op_type in CONTROL:
            try:
                return CONTROL[node.op_type](self, node, inputs, scope, opsets)
            except UnknownControlError as error:
                return self.refuse(node, str(error))
        schema = schema_of(node, opsets)
        renamed = _renamed(node, inputs)
        expected = self._expected(schema, node, renamed, inputs, opsets)
        known = evaluate(renamed, schema, inputs, expected, opsets) if schema is not None else None
        if known is not None:
            return known
        foreign = _inexecutable(inputs, expected)
        if foreign:
            return self.refuse(node, f"no kernel computes with {foreign}")
        if all(type_ is None or type_.is_empty for type_ in expected):
            return [None if t is None else Value.constant(t.blank()) for t in expected]
        try:
            return self._lowered(node, renamed, inputs, expected, opsets.get(domain, 1))
        except NotLoweredError as error:
            reason = str(error)
        body = body_of(schema, renamed, inputs, opsets) if schema is not None else None
        if body is None:
            return self.refuse(node, reason)
        return self._call(renamed, body, inputs, opsets)

    def _expected(
        self,
        schema: Any | None,
        node: Any,
        renamed: Any,
        inputs: list[Value | None],
        opsets: Mapping[str, int],
    ) -> list[Expected | None]:
        import onnx

        if schema is None:
            return [Expected(None, None) if name else None for name in node.output]
        try:
            return infer(schema, renamed, inputs, opsets)
        except onnx.shape_inference.InferenceError as error:
            if all(value is None or value.array is not None for value in inputs):
                # Functions hand on arrays of one element where a scalar is meant.
                return [Expected(None, None) if name else None for name in node.output]
            lines = str(error).strip().splitlines()
            raise BadInputError(
                f"{self._path}: node {node.name or node.output[0]!r} ({node.op_type}) does not fit "
                f"its inputs ({lines[-1] if lines else ''}): check the model, and --shape if given"
            ) from error

    def _lowered(
        self,
        node: Any,
        renamed: Any,
        inputs: list[Value | None],
        expected: Sequence[Expected | None],
        version: int,
    ) -> list[Slot]:
        """Values by our table, else by TVM's converter.

        Raises:
            NotLoweredError: Neither has this form of the operator, or gives the right type.
        """
        attributes = attributes_of(node)
        lowering = LOWERINGS.get((node.domain.removeprefix("ai.onnx"), node.op_type))
        lowered: Any = None
        try:
            if lowering is not None:
                lowered = lowering(
                    Node(self.builder, renamed, version, inputs, expected, with_text(attributes))
                )
        except UseConverterError:
            lowering = None
        except NotLoweredError:
            raise
        except Exception as error:  # TVM's constructors raise many kinds for what they cannot do
            raise NotLoweredError(first_line(error)) from error
        try:
            if lowering is None and _front_end.has_converter(node):
                expressions = [None if v is None else v.expression for v in inputs]
                lowered = _front_end.convert(
                    self.builder, renamed, version, expressions, attributes
                )
        except _front_end.NotConvertedError as error:
            raise NotLoweredError(str(error)) from error
        if lowered is None:
            raise NotLoweredError(_front_end.why_wrong(node))
        results = list(lowered) if isinstance(lowered, (list, tuple)) else [lowered]
        if len(results) < len([type_ for type_ in expected if type_ is not None]):
            raise NotLoweredError("its lowering has fewer outputs")
        values: list[Slot] = []
        for wanted, result in zip(expected, results, strict=False):
            if wanted is None or result is None:
                values.append(None)
                continue
            normal = self.builder.normalize(result)
            if not _is_static(normal):
                raise NotLoweredError("the size of the result depends on values")
            value = self.emit(normal)
            if not wanted.fits(value):
                raise NotLoweredError(
                    f"its lowering gives {value.dtype}{list(value.shape)}, "
                    f"not {wanted.dtype}{[*(wanted.shape or ())]}"
                )
            values.append(value)
        return values

    def _call(
        self,
        node: Any,
        function: Any,
        inputs: Sequence[Value | None],
        opsets: Mapping[str, int],
    ) -> list[Slot]:
        """Walks the body of a function, which sees nothing but its inputs."""
        scope: Scope = {name: None for name in function.input}
        scope.update(zip(function.input, inputs, strict=False))
        opsets = {**opsets, **_opsets(function.opset_import)}
        for child in bound_body(function, node):
            self.node(child, scope, opsets)
        return [scope.get(name, MISSING) for name in function.output][: len(node.output)]

    def _initialise(self, graph: Any, scope: Scope) -> None:
        import onnx

        for tensor in graph.initializer:
            scope[tensor.name] = Value.constant(onnx.numpy_helper.to_array(tensor))
        for sparse in graph.sparse_initializer:
            name = sparse.values.name
            self._outermost = (onnx.NodeProto(), scope)
            self.refuse(onnx.helper.make_node("SparseTensor", [], [name], name))
            scope[name] = MISSING

    def _is_known(self, node: Any, opsets: Mapping[str, int]) -> bool:
        """Whether an operator whose inputs are missing could be compiled in some form."""
        if (node.domain, node.op_type, node.overload) in self._functions:
            return True
        key = (node.domain.removeprefix("ai.onnx"), node.op_type)
        if key in LOWERINGS or (not key[0] and node.op_type in CONTROL):
            return True
        if _front_end.has_converter(node):
            return True
        schema = schema_of(node, opsets)
        return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def _inexecutable(inputs: Sequence[Value | None], expected: Sequence[Expected | None]) -> str:
    """The element types that no kernel can be compiled for; empty if there are none."""
    types = [value.dtype for value in inputs if value is not None]
    types += [str(type_.dtype) for type_ in expected if type_ is not None and type_.dtype]
    foreign = dict.fromkeys(name for name in types if name not in _EXECUTABLE)
    return ", ".join("strings" if name == "object" else name for name in foreign)


def _opsets(imports: Any) -> dict[str, int]:
    return {"" if o.domain == "ai.onnx" else o.domain: int(o.version) for o in imports}


def _type_of(value: Any, path: Path) -> tuple[tuple[int, ...], str]:
    tensor = value.type.tensor_type
    dtype = element_type(tensor.elem_type)
    if dtype == "object":
        raise UnsupportedModelError(
            f"{path}: input {value.name!r} holds strings, and inputs must hold numbers: cut that "
            "part off the model"
        )
    return tuple(int(d.dim_value) for d in tensor.shape.dim), dtype


def _field(scope: Scope, name: str) -> Any:
    value = scope.get(name)
    if not isinstance(value, Value):
        raise BadInputError(f"output {name!r} is computed by no node: check the model")
    return value.expression


def _given(value: Slot) -> Value | None:
    assert not isinstance(value, Missing)
    return value


def _is_computed(value: Slot) -> bool:
    return isinstance(value, Value) and value.array is None


def _is_static(expression: Any) -> bool:
    kind = expression.ty
    if not isinstance(kind, _tvm.tvm.relax.TensorType) or kind.shape is None:
        return False
    return all(getattr(extent, "value", None) is not None for extent in kind.shape)


def _renamed(node: Any, inputs: Sequence[Value | None]) -> Any:
    """A copy whose inputs have names by position, and none where the value is left out.

    Two inputs of one name stay told apart, and one that a caller left out is left out.
    """
    import onnx

    result = onnx.NodeProto()
    result.CopyFrom(node)
    del result.input[:], result.output[:]
    result.input.extend("" if value is None else f"i{at}" for at, value in enumerate(inputs))
    result.output.extend(f"o{at}" if name else "" for at, name in enumerate(node.output))
    return result
