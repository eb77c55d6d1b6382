"""Proposers: which edits of a program are worth a look?

``create`` makes one by name; ``register`` or an entry point in the group ``foretune.proposers``
adds one. A factory is called as ``factory(space, rng, **options)`` and returns a ``Proposer``.
Strategies that edit programs take one by name (``mcts``, ``evolutionary``)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune.cost import Registry
from foretune.errors import BadInputError, unknown_name
from foretune.search.proposers._base import Proposer, Situation, Variant

if TYPE_CHECKING:
    from foretune.hardware import Hardware
    from foretune.space import Space

__all__ = [
    "DEFAULT",
    "Proposer",
    "Situation",
    "Variant",
    "create",
    "default_name",
    "descriptions",
    "names",
    "register",
    "unregister",
]

DEFAULT = "default"

_PROPOSERS: Registry[Proposer] = Registry(
    "proposer",
    "foretune.proposers",
    {
        "heuristic": "foretune.search.proposers.heuristic:HeuristicProposer",
        "learned": "foretune.search.proposers.learned:LearnedProposer",
        "llm": "foretune.search.proposers.llm:LlmProposer",
        "random": "foretune.search.proposers.random:RandomProposer",
    },
)


def create(name: str, space: Space, rng: np.random.Generator | int, **options: Any) -> Proposer:
    """Makes the proposer called ``name`` for one space.

    Args:
        name: One of ``names()``, or ``"default"``.
        space: Where programs come from.
        rng: The proposer's only source of randomness, or a seed for one.
        options: Passed to the proposer as they are.

    Raises:
        BadInputError: The name is unknown, or the proposer refuses an option.
        MissingDependencyError: The proposer needs a package that is not installed.
    """
    name = default_name(space.hardware) if name == DEFAULT else name
    factory = _PROPOSERS.factory(name)
    known = inspect.signature(factory).parameters
    open_ended = any(p.kind is p.VAR_KEYWORD for p in known.values())
    unknown = [] if open_ended else sorted(set(options) - set(known))
    if unknown:
        raise BadInputError(
            f"neither the strategy nor its proposer {name!r} has an option {unknown[0]!r}: see the "
            "list in docs/llm.md"
        )
    return factory(space, np.random.default_rng(rng), **options)


def default_name(hardware: Hardware) -> str:
    """The best proposer that needs nothing from outside, for one kind of hardware."""
    from foretune.search.proposers.learned import has_weights

    return "learned" if has_weights(hardware) else "heuristic"


def check_name(name: str) -> None:
    """Refuses a name that ``create`` would not accept.

    Raises:
        BadInputError: It is unknown; the message lists the known ones.
    """
    if name != DEFAULT and name not in names():
        raise unknown_name("proposer", name, [*names(), DEFAULT])


def names() -> list[str]:
    """Names of all proposers, sorted."""
    return _PROPOSERS.names()


def descriptions() -> dict[str, str]:
    """Name to one line of text, for listings."""
    return _PROPOSERS.descriptions()


def register(name: str, factory: Callable[..., Proposer]) -> None:
    """Makes ``factory`` known as ``name`` in this process; a taken name is refused."""
    _PROPOSERS.register(name, factory)


def unregister(name: str) -> None:
    """Takes back what ``register`` added."""
    _PROPOSERS.unregister(name)
