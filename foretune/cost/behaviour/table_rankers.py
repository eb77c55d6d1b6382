"""Trees and perceptrons over a program's decisions and over how it would behave on its device.

Idea: decisions say what was asked for, and their columns know tiled products well. How a program
would behave, in scores and in what bounds it, follows from its loops by formulas
(``foretune.describe``), for reductions and pools as for products, but is blind to what the formulas
leave out. Neither needs the program itself, PyTorch or a compiler.

Columns: those of ``action_features``, then ``NAMES`` of ``foretune.cost.behaviour.columns`` as far
as they are about a program on its own device: scores, limits, the predicted seconds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from foretune import features
from foretune._arrays import BoolArray, Float32Array
from foretune.cost._boosters import Boosters
from foretune.cost._perceptrons import Perceptrons
from foretune.cost._ranker import TEXT, Needs
from foretune.cost._table_ranker import Learner, TableRanker
from foretune.cost.behaviour import reading
from foretune.cost.behaviour._asked import asked
from foretune.cost.behaviour.columns import (
    COLUMNS_VERSION,
    LIMIT_NAMES,
    NAMES,
    PREDICTED,
    SCORE_NAMES,
)
from foretune.cost.behaviour.scores import AnalyticScores
from foretune.describe import SCHEMA_VERSION
from foretune.features.memory import Memory
from foretune.features.stores import add_rows, read_rows

NestReader = Callable[[Sequence[Any]], reading.Batches]

if TYPE_CHECKING:
    from foretune.dataset import Group, Program
    from foretune.hardware import Device, Hardware
    from foretune.space import Candidate

_COLUMNS = [NAMES.index(name) for name in (*SCORE_NAMES, *LIMIT_NAMES, PREDICTED)]
_UNKNOWN = -11.0
"""Stands for NaN: below what any column has."""
_REMEMBERED_BYTES = 32 << 20
_memory: Memory[Float32Array | None] = Memory(_REMEMBERED_BYTES)
"""Columns by program and device: members of a joined ranker ask one after the other."""


def _mark(device: Device) -> str:
    """16 hex digits that change with whatever behaviour depends on."""
    told = [(field.name, getattr(device, field.name)) for field in fields(device) if field.compare]
    text = repr([(n, sorted(v.items()) if isinstance(v, Mapping) else v) for n, v in told])
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _of(candidate: Candidate, mark: str) -> str:
    """The file of a workload on a device, without its end."""
    text = f"behaviour/{candidate.workload.key}/{mark}/{SCHEMA_VERSION}+{COLUMNS_VERSION}"
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


class BehaviourTableRanker(TableRanker):
    """Over decisions and behaviour by formulas: needs candidates, but makes no program.

    Args:
        seed: Of the members and of what is left out where there is too much data.
        features: ``"both"``, nothing else.
        read_nests: What describes candidates; ``foretune.describe.nests_of`` unless given.
        cache: Folder in which columns of behaviour are kept; None: in memory only.
        options: Fields of the learner's configuration.

    Raises:
        BadInputError: An option is unknown or makes no sense.
    """

    needs: Needs = replace(
        TableRanker.needs,
        nests=True,
        options={"features": str, "cache": TEXT, "read_nests": None},
    )
    known_features: ClassVar[tuple[str, ...]] = ("both",)

    def __init__(
        self,
        *,
        seed: int = 0,
        features: str = "both",
        read_nests: NestReader | None = None,
        cache: Path | str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(seed=seed, features=features, **options)
        self._cache = None if cache is None else Path(cache)
        self._read_nests = read_nests

    @classmethod
    def _versions(cls, feature_version: int | str | None) -> dict[str, Any]:
        behaviour = f"{SCHEMA_VERSION}+{COLUMNS_VERSION}"
        return {**super()._versions(feature_version), "behaviour": behaviour}

    def prepare(self, groups: Iterable[Group]) -> None:
        """Computes the behaviour of all programs."""
        for group in groups:
            self._behaviour(group.programs, group.machine)

    def _matrix(
        self, programs: Sequence[Program], machine: Hardware | None
    ) -> tuple[Float32Array, BoolArray]:
        rows = self._behaviour(programs, machine)
        legal = np.array([row is not None for row in rows], dtype=bool)
        kept = [programs[at] for at in np.flatnonzero(legal).tolist()]
        if not kept:
            return np.zeros((0, 0), np.float32), legal
        behaviour = np.concatenate([row for row in rows if row is not None])
        return np.concatenate([features.action_features(kept, machine), behaviour], axis=1), legal

    def _always(self, width: int) -> list[int]:
        # What is told of the machine stands in front, not at the end.
        return super()._always(len(features.action_columns()))

    def _behaviour(
        self, programs: Sequence[Program], machine: Hardware | None
    ) -> list[Float32Array | None]:
        """Columns of each program, shape (1, columns); None of one that cannot be described."""
        candidates = reading.require_candidates(programs)
        if not candidates:
            return []
        device = reading.known(reading.device_of_machine(machine or candidates[0].hardware))
        mark = _mark(device)
        file = None if self._cache is None else self._cache / f"{_of(candidates[0], mark)}.npz"
        places = {program.key: f"{program.key}{mark}" for program in programs}
        stored = {key: _memory[place] for key, place in places.items() if place in _memory}
        if file is not None and len(stored) < len(places):
            stored = {**read_rows(file), **stored}
        new = {program.key: program for program in programs if program.key not in stored}
        if new:
            made = dict(zip(new, self._made(list(new.values()), device), strict=True))
            if file is not None:
                add_rows(file, made)
            stored.update(made)
        _memory.remember({place: stored[key] for key, place in places.items()})
        return [stored[program.key] for program in programs]

    def _made(self, programs: Sequence[Program], device: Device) -> list[Float32Array | None]:
        batches = reading.batches_of_candidates(programs, self._read_nests)
        table, known = asked(AnalyticScores(), "", programs, batches, device)
        rows = np.nan_to_num(table[:, _COLUMNS], nan=_UNKNOWN).astype(np.float32)
        return [row[None] if there else None for row, there in zip(rows, known, strict=True)]


class GbdtBehaviourRanker(BehaviourTableRanker):
    """Trees over decisions and behaviour by formulas."""

    learner: ClassVar[type[Learner]] = Boosters
    name: ClassVar[str] = "gbdt_behaviour"


class MlpBehaviourRanker(BehaviourTableRanker):
    """Perceptrons over decisions and behaviour by formulas; PyTorch only to train."""

    learner: ClassVar[type[Learner]] = Perceptrons
    name: ClassVar[str] = "mlp_behaviour"
