"""What ``benchmarks.world`` and ``benchmarks.world_start`` learn alike, and where it is kept."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks._world.cells import Fold
from benchmarks.results import ROOT, read_json, say
from benchmarks.sources import code_of
from foretune.bench import write_json
from foretune.dataset import Group
from foretune.evaluate import Split, cross_validation
from foretune.evaluate.fingerprints import fingerprint
from foretune_research.world.config import TARGETS, WorldStudyConfig

MODELS = Path("foretune-work/models")
"""Work directory of ``benchmarks.models``."""
_TOLD_EVERY_S = 20.0


@dataclass(frozen=True)
class Learning:
    """What folds learn, and how.

    Attributes:
        config: Of the world.
        folds: Of workloads.
        seed: Of everything.
        programs: Learned from per group, at most.
        threads: That may be used.
        cache: Folder of replayed states and features.
        folder: Of what is learned, and of finished cells.
    """

    config: WorldStudyConfig
    folds: int
    seed: int
    programs: int
    threads: int
    cache: Path
    folder: Path

    def cells(self, groups: Sequence[Group]) -> Cells:
        """The finished cells of these settings, data and code."""
        settings = {
            "config": asdict(self.config),
            "folds": self.folds,
            "seed": self.seed,
            "programs": self.programs,
            "data": fingerprint(groups),
            "code": world_code(),
        }
        return Cells(self.folder, settings)

    def parts(self, groups: Sequence[Group]) -> list[Split]:
        """The parts of the split."""
        return cross_validation(groups, "workload", self.folds, seed=self.seed)

    def fold(self, part: Split, number: int) -> Fold:
        """One of them, with the programs that ``benchmarks.models`` draws for it."""
        return Fold(
            part,
            self.folder / "learned",
            self.config,
            seed=self.seed,
            threads=self.threads,
            programs=self.programs,
            draw=number,
            cache=self.cache,
        )


def learning_options(description: str | None) -> argparse.ArgumentParser:
    """A parser of what a ``Learning`` is made of, and of where it is kept."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", type=Path, default=ROOT / "data" / "cpu")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--programs", type=int, default=32, help="learned from per group, at most")
    parser.add_argument("--target", default=WorldStudyConfig.target, choices=TARGETS)
    parser.add_argument("--trajectories", type=int, default=WorldStudyConfig.trajectories)
    parser.add_argument("--encoder-states", type=int, default=WorldStudyConfig.encoder_states)
    parser.add_argument(
        "--cache",
        type=Path,
        default=MODELS / "features",
        help="folder of replayed states and features; benchmarks.models fills the default one",
    )
    parser.add_argument("--work-dir", type=Path, default=Path("foretune-work/world"))
    parser.add_argument("--write", action="store_true")
    return parser


def learning_of(options: argparse.Namespace) -> Learning:
    """What was asked for with ``learning_options``."""
    config = WorldStudyConfig(
        target=options.target,
        trajectories=options.trajectories,
        encoder_states=options.encoder_states,
    )
    given = {name: getattr(options, name) for name in ("folds", "seed", "programs", "threads")}
    return Learning(config, **given, cache=options.cache, folder=options.work_dir)


def world_code() -> str:
    """A hash of the code that cells depend on."""
    return code_of(
        "foretune.cost.world",
        "benchmarks._world.cells",
        "benchmarks._world.direct",
        "benchmarks._world.learned",
        "foretune.evaluate.metrics",
        "foretune.evaluate.splits",
        # Found by name.
        "foretune_research.world.reader",
        within=("cost", "features", "dataset", "evaluate", "space", "hardware", "world"),
    )


class Cells:
    """Finished cells, each a file that holds its settings' hash.

    Args:
        folder: Where.
        settings: What every cell depends on.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        text = json.dumps(settings, sort_keys=True)
        digest = hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
        self.folder = folder / digest
        self.folder.mkdir(parents=True, exist_ok=True)

    def get(self, name: str, make: Callable[[], Any], say_why: str) -> Any:
        """A finished cell, made now if it is not there."""
        file = self.folder / f"{hashlib.blake2b(name.encode(), digest_size=6).hexdigest()}.json"
        if file.exists():
            return read_json(file)["result"]
        say(f"{say_why} ...")
        started = time.perf_counter()
        result = make()
        write_json(file, {"cell": name, "result": result})
        say(f"{say_why}: {time.perf_counter() - started:.0f} s")
        return result


class _Teller(logging.Handler):
    """Says what the package tells of its progress, a line in so many seconds, and all warnings."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._last = time.monotonic()

    def emit(self, record: logging.LogRecord) -> None:
        now = time.monotonic()
        if record.levelno >= logging.WARNING or now - self._last >= _TOLD_EVERY_S:
            self._last = now
            say(record.getMessage())


@contextlib.contextmanager
def told() -> Iterator[None]:
    """Trainings take minutes: within, they are heard of now and then."""
    log, teller = logging.getLogger("foretune"), _Teller()
    before = log.level
    log.addHandler(teller)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.setLevel(before)
        log.removeHandler(teller)
