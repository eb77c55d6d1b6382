"""Strategies: which candidate next?

``create`` makes one by name, to which options may be added (``mcts:heuristic:branching=4``);
``register`` or an entry point in the group ``foretune.strategies`` adds one. A factory is called as
``factory(space, model, rng, **options)`` and returns a ``Strategy``. ``foretune.search.proposers``
does the same for proposers of edits. What all strategies share, those of others too: the sampler of
what was not proposed yet (``FreshSampler``, each strategy's ``fresh``), and ``pick``, which chooses
a batch from scored candidates.

``_base`` is the door, ``sampling`` and ``_choosing`` are what all share. ``random``;
``evolutionary`` with ``_breeding``; ``mcts`` with its ``_tree``; ``gradient`` with
``_gradient_config``, guides (``_guide``, ``_guides``, ``_anchored``, ``_world_guide``),
``_relaxed`` decisions and ``_descent``. ``proposers`` make edits, ``portfolio`` suggests schedules
of other programs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._options import split_options
from foretune._registry import Registry
from foretune.errors import BadInputError
from foretune.search import proposers
from foretune.search._base import Strategy
from foretune.search._choosing import BatchPolicy, pick
from foretune.search.sampling import FreshSampler
from foretune.space.protocol import C

if TYPE_CHECKING:
    from foretune.cost import CostModel
    from foretune.space import SearchSpace

__all__ = [
    "BatchPolicy",
    "FreshSampler",
    "Strategy",
    "check",
    "create",
    "descriptions",
    "names",
    "pick",
    "proposers",
    "register",
    "split_name",
    "unregister",
]

_STRATEGIES: Registry[Strategy[Any]] = Registry(
    "strategy",
    "foretune.strategies",
    {
        "evolutionary": "foretune.search.evolutionary:Evolutionary",
        "gradient": "foretune.search.gradient:Gradient",
        "mcts": "foretune.search.mcts:Mcts",
        "random": "foretune.search.random:RandomSearch",
    },
)


def create(
    name: str,
    space: SearchSpace[C],
    model: CostModel[C],
    rng: np.random.Generator | int,
    **options: Any,
) -> Strategy[C]:
    """Makes the strategy called ``name`` for one space.

    Args:
        name: One of ``names()``, or one with options as ``split_name`` reads them.
        space: Where candidates come from.
        model: Who scores them.
        rng: The strategy's only source of randomness, or a seed for one.
        options: Passed to the strategy as they are; those in the name count less.

    Raises:
        BadInputError: The name is unknown, or the strategy refuses an option.
        MissingDependencyError: The strategy needs a package that is not installed.
    """
    base, given = split_name(name)
    merged = {**given, **options}
    return _STRATEGIES.factory(base)(space, model, np.random.default_rng(rng), **merged)


def check(name: str, options: Mapping[str, Any]) -> None:
    """Refuses what ``create`` would refuse for any space, before there is one.

    Args:
        name: As ``create`` takes it.
        options: Those that stand beside the name.

    Raises:
        BadInputError: The name is unknown, the strategy or its proposer refuses an option, or name
            and options contradict each other.
        MissingDependencyError: The strategy needs a package that is not installed.
        RecordError: An option names a file that cannot be read.
    """
    base, named = split_name(name)
    for option, value in named.items():
        if options.get(option, value) != value:
            raise BadInputError(
                f"an option has one value, but {option!r} is {value!r} in the strategy {name!r} "
                f"and {options[option]!r} beside it: leave one of them out"
            )
    factory = _STRATEGIES.factory(base)
    if isinstance(factory, type) and issubclass(factory, Strategy):
        factory.check_options({**named, **options})


def split_name(name: str) -> tuple[str, dict[str, Any]]:
    """The strategy and the options that a name holds; a word alone is the proposer.

    Before → after: ``mcts:heuristic:branching=4`` → ``mcts`` and ``{"proposer": "heuristic",
    "branching": 4}``.

    Raises:
        BadInputError: An option occurs twice.
    """
    return split_options(name, alone="proposer")


def names() -> list[str]:
    """Names that ``create`` accepts, sorted."""
    return _STRATEGIES.names()


def descriptions() -> dict[str, str]:
    """Name to one line of text, for listings."""
    return _STRATEGIES.descriptions()


def register(name: str, factory: Callable[..., Strategy[Any]]) -> None:
    """Makes ``factory`` known as ``name`` in this process; a taken name is refused."""
    _STRATEGIES.register(name, factory)


def unregister(name: str) -> None:
    """Takes back what ``register`` added."""
    _STRATEGIES.unregister(name)
