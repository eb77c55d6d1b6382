"""The calls of a network as one compiled function, with a plan of the memory between them.

TVM's virtual machine interprets ``main``: it checks each parameter, makes a tensor object for each
intermediate result and looks up each kernel, in every call. In a network of many small kernels that
is a tenth of the time. Before → after::

    main(x, w):                              sequence(x, w, workspace, out):
        a = alloc(...); first(x, w, a)           first(x, w, workspace[0:...])
        b = alloc(...); second(a, b)             second(workspace[0:...], out)
        return b                             main(x, w):
                                                 out = alloc(...); workspace = alloc(...)
                                                 sequence(x, w, workspace, out)
                                                 return out

Beside ``main`` there is ``main_in``, which is given the workspace as its last argument: whoever
runs the network more than once can keep it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretune._tvm import IRModule

ENTRY = "main_in"
"""The function that is given a workspace."""

_ALIGNMENT = 128
_REWRITTEN = ("bfloat16", "float8", "float6", "float4", "int4", "uint4")
"""Types that code generation rewrites: what a caller says of them would not be what is compiled."""


@dataclass(frozen=True)
class OneFunction:
    """A module whose ``main`` was made one function.

    Attributes:
        module: The module.
        workspace: Bytes that ``main_in`` wants.
        reason: Why ``main`` was left as it is; empty if it was not.
    """

    module: IRModule
    workspace: int = 0
    reason: str = ""


class _CannotError(Exception):
    """Something in ``main`` has no place in a tensor program."""


@dataclass(frozen=True)
class _Place:
    """Where a tensor lies.

    Attributes:
        buffer: Number of the argument of the function; None for the workspace.
        offset: In the workspace, in bytes.
    """

    buffer: int | None
    offset: int = 0


def one_function(module: IRModule, inputs: int) -> OneFunction:
    """Joins the calls of ``main``.

    Args:
        module: Its ``main`` has a plan of its memory already, ``StaticPlanBlockMemory``'s.
        inputs: Number of the parameters of ``main`` that are no weights: they are checked as
            before, the others by the function itself.
    """
    try:
        plan = _Plan(module)
        return OneFunction(_joined(module, plan, inputs), plan.size)
    except _CannotError as error:
        return OneFunction(module, reason=str(error))


class _Plan:
    """What ``main`` does, in order.

    Attributes:
        calls: Names of kernels, each with its arguments.
        outputs: Variables that are allocated for the caller.
        kept: Bindings that what is returned is made of.
        places: Of all tensors.
        size: Bytes of the workspace.
    """

    def __init__(self, module: IRModule) -> None:
        from foretune import _tvm

        self._tvm, self._relax = _tvm.tvm, _tvm.tvm.relax
        self._module = module
        main = module["main"]
        self.calls: list[tuple[str, list[Any]]] = []
        self.outputs: list[Any] = []
        self.kept: list[Any] = []
        self.places = {parameter: _Place(n) for n, parameter in enumerate(main.params)}
        self.size = _ALIGNMENT
        self._storages: dict[Any, int] = {}
        self._first_output = len(main.params)
        for parameter in main.params:
            self._require_plain(parameter)
        if not isinstance(main.body, self._relax.SeqExpr):
            raise _CannotError("it calls no kernel")
        for block in main.body.blocks:
            for binding in block.bindings:
                self._take(binding)
        if not self.calls:
            raise _CannotError("it calls no kernel")

    def _take(self, binding: Any) -> None:
        variable, value = binding.var, getattr(binding, "value", None)
        if isinstance(value, self._relax.Var):
            self._alias(binding, value)
        elif isinstance(value, self._relax.Tuple):
            self.kept.append(binding)
        elif not isinstance(value, self._relax.Call):
            raise _CannotError(f"it holds a {type(value).__name__}")
        elif isinstance(value.op, self._tvm.ir.GlobalVar):
            self._call(value)
        else:
            self._operator(binding, str(getattr(value.op, "name", value.op)))
        if variable in self.places:
            self._require_plain(variable)

    def _operator(self, binding: Any, name: str) -> None:
        variable, call = binding.var, binding.value
        if name == "relax.memory.alloc_storage":
            self._storages[variable] = self.size
            (size,) = (int(extent) for extent in call.args[0].values)
            self.size += -(-size // _ALIGNMENT) * _ALIGNMENT
        elif name == "relax.memory.alloc_tensor" and call.args[0] in self._storages:
            offset = self._storages[call.args[0]] + int(call.args[1].value)
            self.places[variable] = _Place(None, offset)
        elif name == "relax.builtin.alloc_tensor":
            self.places[variable] = _Place(self._first_output + len(self.outputs))
            self.outputs.append(variable)
            self.kept.append(binding)
        elif name == "relax.reshape":
            self._alias(binding, call.args[0])
        elif not name.startswith("relax.memory.kill"):
            raise _CannotError(f"it calls {name.removeprefix('relax.')}")

    def _alias(self, binding: Any, source: Any) -> None:
        """Another name, or another shape, for the same memory."""
        if source in self.places:
            self.places[binding.var] = self.places[source]
        self.kept.append(binding)

    def _call(self, call: Any) -> None:
        name = str(call.op.name_hint)
        for argument in call.args:
            if argument not in self.places:
                raise _CannotError(f"{name} is given something other than a tensor")
        self.calls.append((name, list(call.args)))

    def _require_plain(self, variable: Any) -> None:
        dtype = str(getattr(variable.ty, "dtype", ""))
        shape = getattr(variable.ty, "shape", None)
        if not dtype or dtype.startswith(_REWRITTEN) or shape is None:
            raise _CannotError(f"it holds {variable.ty}")


def _joined(module: IRModule, plan: _Plan, inputs: int) -> IRModule:
    from foretune import _tvm

    main = module["main"]
    builder = _tvm.tvm.relax.BlockBuilder(module)
    variable = builder.add_func(_sequence(main, plan), "sequence")
    # Called by its name: the compiler would want to know the types of the parameters.
    callee = _tvm.tvm.relax.ExternFunc(str(variable.name_hint))
    builder.update_func(module.get_global_var("main"), _main(main, plan, inputs, callee))
    builder.add_func(_main(main, plan, inputs, callee, ENTRY), ENTRY)
    result: IRModule = builder.get()
    return result


def _sequence(main: Any, plan: _Plan) -> Any:
    """The tensor program that calls all kernels."""
    from foretune import _tvm

    tirx = _tvm.tvm.tirx
    given = [*main.params, *plan.outputs]
    # What all kernels take as it is they check themselves, and it is a handle here: code that
    # checks hundreds of weights would keep the compiler busy for longer than all kernels do.
    viewed = {
        place.buffer
        for _, arguments in plan.calls
        for variable, place in ((each, plan.places[each]) for each in arguments)
        if place.buffer is not None and _shape(variable) != _shape(given[place.buffer])
    }
    parameters = [
        tirx.decl_buffer(_shape(variable), str(variable.ty.dtype), name=f"a{number}")
        if number in viewed
        else tirx.Var(f"a{number}", "handle")
        for number, variable in enumerate(given)
    ]
    workspace = tirx.decl_buffer((plan.size,), "uint8", name="workspace")

    def tensor(variable: Any) -> Any:
        place, shape = plan.places[variable], _shape(variable)
        if place.buffer is None:
            pointer = tirx.handle_add_byte_offset(tirx.op.buffer_data(workspace), place.offset)
        elif place.buffer in viewed:
            pointer = tirx.op.buffer_data(parameters[place.buffer])
        else:
            return parameters[place.buffer]
        extents = [tirx.const(extent, "int64") for extent in shape]
        dims = tirx.call_intrin("handle", "tirx.tvm_stack_make_shape", *extents)
        zero = tirx.const(0, str(variable.ty.dtype))
        return tirx.call_intrin(
            "handle", "tirx.tvm_stack_make_array", pointer, dims, 0, len(shape), zero, 0
        )

    calls = [
        tirx.Evaluate(
            tirx.call_intrin("int32", "tirx.tvm_call_cpacked", kernel, *map(tensor, arguments))
        )
        for kernel, arguments in plan.calls
    ]
    body = tirx.SeqStmt(calls) if len(calls) > 1 else calls[0]
    first = len(main.params)
    function = tirx.PrimFunc([*parameters[:first], workspace, *parameters[first:]], body)
    # Without the promise here TVM drops that of the kernels: their sums then go through memory.
    return function.with_attrs({"tirx.is_scheduled": True, "tirx.noalias": True})


def _main(main: Any, plan: _Plan, inputs: int, callee: Any, entry: str = "main") -> Any:
    """What is left of ``main``: the outputs, the one call, and what is made of the outputs."""
    from foretune import _tvm

    relax = _tvm.tvm.relax
    kept = _needed(main, plan)
    returned = {v for b in kept for v in relax.analysis.free_vars(b.value)}
    returned |= set(relax.analysis.free_vars(main.body.body))
    parameters = [
        # The function checks its arguments itself, in a thousandth of the time.
        parameter
        if number < inputs or parameter in returned
        else relax.Var(str(parameter.name), relax.AnyType())
        for number, parameter in enumerate(main.params)
    ]
    workspace = relax.Var("workspace", relax.TensorType((plan.size,), "uint8"))
    allocated = [binding for binding in kept if binding.var in plan.outputs]
    if entry == "main":
        size = relax.ShapeExpr([plan.size])
        memory = relax.op.builtin.alloc_tensor(size, "uint8", 0, "global")
        allocated.append(relax.VarBinding(workspace, memory))
    nothing = relax.TupleType([])
    call = relax.Call(callee, [*parameters, workspace, *plan.outputs], ty_args=[nothing])
    bindings = [
        *allocated,
        relax.VarBinding(relax.Var("_", nothing), call),
        *(binding for binding in kept if binding.var not in plan.outputs),
    ]
    body = relax.SeqExpr([relax.BindingBlock(bindings)], main.body.body)
    arguments = parameters if entry == "main" else [*parameters, workspace]
    function = relax.Function(arguments, body, main.ret_ty, is_pure=False, attrs=main.attrs)
    return relax.utils.copy_with_new_vars(function.with_attr("global_symbol", entry))


def _needed(main: Any, plan: _Plan) -> list[Any]:
    """The bindings that allocate the outputs, and those that the result is made of, in order."""
    from foretune import _tvm

    free = _tvm.tvm.relax.analysis.free_vars
    wanted = {*free(main.body.body), *plan.outputs}
    needed: list[Any] = []
    for binding in reversed(plan.kept):
        if binding.var in wanted:
            wanted.update(free(binding.value))
            needed.append(binding)
    return needed[::-1]


def _shape(variable: Any) -> tuple[int, ...]:
    return tuple(int(extent) for extent in variable.ty.shape)
