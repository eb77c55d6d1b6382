"""The ranker ``behaviour`` with LLMTuner's own regressor, and with controls.

Controls: with ``factors="shuffled"`` every device is taken for another of its kind, in training as
later; with ``factors=False`` for one and the same. If hardware is what carries over, this hurts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from foretune.cost.behaviour.identities import Identities
from foretune.cost.behaviour.ranker import BehaviourRanker
from foretune.cost.behaviour.regressor import Regressor
from foretune.cost.behaviour.scores import ScoreSource
from foretune_research.behaviour.identities import Disguised
from foretune_research.behaviour.regressor import RegressorVariants


class BehaviourVariants(BehaviourRanker):
    """The ranker behaviour with a switch for each part of its regressor, and controls.

    Args:
        factors: True; False: all devices of a kind are taken for one; ``"shuffled"``: every one for
            another.
        seed, stage, keep, first, first_options, scores, programs: As of ``BehaviourRanker``.
        memory, model, source, read_nests: As of ``BehaviourRanker``.
        options: Fields of ``RegressorVariantsConfig``; ``lambda`` is ``rank_share``, and
            ``regressor`` is ``form``.

    Raises:
        BadInputError: An option is unknown or makes no sense.
    """

    name: ClassVar[str] = "behaviour:variants"
    regressor_type: ClassVar[type[Regressor]] = RegressorVariants
    aliases: ClassVar[Mapping[str, str]] = {"lambda": "rank_share", "regressor": "form"}
    studied: ClassVar[Mapping[str, Any]] = {}

    def __init__(
        self,
        *,
        seed: int = 0,
        stage: str | int = "both",
        keep: int = 32,
        first: str = "classifier",
        first_options: dict[str, Any] | None = None,
        scores: str = "analytic",
        factors: bool | str = True,
        programs: int = 256,
        memory: bool = False,
        model: str | None = None,
        source: ScoreSource | None = None,
        read_nests: Any = None,
        **options: Any,
    ) -> None:
        self.factors = factors
        given: dict[str, Any] = {"stage": stage, "keep": keep, "first": first, "scores": scores}
        given |= {"first_options": first_options, "programs": programs, "memory": memory}
        given |= {"model": model, "source": source, "read_nests": read_nests}
        super().__init__(seed=seed, **given, **options)

    def _no_identities(self) -> Identities:
        return Disguised(self.factors, self.seed)

    def _stored(self) -> dict[str, Any]:
        return {**super()._stored(), "factors": self.factors}
