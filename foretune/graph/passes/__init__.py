"""The passes over a network, in order, each with a name and a switch.

The idea: everything that inference does not need, or that can be computed at compile time, goes
before tasks are cut, because a task that does not exist needs no trials. Each pass has a file of
its own, or is TVM's. It runs under a guard: one that fails on a network is left out for it.

``_guard`` is the guard; ``_decisions`` are what a plan may say. On operators: ``rewrites``,
``recurrences``, ``integers``, ``batch_norms``, ``element_types``, ``normalizations``,
``attention``, ``transposed_convolutions``, ``layouts``, ``transposes``, ``algorithms``,
``packed_weights``, ``reshapes``; ``_sinking`` says what sinks below what. On tensor programs:
``fusion``, ``winograd_tiles``. On calls: ``one_function``, ``cuda_graph``. ``_kernels`` and
``_operands`` are for passes that make kernels.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from foretune import codegen
from foretune._registry import Registry
from foretune.errors import BadInputError, last_line
from foretune.graph.passes import cuda_graph
from foretune.graph.passes._decisions import Decisions, kind_of, operands_of
from foretune.graph.passes._guard import Change, Passes, PassReport, failure, why_off
from foretune.graph.passes.algorithms import choose_algorithms
from foretune.graph.passes.attention import fuse_attention
from foretune.graph.passes.batch_norms import fold_batch_norms
from foretune.graph.passes.element_types import legal_types
from foretune.graph.passes.fusion import choose_fusion
from foretune.graph.passes.integers import integer_products
from foretune.graph.passes.layouts import assign_layouts
from foretune.graph.passes.normalizations import find_normalizations, lower_normalizations
from foretune.graph.passes.one_function import OneFunction, one_function
from foretune.graph.passes.packed_weights import pack_weights
from foretune.graph.passes.recurrences import recurrence_kernels, unrolled_recurrences
from foretune.graph.passes.reshapes import sink_reshapes
from foretune.graph.passes.rewrites import drop_masks, rewrite_operators
from foretune.graph.passes.transposed_convolutions import split_phases
from foretune.graph.passes.transposes import sink_transposes
from foretune.graph.passes.winograd_tiles import schedule_tiles

if TYPE_CHECKING:
    from foretune._tvm import IRModule
    from foretune.hardware import Hardware

logger = logging.getLogger(__name__)

__all__ = [
    "OPERATORS",
    "PROGRAMS",
    "Decisions",
    "Pass",
    "PassReport",
    "Passes",
    "added",
    "capture",
    "deciding",
    "failure",
    "join",
    "kind_of",
    "names",
    "operands_of",
    "register",
    "require",
    "require_deciding",
    "unregister",
    "why_off",
]

_Changes = Callable[["Hardware", Decisions], Sequence[Change]]


@dataclass(frozen=True)
class Pass:
    """One pass.

    Attributes:
        name: Under which it is switched off.
        changes: What it consists of, for a hardware and the decisions of a plan.
        only: Kind of target that it is for; empty if it is for all.
        decides: Whether it has a choice for some operators, which a plan may make.
        always: What is done behind it, also where it is off or failed.
    """

    name: str
    changes: _Changes
    only: str = ""
    decides: bool = False
    always: Change | None = None


def _relax(*names: str) -> _Changes:
    """TVM's passes of these names."""

    def changes(_hardware: Hardware, _decisions: Decisions) -> Sequence[Change]:
        from foretune import _tvm

        transform = _tvm.tvm.relax.transform
        return [getattr(transform, name)() for name in names]

    return changes


def _on_main(name: str) -> _Changes:
    """A pass of TVM that wants to know where the program begins."""

    def changes(_hardware: Hardware, _decisions: Decisions) -> Sequence[Change]:
        from foretune import _tvm

        transform = _tvm.tvm.relax.transform
        main = "main" if name == "DecomposeOpsForInference" else ["main"]
        return [getattr(transform, name)(main)]

    return changes


def _ours(*changes: Change) -> _Changes:
    return lambda _hardware, _decisions: changes


def _fusion(hardware: Hardware, decisions: Decisions) -> Sequence[Change]:
    annotate, *fuse = _relax("AnnotateTIROpPattern", "FuseOps", "FuseTIR")(hardware, decisions)
    return [annotate, lambda module: choose_fusion(module, decisions), *fuse]


_REWRITES = Pass("rewrites", _ours(rewrite_operators))
_MASKS = Pass("masks", _ours(drop_masks))
_CONSTANTS = Pass("constants", _relax("FoldConstant"))
_DEAD_CODE = Pass("dead-code", _on_main("DeadCodeElimination"))

_NORMALIZATIONS = "normalizations"

OPERATORS = (
    Pass("normal-form", _relax("Normalize", "CanonicalizeBindings")),
    Pass(
        "recurrences",
        lambda hardware, _: [lambda module: recurrence_kernels(module, hardware)],
        only="llvm",
        always=unrolled_recurrences,
    ),
    Pass("integers", lambda hardware, _: [lambda module: integer_products(module, hardware)]),
    _REWRITES,
    Pass("batch-norms", _ours(fold_batch_norms)),
    Pass("element-types", _ours(legal_types)),
    Pass("inference-operators", _on_main("DecomposeOpsForInference")),
    _CONSTANTS,
    _DEAD_CODE,
    _REWRITES,
    _MASKS,
    Pass(_NORMALIZATIONS, _ours(find_normalizations)),
    Pass(
        "attention",
        lambda hardware, _: [lambda module: fuse_attention(module, hardware)],
        only="llvm",
    ),
    Pass(
        "transposed-convolutions",
        lambda hardware, _: [lambda module: split_phases(module, hardware)],
        only="llvm",
    ),
    Pass(
        "layouts",
        lambda _hardware, decisions: [lambda module: assign_layouts(module, decisions)],
        only="llvm",
        decides=True,
    ),
    # What layouts leave between operators, and what the model transposes itself.
    Pass("transposes", _ours(sink_transposes)),
    Pass("equal-operators", _relax("EliminateCommonSubexpr")),
    _REWRITES,
    _MASKS,
    Pass(
        "algorithms",
        lambda hardware, decisions: [lambda module: choose_algorithms(module, hardware, decisions)],
        only="llvm",
        decides=True,
    ),
    Pass(
        "packed-weights",
        lambda hardware, decisions: [lambda module: pack_weights(module, hardware, decisions)],
        only="llvm",
        decides=True,
    ),
    _REWRITES,
    Pass("reshapes", _ours(sink_reshapes)),
    Pass(
        _NORMALIZATIONS,
        lambda hardware, _: [lambda module: lower_normalizations(module, hardware)],
        only="llvm",
    ),
    _REWRITES,
)
"""Passes over operators, in order; one that is there several times has several turns."""

_ADDED: Registry[IRModule] = Registry("graph pass", "foretune.graph_passes", {})


def added() -> tuple[Pass, ...]:
    """Passes over operators that other packages or ``register`` add, by name: after all of ours."""
    return tuple(Pass(name, _ours(_loaded(name))) for name in _ADDED.names())


def _loaded(name: str) -> Change:
    """What a pass does, looked for under the guard: one that cannot be loaded is left out."""

    def change(module: IRModule) -> IRModule:
        return _ADDED.factory(name)(module)

    return change


def register(name: str, change: Change) -> None:
    """Makes a pass over operators known in this process, called with a module, which it leaves.

    Raises:
        BadInputError: The name is taken.
    """
    if name in names():
        raise BadInputError(f"there is a pass {name!r} already: register it under another name")
    _ADDED.register(name, change)


def unregister(name: str) -> None:
    """Takes back what ``register`` added."""
    _ADDED.unregister(name)


PROGRAMS = (
    _CONSTANTS,
    Pass("fusion", _fusion, decides=True),
    Pass("winograd-tiles", _ours(schedule_tiles), only="llvm"),
    _DEAD_CODE,
)
"""Passes over the tensor programs that operators were lowered to."""


JOINING = "one-function"
"""The pass that joins the calls of kernels, when each has its schedule and memory its plan."""


def join(
    module: IRModule, hardware: Hardware, without: Collection[str], inputs: int
) -> tuple[OneFunction, PassReport]:
    """Joins the calls of ``main``, where that is wanted and can be done; see ``one_function``."""
    off = why_off(JOINING, codegen.KIND, hardware, without)
    joined = OneFunction(module, reason=off) if off else _joined(module, inputs)
    on = not joined.reason
    return joined, PassReport(JOINING, on, joined.reason, changed=on)


def _joined(module: IRModule, inputs: int) -> OneFunction:
    """``one_function``, left out where it fails."""
    try:
        return one_function(module, inputs)
    except Exception as error:  # TVM raises what it likes
        fault = f"{type(error).__name__}: {last_line(error, 160)}"
        logger.warning("%r is left out for this network (%s)", JOINING, fault)
        return OneFunction(module, reason=failure(fault))


CAPTURING = "cuda-graph"
"""The pass that has kernels launched together, when memory has its plan."""


def capture(
    module: IRModule, hardware: Hardware, without: Collection[str], inputs: int
) -> tuple[IRModule, PassReport]:
    """Captures the calls of ``main``, where that is wanted; see ``cuda_graph``."""
    off = why_off(CAPTURING, cuda_graph.KIND, hardware, without)
    captured = cuda_graph.Captured(module, off) if off else cuda_graph.capture(module, inputs)
    on = not captured.reason
    return captured.module, PassReport(CAPTURING, on, captured.reason, changed=on)


def names() -> tuple[str, ...]:
    """Names of all passes, those before code is generated included, in order."""
    ordered = [each.name for each in (*OPERATORS, *added(), *PROGRAMS)]
    return tuple(dict.fromkeys([*ordered, JOINING, CAPTURING, *codegen.PASSES]))


def deciding() -> tuple[str, ...]:
    """Names of the passes that have a choice for some operators, in order."""
    return tuple(each.name for each in (*OPERATORS, *PROGRAMS) if each.decides)


def require_deciding(plan: Collection[str]) -> None:
    """Refuses names of a plan that no pass with a choice has.

    Raises:
        BadInputError: The message lists the names.
    """
    for name in plan:
        if name not in deciding():
            raise BadInputError(
                f"a plan is for passes that have a choice, but got {name!r}: these are "
                f"{', '.join(deciding())}"
            )


def require(without: Collection[str]) -> None:
    """Refuses names that no pass has.

    Raises:
        BadInputError: The message lists the names.
    """
    for name in without:
        if name not in names():
            near = get_close_matches(name, names(), 1)
            meant = f"did you mean {near[0]}? " if near else ""
            raise BadInputError(
                f"there is no pass {name!r}: {meant}the passes are {', '.join(names())}"
            )
