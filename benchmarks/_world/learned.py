"""What the world learns of training groups, once for all variants of a ranker.

It is kept in a folder under a hash of the groups, of how it is learned, and of the code that learns
it: another call finds what one has learned of the same groups, and a
change of trees or metrics leaves it as it is. The code of this module is part of that hash.
"""

from __future__ import annotations

import functools
import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.results import read_json, say
from benchmarks.sources import code_of
from foretune.bench import write_json
from foretune.cost.world.learning import Lesson, learn
from foretune.cost.world.model import World
from foretune.cost.world.readers import READERS, Reader
from foretune.dataset import Group
from foretune.evaluate.fingerprints import fingerprint
from foretune.world.transition import TransitionModel
from foretune_research.world.config import WorldStudyConfig


@functools.cache
def learning_code() -> str:
    """A hash of the code that what is learned depends on.

    Of features it reads those of stores, and the steps of sketches.
    """
    return code_of(
        "benchmarks._world.learned",
        "foretune.cost.world.learning",
        "foretune.features.stores._columns",
        "foretune.features.stores._extract",
        "foretune.features.tokens._names",
        "foretune.features.tokens._tokens",
        # Found by name.
        "foretune_research.world.reader",
        within=("cost", "space", "world"),
    )


class Swapped(World):
    """A world that can be made to begin a workload's paths where another one's begin.

    Args:
        world: Its parts.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world.reader, world.transition, world.unaware)
        self.others: Mapping[str, Any] = {}
        """Key of a workload -> the workload that stands for it."""

    def initial(self, workload: Any) -> npt.NDArray[np.float32]:
        """z0 of the other workload where there is one."""
        return super().initial(self.others.get(workload.key, workload))


class Learned:
    """A reader and transitions.

    Args:
        name: Of what is learned from, for progress.
        groups: Learned from.
        folder: Of all that is learned: this has a folder of its own in it.
        config: Of the world.
        seed: Of everything.
        threads: That may be used.
        cache: Folder of replayed states and features.
    """

    def __init__(
        self,
        name: str,
        groups: Sequence[Group],
        folder: Path,
        config: WorldStudyConfig,
        *,
        seed: int,
        threads: int,
        cache: Path,
    ) -> None:
        self.name, self.groups, self.config = name, groups, config
        self.seed, self.threads, self.cache = seed, threads, cache
        self._parent = folder
        self._worlds: dict[str, Swapped] = {}

    @cached_property
    def folder(self) -> Path:
        """Where it is."""
        settings = {
            "config": asdict(self.config),
            "seed": self.seed,
            "groups": fingerprint(self.groups),
            "code": learning_code(),
        }
        text = json.dumps(settings, sort_keys=True)
        found = self._parent / hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
        found.mkdir(parents=True, exist_ok=True)
        return found

    @cached_property
    def lesson(self) -> Lesson:
        """What transitions learn from."""
        started = time.perf_counter()
        lesson = Lesson.of(
            self.groups,
            self.config,
            self.seed,
            self.cache,
            reader=self.reader(),
            threads=self.threads,
        )
        assert lesson is not None, "some programs of every data set can be made"
        if self.reader() is None:
            lesson.reader.part.save(self._reader_file)
            say(f"{self.name}: reader trained in {time.perf_counter() - started:.0f} s")
        return lesson

    @property
    def _reader_file(self) -> Path:
        return self.folder / "reader.npz"

    def reader(self) -> Reader | None:
        """What turns programs into states; None if it is not trained yet."""
        if not self._reader_file.exists():
            return None
        kind: Any = READERS.factory(self.config.target)
        reader: Reader = kind(kind.part_type.load(self._reader_file, threads=self.threads))
        return reader

    def world(self, transition: str) -> Swapped:
        """The world with some transitions."""
        if transition not in self._worlds:
            self._worlds[transition] = Swapped(self._read(transition) or self._learn(transition))
        return self._worlds[transition]

    def _learn(self, transition: str) -> World:
        started = time.perf_counter()
        config = replace(self.config, transition=transition)
        made = learn(self.lesson, config, self.seed, self.threads)
        assert made.transition is not None
        models = list({id(m): m for m in (made.transition, *made.unaware.values())}.values())
        for number, model in enumerate(models):
            model.save(self.folder / f"{transition}-{number}.npz")
        number_of = {id(model): number for number, model in enumerate(models)}
        places = {key: number_of[id(model)] for key, model in made.unaware.items()}
        # Written last: it says that all models are there.
        write_json(self.folder / f"{transition}.json", {"models": len(models), "unaware": places})
        seconds = time.perf_counter() - started
        say(f"{self.name}: {transition} transitions made in {seconds:.0f} s")
        return made

    def _read(self, transition: str) -> World | None:
        if not (self.folder / f"{transition}.json").exists():
            return None
        known = read_json(self.folder / f"{transition}.json")
        models = [
            TransitionModel.load(self.folder / f"{transition}-{number}.npz", threads=self.threads)
            for number in range(known["models"])
        ]
        reader = self.reader()
        assert reader is not None, "it is saved before transitions are"
        return World(reader, models[0], {k: models[at] for k, at in known["unaware"].items()})
