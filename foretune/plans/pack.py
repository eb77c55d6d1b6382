"""A collection as files of TpuGraphs: ``layout/foretune/{random,evolved}/NETWORK.npz``.

A machine becomes slower and quicker in the hours of a collection, and the default plan, measured
again every so often, says by how much: seconds of a plan are those that it would have taken on the
whole's average. The best plans were measured once more, beside the default plan; what was found
there counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune.errors import BadInputError
from foretune.plans.encode import anchors, configurable, configurations
from foretune.plans.files import PackedPlans, read_graph, write_layout
from foretune.plans.provenance import Provenance, read_provenance
from foretune.plans.trials import (
    DEFAULT,
    EVOLVED,
    JOURNAL,
    RANDOM,
    SPACE,
    TVM,
    counting,
    read_space,
    seconds_of,
)
from foretune.records import CONFIRM, Journal

if TYPE_CHECKING:
    import numpy.typing as npt

    from foretune.plans.space import PlanSpace
    from foretune.records import Record

_FOLDER = Path("layout") / "foretune"
FEWEST = 50
"""Plans of a network that ran, the default plan included; fewer say nothing."""
_NEIGHBOURS = 1
"""Measurements of the default plan before and after one, of all of which the median counts."""


@dataclass(frozen=True)
class Packed:
    """What was written.

    Attributes:
        files: Files.
        plans: Plans in them; a network's default plan and TVM's are in both of its files.
        size: Bytes.
        left_out: Networks with too few plans that ran.
        otherwise: Plans that passes made into something else than was asked for; not written.
    """

    files: int
    plans: int
    size: int
    left_out: tuple[str, ...]
    otherwise: int = 0

    def __str__(self) -> str:
        out = f"; left out: {', '.join(self.left_out)}" if self.left_out else ""
        other = f"; {self.otherwise} plans became others" if self.otherwise else ""
        return f"{self.files} files, {self.plans:,} plans, {self.size / 1e6:.2f} MB{out}{other}"


def pack(folder: Path, output: Path, fewest: int = FEWEST) -> Packed:
    """Writes what was collected so far.

    The first configurations of each file are the default plan and TVM's, if that is another one;
    the others follow in the order in which they were measured. Plans that failed are left out.

    Args:
        folder: The work folder.
        output: Gets the folders ``layout/foretune/random`` and ``layout/foretune/evolved``.
        fewest: Plans of a file, fewer of which are left out.

    Raises:
        BadInputError: The folder holds no collection.
        RecordError: A file of it is damaged.
    """
    if not (folder / JOURNAL).is_file():
        raise BadInputError(
            f"{folder} holds no collection: give the --work-dir of a `foretune graph collect` run"
        )
    files, plans, size, left_out, otherwise = 0, 0, 0, [], 0
    with Journal(folder / JOURNAL, read_only=True) as journal:
        for place in sorted(file.parent for file in folder.glob(f"*/{SPACE}")):
            space, made = read_space(place), read_provenance(place)
            if space is None or made is None:
                continue
            measured = _Measured.of(counting(journal, space.workload.key, made.digest))
            otherwise += measured.otherwise
            for origin in (RANDOM, EVOLVED):
                chosen = measured.of_origin(origin)
                if len(chosen) < fewest:
                    left_out.append(f"{place.name} ({origin})")
                    continue
                file = output / _FOLDER / origin / f"{place.name}.npz"
                _write(file, place, space, made, chosen)
                files, plans, size = files + 1, plans + len(chosen), size + file.stat().st_size
    return Packed(files, plans, size, tuple(left_out), otherwise)


@dataclass(frozen=True)
class _Plan:
    """A plan that ran.

    Attributes:
        record: Its first one.
        seconds: What it takes.
        compared: Whether it was measured beside the default plan, too.
    """

    record: Record
    seconds: float
    compared: bool


@dataclass(frozen=True)
class _Measured:
    """What is known of a network's plans.

    Attributes:
        plans: Those that ran, the default plan first; none where that never ran.
        otherwise: How many became other plans.
    """

    plans: tuple[_Plan, ...]
    otherwise: int

    @classmethod
    def of(cls, records: Sequence[Record]) -> _Measured:
        """Sorts records, in the order of measurement."""
        drift = _Drift(records)
        if not drift.known:
            return cls((), 0)
        beside = _beside_default(records)
        found: dict[str, _Plan] = {}
        otherwise = set()
        for at, record in enumerate(records):
            seconds = seconds_of(record.measurement)
            if record.origin == CONFIRM or seconds is None:
                continue
            key = record.candidate_key
            if record.environment.get("otherwise"):
                otherwise.add(key)
            elif record.origin == DEFAULT:
                found.setdefault(key, _Plan(record, drift.whole_s, True))
            elif key in beside:
                found.setdefault(key, _Plan(record, beside[key] * drift.whole_s, True))
            else:
                found.setdefault(key, _Plan(record, seconds / drift.at(at), False))
        first = (DEFAULT, TVM)
        ordered = sorted(
            found.values(),
            key=lambda p: first.index(p.record.origin) if p.record.origin in first else len(first),
        )
        return cls(tuple(ordered), len(otherwise))

    def of_origin(self, origin: str) -> list[_Plan]:
        """The default plans, and those of an origin; nothing where there are none of these."""
        found = [plan for plan in self.plans if plan.record.origin in (DEFAULT, TVM, origin)]
        return found if any(plan.record.origin == origin for plan in found) else []


class _Drift:
    """How slow the machine was, by what its default plan took.

    Args:
        records: In the order of measurement.

    Attributes:
        known: Whether the default plan ever ran.
        whole_s: Seconds of the default plan, the median of all its measurements.
    """

    def __init__(self, records: Sequence[Record]) -> None:
        found = [
            (at, seconds)
            for at, record in enumerate(records)
            if record.origin == DEFAULT and (seconds := seconds_of(record.measurement)) is not None
        ]
        self.known = bool(found)
        if not found:
            return
        taken = np.array([seconds for _, seconds in found])
        self.whole_s = float(np.median(taken))
        self._places = np.array([place for place, _ in found], np.float64)
        near = [taken[max(0, at - _NEIGHBOURS) : at + _NEIGHBOURS + 1] for at in range(len(taken))]
        self._factors = np.array([np.median(each) for each in near]) / self.whole_s

    def at(self, place: int) -> float:
        """Seconds there over seconds on average."""
        return float(np.interp(place, self._places, self._factors))


def _beside_default(records: Sequence[Record]) -> dict[str, float]:
    """Key of a plan to its seconds over the default plan's, where readings took turns."""
    found: dict[str, float] = {}
    default_key = next((r.candidate_key for r in records if r.origin == DEFAULT), "")
    default_s = None
    for record in records:
        if record.origin != CONFIRM:
            continue
        seconds = seconds_of(record.measurement)
        if record.candidate_key == default_key:
            default_s = seconds
        elif default_s and seconds is not None:
            found[record.candidate_key] = seconds / default_s
    return found


def _write(
    file: Path, place: Path, space: PlanSpace, made: Provenance, plans: Sequence[_Plan]
) -> None:
    graph = read_graph(place)
    candidates: list[Any] = [space.candidate(plan.record.decisions) for plan in plans]
    quiet = [sum(plan.record.measurement.quiet) for plan in plans]
    packed = PackedPlans(
        configurable(graph, candidates[0]),
        configurations(graph, candidates),
        _nanoseconds(plans),
        np.array(quiet, np.int32),
        np.array([plan.compared for plan in plans]),
        np.array([plan.record.origin for plan in plans]),
        anchors(graph, space),
        made.of,
    )
    write_layout(file, graph, packed)


def _nanoseconds(plans: Sequence[_Plan]) -> npt.NDArray[np.int64]:
    seconds = np.array([plan.seconds for plan in plans], np.float64)
    return np.asarray(np.rint(seconds * 1e9).astype(np.int64))
