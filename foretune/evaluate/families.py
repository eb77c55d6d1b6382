"""Which workloads are one computation: those that differ in nothing but what is fused behind.

A convolution with another activation has another key, but whoever has learned one knows the other.
So wherever something must not have been seen, families count, not keys: the signature of the
program (``foretune.workload.training.signature``) where it is at hand; where others measured it and
left no program, what its reader makes of shapes (``Group.family``), or the key itself.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foretune.dataset import Group
    from foretune.workload import Workload


def family(group: Group) -> str:
    """What all groups of one computation share, whatever the epilogue and the hardware."""
    return computation_of(group) or group.workload


def families(groups: Iterable[Group]) -> dict[str, str]:
    """The family of every workload; one of its groups with a program is enough to know it."""
    known: dict[str, str] = {}
    for group in groups:
        if group.workload not in known or program_of(group) is not None:
            known[group.workload] = family(group)
    return known


def computation_of(group: Group) -> str:
    """The signature of the group's program, or what its reader says; empty where neither is."""
    workload = program_of(group)
    return group.family if workload is None else _signature(workload)


def program_of(group: Group) -> Workload | None:
    """The workload itself, where the group's programs are of this TVM's spaces."""
    candidate = group.programs[0].candidate if len(group) else None
    return None if candidate is None else candidate.workload


@functools.lru_cache(maxsize=8192)
def _signature(workload: Workload) -> str:
    # Asked for once per fold and side, and it walks through the whole program.
    from foretune.workload.training import signature

    return signature(workload)
