"""How the ranker ``world`` learns its world: programs seen, states encoded, actions followed.

Reading order: a reader looks at some training programs and learns to turn programs into states
(``foretune.cost.world.readers``); ``Lesson`` joins both to what transitions learn from; ``learn``
trains these.

Symbols: z0 the encoded untransformed program, zT the predicted terminal state.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np

from foretune._options import Bounds, constants, option_names, refuse_unknown, require_options
from foretune.cost.world.actions import ActionBook
from foretune.cost.world.model import World
from foretune.cost.world.readers import READERS, FeatureReader, Reader, Seen
from foretune.errors import BadInputError
from foretune.world.transition import Paths, TransitionConfig, TransitionModel, train_transition

if TYPE_CHECKING:
    from foretune.dataset import Group

_log = logging.getLogger("foretune.cost.world")

LEAST_PATHS = 2


@dataclass(frozen=True)
class WorldConfig:
    """What the world is made of and how it is learned.

    States are made of the per-store features of programs (``foretune.world.feature_states``). Only
    the ends of paths are known, so that transitions learn from these alone. Each member of the
    transitions leaves out a part of the training workloads (``crossfit``). The terminal states that
    trees learn from then come from the member that has not seen the workload; those that are scored
    later come from the mean of all, none of which has.

    Attributes:
        dimension: Numbers of a state, at most.
        trajectories: Training programs that are looked at, about, as many of each workload.
        transition_options: Further fields of ``TransitionConfig``.
    """

    target: ClassVar[str] = FeatureReader.target
    transition: ClassVar[str] = "trained"
    crossfit: ClassVar[bool] = True

    dimension: Annotated[int, Bounds(ge=2)] = 128
    trajectories: Annotated[int, Bounds(ge=LEAST_PATHS)] = 6000
    transition_options: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        require_options("world", self)
        # Refused now, not after minutes of looking at programs.
        following = self.following
        if self.crossfit and following.phases and following.members < LEAST_PATHS:
            raise BadInputError(
                "world: crossfit needs members >= 2 in transition_options, each of which leaves "
                f"out a part, but got {following.members}: give more, or crossfit=false"
            )

    @property
    def following(self) -> TransitionConfig:
        """The configuration of transitions and their training."""
        options = dict(self.transition_options or {})
        return TransitionConfig(**known_options(TransitionConfig, "transition_options", options))


def known_options(kind: Any, name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Options of a dataclass ``kind``, all of which are its fields; ``name`` is for the message."""
    refuse_unknown(f"{name} of world", options, option_names(kind), constants(kind))
    return options


@dataclass(frozen=True)
class Lesson:
    """What transitions learn from.

    Attributes:
        reader: Frozen.
        seen: Programs that were replayed, or described.
    """

    reader: Reader
    seen: Seen

    @cached_property
    def paths(self) -> Paths:
        """Of all programs that were seen."""
        book = ActionBook(self.reader.actions)
        rows, lengths = book.paths(self.seen.candidates)
        states, places = self.reader.states_of(self.seen)
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
        kind: Any = READERS.factory(config.target)
        seen = kind.observed(groups, config, seed, cache)
        if not seen.candidates:
            return None
        if reader is None:
            share = len(validation) / (len(groups) + len(validation))

            def held() -> Any:
                few = replace(config, trajectories=max(2, round(share * config.trajectories)))
                return kind.observed(validation, few, seed, cache)

            reader = kind.learned(seen, config, seed, held=held, threads=threads, device=device)
        return cls(reader, seen)

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
