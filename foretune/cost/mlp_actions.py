"""Perceptrons over decisions: what trees over them see, with other errors."""

from __future__ import annotations

from typing import ClassVar

from foretune.cost._perceptrons import Perceptrons
from foretune.cost._table_ranker import ActionTableRanker, Learner


class MlpActionRanker(ActionTableRanker):
    """Perceptrons over action features; no program is made, and PyTorch needed only to train.

    Args:
        seed: Of the members and of what is left out where there is too much data.
        features: ``"actions"``, nothing else.
        options: Fields of ``PerceptronConfig``.

    Raises:
        BadInputError: An option is unknown or makes no sense.
    """

    learner: ClassVar[type[Learner]] = Perceptrons
    name: ClassVar[str] = "mlp_actions"
