"""A collection as files of TpuGraphs: ``layout/foretune/{random,evolved}/NETWORK.npz``.

Only networks that are complete are written: of the others nobody knows which plans are fast. What
plans take is what ``standings`` makes of their measurements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from foretune._arrays import IntArray
from foretune.errors import BadInputError
from foretune.plans.encode import anchors, configurable, configurations
from foretune.plans.files import PackedPlans, read_graph, write_layout
from foretune.plans.loop import JOURNAL, PARTS, SPACE, counting, read_space
from foretune.plans.provenance import Provenance, read_provenance
from foretune.plans.standings import DEFAULT, EVOLVED, RANDOM, TVM, PlanStanding, PlanStandings
from foretune.records import Journal

if TYPE_CHECKING:
    from foretune.plans.space import PlanSpace
    from foretune.records import Record

_FOLDER = Path("layout") / "foretune"
FEWEST = 50
"""Plans of a file that ran, the default plan included; fewer say nothing."""


@dataclass(frozen=True)
class Packed:
    """What was written.

    Attributes:
        files: Files.
        plans: Plans in them; a network's default plan and TVM's are in both of its files.
        size: Bytes.
        left_out: Networks with too few plans that ran, or none that was compared.
        otherwise: Plans that passes made into something else than was asked for; not written.
        unquiet: Plans without three quiet readings; not written.
    """

    files: int
    plans: int
    size: int
    left_out: tuple[str, ...]
    otherwise: int = 0
    unquiet: int = 0

    def __str__(self) -> str:
        out = f"; left out: {', '.join(self.left_out)}" if self.left_out else ""
        other = f"; {self.otherwise} plans became others" if self.otherwise else ""
        loud = f"; {self.unquiet} plans were not quiet" if self.unquiet else ""
        told = f"{self.files} files, {self.plans:,} plans, {self.size / 1e6:.2f} MB"
        return f"{told}{out}{other}{loud}"


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
    files, plans, size, left_out, otherwise, unquiet = 0, 0, 0, [], 0, 0
    with Journal(folder / JOURNAL, read_only=True) as journal:
        for place in sorted(file.parent for file in folder.glob(f"*/{SPACE}")):
            space, made = read_space(place), read_provenance(place)
            if space is None or made is None:
                continue
            known = PlanStandings.of(counting(journal, space.workload.key, made.digest))
            if not known.compared:
                left_out.append(place.name)
                continue
            otherwise += len(known.otherwise)
            unquiet += len(known.unquiet)
            for origin in (RANDOM, EVOLVED):
                chosen = _of_origin(known, origin)
                if len(chosen) < fewest:
                    left_out.append(f"{place.name} ({origin})")
                    continue
                file = output / _FOLDER / origin / f"{place.name.partition(PARTS)[0]}.npz"
                _write(file, place, space, made, known, chosen)
                files, plans, size = files + 1, plans + len(chosen), size + file.stat().st_size
    return Packed(files, plans, size, tuple(left_out), otherwise, unquiet)


def _of_origin(known: PlanStandings[Record], origin: str) -> list[PlanStanding[Record]]:
    """The default plan, TVM's and those of an origin; nothing where there are none of these."""
    unquiet = set(known.unquiet)
    plans = [one for key, one in known.plans.items() if key not in unquiet]
    groups = [[one for one in plans if one.record.origin == o] for o in (DEFAULT, TVM, origin)]
    return [one for group in groups for one in group] if groups[-1] else []


def _write(
    file: Path,
    place: Path,
    space: PlanSpace,
    made: Provenance,
    known: PlanStandings[Record],
    plans: Sequence[PlanStanding[Record]],
) -> None:
    graph = read_graph(place)
    candidates = [space.candidate(plan.record.decisions) for plan in plans]
    packed = PackedPlans(
        configurable(graph, candidates[0]),
        configurations(graph, candidates),
        _nanoseconds([plan.seconds for plan in plans]),
        _nanoseconds([plan.alone_s for plan in plans]),
        np.array([plan.quiet for plan in plans], np.int32),
        np.array([plan.beside_s is not None or plan.record.origin == DEFAULT for plan in plans]),
        np.array([plan.record.origin for plan in plans]),
        _nanoseconds(known.default_readings),
        anchors(graph, space),
        space.tvm_default == space.default,
        made.of,
    )
    write_layout(file, graph, packed)


def _nanoseconds(seconds: Sequence[float]) -> IntArray:
    return np.asarray(np.rint(np.array(seconds, np.float64) * 1e9).astype(np.int64))
