"""A collection as files of TpuGraphs: ``layout/foretune/{random,evolved}/NETWORK.npz``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune.errors import BadInputError
from foretune.plans.encode import configurable, configurations
from foretune.plans.files import read_graph, write_layout
from foretune.plans.trials import (
    DEFAULT,
    EVOLVED,
    JOURNAL,
    RANDOM,
    SPACE,
    read_space,
    seconds_of,
)
from foretune.records import Journal

if TYPE_CHECKING:
    from foretune.plans.space import PlanSpace
    from foretune.records import Record

_FOLDER = Path("layout") / "foretune"
_FEWEST = 2


@dataclass(frozen=True)
class Packed:
    """What was written.

    Attributes:
        files: Files.
        plans: Plans in them; a network's default plan is in both of its files.
        size: Bytes.
        left_out: Networks with too few plans that ran.
    """

    files: int
    plans: int
    size: int
    left_out: tuple[str, ...]

    def __str__(self) -> str:
        out = f"; left out: {', '.join(self.left_out)}" if self.left_out else ""
        return f"{self.files} files, {self.plans:,} plans, {self.size / 1e6:.2f} MB{out}"


def pack(folder: Path, output: Path) -> Packed:
    """Writes what was collected so far.

    The first configuration of each file is the default plan; the others follow in the order in
    which they were measured. Plans that failed are left out.

    Args:
        folder: The work folder.
        output: Gets the folders ``layout/foretune/random`` and ``layout/foretune/evolved``.

    Raises:
        BadInputError: The folder holds no collection.
        RecordError: A file of it is damaged.
    """
    if not (folder / JOURNAL).is_file():
        raise BadInputError(
            f"{folder} holds no collection: give the --work-dir of a `foretune graph collect` run"
        )
    files, plans, size, left_out = 0, 0, 0, []
    with Journal(folder / JOURNAL, read_only=True) as journal:
        for place in sorted(file.parent for file in folder.glob(f"*/{SPACE}")):
            space = read_space(place)
            assert space is not None
            if space.size == 1:
                continue
            records = _first(journal.records(space.workload.key, space.hardware.key))
            for origin in (RANDOM, EVOLVED):
                chosen = [r for r in records if r.origin in (DEFAULT, origin)]
                if len(chosen) < _FEWEST or not any(r.origin == origin for r in chosen):
                    left_out.append(f"{place.name} ({origin})")
                    continue
                file = output / _FOLDER / origin / f"{place.name}.npz"
                _write(file, place, space, chosen)
                files, plans, size = files + 1, plans + len(chosen), size + file.stat().st_size
    return Packed(files, plans, size, tuple(left_out))


def _first(records: Sequence[Record]) -> list[Record]:
    """The plans that ran, each once, the default first."""
    found: dict[str, Record] = {}
    for record in records:
        if seconds_of(record.measurement) is not None:
            found.setdefault(record.candidate_key, record)
    return sorted(found.values(), key=lambda record: record.origin != DEFAULT)


def _write(file: Path, place: Path, space: PlanSpace, records: Sequence[Record]) -> None:
    graph = read_graph(place)
    plans: list[Any] = [space.candidate(record.decisions) for record in records]
    seconds = [seconds_of(record.measurement) for record in records]
    nanoseconds = np.rint(np.array(seconds, np.float64) * 1e9).astype(np.int64)
    unasked = [record.environment.get("unasked", ()) for record in records]
    rows = configurations(graph, plans, unasked)
    write_layout(file, graph, configurable(graph, plans[0]), rows, nanoseconds)
