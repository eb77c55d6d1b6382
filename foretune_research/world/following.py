"""What studies change of transitions and their training."""

# Constants of the product are options here: instance variables in the place of class variables.
# mypy: disable-error-code="misc"

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any

from foretune._options import Bounds, Fraction, NotNegative, OneOf, Positive, Share
from foretune.errors import BadInputError
from foretune.world._action_inputs import PARTS
from foretune.world._transition_config import JOINED_SCHEMA, JOINS, SCHEMA, TransitionConfig


@dataclass(frozen=True)
class TransitionStudyConfig(TransitionConfig):
    """A transition model and its training; the defaults suit paths whose every state is known.

    Attributes:
        action_embedding: What is looked at of an action besides its kind: ``"text"``, as in the
            paper, ``"numbers"`` or ``"both"``.
        initial: Whether the initial state is looked at. If not, a learned vector stands for it,
            and a path's end depends on its actions alone: a control.
        scaled: Whether steps read states times sqrt(d), so that their numbers are of the size of
            actions'; the paper does not.
        joins: Where the initial state comes in again, besides being what the first action moves:
            ``"none"`` (the paper's), in the ``"change"`` of every step, or at the ``"end"`` of the
            path, where all of its actions are looked at once more besides. If not ``initial``, a
            learned vector stands for it there, too.
        relative: Whether the factors of a split are given as shares of the logarithm of its extent,
            so that actions alone do not tell how long loops are.
        horizons: Phases of training in order: actions of a window at most, 0 for whole paths, and
            passes over the paths. No phase at all: an untrained model, a control.
        match_share: Lambda, the weight of being near to the true state; the rest is that of being
            nearer to it than to others.
        margin: Gamma: by how much nearer, in squared distance.
        attainable: Lower the margin to the distance of the true state and the other where that is
            less; the paper does not.
        cross, same: Other states per step: of other paths, half of them of the same workload at
            the same step, and of the same path.
        unknown: Share of actions whose kind is forgotten in a training step, so that the model
            learns what to make of a kind that it does not know.
        warm_up: Share of the steps in which it rises.
        weight_decay: AdamW's, on matrices.
        clip: Norm of a step's gradient at most.
    """

    action_embedding: Annotated[str, OneOf(PARTS)] = "both"
    initial: bool = True
    scaled: bool = True
    joins: Annotated[str, OneOf(JOINS)] = "none"
    relative: bool = False
    horizons: tuple[tuple[int, int], ...] = ((1, 6), (8, 8), (0, 12))
    match_share: Share = 0.5
    margin: NotNegative = 0.2
    attainable: bool = True
    cross: Annotated[int, Bounds(ge=0)] = 4
    same: Annotated[int, Bounds(ge=0)] = 4
    unknown: Fraction = 0.02
    warm_up: Fraction = 0.05
    weight_decay: NotNegative = 0.0
    clip: Positive = 1.0
    terminal_epochs: int = 8
    batch: int = 1024

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cross + self.same < 1:
            raise BadInputError(
                f"transition model: `cross + same >= 1` must hold, but got cross={self.cross}, "
                f"same={self.same}: give more"
            )
        for phase in self.horizons:
            if min(phase) < 0:
                raise BadInputError(
                    "transition model: `horizon >= 0 and epochs >= 0` must hold for every phase, "
                    f"but got {phase}: give another one"
                )

    @property
    def schema(self) -> str:
        """Of a model of this kind in a file."""
        plain = self.joins == "none" and not self.relative
        return SCHEMA if plain else JOINED_SCHEMA

    def to_json(self) -> dict[str, Any]:
        """What a file says of it."""
        found = asdict(self)
        if self.schema == SCHEMA:
            # A reader of that schema does not know them.
            del found["joins"], found["relative"]
        return found
