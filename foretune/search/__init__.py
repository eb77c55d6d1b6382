"""Strategies: which candidate next?

``create`` makes one by name; ``register`` or an entry point in the group
``foretune.strategies`` adds one. A factory is called as ``factory(space, model, rng, **options)``
and returns a ``Strategy``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune.cost import Registry
from foretune.search._base import Strategy

if TYPE_CHECKING:
    from foretune.cost import CostModel
    from foretune.space import Space

__all__ = ["Strategy", "create", "descriptions", "names", "register", "unregister"]

_STRATEGIES: Registry[Strategy] = Registry(
    "strategy",
    "foretune.strategies",
    {
        "evolutionary": "foretune.search.evolutionary:Evolutionary",
        "random": "foretune.search.random:RandomSearch",
    },
)


def create(
    name: str, space: Space, model: CostModel, rng: np.random.Generator | int, **options: Any
) -> Strategy:
    """Makes the strategy called ``name`` for one space.

    Args:
        name: One of ``names()``.
        space: Where candidates come from.
        model: Who scores them.
        rng: The strategy's only source of randomness, or a seed for one.
        options: Passed to the strategy as they are.

    Raises:
        BadInputError: The name is unknown, or the strategy refuses an option.
        MissingDependencyError: The strategy needs a package that is not installed.
    """
    return _STRATEGIES.factory(name)(space, model, np.random.default_rng(rng), **options)


def names() -> list[str]:
    """Names that ``create`` accepts, sorted."""
    return _STRATEGIES.names()


def descriptions() -> dict[str, str]:
    """Name to one line of text, for listings."""
    return _STRATEGIES.descriptions()


def register(name: str, factory: Callable[..., Strategy]) -> None:
    """Makes ``factory`` known as ``name`` in this process; a taken name is refused."""
    _STRATEGIES.register(name, factory)


def unregister(name: str) -> None:
    """Takes back what ``register`` added."""
    _STRATEGIES.unregister(name)
