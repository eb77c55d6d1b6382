"""What a transition model is and how it is trained, and which of them files speak of.

See ``foretune.world.transition`` for the idea.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar

from foretune._options import Bounds, Count, Positive, constants, require_options, stored_options
from foretune._registry import Registry
from foretune.errors import VersionMismatchError

SCHEMA = "foretune.transition/2"
"""Of what ``TransitionModel.dump`` gives. Another number when weights or inputs change meaning."""
JOINED_SCHEMA = "foretune.transition/3"
"""The same of models that know more than that: with ``joins`` or ``relative``."""
JOINS: Mapping[str, tuple[bool, bool]] = {
    "none": (False, False),
    "change": (True, False),
    "end": (False, True),
}
"""Where the initial state comes in again -> whether in the change of every step, and at the end."""


@dataclass(frozen=True)
class TransitionConfig:
    """What a transition model is and how it is trained, where the ends of paths are known.

    Studies change more of it (``foretune_research.world.following``).

    Attributes:
        members: Networks, each from its own seed.
        terminal_epochs: Passes over whole paths at the end where only their last state counts.
        batch: Actions per training step, about: windows times their length at most.
        learning_rate: Step size of Adam, at its peak; it falls along a cosine.
    """

    action_embedding: ClassVar[str] = "both"
    initial: ClassVar[bool] = True
    scaled: ClassVar[bool] = True
    joins: ClassVar[str] = "none"
    relative: ClassVar[bool] = False
    horizons: ClassVar[tuple[tuple[int, int], ...]] = ()
    match_share: ClassVar[float] = 0.5
    margin: ClassVar[float] = 0.2
    attainable: ClassVar[bool] = True
    cross: ClassVar[int] = 8
    same: ClassVar[int] = 0
    unknown: ClassVar[float] = 0.02
    warm_up: ClassVar[float] = 0.05
    weight_decay: ClassVar[float] = 0.0
    clip: ClassVar[float] = 1.0

    members: Count = 3
    terminal_epochs: Annotated[int, Bounds(ge=0)] = 60
    batch: Count = 512
    learning_rate: Positive = 1e-3

    def __post_init__(self) -> None:
        require_options("transition model", self)

    @property
    def schema(self) -> str:
        """Of a model of this kind in a file."""
        return SCHEMA

    def to_json(self) -> dict[str, Any]:
        """What a file says of it."""
        return asdict(self)

    @property
    def phases(self) -> list[tuple[int, bool]]:
        """Of each epoch, its horizon and whether only the last state counts."""
        grown = [(horizon, False) for horizon, epochs in self.horizons for _ in range(epochs)]
        return grown + [(0, True)] * self.terminal_epochs


_CONFIGS: Registry[TransitionConfig] = Registry(
    "configuration of transitions",
    "foretune.transition_configs",
    {"ends": "foretune.world._transition_config:TransitionConfig"},
    studied=["variants"],
)


def restored(options: Mapping[str, Any]) -> TransitionConfig:
    """A configuration of what JSON made of it."""
    try:
        own = stored_options(constants(TransitionConfig), "the transition model", options)
        return TransitionConfig(**own)
    except VersionMismatchError:
        horizons = tuple((int(horizon), int(epochs)) for horizon, epochs in options["horizons"])
        return _CONFIGS.factory("variants")(**{**options, "horizons": horizons})
