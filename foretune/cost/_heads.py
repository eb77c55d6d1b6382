"""Which output of a network answers for a hardware.

A network with a head per hardware has learned what each of them likes. Of hardware that it has not
seen, the head answers whose hardware is nearest by factors; where nothing is known of its factors,
the mean of all heads.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from foretune._arrays import FloatArray
from foretune.features.actions import machine_features
from foretune.hardware import FEATURE_COLUMNS

if TYPE_CHECKING:
    from foretune.dataset import Group
    from foretune.hardware import Hardware

_log = logging.getLogger("foretune.cost.heads")

MEAN = -1
"""In place of a head: the mean of all."""

_COLUMNS = [name for name, _unit in FEATURE_COLUMNS]
_IS_GPU = _COLUMNS.index("is_gpu")


@dataclass(frozen=True, eq=False)
class Heads:
    """The outputs of a network.

    Attributes:
        keys: Hardware keys in the order of the outputs; empty for a single output.
        factors: Their ``machine_features``, shape (heads, factors); 0 where unknown.
        told: Other hardware that was asked for, of which it is logged once what answers.
    """

    keys: tuple[str, ...]
    factors: FloatArray
    told: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        if self.factors.shape != (len(self.keys), len(_COLUMNS)):
            raise ValueError(f"{len(self.keys)} heads, but factors of shape {self.factors.shape}")

    def __len__(self) -> int:
        return len(self.keys)

    @classmethod
    def of_groups(cls, keys: Sequence[str], groups: Iterable[Group]) -> Heads:
        """Heads of some of the hardware on which groups were measured."""
        machines = {group.hardware: group.machine for group in groups}
        heads = cls.of_keys(keys)
        for row, key in zip(heads.factors, keys, strict=True):
            row[:] = machine_features(machines[key])
        return heads

    @classmethod
    def of_keys(cls, keys: Sequence[str], factors: FloatArray | None = None) -> Heads:
        """Heads by their keys; nothing is known of their hardware unless given."""
        return cls(
            tuple(keys), np.zeros((len(keys), len(_COLUMNS))) if factors is None else factors
        )

    def of(self, hardware: str, machine: Hardware | None) -> int:
        """Number of the output for a hardware, or ``MEAN``; what answers for others is logged."""
        if not self.keys:
            return 0
        if hardware in self.keys:
            return self.keys.index(hardware)
        head = MEAN if machine is None else self._nearest(machine_features(machine))
        if hardware not in self.told:
            self.told.add(hardware)
            _log.info("nothing was learned from hardware %s: %s", hardware, self._answer(head))
        return head

    def _nearest(self, here: FloatArray) -> int:
        """The head with the least mean squared distance, in octaves, over the factors known."""
        known = (self.factors > 0) & (here > 0)
        comparable = known.any(axis=1) & (self.factors[:, _IS_GPU] == here[_IS_GPU])
        if not comparable.any():
            return MEAN
        squares = np.where(known, (self.factors - here) ** 2, 0.0).sum(axis=1)
        distance = squares / np.maximum(known.sum(axis=1), 1)
        return int(np.argmin(np.where(comparable, distance, np.inf)))

    def _answer(self, at: int) -> str:
        if at == MEAN:
            return "the mean of all heads answers, as nothing tells which is near"
        threads, bits = (
            round(2 ** self.factors[at, _COLUMNS.index(name)] - 1)
            for name in ("threads", "simd_bits")
        )
        return (
            f"the head of {self.keys[at]} answers, which is nearest ({threads} threads, vectors of "
            f"{bits} bits)"
        )
