"""From a fused program to the workloads worth tuning."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from foretune.graph._memory import size_of
from foretune.graph.passes import PassReport
from foretune.graph.simplify import Plan, Simplified, simplify
from foretune.space import is_scheduled
from foretune.workload import ColdWeights, Workload, mark_cold
from foretune.workload.element_types import element_type

if TYPE_CHECKING:
    from foretune._tvm import IRModule
    from foretune.hardware import Hardware
    from foretune.workload import Model

# Attributes that describe how a function came about, not what it computes: left in, two equal
# programs of two models would have two keys.
_PROVENANCE = ("op_pattern", "Primitive", "Composite")
# What is smaller stays in the first-level cache, or is read in no time.
_LARGE_BYTES = 64 << 10
_DISTANCES = (1 << 20, 4 << 20, 16 << 20, 64 << 20)


@dataclass(frozen=True)
class Extraction:
    """What was found in a model.

    Attributes:
        workloads: One per distinct program, its weight counting its calls, heaviest first.
        untunable: Names of calls that are no tensor program: library calls, shape functions...
        program: The fused program they were cut from.
        functions: Function name in ``program`` to workload key.
        passes: What became of each pass over the graph.
        without: Names of passes that were not wanted, those before code is generated included.
        plan: What the passes that have a choice chose: pass, then operator, to choice.
        between: Bytes that the network reads and writes between two uses of a weight, coarsely.
    """

    workloads: list[Workload]
    untunable: list[str]
    program: IRModule
    functions: dict[str, str]
    passes: tuple[PassReport, ...] = ()
    without: frozenset[str] = frozenset()
    plan: Plan = field(default_factory=dict)
    between: int = 0


def extract(
    model: Model, hardware: Hardware, without: Collection[str] = (), plan: Plan | None = None
) -> Extraction:
    """Simplifies a model, ``without`` the passes named, and cuts it into workloads.

    Args:
        model: The network.
        hardware: What it is for.
        without: Names of passes that do not run.
        plan: What is chosen for some operators, as ``Extraction.plan`` gives it back.

    Raises:
        BadInputError: The plan is for another network.
        UnsupportedOperatorsError: Nothing can lower some of its operators.
    """
    return cut(simplify(model, hardware, without, plan))


def cut(simplified: Simplified, between: int | None = None) -> Extraction:
    """Cuts a fused program into workloads.

    Args:
        simplified: As ``simplify`` returns it.
        between: As in ``Extraction``, where kernels are to be those of another plan of the same
            network; as this program has it if None.
    """
    from foretune import _tvm

    program = simplified.program
    calls: dict[str, int] = {}
    untunable: list[str] = []
    for callee, tunable in _calls(program):
        if tunable:
            calls[callee] = calls.get(callee, 0) + 1
        elif callee not in untunable:
            untunable.append(callee)
    large, own = _large_weights(program)
    between = own if between is None else between
    program = _marked(program, large, between)
    workloads: dict[str, Workload] = {}
    functions: dict[str, str] = {}
    taken: set[str] = set()
    for variable, function in program.functions.items():
        name = str(variable.name_hint)
        if not isinstance(function, _tvm.PrimFunc) or name not in calls:
            continue
        if _tvm.tvm.relax.analysis.has_reshape_pattern(function):
            continue  # Becomes a view of the same memory: there is nothing to run.
        if is_scheduled(function):
            continue  # There is nothing to search.
        workload = as_workload(function, name, calls[name])
        functions[name] = workload.key
        if workload.key in workloads:
            known = workloads[workload.key]
            workloads[workload.key] = known.with_weight(known.weight + calls[name])
            continue
        unique = _unique(_readable(name, function), function, taken)
        taken.add(unique)
        workloads[workload.key] = Workload(
            unique, workload.key, workload.module_json, workload.flops, workload.weight
        )
    ordered = sorted(workloads.values(), key=lambda w: -w.flops * w.weight)
    return Extraction(
        ordered,
        untunable,
        program,
        functions,
        simplified.passes,
        simplified.without,
        simplified.plan,
        between,
    )


def as_workload(function: Any, name: str, weight: int = 1) -> Workload:
    """A PrimFunc of a fused program as a workload, its provenance taken off."""
    from foretune import _tvm

    for attribute in _PROVENANCE:
        if function.attrs is not None and attribute in function.attrs:
            function = function.without_attr(attribute)
    return Workload.from_module(_tvm.IRModule({"main": function}), name, weight)


def _marked(program: IRModule, large: Mapping[str, set[int]], between: int) -> IRModule:
    """The program with tensor programs that say which of their parameters are cold.

    Also those that are not tuned: what is generated from their default schedule depends on it.
    """
    from foretune import _tvm

    cold = {name: ColdWeights(tuple(sorted(at)), between) for name, at in large.items() if at}
    functions = {
        variable: mark_cold(function, cold[str(variable.name_hint)])
        if isinstance(function, _tvm.PrimFunc) and str(variable.name_hint) in cold
        else function
        for variable, function in program.functions.items()
    }
    return _tvm.IRModule(functions)


def _large_weights(program: IRModule) -> tuple[dict[str, set[int]], int]:
    """Of each tensor program the parameters that are a constant in each call, and large.

    Between two uses of one a network reads all others, and writes and reads its results: so many
    bytes, coarsely, are the second value.
    """
    from foretune import _tvm

    relax = _tvm.tvm.relax
    sizes: dict[Any, int] = {}
    results = 0
    large: dict[str, set[int]] = {}

    def visit(expression: Any) -> None:
        nonlocal results
        if not isinstance(expression, relax.Call) or not _is_program(expression):
            return
        if not relax.analysis.has_reshape_pattern(program[expression.args[0]]):
            results += _bytes_of(expression.ty)
        here = set()
        operands = expression.args[1]
        for at, operand in enumerate(getattr(operands, "fields", [operands])):
            value = getattr(operand, "value", None)
            if isinstance(value, _tvm.tvm.runtime.Tensor):
                sizes[operand] = size_of(value)
                if sizes[operand] >= _LARGE_BYTES:
                    here.add(at)
        name = str(expression.args[0].name_hint)
        large[name] = large.get(name, here) & here

    relax.analysis.post_order_visit(program["main"], visit)
    return large, _rounded(sum(sizes.values()) + results)


def _bytes_of(kind: Any) -> int:
    """Of a result, or of several."""
    fields = getattr(kind, "fields", None)
    if fields is not None:
        return sum(_bytes_of(field) for field in fields)
    extents = [int(getattr(extent, "value", extent)) for extent in kind.shape]
    return math.prod(extents) * element_type(str(kind.dtype)).itemsize


def _rounded(size: int) -> int:
    """The lowest power of four MiB from ``size`` on, 64 MiB at most.

    Coarsely, because a kernel of two networks is one workload if their sizes are alike.
    """
    return next((step for step in _DISTANCES if size <= step), _DISTANCES[-1])


def _is_program(call: Any) -> bool:
    return str(getattr(call.op, "name", "")) in ("relax.call_tir", "relax.call_tir_inplace")


def _calls(program: IRModule) -> Iterator[tuple[str, bool]]:
    """Every kernel call of ``main``, in order: the name, and whether it is a tensor program."""
    from foretune import _tvm

    relax = _tvm.tvm.relax
    kernels: list[tuple[str, bool]] = []

    def visit(expression: Any) -> None:
        if not isinstance(expression, relax.Call):
            return
        name = str(getattr(expression.op, "name", ""))
        if _is_program(expression):
            kernels.append((str(expression.args[0].name_hint), True))
        elif name in ("relax.call_dps_packed", "relax.call_pure_packed"):
            kernels.append((str(getattr(expression.args[0], "global_symbol", name)), False))
        elif name.startswith("relax.") and not name.startswith("relax.memory"):
            kernels.append((name.removeprefix("relax."), False))

    relax.analysis.post_order_visit(program["main"], visit)
    return iter(kernels)


def _readable(name: str, function: Any) -> str:
    """``fused_conv2d10_add8`` with its output shape and without the counters of fusion."""
    # The dimension in conv2d or pool3d belongs to the operator, only what follows it counts.
    parts = [re.sub(r"^(.*?\dd|.*?\D)\d+$", r"\1", part) for part in name.split("_")]
    plain = "_".join(part for part in parts if part != "tir")
    return f"{plain}_{_shape(_buffers(function)[-1])}"


def _unique(name: str, function: Any, taken: set[str]) -> str:
    """``name``, or with the shapes of further arguments where it is taken."""
    candidates = [name]
    for buffer in reversed(_buffers(function)[:-1]):
        candidates.append(f"{candidates[-1]}_{_shape(buffer)}")
    candidates.extend(f"{candidates[0]}_{i}" for i in range(2, len(taken) + 3))
    # Argument shapes read better than counters, but the second argument (weights) alone best.
    if len(_buffers(function)) > 2:
        candidates.insert(1, f"{name}_w{_shape(_buffers(function)[1])}")
    return next(candidate for candidate in candidates if candidate not in taken)


def _buffers(function: Any) -> list[Any]:
    return [p for p in function.params if hasattr(p.ty, "shape") or hasattr(p, "shape")]


def _shape(buffer: Any) -> str:
    return "x".join(str(int(extent)) for extent in buffer.shape) or "scalar"
