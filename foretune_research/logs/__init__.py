"""Nests of programs that others measured, rebuilt from what their logs say.

A log holds decisions and no programs. Each builder here knows what some tool makes of them:
templates of AutoTVM by what their schedules do with the knobs, Ansor's programs by following their
steps, kernels of Kernel Tuner by their parameters. What no builder knows has no nests, and nothing
is claimed of it.

Ansor: ``_ansor`` follows ``_ansor_steps`` over ``_ansor_stages`` of ``_ansor_operators``, with
``_ansor_bounds``, to ``_ansor_nests``. AutoTVM: ``_autotvm`` by template, ``_autotvm_x86``,
``_autotvm_matmul``, ``_autotvm_arm``, ``_autotvm_winograd_arm``, ``_autotvm_cuda``,
``_autotvm_cuda_matmul``, ``_autotvm_winograd``, with ``_shapes``. ``_kernel_tuner`` has Kernel
Tuner's; ``_building`` is what all build with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from foretune._arrays import IndexArray
from foretune_research.logs import (
    _ansor,
    _autotvm,
    _autotvm_arm,
    _autotvm_cuda,
    _autotvm_cuda_matmul,
    _autotvm_matmul,
    _autotvm_winograd,
    _autotvm_winograd_arm,
    _autotvm_x86,
    _kernel_tuner,
)

if TYPE_CHECKING:
    from foretune.dataset import Group, Program
    from foretune.describe._nests import Nests

Batches = list[tuple[IndexArray, "Nests"]]


@dataclass(frozen=True)
class Builder:
    """One source of logs.

    Attributes:
        matches: Whether it knows the programs of a workload: (programs, key, kind).
        build: Their nests by rows: (programs, key, name, kind).
    """

    matches: Callable[[Sequence[Program], str, str], bool]
    build: Callable[[Sequence[Program], str, str, str], Batches]


_TEMPLATES = {
    **_autotvm_x86.TEMPLATES,
    **_autotvm_matmul.TEMPLATES,
    **_autotvm_arm.TEMPLATES,
    **_autotvm_cuda.TEMPLATES,
    **_autotvm_cuda_matmul.TEMPLATES,
    **_autotvm_winograd.TEMPLATES,
    **_autotvm_winograd_arm.TEMPLATES,
}

BUILDERS: tuple[Builder, ...] = (
    Builder(
        lambda programs, workload, kind: _autotvm.task_of(workload)[0] in _TEMPLATES,
        lambda programs, workload, name, kind: _autotvm.nests_of_log(
            _TEMPLATES, programs, workload
        ),
    ),
    Builder(
        lambda programs, workload, kind: _ansor.matches(programs, workload),
        lambda programs, workload, name, kind: _ansor.build(programs, workload),
    ),
    Builder(
        lambda programs, workload, kind: _kernel_tuner.matches(programs, workload),
        lambda programs, workload, name, kind: _kernel_tuner.build(programs, workload),
    ),
)
"""Asked in this order; the first that matches builds."""


def describes(programs: Sequence[Program], workload: str, kind: str = "") -> bool:
    """Whether there is a builder for the programs of a workload."""
    return any(builder.matches(programs, workload, kind) for builder in BUILDERS)


def nests_of_programs(programs: Sequence[Program], workload: str, name: str, kind: str) -> Batches:
    """Nests of programs of one workload that have no candidates.

    Args:
        programs: What a reader of logs made.
        workload: Key of the workload, as in ``Group``.
        name: What people call it.
        kind: Operator kind.

    Returns:
        Of each structure, the numbers of the programs and their nests in that order. Programs that
        a template has no place for are in none; empty where no builder knows the workload.
    """
    for builder in BUILDERS:
        if builder.matches(programs, workload, kind):
            return builder.build(programs, workload, name, kind)
    return []


def nests_of_logged(group: Group) -> Batches:
    """Nests of the programs of a group that is from a log; none where no builder knows it."""
    programs = _kernel_tuner.as_run_on(group.hardware, group.programs, group.workload)
    return nests_of_programs(programs, group.workload, group.name, group.kind)


__all__ = ["BUILDERS", "Builder", "describes", "nests_of_logged", "nests_of_programs"]
