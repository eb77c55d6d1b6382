"""The compiler world model: programs are ranked by where their actions are predicted to lead.

Idea: the untransformed program is read once, as a point z0 in a space of programs; the scheduling
actions of a candidate move it, one after the other, to a predicted terminal state zT; trees rank by
zT beside the features of the actions, phi, and the factors of the hardware, h. No candidate's
program is made.

Symbols: d the numbers of a state; the columns of a program are [zT; phi; h], with zT the mean of
the ensemble's predictions brought to length 1.

- A state is made of per-store features (``foretune.world.feature_states``). That and the
  transitions (``foretune.world.transition``) are learned from programs of the training workloads;
  the trees are those of ``gbdt_actions``.
- The terminal states that trees learn from come from the member of the ensemble that has not seen
  the workload (``crossfit``): the others would be better than any that will be scored later, and
  trusted too much. That is also why how far members disagree is no column: of a training workload
  there is one prediction to be had.
- Programs that others measured cannot be made: their states are zeros, and they are ranked by phi
  and h.
- Trees have no gradient. With ``head`` a small network learns beside them from the same columns
  (``foretune.cost.world.head``), for gradient search to climb; it does not rank.

Source: Pan et al., Toward Compiler World Models, 2026. What is ours: states of features instead of
texts, lists instead of LambdaRank, cross-fitting. What is the paper's, and the ablations, are in
the package ``foretune_research`` (``world:reference``, ``world:variants``).
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from foretune import features as feature_room
from foretune._arrays import BoolArray, Float32Array, FloatArray
from foretune._options import constants, option_names, refuse_unknown, stored_options
from foretune.cost._ranker import TEXT, Needs
from foretune.cost._ranker_file import read_model, write_model
from foretune.cost._tables import Table
from foretune.cost.gbdt_ranker import GbdtActionRanker
from foretune.cost.world.head import READS, Head, train_head
from foretune.cost.world.learning import Lesson, WorldConfig, _log, learn
from foretune.cost.world.model import World, rounded
from foretune.cost.world.programs import replayable
from foretune.cost.world.readers import FeatureReader
from foretune.dataset import Program, judgeable
from foretune.errors import BadInputError, unknown_name
from foretune.world import TEXT_VERSION, feature_states
from foretune.world import transition as transition_module

if TYPE_CHECKING:
    import torch

    from foretune.cost.world.actions import Route
    from foretune.dataset import Group
    from foretune.hardware import Hardware
    from foretune.space import Candidate

__all__ = ["World", "WorldConfig", "WorldRanker"]

_HEAD = "head/"
"""Names of the head's arrays in a file begin so."""
_HEAD_READS = "both"
_TEXT_ENCODER = "foretune.state-encoder/1"
"""Version that files name beside those of what is read here."""


class WorldRanker(GbdtActionRanker):
    """Trees over predicted terminal states, action features and hardware factors.

    Args:
        seed: Of everything that is drawn.
        features: ``"actions"``, nothing else.
        head: Whether a score that can be differentiated is learned besides.
        head_reads: What it reads beside h: predicted ``"states"``, ``"actions"``, phi, or
            ``"both"``.
        cache: Folder in which features and replayed states are kept; None: in memory.
        device: PyTorch's name of a device; None: a CUDA device where there is one.
        world: A trained world to use; none is learned then.
        options: Fields of ``WorldConfig`` and of ``GbdtRankerConfig``. ``threads`` is for PyTorch,
            too.

    Raises:
        BadInputError: An option is unknown or makes no sense.
    """

    name: ClassVar[str] = "world"
    needs: Needs = Needs(
        options={
            "features": str,
            "head": bool,
            "head_reads": str,
            "cache": TEXT,
            "device": TEXT,
            "world": None,
        },
        in_run={"threads": 1, "device": "cpu"},
    )
    world_config_type: ClassVar[type[WorldConfig]] = WorldConfig
    switches: ClassVar[tuple[str, ...]] = ("head", "head_reads")
    """Arguments that a file holds beside the fields of configurations."""
    studied: ClassVar[Mapping[str, Any]] = {
        "state": "predicted",
        "actions": True,
        "hardware": True,
        "encoder": "compact",
        "positives": "both",
        "encoder_states": 6000,
        "encoder_options": None,
        "contrastive_options": None,
    }
    """What files may say that only a study changes."""

    def __init__(
        self,
        *,
        seed: int = 0,
        features: str = "actions",
        head: bool = False,
        head_reads: str = _HEAD_READS,
        cache: Path | str | None = None,
        device: str | None = None,
        world: World | None = None,
        **options: Any,
    ) -> None:
        own = {k: v for k, v in options.items() if k in option_names(self.world_config_type)}
        trees = {k: v for k, v in options.items() if k not in own}
        grown: Any = self.learner.config
        known = (*option_names(self.world_config_type), *option_names(grown))
        fixed = {**self.studied, **constants(self.world_config_type), **constants(grown)}
        refuse_unknown(self.name, trees, (*self.switches, "cache", *known), fixed)
        if head_reads not in READS:
            raise unknown_name(f"head_reads of {self.name}", head_reads, READS)
        if head_reads != _HEAD_READS and not head:
            raise BadInputError(
                f"world: head=True must hold where head_reads is given, but got head=False and "
                f"head_reads={head_reads!r}: give head=true, or leave head_reads out"
            )
        super().__init__(seed=seed, features=features, **trees)
        self._cache = None if cache is None else Path(cache)
        self.world_config = self.world_config_type(**own)
        self.head, self.head_reads = head, head_reads
        self._device = device
        self._given = world
        self._world: World | None = None
        self._head: Head | None = None
        self._fitting = False
        self._learned_from: list[list[Table]] = []
        columns = [column.name for column in feature_room.action_columns()]
        self._hidden = [at for at, name in enumerate(columns) if self._hides(name)]
        self._factors = [at for at, name in enumerate(columns) if name.startswith("machine.")]
        if head:
            self._refuse_head(self.world_config if world is None else world)

    def _refuse_head(self, world: World | WorldConfig) -> None:
        """Refuses to learn a head of what has no derivative."""
        if isinstance(world, World):
            target, following = world.reader.target, world.transition
            embedding = None if following is None else following.config.action_embedding
        else:
            target, embedding = world.target, world.following.action_embedding
        for name, value, holds in (
            (f"target={FeatureReader.target!r}", target, target == FeatureReader.target),
            ("action_embedding='numbers' or 'both'", embedding, embedding in ("numbers", "both")),
        ):
            self.require_for_head(name, value, holds)

    def require_for_head(self, rule: str, value: object, holds: bool) -> None:
        """Refuses a head.

        Raises:
            BadInputError: The rule does not hold.
        """
        if not holds:
            raise BadInputError(
                f"world: {rule} must hold for a head, which is to be differentiated by the "
                f"numbers of actions, but got {value!r}: choose that, or leave head out"
            )

    def _hides(self, column: str) -> bool:
        """Whether trees do not look at a column of phi and h."""
        del column
        return False

    @classmethod
    def _versions(cls, feature_version: int | str | None) -> dict[str, Any]:
        return {
            **super()._versions(feature_version),
            "text": TEXT_VERSION,
            "encoder": _TEXT_ENCODER,
            "transition": transition_module.SCHEMA,
            "feature_states": feature_states.SCHEMA,
        }

    def fit(self, groups: Sequence[Group], validation: Sequence[Group] = ()) -> None:
        """Forgets everything and learns from these groups alone; a given world stays.

        Validation groups stop the trees early; the world is not learned from them.
        """
        self._members = []
        self._head = None
        self._world = self._world_of(groups, validation)
        self._fitting = True
        try:
            super().fit(groups, validation)
            if self.head and self._world is not None:
                self._head = self._learned_head(self._world.columns)
        finally:
            self._fitting = False
            self._learned_from = []

    def _tables(self, groups: Sequence[Group]) -> list[Table]:
        tables = super()._tables(groups)
        if self.head:
            # For the head, after the trees: states are predicted once.
            self._learned_from.append(tables)
        return tables

    def _learned_head(self, dimension: int) -> Head | None:
        tables, held = self._learned_from
        factors = [dimension + at for at in self._factors]
        given: dict[str, Any] = {"device": self._device, "threads": self.config.threads}
        given |= {"reads": self.head_reads, "seed": self.seed}
        head = train_head(tables, dimension, factors, held=held, **given)
        if head is None:
            _log.warning("world: no group has states to tell programs apart, so there is no head")
        return head

    def _world_of(self, groups: Sequence[Group], validation: Sequence[Group]) -> World | None:
        """The given world, or one that is learned; None where no program can be made."""
        if self._given is not None:
            return self._given
        usable = [group for group in groups if judgeable(group.seconds)]
        held = [group for group in validation if judgeable(group.seconds)]
        parts: dict[str, Any] = {"threads": self.config.threads, "device": self._device}
        config, seed = self.world_config, self.seed
        lesson = Lesson.of(usable, config, seed, self._cache, validation=held, **parts)
        if lesson is not None:
            return self._followed(lesson)
        if usable:
            _log.warning(
                "world: no training program can be made, so that there are no states to learn "
                "from: programs are ranked by their actions alone"
            )
        return None

    def _followed(self, lesson: Lesson) -> World:
        """The world of a lesson."""
        parts: dict[str, Any] = {"threads": self.config.threads, "device": self._device}
        return learn(lesson, self.world_config, self.seed, **parts)

    def _matrix(
        self, programs: Sequence[Program], machine: Hardware | None
    ) -> tuple[Float32Array, BoolArray]:
        states, legal = self._states([program.candidate for program in programs])
        kept = [
            program for program, is_legal in zip(programs, legal.tolist(), strict=True) if is_legal
        ]
        return np.concatenate([states[legal], self.described(kept, machine)], axis=1), legal

    def described(self, programs: Sequence[Program], machine: Hardware | None) -> Float32Array:
        """phi and h of programs, shape (n, columns): zeros where the switches hide a column."""
        rows = feature_room.action_features(programs, machine)
        rows[:, self._hidden] = 0.0
        return rows

    def _states(self, candidates: Sequence[Candidate | None]) -> tuple[Float32Array, BoolArray]:
        """State columns, shape (n, d), zeros for foreign programs; which rows are legal."""
        legal = np.ones(len(candidates), dtype=bool)
        if self._world is None:
            return np.zeros((len(candidates), 0), np.float32), legal
        ends = np.zeros((len(candidates), self._world.columns), dtype=np.float32)
        at = [row for row, candidate in enumerate(candidates) if replayable(candidate)]
        own = [candidate for row in at if (candidate := candidates[row]) is not None]
        if not own:
            return ends, legal
        ends[at] = self._ends(own)
        # Where TVM refuses a program, there is no state.
        legal[at] = ~np.isnan(ends[at]).any(axis=1)
        return rounded(ends), legal

    def _ends(self, candidates: Sequence[Candidate]) -> Float32Array:
        """The state columns of candidates, shape (n, d), NaN for one that TVM refuses."""
        assert self._world is not None
        return self._world.predicted(candidates, aware=not self._fitting)

    # What gradient search climbs.

    def require_head(self, what: str) -> None:
        """Refuses to be climbed without a head.

        Args:
            what: Who asks, for the message.

        Raises:
            BadInputError: There is none.
        """
        if self._head is not None and self._world is not None:
            return
        given = self._world
        target = self.world_config.target if given is None else given.reader.target
        because = "" if target == FeatureReader.target else f" (its states are made of {target})"
        raise BadInputError(
            f"{what} needs a world with a head, whose score has derivatives, but this one has "
            f"none{because}: train one with `foretune train world --option head=true`"
        )

    def route(self, candidate: Candidate) -> Route:
        """The steps of candidates with this one's structure, and where decisions enter them."""
        assert self._world is not None, "require_head comes first"
        return self._world.route(candidate)

    def member_scores(self, candidates: Sequence[Candidate], machine: Hardware) -> FloatArray:
        """The head's score by where each member of the transitions has candidates end.

        Args:
            candidates: Of any workloads; scores compare within one.
            machine: Whose factors are h.

        Returns:
            Shape (members, n), higher is better, in log2 of a speed-up; (1, n) where the head reads
            no states. The trees are not asked.
        """
        import torch

        from foretune._torch import limited_threads

        assert self._world is not None and self._head is not None, "require_head comes first"
        states = np.zeros((1, len(candidates), 0), dtype=np.float32)
        if self._head.reads != "actions":
            states = self._world.each(candidates)
        described = np.zeros((len(candidates), 0), dtype=np.float32)
        if self._head.reads != "states":
            described = self.described([Program(candidate=each) for each in candidates], machine)
        with limited_threads(self.config.threads), torch.inference_mode():
            read = torch.from_numpy(states), torch.from_numpy(described)
            scores = self._head.scores(*read, self._factors_of(machine))
        found: FloatArray = scores.cpu().numpy().astype(np.float64)
        return found

    def smooth_scores(
        self, route: Route, numbers: torch.Tensor, described: torch.Tensor, machine: Hardware
    ) -> torch.Tensor:
        """``member_scores`` of candidates whose numbers need not be whole, with gradients.

        Args:
            route: Their steps.
            numbers: Of the steps that decisions enter, sign(x) log2(1 + |x|), shape (n, V, 8).
            described: What ``described`` gives, or is taken to give between candidates, shape
                (n, columns); not looked at where the head reads states only.
            machine: Whose factors are h.

        Returns:
            Shape (members, n).
        """
        from foretune._torch import limited_threads

        assert self._world is not None and self._head is not None, "require_head comes first"
        with limited_threads(self.config.threads):
            states = numbers.new_zeros(1, len(numbers), 0)
            if self._head.reads != "actions":
                states = self._world.smooth(route, numbers)
            return self._head.scores(states, described, self._factors_of(machine))

    def _factors_of(self, machine: Hardware) -> Float32Array:
        factors: Float32Array = feature_room.machine_features(machine).astype(np.float32)
        return factors

    def save(self, path: Path) -> None:
        """Writes the world, the trees, the head and the versions of all they read to one file.

        Weights of networks are rounded to 16 bits, as they are in use.
        """
        world: Any = ({}, {}) if self._world is None else self._world.dump()
        head: Any = ({}, {}) if self._head is None else self._head.dump()
        with tempfile.TemporaryDirectory() as folder:
            trees = Path(folder) / "trees.npz"
            super().save(trees)
            meta, arrays = read_model(trees)
        switches = {name: getattr(self, name) for name in self.switches}
        options = {**asdict(self.world_config), **switches}
        own = {f"{_HEAD}{name}": value for name, value in head[1].items()}
        write_model(
            path,
            self.name,
            {**meta, "options": options, "world": world[0], "head": head[0]},
            {**arrays, **world[1], **own},
        )

    @classmethod
    def load(cls, path: Path, **parts: Any) -> WorldRanker:
        """Reads what ``save`` wrote.

        Args:
            path: The file.
            parts: Arguments of the constructor that no file holds, ``cache``, ``device``..., or
                that are to differ from the file's: ``threads``.

        Raises:
            RecordError: The file cannot be read or is not such a file.
            VersionMismatchError: Written under another schema or feature version.
            MissingDependencyError: PyTorch is not installed.
        """
        meta, arrays = read_model(path)
        fixed = {**cls.studied, **constants(cls.world_config_type)}
        options = stored_options(fixed, path, meta.get("options", {}))
        head = options.pop("head", False)
        options.pop("head_reads", None)
        ranker = super().load(path, **{**options, **parts})
        assert isinstance(ranker, WorldRanker)
        # Refused, if at all, before it was learned: of a given world the options say nothing.
        ranker.head = head
        if meta["world"]:
            ranker._world = World.restore(
                meta["world"], arrays, threads=ranker.config.threads, device=ranker._device
            )
        # Files from before there were heads do not speak of any.
        if meta.get("head"):
            own = {k.removeprefix(_HEAD): v for k, v in arrays.items() if k.startswith(_HEAD)}
            ranker._head = Head.restore(meta["head"], own, ranker._device)
            ranker.head_reads = ranker._head.reads
        return ranker
