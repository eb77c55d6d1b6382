"""Workloads that ``foretune collect`` measures so that models can learn from them.

Shapes are those of layers that users' networks have and this project's evaluation does not: the
evaluation set is written down in ``excluded.json``, and nothing in it may stand here, by key or by
shape. About half are convolutions and matrix products with what inference fuses behind them; every
other operator has at least three workloads. Sizes are chosen so that the untuned program ends well
within a second on one core, and a good schedule takes 20 µs to 3 ms.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from foretune.workload._base import Workload
from foretune.workload._signature import OPERATOR_KINDS, operator_kind, signature
from foretune.workload._training_families import FAMILIES
from foretune.workload._training_sizes import Sizes

__all__ = [
    "EXCLUDED_FILE",
    "EXCLUDED_SCHEMA",
    "OPERATOR_KINDS",
    "Excluded",
    "TrainingWorkload",
    "excluded",
    "operator_kind",
    "signature",
    "training_names",
    "training_workloads",
]

EXCLUDED_SCHEMA = "foretune.excluded/1"
EXCLUDED_FILE = Path(__file__).with_name("excluded.json")
"""The evaluation set; ``python -m benchmarks.excluded`` writes it."""


@dataclass(frozen=True)
class TrainingWorkload:
    """A workload to learn from.

    Attributes:
        name: Operator and sizes, for example ``train_conv2d_1x28x28x96_3x3s1_64_relu``.
        kind: Operator kind, one that ``operator_kind`` also gives.
        workload: The program.
    """

    name: str
    kind: str
    workload: Workload


@dataclass(frozen=True)
class Excluded:
    """The evaluation set: what no model may have learned from.

    Attributes:
        keys: Keys of its workloads.
        signatures: What ``signature`` says of them.
    """

    keys: frozenset[str]
    signatures: frozenset[str]

    def has(self, workload: Workload) -> bool:
        """Whether a workload is in the evaluation set, or computes the same on the same shape."""
        return workload.key in self.keys or signature(workload) in self.signatures


@functools.cache
def excluded() -> Excluded:
    """The evaluation set: subgraphs and kernels of the catalog, and the tasks of ten networks.

    Those are the networks that papers name; the catalog's others came after the training data.
    """
    entries = json.loads(EXCLUDED_FILE.read_text(encoding="utf-8"))["workloads"]
    return Excluded(
        frozenset(entry["key"] for entry in entries),
        frozenset(entry["signature"] for entry in entries),
    )


def training_names() -> tuple[str, ...]:
    """Names of all training workloads in their order; does not load TVM."""
    return tuple(_name(kind, sizes) for kind, sizes in _in_turn())


@functools.cache
def training_workloads() -> tuple[TrainingWorkload, ...]:
    """All training workloads: one of each kind first, then kinds in proportion to their number."""
    return tuple(_build(kind, sizes) for kind, sizes in _in_turn())


def _build(kind: str, sizes: Sizes) -> TrainingWorkload:
    name = _name(kind, sizes)
    function = FAMILIES[kind].build(*sizes)
    return TrainingWorkload(name, kind, Workload.from_module(function, name))


def _name(kind: str, sizes: Sizes) -> str:
    # An absent epilogue leaves its underscore behind.
    return f"train_{kind}_{FAMILIES[kind].name(*sizes)}".rstrip("_")


def _in_turn() -> Iterator[tuple[str, Sizes]]:
    """Kind and sizes of every workload.

    The i-th of the n of a kind comes at the fraction i / n of the list, so that a collection that
    is cut short has all kinds in proportion.
    """
    placed = [
        (at / len(family.sizes), order, kind, sizes)
        for order, (kind, family) in enumerate(FAMILIES.items())
        for at, sizes in enumerate(family.sizes)
    ]
    for _, _, kind, sizes in sorted(placed, key=lambda entry: entry[:2]):
        yield kind, sizes
