"""The walk over an exported graph, from its inputs to its outputs, that makes the Relax function.

Every node has fake results: PyTorch's own shapes and element types. What a lowering returns must
have them; one that differs counts as missing. Nodes that depend on no input, such as ranges and
masks, are computed by PyTorch at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from foretune import _tvm
from foretune.errors import first_line
from foretune.workload.importers.torch._node import Node, NotLoweredError, dtype_name
from foretune.workload.importers.torch._table import IGNORED, INLINED, LOWERINGS
from foretune.workload.model import from_tensor

if TYPE_CHECKING:
    from foretune._tvm import IRModule

_FOLDED = 1 << 20
"""Elements of a result that is computed at once at most."""


class Missing:
    """The value of a node that cannot be compiled, or of one behind it."""


MISSING = Missing()
COMPLEX = Missing()
"""An input of complex numbers: what reads it is refused by its name."""
_NO_COMPLEX = "complex numbers"


@dataclass
class Walked:
    """What a walk gives.

    Attributes:
        module: Holds ``main``; None where nodes were refused.
        refused: Operator to the nodes that cannot be compiled.
        reasons: Operator to why its first such node is refused, where that is known.
    """

    module: IRModule | None
    refused: dict[str, list[Any]]
    reasons: dict[str, str]


def name_of(target: Any) -> str:
    """``name.overload`` of an operator, without its library: ``add.Tensor``."""
    return str(getattr(target, "__name__", target))


def walk(program: Any, states: Mapping[str, str]) -> Walked:
    """A Relax module whose ``main`` computes an exported program.

    Args:
        program: Decomposed as far as it goes.
        states: Placeholder of a buffer that the program writes -> name of the input it becomes.
    """
    return _Walk(program, states).run()


class _Walk:
    def __init__(self, program: Any, states: Mapping[str, str]) -> None:
        self.builder = _tvm.tvm.relax.BlockBuilder()
        self._program, self._states = program, states
        self._refused: dict[str, list[Any]] = {}
        self._reasons: dict[str, str] = {}
        self._constants: dict[int, Any] = {}

    def run(self) -> Walked:
        relax, graph = _tvm.tvm.relax, self._program.graph
        values: dict[Any, Any] = {}
        parameters = self._inputs(values)
        outputs = self._program.graph_signature.output_specs
        with self.builder.function("main", parameters):
            with self.builder.dataflow():
                results = self._body(self._program.graph_module, graph, values)
                self._refuse_complex_outputs(results)
                fields = [] if self._refused else self._fields(results, outputs)
                whole = fields[0] if len(fields) == 1 else relax.Tuple(fields)
                result = self.builder.emit_output(whole)
            self.builder.emit_func_output(result)
        module = None if self._refused else self.builder.get()
        return Walked(module, self._refused, self._reasons)

    def _inputs(self, values: dict[Any, Any]) -> list[Any]:
        """Gives each placeholder its value; returns the parameters of ``main``, states last."""
        from torch.export.graph_signature import InputKind, TensorArgument

        relax, program = _tvm.tvm.relax, self._program
        held = {**program.state_dict, **program.constants}
        specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
        ordinary, states = [], {}
        for node in program.graph.find_nodes(op="placeholder"):
            spec, fake = specs[node.name], node.meta.get("val")
            is_input = spec.kind is InputKind.USER_INPUT
            if is_input and not isinstance(spec.arg, TensorArgument):
                values[node] = spec.arg.value
            elif is_input or node.name in self._states:
                if fake.dtype.is_complex:
                    values[node] = COMPLEX
                    continue
                shape = [int(extent) for extent in fake.shape]
                name = self._states.get(node.name, node.name)
                values[node] = relax.Var(name, relax.TensorType(shape, dtype_name(fake.dtype)))
                if is_input:
                    ordinary.append(values[node])
                else:
                    states[node.name] = values[node]
            elif held[spec.target].is_complex() or (
                spec.kind is not InputKind.PARAMETER and _is_table(held[spec.target])
            ):
                values[node] = held[spec.target].cpu()
            else:
                values[node] = self._parameter(held[spec.target])
        return [*ordinary, *(states[name] for name in self._states if name in states)]

    def _parameter(self, tensor: Any) -> Any:
        known = self._constants.get(id(tensor))
        if known is None:
            array = from_tensor(tensor)
            known = _tvm.tvm.relax.const(array, str(array.dtype))
            self._constants[id(tensor)] = known
        return known

    def _body(self, owner: Any, graph: Any, values: dict[Any, Any]) -> Any:
        for node in graph.nodes:
            if node.op == "output":
                return node.args[0], values
            if node.op == "get_attr":
                values[node] = _attribute(owner, node.target)
            elif node.op != "placeholder":
                values[node] = self._node(owner, node, values)
        raise AssertionError("a graph without an output")

    def _refuse_complex_outputs(self, results: Any) -> None:
        """Notes outputs of complex numbers that no operator computes."""
        import torch

        arguments, values = results
        for argument in arguments:
            value = values.get(argument) if hasattr(argument, "meta") else None
            is_constant = isinstance(value, torch.Tensor) and value.is_complex()
            if value is COMPLEX or is_constant:
                self._refuse(argument, "output", _NO_COMPLEX)

    def _fields(self, results: Any, specs: Sequence[Any]) -> list[Any]:
        """The tensors of the output in its order, then the new states in the order of the inputs.

        Numbers and None are no outputs of an artifact.
        """
        from torch.export.graph_signature import OutputKind

        ordinary, states = [], {}
        order = {}
        for spec in self._program.graph_signature.input_specs:
            order[spec.target] = spec.arg.name
        arguments, values = results
        for argument, spec in zip(arguments, specs, strict=True):
            value = values.get(argument) if hasattr(argument, "meta") else argument
            if spec.kind is OutputKind.BUFFER_MUTATION:
                place = order[spec.target]
                states[place] = self._as_state(place, self._expression(value))
            elif spec.kind is OutputKind.USER_OUTPUT and _is_tensor(value):
                ordinary.append(self._expression(value))
        return [*ordinary, *(states[name] for name in self._states)]

    def _as_state(self, place: str, value: Any) -> Any:
        """The value in the type and shape of the state; PyTorch drops the copy that makes it so."""
        op = _tvm.tvm.relax.op
        (node,) = (n for n in self._program.graph.find_nodes(op="placeholder") if n.name == place)
        fake = node.meta["val"]
        value = self.builder.normalize(value)
        if str(value.ty.dtype) != dtype_name(fake.dtype):
            value = self.builder.emit(op.astype(value, dtype_name(fake.dtype)))
        shape = [int(extent) for extent in fake.shape]
        if [int(extent) for extent in value.ty.shape] != shape:
            value = self.builder.emit(op.broadcast_to(value, shape))
        return value

    def _node(self, owner: Any, node: Any, values: dict[Any, Any]) -> Any:
        from torch.utils import _pytree as pytree

        name = name_of(node.target)
        if name in IGNORED:
            return None
        given = [values[n] for n in node.all_input_nodes]
        if any(value is COMPLEX for value in given):
            return self._refuse(node, name, _NO_COMPLEX)
        if any(value is MISSING for value in given):
            known = name in LOWERINGS or name == "getitem" or name in INLINED
            symbolic = not _has_tensor(node.meta.get("val"))
            return MISSING if known or symbolic else self._refuse(node, name)
        look = {n: values[n] for n in node.all_input_nodes}
        args, kwargs = pytree.tree_map(
            lambda a: look.get(a, a) if hasattr(a, "op") else a, (node.args, node.kwargs)
        )
        if name == "getitem":
            part = args[0][args[1]]
            return self._refuse_type(node, name, part)
        if name in INLINED:
            return self._inlined(args, owner)
        try:
            if self._is_known(node, args, kwargs):
                return _evaluate(node, args, kwargs)
            return self._lowered(node, name, args, kwargs)
        except NotLoweredError as error:
            return self._refuse(node, name, str(error))

    def _lowered(self, node: Any, name: str, args: Any, kwargs: Any) -> Any:
        fakes = node.meta.get("val")
        several = isinstance(fakes, (tuple, list))
        listed = list(fakes) if several else [fakes]
        if any(getattr(fake, "dtype", None) in _complex_types() for fake in listed):
            raise NotLoweredError(_NO_COMPLEX)
        if any(not hasattr(fake, "shape") or _is_dynamic(fake) for fake in listed):
            raise NotLoweredError("the size of the result depends on values")
        if name not in LOWERINGS or not hasattr(node.target, "_schema"):
            return self._refuse(node, name)
        arguments = _bound(node.target._schema, args, kwargs)
        raw = _bound(node.target._schema, *_fake_arguments(node))
        arguments = {key: self._argument(value) for key, value in arguments.items()}
        read = {user.args[1] for user in node.users if name_of(user.target) == "getitem"}
        call = Node(name, self.builder, fakes, arguments, raw, read if several else {0})
        if all(math.prod(fake.shape) == 0 for fake in listed):
            results = [self._empty(call, fake) for fake in listed]
            return results if several else results[0]
        try:
            result = LOWERINGS[name](call)
        except NotLoweredError:
            raise
        except Exception as error:  # TVM's constructors raise many kinds for what they cannot do
            raise NotLoweredError(first_line(error)) from error
        made = list(result) if several else [result]
        return self._checked(node, name, made, call, several)

    def _checked(self, node: Any, name: str, made: list[Any], call: Node, several: bool) -> Any:
        """The results, normalised; refused where their types are not PyTorch's."""
        fakes = call.fake if several else [call.fake]
        normal: list[Any] = []
        for at, (result, fake) in enumerate(zip(made, fakes, strict=False)):
            if result is None or at not in call.read:
                normal.append(MISSING)
                continue
            value = self.builder.normalize(result)
            want = ([int(n) for n in fake.shape], dtype_name(fake.dtype))
            have = ([int(n) for n in value.ty.shape], str(value.ty.dtype))
            if want != have:
                wrong = f"its lowering gives {_typed(*have)}, not {_typed(*want)}"
                return self._refuse(node, name, wrong)
            normal.append(value)
        return normal if several else normal[0]

    def _empty(self, call: Node, fake: Any) -> Any:
        return call.full([int(n) for n in fake.shape], 0, dtype_name(fake.dtype))

    def _argument(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [self._argument(part) for part in value]
        return self._expression(value) if _is_tensor(value) else value

    def _expression(self, value: Any) -> Any:
        """A Relax expression: a tensor that is known becomes a constant."""
        import torch

        relax = _tvm.tvm.relax
        if not isinstance(value, torch.Tensor):
            return value
        if value.is_complex():
            raise NotLoweredError(_NO_COMPLEX)
        flat = value.reshape(-1)
        if value.dim() and flat.numel() and bool((flat == flat[0]).all()):
            array = from_tensor(flat[0])
            full = relax.op.full(list(value.shape), relax.const(array, str(array.dtype)))
            return self.builder.emit(full)
        array = from_tensor(value)
        return relax.const(array, str(array.dtype))

    def _is_known(self, node: Any, args: Any, kwargs: Any) -> bool:
        """Whether PyTorch can compute this node now: nothing in it comes from an input."""
        import torch
        from torch.utils import _pytree as pytree

        if not hasattr(node.target, "_schema"):
            return False
        leaves = pytree.tree_leaves((args, kwargs))
        if any(isinstance(leaf, _tvm.tvm.ir.Expr) for leaf in leaves):
            return False
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            return False
        made = pytree.tree_leaves(node.meta.get("val"))
        tensors = [fake for fake in made if hasattr(fake, "shape")]
        small = sum(math.prod(fake.shape) for fake in tensors) <= _FOLDED
        return bool(tensors) and not any(_is_dynamic(fake) for fake in tensors) and small

    def _inlined(self, args: Any, owner: Any) -> Any:
        import torch

        at = next(n for n, value in enumerate(args) if isinstance(value, torch.nn.Module))
        inner = args[at]
        places = inner.graph.find_nodes(op="placeholder")
        values = dict(zip(places, args[at + 1 :], strict=True))
        results, values = self._body(inner, inner.graph, values)
        listed = results if isinstance(results, (tuple, list)) else (results,)
        made = [values[part] if hasattr(part, "op") else part for part in listed]
        return made if isinstance(results, (tuple, list)) else made[0]

    def _refuse_type(self, node: Any, name: str, part: Any) -> Any:
        return self._refuse(node, name) if part is MISSING and not node.users else part

    def _refuse(self, node: Any, name: str, reason: str = "") -> Missing:
        library = getattr(node.target, "namespace", "")
        operator = f"{library}.{name}" if library else name
        nodes = self._refused.setdefault(operator, [])
        if not nodes and reason:
            self._reasons[operator] = reason
        nodes.append(node)
        return MISSING


def _typed(shape: Sequence[int], dtype: str) -> str:
    return f"{dtype}[{', '.join(map(str, shape))}]"


def _complex_types() -> tuple[Any, ...]:
    import torch

    return torch.complex32, torch.complex64, torch.complex128


def _attribute(owner: Any, path: str) -> Any:
    for part in path.split("."):
        owner = getattr(owner, part)
    return owner


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, (torch.Tensor, _tvm.tvm.ir.Expr))


def _is_table(tensor: Any) -> bool:
    """Whether a buffer holds positions or a mask: what is computed from it alone is known."""
    exact = not tensor.is_floating_point() and not tensor.is_complex()
    return bool(exact and tensor.numel() <= _FOLDED)


def _has_tensor(fakes: Any) -> bool:
    from torch.utils import _pytree as pytree

    return any(hasattr(fake, "shape") for fake in pytree.tree_leaves(fakes))


def _is_dynamic(fake: Any) -> bool:
    return any(not isinstance(extent, int) for extent in fake.shape)


def _fake_arguments(node: Any) -> tuple[Any, Any]:
    from torch.utils import _pytree as pytree

    result: tuple[Any, Any] = pytree.tree_map(
        lambda a: a.meta.get("val") if hasattr(a, "op") else a, (node.args, node.kwargs)
    )
    return result


def _bound(schema: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by name, with the schema's defaults."""
    bound: dict[str, Any] = {}
    for at, argument in enumerate(schema.arguments):
        if at < len(args) and not argument.kwarg_only:
            bound[argument.name] = args[at]
        elif argument.name in kwargs:
            bound[argument.name] = kwargs[argument.name]
        else:
            bound[argument.name] = argument.default_value
    return bound


def _evaluate(node: Any, args: Any, kwargs: Any) -> Any:
    import torch

    name, fake = name_of(node.target), node.meta["val"]
    if name.startswith(("empty", "new_empty")):
        return torch.zeros(tuple(fake.shape), dtype=fake.dtype)
    if "device" in kwargs:
        kwargs = {**kwargs, "device": "cpu"}
    try:
        with torch.no_grad():
            return node.target(*args, **kwargs)
    except Exception as error:  # a kernel may refuse an element type or values in any way
        raise NotLoweredError(first_line(error)) from error
