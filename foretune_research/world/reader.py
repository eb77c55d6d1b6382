"""How the world model turns programs into states by their text (the paper's way).

Programs are replayed state by state, an encoder learns to find each state among others, and every
state becomes a vector.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from foretune._arrays import Array, Float32Array, IntArray
from foretune.cost.world.actions import ActionBook
from foretune_research.world.config import WorldStudyConfig
from foretune_research.world.contrastive import TextFile, train_encoder
from foretune_research.world.encoder import StateEncoder
from foretune_research.world.programs import Observed, final_texts, observe
from foretune_research.world.text import program_text, variant

if TYPE_CHECKING:
    from foretune.cost.world.learning import WorldConfig
    from foretune.dataset import Group
    from foretune.space import Candidate
    from foretune.workload import Workload

_log = logging.getLogger("foretune.cost.world")


class TextReader:
    """States are encoded texts (the paper's).

    Args:
        encoder: Trained.
    """

    target: ClassVar[str] = "text"
    part_type: ClassVar[type[StateEncoder]] = StateEncoder

    def __init__(self, encoder: StateEncoder) -> None:
        self.encoder = encoder
        self._warned = False

    @property
    def part(self) -> StateEncoder:
        """The encoder."""
        return self.encoder

    @property
    def dimension(self) -> int:
        """Numbers of a state."""
        return int(self.encoder.config.dimension)

    @classmethod
    def observed(
        cls, groups: Sequence[Group], config: WorldConfig, seed: int, cache: Path | None
    ) -> Observed:
        """Programs that are replayed state by state."""
        return observe(groups, config.trajectories, seed, cache)

    @classmethod
    def learned(
        cls,
        seen: Observed,
        config: WorldConfig,
        seed: int,
        *,
        held: Callable[[], Observed] | None = None,
        threads: int | None = None,
        device: str | None = None,
    ) -> TextReader:
        """An encoder trained on a sample of the states, the initial and the terminal ones first.

        Args:
            seen: Programs to learn from.
            config: How.
            seed: Of the sample, the weights and the order.
            held: Looks at programs of other workloads; the log says how many of these are found.
            threads, device: See ``StateEncoder.fresh``.
        """
        assert isinstance(config, WorldStudyConfig)
        rng = np.random.default_rng(seed)
        files = _files(seen, config.encoder_states, rng)
        each = max(2, config.encoder_states // max(1, len(seen.workloads)))
        others = []
        unseen = None if held is None else held()
        if unseen is not None and unseen.workloads:
            others = _files(unseen, each * len(unseen.workloads), rng)
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
        return cls(encoder)

    def states_of(self, seen: Observed) -> tuple[Float32Array, list[IntArray]]:
        """All states, and of each program those that it goes through."""
        place = {key: at for at, key in enumerate(seen.texts)}
        _log.info("encoding %d states", len(place))
        states = self.encoder.encode(list(seen.texts.values()))
        return states, [np.array([place[key] for key in one.states]) for one in seen.trajectories]

    def actions(self, texts: Sequence[str]) -> Float32Array:
        """The texts as the encoder's backbone sees them."""
        return self.encoder.pooled(texts)

    def initial(self, workload: Workload) -> Float32Array:
        """The encoded untransformed program."""
        state: Float32Array = self._read([program_text(workload.module)])[0]
        return state

    def finals(
        self, candidates: Sequence[Candidate], cache: Path | None
    ) -> list[Float32Array | None]:
        """The encoded programs before post-processors."""
        texts = final_texts(candidates, cache)
        made = [text for text in texts if text is not None]
        states = iter(self._read(made) if made else ())
        return [None if text is None else next(states) for text in texts]

    def _read(self, texts: Sequence[str]) -> Float32Array:
        """The states of texts, and a warning the first time one is too long."""
        most = self.encoder.longest
        longest = max(texts, key=len)
        if not self._warned and len(self.encoder.tokens([longest])[0]) > most:
            self._warned = True
            _log.warning(
                "world: a program's text is longer than the %d tokens that the encoder reads: %d "
                "windows of it, spread evenly, stand for the whole",
                most, self.encoder.config.windows,
            )  # fmt: skip
        return self.encoder.encode(texts)

    def dump(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """The encoder's."""
        return self.encoder.dump()

    @classmethod
    def restore(
        cls, meta: Mapping[str, Any], arrays: Mapping[str, Array], **given: Any
    ) -> TextReader:
        """Reverses ``dump``."""
        return cls(StateEncoder.restore(meta, arrays, **given))


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
