"""Cost models: how good is a candidate?

``create`` makes one by name; ``register`` or an entry point in the group
``foretune.cost_models`` adds one. A factory is called as ``factory(rng=..., hardware=...,
**options)`` and returns a ``CostModel``. ``foretune.cost.rankers`` does the same for rankers, which
are trained once on many workloads; ``foretune.cost.pretrained`` makes a cost model of one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune.cost._base import CostModel, FloatArray, Prediction
from foretune.cost._ranker import Ranker, fitted_scale, fitted_strength, score_group
from foretune.cost.registry import Registry
from foretune.errors import BadInputError, unknown_name

if TYPE_CHECKING:
    from foretune.hardware import Hardware

__all__ = [
    "CostModel",
    "FloatArray",
    "Prediction",
    "Ranker",
    "Registry",
    "check_name",
    "create",
    "descriptions",
    "fitted_scale",
    "fitted_strength",
    "names",
    "register",
    "score_group",
    "unregister",
]

_TRAINED = ".npz"

_MODELS: Registry[CostModel] = Registry(
    "cost model",
    "foretune.cost_models",
    {
        "gbdt": "foretune.cost.pretrained:gbdt",
        "gbdt:programs": "foretune.cost.pretrained:gbdt_programs",
        "gbdt:scratch": "foretune.cost.gbdt:GradientBoosting",
        "mlp": "foretune.cost.pretrained:mlp",
        "mlp:formulas": "foretune.cost.pretrained:mlp_formulas",
        "mtl_tlp": "foretune.cost.pretrained:mtl_tlp",
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
        name: One of ``names()``, or a file that ``foretune train`` wrote, ``FILE.npz``: the trained
            ranker with trees on top of it.
        rng: The model's only source of randomness, or a seed for one.
        hardware: What the candidates will run on, for models that look at it.
        options: Passed to the model as they are.

    Raises:
        BadInputError: The name is unknown, or the model refuses an option.
        RecordError: The file is damaged or of another version.
        MissingDependencyError: The model needs a package that is not installed.
    """
    check_name(name)
    given = {"rng": np.random.default_rng(rng), "hardware": hardware, **options}
    if name.endswith(_TRAINED):
        from foretune.cost.pretrained import PretrainedModel

        return PretrainedModel(**{"ranker": Path(name), **given})
    return _MODELS.factory(name)(**given)


def check_name(name: str) -> None:
    """Refuses what ``create`` knows no model by.

    Raises:
        BadInputError: The name is unknown, or the file is not there.
    """
    if name.endswith(_TRAINED):
        if not Path(name).is_file():
            raise BadInputError(
                f"a cost model {_TRAINED} has to be a file that `foretune train` wrote, but there "
                f"is no {name}: train it, or choose one of `foretune cost-models`"
            )
    elif name not in names():
        raise unknown_name("cost model", name, [*names(), "default"])


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
