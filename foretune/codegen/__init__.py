"""From scheduled programs to what code is generated from: the last passes before the compiler.

They change how a program computes, not what: workloads, spaces and records do not know them. The
builder of candidates and that of artifacts apply the same ones.

``vector_math`` puts polynomials for functions of float32: ``_exponentials``, ``_logarithms``,
``_powers`` and ``_circular`` hold them, ``_patterns`` finds what cancels, ``_coefficients`` makes
the numbers, ``_expressions`` and ``_llvm`` write them for LLVM. ``nan`` keeps NaN, ``bfloat16``
binds what TVM does not legalise, ``prefetch`` fetches cold weights.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from foretune.errors import last_line

if TYPE_CHECKING:
    from foretune._tvm import IRModule
    from foretune.hardware import Hardware

__all__ = ["KIND", "PASSES", "Finished", "finish"]

PASSES = ("legal-bfloat16", "vector-math", "keep-nan", "prefetch")
"""Names of the passes over scheduled programs, in order."""

KIND = "llvm"
"""The kind of target that they are for."""


@dataclass(frozen=True)
class Finished:
    """A module as code is generated from it.

    Attributes:
        module: The module.
        changed: Names of the passes that changed something.
        failed: Names of the passes that failed on a function, which stays without them, and how.
    """

    module: IRModule
    changed: frozenset[str] = frozenset()
    failed: Mapping[str, str] = field(default_factory=dict)


def finish(module: IRModule, hardware: Hardware, without: Collection[str] = ()) -> Finished:
    """Runs the last passes; one that fails on a function leaves that function as it is.

    Args:
        module: Scheduled tensor programs, and Relax functions, which are left as they are.
        hardware: What it is for; only programs for CPUs are changed.
        without: Names of passes that do not run.
    """
    if not hardware.has_cores:
        return Finished(module)
    changed = set()
    failed: dict[str, str] = {}
    for name, change in _changes(hardware).items():
        if name in without:
            continue
        before = module
        try:
            # What a pass leaves as it is it returns.
            module = change(before)
        except Exception as error:  # TVM raises what it likes
            failed[name] = f"{type(error).__name__}: {last_line(error, 160)}"
            module = _one_by_one(before, change)
        if module is not before:
            changed.add(name)
    return Finished(module, frozenset(changed), failed)


def _one_by_one(module: IRModule, change: Callable[[IRModule], IRModule]) -> IRModule:
    """A module after a pass, without the functions on which that fails.

    A kernel is measured as the only one of its module: it must not lose a pass in a network because
    another kernel there does.
    """
    from foretune import _tvm

    def changed(function: Any) -> Any:
        alone = _tvm.tvm.IRModule({"main": function}, attrs=module.attrs)
        try:
            return change(alone)["main"]
        except Exception:  # told for the module
            return function

    return _tvm.map_programs(module, changed)


def _changes(hardware: Hardware) -> dict[str, Callable[[IRModule], IRModule]]:
    from foretune.codegen.bfloat16 import legal_bfloat16
    from foretune.codegen.nan import keep_nan
    from foretune.codegen.prefetch import prefetch_weights
    from foretune.codegen.vector_math import vector_math

    def expand(module: IRModule) -> IRModule:
        return vector_math(module, hardware)

    def prefetch(module: IRModule) -> IRModule:
        return prefetch_weights(module, hardware)

    changes = (legal_bfloat16, expand, keep_nan, prefetch)
    return dict(zip(PASSES, changes, strict=True))
