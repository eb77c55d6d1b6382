"""LLMTuner's ranker: a first stage keeps some programs, scores of behaviour order these.

Idea: whether a program is worth a closer look, a small network tells at once
(``foretune.cost.behaviour.classifier``); how those that are would behave on the device is told in
scores (``foretune.cost.behaviour.scores``), which a regressor trained on many devices turns into
time. Neither has seen the device asked about, so that both are told its data sheet.

Symbols: n programs of a group, ``keep`` (the paper's K) of them survive the first stage. Scores are
minus the slow-down in log2 that is expected. Every survivor stands before every program that is
discarded; where there are no more programs than survive, the second stage alone decides.

Deviations from the paper: scores by formulas unless told otherwise; where programs are known from
other devices, ``memory`` begins with what these took.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from foretune._arrays import Array, BoolArray, FloatArray
from foretune._model_file import check
from foretune._options import constants, require_type, stored_options
from foretune.cost import rankers
from foretune.cost._ranker import TEXT, Needs, Ranker, fitted_scale, fitted_strength
from foretune.cost._ranker_file import read_model, write_model
from foretune.cost.behaviour import reading
from foretune.cost.behaviour._asked import asked, part_of
from foretune.cost.behaviour._ranker_options import regressor_options
from foretune.cost.behaviour.columns import COLUMNS_VERSION
from foretune.cost.behaviour.composition import best_first, composed
from foretune.cost.behaviour.identities import Identities
from foretune.cost.behaviour.lessons import taught
from foretune.cost.behaviour.memory import Memory
from foretune.cost.behaviour.regressor import Lesson, Regressor
from foretune.cost.behaviour.regressors import Regressors, under
from foretune.cost.behaviour.scores import (
    SOURCES,
    AnalyticScores,
    ScoreSource,
    open_source,
    require_model,
)
from foretune.cost.behaviour.targets import OCTAVES
from foretune.dataset import judgeable
from foretune.describe import SCHEMA_VERSION
from foretune.errors import BadInputError, unknown_name

if TYPE_CHECKING:
    from foretune.dataset import Group, Program
    from foretune.hardware import Device, Hardware

_FORMAT = 1
"""Raised whenever the options or the arrays of a file change."""
STAGES = ("1", "2", "both")
_CLASSIFIER = "classifier"
_CLASSIFIERS = (_CLASSIFIER, f"{_CLASSIFIER}:variants")
"""First stages that describe candidates."""


class BehaviourRanker(Ranker):
    """Programs by how they would behave on a device, also one that was never measured (LLMTuner).

    Args:
        seed: Of everything that is drawn.
        stage: ``"1"``, ``"2"`` or ``"both"``.
        keep: Programs of a group that survive the first stage.
        first: Name of the ranker that is the first stage.
        first_options: Its options.
        scores: Source of scores: ``"analytic"``, ``"llm"``, or ``"hf"`` of the research package.
        programs: Programs of a group that are described and learned from at most, drawn at random;
            the first stage and the memory learn from all.
        memory: Whether what other devices of training took for a program is looked at.
        model: For ``scores="llm"`` a language model as ``--llm`` takes it, for ``"hf"`` a folder.
        source: A source of scores, in place of ``scores`` and ``model``.
        read_nests: What describes candidates; ``foretune.describe.nests_of`` unless given.
        options: Fields of ``RegressorConfig``.

    Raises:
        BadInputError: An option is unknown or makes no sense.
    """

    needs: Needs = Needs(
        nests=True,
        options={
            "stage": str | int,
            "keep": int,
            "first": str,
            "first_options": None,
            "scores": str,
            "programs": int,
            "memory": bool,
            "model": TEXT,
            "source": None,
            "read_nests": None,
        },
        in_run={"threads": 1},
    )
    name: ClassVar[str] = "behaviour"
    regressor_type: ClassVar[type[Regressor]] = Regressor
    aliases: ClassVar[Mapping[str, str]] = {}
    """Other names of the regressor's options."""
    studied: ClassVar[Mapping[str, Any]] = {"factors": True}
    """What files may say that only a study changes."""

    def __init__(
        self,
        *,
        seed: int = 0,
        stage: str | int = "both",
        keep: int = 32,
        first: str = _CLASSIFIER,
        first_options: dict[str, Any] | None = None,
        scores: str = "analytic",
        programs: int = 256,
        memory: bool = False,
        model: str | None = None,
        source: ScoreSource | None = None,
        read_nests: Any = None,
        **options: Any,
    ) -> None:
        for name, value, hint in (
            ("keep", keep, int),
            ("programs", programs, int),
            ("memory", memory, bool),
        ):
            require_type(self.name, name, value, hint)
        self.stage = str(stage)
        if self.stage not in STAGES:
            raise unknown_name("stage of behaviour", self.stage, STAGES)
        if keep < 1:
            raise BadInputError(f"{self.name}: keep >= 1 must hold, but got {keep}")
        if programs < 2:
            raise BadInputError(f"{self.name}: programs >= 2 must hold, but got {programs}")
        self.seed, self.keep, self.programs = seed, keep, programs
        self.first_name, self.first_options = first, dict(first_options or {})
        self.scores = _known_scores(scores) if source is None else source.name
        self.memory_used = memory
        self._model, self._source = model, source
        self._read_nests = read_nests
        if first not in rankers.names():
            raise unknown_name("first stage of behaviour", first, rankers.names())
        if source is None:
            require_model(scores, model)
        self._options = regressor_options(type(self), options)
        self._regressors = Regressors(self._regressor, self.scores)
        self._identities = self._no_identities()
        self._memory = Memory()
        self._first: Ranker | None = None
        self._fills = True

    def _regressor(self) -> Regressor:
        return self.regressor_type(seed=self.seed, **self._options)

    def _no_identities(self) -> Identities:
        """Nobody seen yet."""
        return Identities()

    @property
    def source(self) -> ScoreSource:
        """Where scores are from; opened when first asked."""
        if self._source is None:
            self._source = open_source(self.scores, self._model)
        return self._source

    @property
    def regressor(self) -> Regressor | None:
        """The one for the source of scores; None where there is none."""
        return self._regressors.get(self.scores)

    @property
    def trained(self) -> bool:
        """Whether it has learned anything."""
        return bool(self._first) or bool(self.regressor and self.regressor.trained)

    @property
    def modules(self) -> Sequence[str]:
        """Its own, and those of the first stage and of the source of scores."""
        first = () if self._first is None else self._first.modules
        source = () if self._source is None else (type(self._source).__module__,)
        return [*super().modules, *first, *source]

    @property
    def status(self) -> dict[str, Any]:
        """Where scores were from and what became of the questions; empty of formulas."""
        asked = self._source is not None and self.scores != AnalyticScores.name
        return self.source.status if asked else {}

    def fit(self, groups: Sequence[Group], validation: Sequence[Group] = ()) -> None:
        """Forgets everything and learns from these groups alone.

        Raises:
            BadInputError: Not one group has two programs with different seconds that can be
                described, a device is not known, or formulas had to give most of the scores of a
                language model.
        """
        self._first, self._memory = None, Memory()
        self._regressors.forget(self.scores)
        self.scale, self.strength = Ranker.scale, Ranker.strength
        used = [group for group in groups if judgeable(group.seconds)]
        if self.stage != "1" or self.memory_used:
            self._identities.learn([self._device(group) for group in used])
        if self.memory_used:
            for group in used:
                keys = [program.key for program in group.programs]
                device = self._identities.shown(self._device(group))
                self._memory.add(device, group.workload, keys, group.seconds)
        if self.stage != "1":
            self._fit_regressors(used, [g for g in validation if judgeable(g.seconds)])
        if self.stage != "2":
            first = rankers.create(self.first_name, seed=self.seed, **self._first_parts())
            first.fit(groups, validation)
            self._first = first
            if self.stage == "1":
                self.scale, self.strength = first.scale, first.strength

    def _first_parts(self) -> dict[str, Any]:
        return {**self._readers(), **self.first_options}

    def _readers(self) -> dict[str, Any]:
        """What describes candidates, where it was given, for a first stage that describes them."""
        given = self._read_nests is not None and self.first_name in _CLASSIFIERS
        return {"read_nests": self._read_nests} if given else {}

    def _fit_regressors(self, groups: Sequence[Group], validation: Sequence[Group]) -> None:
        parts = (groups, validation)
        lessons, held = taught(parts, self._lesson, self.source, self.programs, self.name)
        kept = [lesson for lesson in lessons if lesson is not None]
        if not kept:
            raise BadInputError(
                f"{self.name}: a group to learn from needs two programs with different seconds "
                f"that can be described, but none of {len(groups)} has: a ranker of actions, for "
                "example 'gbdt_actions', needs no description"
            )
        judging = [lesson for lesson in held if lesson is not None]
        judged = self._regressors.fit(self.scores, kept, judging, self.seed)
        self.scale = fitted_scale(judged)
        self.strength = fitted_strength(judged, self.scale)

    def _lesson(self, group: Group) -> Lesson | None:
        device = self._identities.shown(self._device(group))
        if len(group) > self.programs:
            rng = np.random.default_rng([self.seed, *group.key.encode()])
            group = group.subset(np.sort(rng.choice(len(group), self.programs, replace=False)))
        table, known = self._columns(
            group.workload,
            group.programs,
            self._batches(group),
            device,
        )
        if not judgeable(group.seconds[known]):
            return None
        return Lesson(group.workload, device.key, table[known], group.seconds[known])

    def score(
        self, programs: Sequence[Program], machine: Hardware | None, hardware: str = ""
    ) -> FloatArray:
        """Scores of programs of this TVM's spaces, shape (n,); NaN for one that is not legal.

        Raises:
            BadInputError: One has no candidate: its group is to be scored by ``score_group``.
        """
        if not self.trained or not programs:
            return np.zeros(len(programs))
        batches = reading.batches_of_candidates(programs, self._read_nests)
        device = None if self.stage == "1" else self._device_of_machine(machine, hardware)
        candidate = programs[0].candidate
        workload = "" if candidate is None else candidate.workload.key

        def first(rows: list[int]) -> FloatArray:
            assert self._first is not None
            return self._first.score([programs[row] for row in rows], machine, hardware)

        return self._staged(workload, programs, batches, device, first)

    def score_group(self, group: Group) -> FloatArray:
        """Scores of all programs of a group, logged ones too; NaN for one that is not described.

        Raises:
            BadInputError: None can be described, or its device is not known.
        """
        if not self.trained or not len(group):
            return np.zeros(len(group))
        batches = self._batches(group)
        if not batches and any(program.candidate is None for program in group.programs):
            raise BadInputError(
                f"{self.name}: programs of a group are rebuilt from its workload, but of "
                f"{group.key} ({group.source or 'no source'}) none can be: choose a ranker that "
                "reads what these records hold, for example 'gbdt_actions' (programs of logs are "
                "rebuilt by the package foretune_research)"
            )

        def first(rows: list[int]) -> FloatArray:
            assert self._first is not None
            return self._first.score_group(group.subset(rows))

        device = None if self.stage == "1" else self._device(group)
        return self._staged(group.workload, group.programs, batches, device, first)

    def _staged(
        self,
        workload: str,
        programs: Sequence[Program],
        batches: reading.Batches,
        device: Device | None,
        first: Callable[[list[int]], FloatArray],
    ) -> FloatArray:
        """Both stages, or one; without a device the first, which may do without."""
        n = len(programs)
        scores = np.full(n, np.nan)
        legal = np.zeros(n, dtype=bool)
        for rows, _ in batches:
            legal[rows] = True
        at = np.flatnonzero(legal)
        if not len(at):
            return scores
        if device is None:
            scores[at] = first(at.tolist())
            return scores
        shown = self._identities.shown(device)
        if self.stage == "2" or len(at) <= self.keep:
            survivors = at
        else:
            before = first(at.tolist())
            survivors = np.sort(at[best_first(before, self.seed)[: self.keep]])
            scores[at] = before
        chosen = [part for part in (part_of(batch, survivors) for batch in batches) if len(part[0])]
        table, known = self._columns(workload, programs, chosen, shown)
        assert self.regressor is not None
        second = -OCTAVES * self.regressor.times(table[survivors])
        second[~known[survivors]] = np.nan
        return composed(scores, survivors, second)

    def _columns(
        self,
        workload: str,
        programs: Sequence[Program],
        batches: reading.Batches,
        device: Device,
    ) -> tuple[FloatArray, BoolArray]:
        memory = self._memory if self.memory_used else None
        return asked(self.source, workload, programs, batches, device, memory, fills=self._fills)

    def _batches(self, group: Group) -> reading.Batches:
        return reading.batches_of(group, self._read_nests)

    def _device(self, group: Group) -> Device:
        return reading.known(reading.device_of(group), group.hardware, group.source)

    def _device_of_machine(self, machine: Hardware | None, hardware: str) -> Device:
        return reading.known(reading.device_of_machine(machine), hardware)

    def staged(
        self, stage: str, source: ScoreSource | None = None, *, fills: bool = True
    ) -> BehaviourRanker:
        """The same, asked in other stages or with scores of another source; parts are shared.

        Args:
            stage: One of ``STAGES``.
            source: Of scores; its own if None.
            fills: Whether programs that the source is silent about have scores by formulas; if not,
                they are scored NaN, as those that are not legal.

        Raises:
            BadInputError: It learned nothing of such scores.
        """
        made = copy.copy(self)
        made.stage, made._fills = stage, fills
        if source is not None:
            made._source, made.scores = source, source.name
        made._regressors.require(made.scores, "this ranker")
        return made

    def _stored(self) -> dict[str, Any]:
        """Options that a file holds."""
        return {
            "stage": self.stage,
            "keep": self.keep,
            "first": self.first_name,
            "first_options": self.first_options,
            "scores": self.scores,
            "programs": self.programs,
            "memory": self.memory_used,
            **self._options,
        }

    def save(self, path: Path) -> None:
        """Writes both stages, the memory and data sheets to one file."""
        meta = {
            "versions": _versions(),
            "seed": self.seed,
            "options": self._stored(),
            "scale": self.scale,
            "strength": self.strength,
            "regressors": self._regressors.meta(),
            "identities": self._identities.to_json(),
            "first": self._first is not None,
        }
        arrays = self._regressors.arrays()
        if len(self._memory):
            arrays |= {f"memory/{key}": value for key, value in self._memory.arrays().items()}
        if self._first is not None:
            with tempfile.TemporaryDirectory() as folder:
                own = Path(folder) / "first.npz"
                self._first.save(own)
                arrays["first"] = np.frombuffer(own.read_bytes(), dtype=np.uint8)
        write_model(path, self.name, meta, arrays)

    @classmethod
    def load(cls, path: Path, **parts: Any) -> BehaviourRanker:
        """Reads what ``save`` wrote.

        Args:
            path: The file.
            parts: Arguments of the constructor that no file holds, ``source``, ``model``..., or
                that are to differ from the file's: ``scores``, ``stage``, ``keep``, ``threads``.

        Raises:
            RecordError: The file cannot be read or is not such a file.
            VersionMismatchError: Written under another schema or version of columns.
            BadInputError: A part is unknown, or the file knows nothing of such scores.
        """
        meta, arrays = read_model(path, cls.name)
        check(path, meta, versions=_versions())
        # Who loads it may give the source of scores later, or ask nothing of it.
        fixed = {**cls.studied, **constants(cls.regressor_type.config_type)}
        options = {**stored_options(fixed, path, meta["options"]), **parts}
        scores = options.pop("scores")
        made = cls(seed=meta["seed"], **options)
        if made._source is None:
            made.scores = _known_scores(scores)
        made.scale, made.strength = float(meta["scale"]), float(meta["strength"])
        made._identities.restore(meta["identities"])
        threads = {"threads": parts["threads"]} if "threads" in parts else {}
        made._regressors.restore(cls.regressor_type, meta["regressors"], arrays, **threads)
        made._regressors.require(made.scores, path)
        memory = under(arrays, "memory")
        if memory:
            made._memory = Memory.of_arrays(made._identities.devices, memory)
        if meta["first"] and made.stage != "2":
            made._first = made._read_first(arrays["first"], threads)
        return made

    def _read_first(self, content: Array, threads: Mapping[str, Any]) -> Ranker:
        with tempfile.TemporaryDirectory() as folder:
            own = Path(folder) / "first.npz"
            own.write_bytes(content.tobytes())
            return rankers.load(own, **self._readers(), **threads)


def _known_scores(name: str) -> str:
    SOURCES.require(name)
    return name


def _versions() -> dict[str, Any]:
    return {"file": _FORMAT, "schema": SCHEMA_VERSION, "columns": COLUMNS_VERSION}
