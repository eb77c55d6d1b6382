"""Cost models: how good is a candidate?

``create`` makes one by name; ``register`` or an entry point in the group
``foretune.cost_models`` adds one. A factory is called as ``factory(rng=..., hardware=...,
**options)`` and returns a ``CostModel``. ``foretune.cost.rankers`` does the same for rankers, which
are trained once on many workloads; ``foretune.cost.pretrained`` makes a cost model of one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune.cost._base import CostModel, FloatArray, Prediction
from foretune.cost._ranker import Ranker, fitted_scale, fitted_strength, score_group
from foretune.cost.registry import Registry

if TYPE_CHECKING:
    from foretune.hardware import Hardware

__all__ = [
    "CostModel",
    "FloatArray",
    "Prediction",
    "Ranker",
    "Registry",
    "create",
    "descriptions",
    "fitted_scale",
    "fitted_strength",
    "names",
    "register",
    "score_group",
    "unregister",
]

_MODELS: Registry[CostModel] = Registry(
    "cost model",
    "foretune.cost_models",
    {
        "gbdt": "foretune.cost.pretrained:gbdt",
        "gbdt:programs": "foretune.cost.pretrained:gbdt_programs",
        "gbdt:scratch": "foretune.cost.gbdt:GradientBoosting",
        "mlp": "foretune.cost.pretrained:mlp",
        "mlp:formulas": "foretune.cost.pretrained:mlp_formulas",
        "random": "foretune.cost.random:RandomModel",
        "tlp": "foretune.cost.pretrained:tlp",
        "world": "foretune.cost.pretrained:world",
    },
)


def create(
    name: str,
    *,
    rng: np.random.Generator | int = 0,
    hardware: Hardware | None = None,
    **options: Any,
) -> CostModel:
    """Makes the cost model called ``name``.

    Args:
        name: One of ``names()``.
        rng: The model's only source of randomness, or a seed for one.
        hardware: What the candidates will run on, for models that look at it.
        options: Passed to the model as they are.

    Raises:
        BadInputError: The name is unknown, or the model refuses an option.
        MissingDependencyError: The model needs a package that is not installed.
    """
    return _MODELS.factory(name)(rng=np.random.default_rng(rng), hardware=hardware, **options)


def names() -> list[str]:
    """Names that ``create`` accepts, sorted."""
    return _MODELS.names()


def descriptions() -> dict[str, str]:
    """Name to one line of text, for listings."""
    return _MODELS.descriptions()


def register(name: str, factory: Callable[..., CostModel]) -> None:
    """Makes ``factory`` known as ``name`` in this process; a taken name is refused."""
    _MODELS.register(name, factory)


def unregister(name: str) -> None:
    """Takes back what ``register`` added."""
    _MODELS.unregister(name)
