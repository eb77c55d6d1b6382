"""The ranker ``behaviour`` with LLMTuner's own regressor, and with controls.

Controls: with ``factors="shuffled"`` every device is taken for another of its kind, in training as
later; with ``factors=False`` for one and the same. If hardware is what carries over, this hurts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from foretune.cost._ranker import Needs
from foretune.cost.behaviour.identities import Identities
from foretune.cost.behaviour.ranker import BehaviourRanker
from foretune.cost.behaviour.regressor import Regressor
from foretune_research.behaviour.identities import Disguised
from foretune_research.behaviour.regressor import RegressorVariants


class BehaviourVariants(BehaviourRanker):
    """The ranker behaviour with a switch for each part of its regressor, and controls.

    Args:
        factors: True; False: all devices of a kind are taken for one; ``"shuffled"``: every one for
            another.
        options: What ``BehaviourRanker`` takes, and fields of ``RegressorVariantsConfig``;
            ``lambda`` is ``rank_share``, and ``regressor`` is ``form``.

    Raises:
        BadInputError: An option is unknown or makes no sense.
    """

    needs: Needs = replace(
        BehaviourRanker.needs,
        options={**BehaviourRanker.needs.options, "factors": bool | str},
    )
    name: ClassVar[str] = "behaviour:variants"
    regressor_type: ClassVar[type[Regressor]] = RegressorVariants
    aliases: ClassVar[Mapping[str, str]] = {"lambda": "rank_share", "regressor": "form"}
    studied: ClassVar[Mapping[str, Any]] = {}

    def __init__(
        self,
        *,
        factors: bool | str = True,
        **options: Any,
    ) -> None:
        self.factors = factors
        super().__init__(**options)

    def _no_identities(self) -> Identities:
        return Disguised(self.factors, self.seed)

    def _stored(self) -> dict[str, Any]:
        return {**super()._stored(), "factors": self.factors}
