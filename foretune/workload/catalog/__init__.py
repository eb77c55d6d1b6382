"""The catalog: networks, subgraphs and kernels that can be tuned by name.

``networks`` are whole models with seeded random weights, ``subgraphs`` and ``kernels`` single
tensor programs. Names with a colon take sizes, for example ``matmul:512x512x512``.

``_networks``, ``_subgraphs`` and ``_kernels`` are the entries, ``_sized`` those whose names carry
sizes; ``_operators`` and ``_definitions`` are what they are made of.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from foretune.errors import BadInputError, unknown_name
from foretune.workload.catalog import _kernels, _networks, _subgraphs
from foretune.workload.catalog._sized import PATTERNS, build_sized

if TYPE_CHECKING:
    from foretune._tvm import PrimFunc
    from foretune.workload import Model, Workload

__all__ = ["PATTERNS", "Entry", "entries", "get", "has", "names"]

GROUPS = ("network", "subgraph", "kernel")


@dataclass(frozen=True)
class Entry:
    """One name of the catalog.

    Attributes:
        name: What ``get`` takes.
        group: ``"network"`` (gives a ``Model``), ``"subgraph"`` or ``"kernel"`` (a ``Workload``).
        description: One line: operator, shapes and where they come from.
    """

    name: str
    group: str
    description: str


def entries(group: str | None = None) -> tuple[Entry, ...]:
    """All entries, networks first, or those of one group.

    Raises:
        BadInputError: There is no such group.
    """
    if group is not None and group not in GROUPS:
        raise unknown_name("group of the catalog", group, GROUPS)
    return tuple(
        Entry(name, kind, _first_line(builder))
        for kind, builders in _tables()
        if group in (None, kind)
        for name, builder in builders.items()
    )


def names(group: str | None = None) -> tuple[str, ...]:
    """Names of all entries, or of those of one group."""
    return tuple(entry.name for entry in entries(group))


def has(name: str) -> bool:
    """Whether ``get`` knows the name, sized ones included."""
    return name in names() or (name.partition(":")[0] in PATTERNS and ":" in name)


def get(name: str) -> Workload | Model:
    """Builds what a name stands for; the same name gives the same weights and the same key.

    Args:
        name: One of ``names()``, or a sized name after ``PATTERNS``.

    Raises:
        BadInputError: There is no such name, or its sizes do not fit the pattern.
        MissingDependencyError: A network needs PyTorch or transformers.
    """
    if name in _networks.NETWORKS:
        return _networks.build(name)
    for builders in (_subgraphs.SUBGRAPHS, _kernels.KERNELS):
        if name in builders:
            return _workload(builders[name](), name)
    if ":" in name:
        return _workload(build_sized(name), name)
    raise _unknown(name)


def _workload(function: PrimFunc, name: str) -> Workload:
    from foretune.workload._base import Workload

    return Workload.from_module(function, name)


def _tables() -> tuple[tuple[str, dict[str, Callable[[], object]]], ...]:
    return (
        ("network", dict(_networks.NETWORKS)),
        ("subgraph", dict(_subgraphs.SUBGRAPHS)),
        ("kernel", dict(_kernels.KERNELS)),
    )


def _first_line(builder: Callable[[], object]) -> str:
    return (builder.__doc__ or "").strip().splitlines()[0].rstrip(".")


def _unknown(name: str) -> BadInputError:
    return unknown_name("workload of the catalog", name, (*names(), *PATTERNS.values()))
