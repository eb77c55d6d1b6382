"""How the ranker ``world`` learns its world: programs seen, states encoded, actions followed.

Reading order: some training programs are looked at (``foretune.cost.world.programs``);
``read_states`` and ``fit_states`` make of these a reader, which turns programs into states;
``Lesson`` joins both to what transitions learn from; ``learn`` trains these.

Symbols: z0 the encoded untransformed program, zT the predicted terminal state.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._options import option_names, require_types
from foretune.cost.world.actions import ActionBook
from foretune.cost.world.model import World
from foretune.cost.world.programs import Measured, Observed, measure, observe
from foretune.cost.world.readers import READERS, FeatureReader, Reader, TextReader
from foretune.errors import BadInputError, unknown_name
from foretune.world import variant
from foretune.world.contrastive import ContrastiveConfig, TextFile, train_encoder
from foretune.world.encoder import encoder_config
from foretune.world.feature_states import FeatureStates
from foretune.world.transition import Paths, TransitionConfig, TransitionModel, train_transition

if TYPE_CHECKING:
    from foretune.dataset import Group

_log = logging.getLogger("foretune.cost.world")

TARGETS = tuple(READERS)
TRANSITIONS = ("trained", "untrained", "actions_only")
_UNREAD: Mapping[str, tuple[str, ...]] = {
    "features": (
        "encoder", "positives", "encoder_states", "encoder_options", "contrastive_options",
    ),
    "text": ("dimension",),
}  # fmt: skip
"""Fields of ``WorldConfig`` that are for the other target."""
_ENDS_ONLY: Mapping[str, Any] = {
    "horizons": (), "terminal_epochs": 60, "batch": 512, "same": 0, "cross": 8,
}  # fmt: skip
"""Of ``TransitionConfig``, where only the ends of paths are known."""
_LEAST_PATHS = 2


@dataclass(frozen=True)
class WorldConfig:
    """What the world is made of and how it is learned.

    Attributes:
        target: What states are made of: ``"features"``, the per-store features of programs
            (``foretune.world.feature_states``), or ``"text"``, encoded programs (the paper's). Of
            the former only the ends of paths are known, so that transitions learn from these
            alone, and there is no encoder.
        dimension: Numbers of a state of features, at most; those of texts are the encoder's.
        encoder: ``"compact"`` or ``"codebert"``.
        positives: How the encoder's positives are made; see ``ContrastiveConfig``.
        transition: ``"trained"``; the controls ``"untrained"``, weights as they were drawn, and
            ``"actions_only"``, which does not look at the initial state.
        trajectories: Training programs that are looked at, about, as many of each workload.
        encoder_states: States that the encoder learns from, about; all are encoded.
        crossfit: Whether each member of the transitions leaves out a part of the training
            workloads. The terminal states that trees learn from then come from the member that has
            not seen the workload; those that are scored later come from the mean of all, none of
            which has. If not, every member has seen all.
        encoder_options: Further fields of the encoder's configuration.
        contrastive_options: Further fields of ``ContrastiveConfig``.
        transition_options: Further fields of ``TransitionConfig``.
    """

    target: str = "features"
    dimension: int = 128
    encoder: str = "compact"
    positives: str = "both"
    transition: str = "trained"
    trajectories: int = 6000
    encoder_states: int = 6000
    crossfit: bool = True
    encoder_options: Mapping[str, Any] | None = None
    contrastive_options: Mapping[str, Any] | None = None
    transition_options: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        require_types("world", self)
        if self.target not in TARGETS:
            raise unknown_name("target of world", self.target, TARGETS)
        if self.transition not in TRANSITIONS:
            raise unknown_name("transition of world", self.transition, TRANSITIONS)
        for name, least in (
            ("trajectories", _LEAST_PATHS), ("encoder_states", 2), ("dimension", 2),
        ):  # fmt: skip
            if getattr(self, name) < least:
                raise BadInputError(
                    f"world: {name} >= {least} must hold, but got {getattr(self, name)}"
                )
        unread = _UNREAD[self.target]
        defaults = {field.name: field.default for field in fields(self)}
        for name in unread:
            if getattr(self, name) != defaults[name]:
                other = next(target for target in TARGETS if target != self.target)
                raise BadInputError(
                    f"world: {name} must be left out where target={self.target!r}, but got "
                    f"{getattr(self, name)!r}: it is read where target={other!r}"
                )
        # Refused now, not after minutes of replaying.
        _ = self.reading, self.contrast
        if self.target == FeatureReader.target and self.following.horizons:
            raise BadInputError(
                f"world: horizons must be () in transition_options where target={self.target!r}, "
                f"but got {self.following.horizons}: of such paths only the ends are known, give "
                "terminal_epochs"
            )
        if self.crossfit and self.following.phases and self.following.members < _LEAST_PATHS:
            raise BadInputError(
                "world: crossfit needs members >= 2 in transition_options, each of which leaves "
                f"out a part, but got {self.following.members}: give more, or crossfit=false"
            )

    @property
    def reading(self) -> Any:
        """The encoder's configuration."""
        return encoder_config(self.encoder, **(self.encoder_options or {}))

    @property
    def contrast(self) -> ContrastiveConfig:
        """The configuration of the encoder's training."""
        options = {"positives": self.positives, **(self.contrastive_options or {})}
        return ContrastiveConfig(**_known(ContrastiveConfig, "contrastive_options", options))

    @property
    def following(self) -> TransitionConfig:
        """The configuration of transitions and their training."""
        options: dict[str, Any] = {
            "initial": self.transition != "actions_only",
            **(_ENDS_ONLY if self.target == "features" else {}),
            **(self.transition_options or {}),
        }
        if "horizons" in options:
            # A file has lists.
            options["horizons"] = tuple((int(a), int(b)) for a, b in options["horizons"])
        if self.transition == "untrained":
            options |= {"horizons": (), "terminal_epochs": 0}
        return TransitionConfig(**_known(TransitionConfig, "transition_options", options))


def _known(kind: Any, name: str, options: dict[str, Any]) -> dict[str, Any]:
    for option in options:
        if option not in option_names(kind):
            raise unknown_name(f"field of {name} of world", option, option_names(kind))
    return options


def read_states(
    observed: Observed,
    config: WorldConfig,
    seed: int,
    threads: int | None = None,
    device: str | None = None,
    held: Observed | None = None,
) -> TextReader:
    """An encoder trained on a sample of the states, the initial and the terminal ones first.

    Args:
        observed: Programs to learn from.
        config: How.
        seed: Of the sample, the weights and the order.
        threads, device: See ``StateEncoder.fresh``.
        held: Programs of other workloads, of which the log says how many are found.
    """
    rng = np.random.default_rng(seed)
    files = _files(observed, config.encoder_states, rng)
    each = max(2, config.encoder_states // max(1, len(observed.workloads)))
    others = []
    if held is not None and held.workloads:
        others = _files(held, each * len(held.workloads), rng)
    encoder, history = train_encoder(
        files,
        config.contrast,
        config.reading,
        validation=others,
        rewrite=variant,
        seed=seed,
        threads=threads,
        device=device,
        progress=_log.info,
    )
    if history:
        _log.info("encoder: %.0f %% of the states found", 100 * history[-1].found)
    return TextReader(encoder)


def fit_states(measured: Measured, config: WorldConfig) -> FeatureReader:
    """States of features, fitted to programs that were described."""
    states = FeatureStates.fit(measured.vectors, measured.owner, config.dimension)
    return FeatureReader(states)


def _files(observed: Observed, count: int, rng: np.random.Generator) -> list[TextFile]:
    """One file per workload, and one of actions, which the encoder has to read, too."""
    each = max(2, count // max(1, len(observed.workloads)))
    ends: dict[str, dict[str, float]] = {}
    others: dict[str, dict[str, None]] = {}
    for trajectory, seconds in zip(observed.trajectories, observed.seconds, strict=True):
        first, *between, last = trajectory.states
        own = ends.setdefault(trajectory.workload, {first: float("nan")})
        own.setdefault(last, seconds)
        others.setdefault(trajectory.workload, {}).update(dict.fromkeys(between))
    files = []
    for workload in observed.workloads:
        own = ends[workload]
        rest = [key for key in others[workload] if key not in own]
        drawn = [rest[at] for at in rng.permutation(len(rest)).tolist()]
        # Half of them terminal where there are as many.
        known = list(own)[: max(each // 2, each - len(drawn))]
        keys = known + drawn[: each - len(known)]
        files.append(
            TextFile(
                [observed.texts[key] for key in keys], [own.get(key, float("nan")) for key in keys]
            )
        )
    actions = _action_texts(observed)
    at = rng.permutation(len(actions))[: max(2, count // 10)]
    return [*files, TextFile([actions[i] for i in at.tolist()])]


def _action_texts(observed: Observed) -> list[str]:
    book = ActionBook(lambda texts: np.zeros((len(texts), 0), np.float32))
    book.paths(observed.candidates)
    return book.texts


@dataclass(frozen=True)
class Lesson:
    """What transitions learn from.

    Attributes:
        reader: Frozen.
        seen: Programs that were replayed, or described.
    """

    reader: Reader
    seen: Observed | Measured

    @cached_property
    def paths(self) -> Paths:
        """Of all programs that were seen."""
        book = ActionBook(self.reader.actions)
        rows, lengths = book.paths(self.seen.candidates)
        states, places = self.seen.states(self.reader)
        steps = []
        for place, row, length in zip(places, rows, lengths.tolist(), strict=True):
            # Where only the ends are known, the last stands for those between, too.
            whole = np.concatenate([place, np.full(length + 1 - len(place), place[-1])])
            steps.append((whole.astype(np.int64), row[:length]))
        number = {key: at for at, key in enumerate(self.seen.workloads)}
        workload = np.array([number[key] for key in self.workloads], dtype=np.int64)
        return Paths(states, book.table(), steps, workload)

    @property
    def workloads(self) -> Sequence[str]:
        """Key of the workload of each path."""
        return self.seen.owner

    @classmethod
    def of(
        cls,
        groups: Sequence[Group],
        config: WorldConfig,
        seed: int,
        cache: Path | None = None,
        *,
        reader: Reader | None = None,
        validation: Sequence[Group] = (),
        threads: int | None = None,
        device: str | None = None,
    ) -> Lesson | None:
        """What is to be learned from groups; None where none of their programs can be made.

        Args:
            groups: Training groups.
            config: How.
            seed: Of everything.
            cache: Folder in which states and features are kept; None: in memory.
            reader: A trained one, of ``config.target``; None: one is trained.
            validation: Groups of other workloads, of which the log says how many states are found.
            threads, device: See ``StateEncoder.fresh``.
        """
        if config.target == FeatureReader.target:
            measured = measure(groups, config.trajectories, seed, cache)
            if not measured.candidates:
                return None
            return cls(reader or fit_states(measured, config), measured)
        observed = observe(groups, config.trajectories, seed, cache)
        if not observed.candidates:
            return None
        if reader is None:
            share = len(validation) / (len(groups) + len(validation))
            held = observe(validation, round(share * config.trajectories), seed, cache)
            reader = read_states(observed, config, seed, threads, device, held)
        return cls(reader, observed)

    def some(self, workloads: Iterable[str]) -> Paths:
        """The paths of some workloads."""
        wanted = set(workloads)
        at = [i for i, key in enumerate(self.workloads) if key in wanted]
        steps = [self.paths.steps[i] for i in at]
        return Paths(self.paths.states, self.paths.actions, steps, self.paths.workload[at])


def left_out(workloads: Iterable[str], members: int, seed: int) -> dict[str, int]:
    """Which member has not seen a training workload; members beyond the workloads share parts."""
    keys = sorted(set(workloads))
    part = np.random.default_rng(seed).permutation(len(keys)) % min(members, len(keys))
    return dict(zip(keys, part.tolist(), strict=True))


def learn(
    lesson: Lesson,
    config: WorldConfig,
    seed: int,
    threads: int | None = None,
    device: str | None = None,
) -> World:
    """Transitions trained on what was observed; see ``WorldConfig.crossfit``."""
    following = config.following
    keys = sorted(set(lesson.workloads))
    parts = min(following.members, len(keys))
    given: dict[str, Any] = {"threads": threads, "device": device, "progress": _log.info}
    # What has learned nothing has seen no workload.
    if not config.crossfit or parts < 2 or not following.phases:
        _log.info("transitions: %d paths", len(lesson.paths))
        return World(lesson.reader, train_transition(lesson.paths, following, seed=seed, **given))
    part = left_out(keys, following.members, seed)
    unaware: dict[str, TransitionModel] = {}
    models = []
    for number in range(following.members):
        out = {key for key, own in part.items() if own == number % parts}
        paths, left = lesson.some(set(keys) - out), lesson.some(out)
        _log.info(
            "transition %d of %d: %d paths, and %d of the %d workloads left out",
            number + 1, following.members, len(paths), len(left), len(out),
        )  # fmt: skip
        alone = replace(following, members=1)
        # What was left out is only told of: the epoch nearest to it would have seen it, too.
        models.append(
            train_transition(
                paths,
                alone,
                validation=left,
                choose=False,
                number=number,
                seed=seed + number,
                **given,
            )
        )
        unaware |= {key: models[-1] for key in out if key not in unaware}
    return World(lesson.reader, TransitionModel.joined(models), unaware)
