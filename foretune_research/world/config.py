"""What a study of the world model can choose beside what the product does."""

# Constants of the product are options here: instance variables in the place of class variables.
# mypy: disable-error-code="misc"

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any

from foretune._options import Bounds, OneOf
from foretune.cost.world.learning import WorldConfig, known_options
from foretune.cost.world.readers import FeatureReader
from foretune.errors import BadInputError
from foretune.world.transition import TransitionConfig
from foretune_research.world.contrastive import ContrastiveConfig
from foretune_research.world.encoder import encoder_config
from foretune_research.world.following import TransitionStudyConfig

_ENDS_ONLY: Mapping[str, Any] = {
    "horizons": (), "terminal_epochs": 60, "batch": 512, "same": 0, "cross": 8,
}  # fmt: skip
"""Of transitions, where only the ends of paths are known."""
TARGETS = (FeatureReader.target, "text")
TRANSITIONS = ("trained", "untrained", "actions_only")
_UNREAD: Mapping[str, tuple[str, ...]] = {
    "features": (
        "encoder", "positives", "encoder_states", "encoder_options", "contrastive_options",
    ),
    "text": ("dimension",),
}  # fmt: skip
"""Fields that are for the other target."""


@dataclass(frozen=True)
class WorldStudyConfig(WorldConfig):
    """The world, with what the paper has and what ablations change.

    Attributes:
        target: What states are made of: ``"features"``, as in the product, or ``"text"``, encoded
            programs (the paper's).
        transition: ``"trained"``; the controls ``"untrained"``, weights as they were drawn, and
            ``"actions_only"``, which does not look at the initial state.
        crossfit: Whether each member of the transitions leaves out a part of the training
            workloads. If not, every member has seen all.
        encoder: ``"compact"`` or ``"codebert"``.
        positives: How the encoder's positives are made; see ``ContrastiveConfig``.
        encoder_states: States that the encoder learns from, about; all are encoded.
        encoder_options: Further fields of the encoder's configuration.
        contrastive_options: Further fields of ``ContrastiveConfig``.
    """

    target: Annotated[str, OneOf(TARGETS)] = FeatureReader.target
    transition: Annotated[str, OneOf(TRANSITIONS)] = "trained"
    crossfit: bool = True
    encoder: str = "compact"
    positives: str = "both"
    encoder_states: Annotated[int, Bounds(ge=2)] = 6000
    encoder_options: Mapping[str, Any] | None = None
    contrastive_options: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._refuse_unread()
        if self.target == FeatureReader.target and self.following.horizons:
            raise BadInputError(
                f"world: horizons must be () in transition_options where target={self.target!r}, "
                f"but got {self.following.horizons}: of such paths only the ends are known, give "
                "terminal_epochs"
            )
        # Refused now, not after minutes of replaying.
        _ = self.reading, self.contrast

    def _refuse_unread(self) -> None:
        defaults = {field.name: field.default for field in fields(self)}
        for name in _UNREAD.get(self.target, ()):
            if getattr(self, name) != defaults[name]:
                other = next(target for target in _UNREAD if target != self.target)
                raise BadInputError(
                    f"world: {name} must be left out where target={self.target!r}, but got "
                    f"{getattr(self, name)!r}: it is read where target={other!r}"
                )

    @property
    def reading(self) -> Any:
        """The encoder's configuration."""
        return encoder_config(self.encoder, **(self.encoder_options or {}))

    @property
    def contrast(self) -> ContrastiveConfig:
        """The configuration of the encoder's training."""
        options = {"positives": self.positives, **(self.contrastive_options or {})}
        return ContrastiveConfig(**known_options(ContrastiveConfig, "contrastive_options", options))

    @property
    def following(self) -> TransitionConfig:
        """The configuration of transitions and their training.

        Of texts all states of a path are known; of features its ends.
        """
        options: dict[str, Any] = {
            **(_ENDS_ONLY if self.target == FeatureReader.target else {}),
            "initial": self.transition != "actions_only",
            **(self.transition_options or {}),
        }
        if "horizons" in options:
            # A file has lists.
            options["horizons"] = tuple((int(a), int(b)) for a, b in options["horizons"])
        if self.transition == "untrained":
            options |= {"horizons": (), "terminal_epochs": 0}
        return TransitionStudyConfig(
            **known_options(TransitionStudyConfig, "transition_options", options)
        )
