"""Which guide a search climbs: by name, from the run's cost model, a file, or the package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from foretune.cost import rankers, shipped
from foretune.cost.mlp import MlpRanker
from foretune.cost.world import WorldRanker
from foretune.errors import BadInputError
from foretune.search._guide import Guide, MlpGuide
from foretune.search._world_guide import WorldGuide

if TYPE_CHECKING:
    from foretune.cost import CostModel
    from foretune.hardware import Hardware
    from foretune.search._gradient_config import GradientConfig

_KINDS: Mapping[str, tuple[type[Any], type[Any]]] = {
    "mlp": (MlpRanker, MlpGuide),
    "world": (WorldRanker, WorldGuide),
}
"""Name of a guide -> the ranker that it needs, and the guide."""


def chosen_guide(model: CostModel[Any], hardware: Hardware, config: GradientConfig) -> Guide | None:
    """What ``config.guide`` and ``config.weights`` name.

    Args:
        model: Of the run; its own ranker is climbed where it is of that kind.
        hardware: What is tuned for.
        config: Which guide, and how careful.

    Returns:
        The guide; None where none is trained for such hardware.

    Raises:
        BadInputError: The weights are of another ranker, or cannot be climbed.
    """
    wanted, guide = _KINDS[config.guide]
    ranker = getattr(model, "ranker", None)
    if config.weights.endswith(".npz"):
        ranker = rankers.load_for_run(config.weights)
    elif config.weights or not isinstance(ranker, wanted):
        known = bool(config.weights) or shipped.of_known_architecture(hardware)
        name = config.weights or config.guide
        ranker = shipped.shipped(name, hardware.kind) if known else None
    if ranker is None and config.weights:
        raise BadInputError(
            f"gradient: weights must be a file (.npz) of `foretune train {config.guide}`, or the "
            f"name of weights that come with the package for {hardware.kind!r} targets, but got "
            f"{config.weights!r}"
        )
    if ranker is None:
        return None
    if not isinstance(ranker, wanted):
        raise BadInputError(
            f"gradient: weights must be of the ranker {config.guide!r}, which can be "
            f"differentiated, where guide={config.guide!r}, but {config.weights!r} is a "
            f"{type(ranker).__name__}: {_remedy(ranker, config.guide)}"
        )
    made: Guide = guide(ranker, config.caution, config.penalty)
    return made


def _remedy(ranker: Any, guide: str) -> str:
    for name, (kind, _) in _KINDS.items():
        if isinstance(ranker, kind):
            return f"choose guide={name!r}"
    return f"train one with `foretune train {guide}`"
