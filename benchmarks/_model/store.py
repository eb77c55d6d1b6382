"""Finished cells on disk, each under a hash of everything that its figures depend on.

Those behind a published page are kept beside it, compressed: hours of training are not lost with a
work directory, and every figure can be computed anew.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks._model.cells import Cell, is_network
from benchmarks.results import RESULTS, read_json
from benchmarks.sources import code_of
from foretune.bench import write_json
from foretune.cost import rankers

PUBLISHED = RESULTS / "models"


@dataclass(frozen=True)
class Store:
    """Where finished cells are.

    Attributes:
        folder: The directory; made when something is written.
        fingerprint: Of the groups of the table at hand.
        precision: Of networks.
        published: Where those behind a published page are.
    """

    folder: Path
    fingerprint: str
    precision: str = "float32"
    published: Path = PUBLISHED

    def file(self, cell: Cell) -> Path:
        """The file of a cell."""
        settings: dict[str, Any] = {
            **asdict(cell.job),
            # Which other models a table has makes no difference to this one.
            "models": None,
            "number": cell.number,
            "part": cell.part.name,
            # Who stands where follows from rooms that the hash of code does not reach.
            "sides": [
                [group.key for group in side]
                for side in (cell.part.train, cell.part.validation, cell.part.test)
            ],
            "model": cell.model,
            "seed": cell.seed,
            "fingerprint": self.fingerprint,
            "precision": self.precision if is_network(cell.model) else None,
            "code": model_code(cell.model),
        }
        text = json.dumps(settings, sort_keys=True)
        digest = hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
        names = (cell.job.data, cell.job.by, cell.model, cell.number, cell.seed, digest)
        return self.folder / ("-".join(map(str, names)).replace(":", "_") + ".json")

    def read(self, cell: Cell) -> dict[str, Any] | None:
        """A finished cell, or None."""
        file = self.file(cell)
        if file.exists():
            return dict(read_json(file))
        kept = self._kept(cell)
        return dict(json.loads(gzip.decompress(kept.read_bytes()))) if kept.exists() else None

    def has(self, cell: Cell) -> bool:
        """Whether a cell is finished."""
        return self.file(cell).exists() or self._kept(cell).exists()

    def write(self, cell: Cell, result: Mapping[str, Any]) -> None:
        """Keeps a finished cell."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self.file(cell), result)

    def publish(self, cell: Cell) -> None:
        """Keeps a finished cell beside the published page."""
        result = self.read(cell)
        if result is not None:
            self.published.mkdir(parents=True, exist_ok=True)
            text = json.dumps(_rounded(result), separators=(",", ":"))
            # Without a time, the same cell gives the same file.
            self._kept(cell).write_bytes(gzip.compress(text.encode(), 9, mtime=0))

    def _kept(self, cell: Cell) -> Path:
        return self.published / f"{self.file(cell).name}.gz"


def _rounded(value: Any) -> Any:
    """Numbers of a JSON object with seven digits, which is what float32 holds."""
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value


@functools.cache
def model_code(model: str) -> str:
    """A hash of the code that a cell of this model runs, comments and formatting left out."""
    ranker = rankers.create(model, seed=0)
    members = getattr(ranker, "members", {})
    return code_of(
        type(ranker).__module__,
        *sorted({type(member).__module__ for member in members.values()}),
        "benchmarks._model.cells",
        "foretune.cost.rankers",
        "foretune.dataset.readers",
        "foretune.evaluate.metrics",
        "foretune.evaluate.splits",
        # Found by name.
        "foretune_research.logs",
        *(["foretune_research.world.reader"] if model.startswith("world") else []),
        within=("cost", "features", "dataset", "describe", "evaluate", "space", "hardware"),
    )
