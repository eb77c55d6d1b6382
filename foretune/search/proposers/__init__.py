"""Proposers: which edits of a program are worth a look?

``create`` makes one by name; ``register`` or an entry point in the group ``foretune.proposers``
adds one. A factory is called as ``factory(space, rng, **options)`` and returns a ``Proposer``.
Strategies that edit programs take one by name (``mcts``, ``evolutionary``).

``_base`` is the door. ``random`` draws; ``heuristic`` and ``learned`` rank what is drawn
(``_ranked``, ``_policy``); ``llm`` asks a language model (``_prompts``, ``_answers``).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._registry import Registry
from foretune.errors import BadInputError, unknown_name
from foretune.search.proposers._base import Proposer, Situation, Variant
from foretune.space.protocol import C

if TYPE_CHECKING:
    from foretune.hardware import Hardware
    from foretune.space import SearchSpace

__all__ = [
    "DEFAULT",
    "Proposer",
    "Situation",
    "Variant",
    "asks_llm",
    "check",
    "create",
    "default_name",
    "descriptions",
    "names",
    "register",
    "unregister",
]

DEFAULT = "default"

_PROPOSERS: Registry[Proposer[Any]] = Registry(
    "proposer",
    "foretune.proposers",
    {
        "heuristic": "foretune.search.proposers.heuristic:HeuristicProposer",
        "learned": "foretune.search.proposers.learned:LearnedProposer",
        "llm": "foretune.search.proposers.llm:LlmProposer",
        "random": "foretune.search.proposers.random:RandomProposer",
    },
)


def create(
    name: str, space: SearchSpace[C], rng: np.random.Generator | int, **options: Any
) -> Proposer[C]:
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
    _refuse_unknown(name, factory, options)
    return factory(space, np.random.default_rng(rng), **options)


def check(name: str, options: Mapping[str, Any]) -> None:
    """Refuses what ``create`` would refuse for any space; ``"default"`` is taken for ``"learned"``.

    Raises:
        BadInputError: The name is unknown, or the proposer refuses an option.
        MissingDependencyError: The proposer needs a package that is not installed.
        RecordError: An option names a file that cannot be read.
    """
    check_name(name)
    name = "learned" if name == DEFAULT else name
    factory = _PROPOSERS.factory(name)
    _refuse_unknown(name, factory, options)
    if isinstance(factory, type) and issubclass(factory, Proposer):
        factory.check_options(options)


def _refuse_unknown(
    name: str, factory: Callable[..., Proposer[Any]], options: Mapping[str, Any]
) -> None:
    parameters = list(inspect.signature(factory).parameters.values())
    # The first two are the space and the source of randomness.
    ours, theirs = parameters[:2], parameters[2:]
    open_ended = any(p.kind is p.VAR_KEYWORD for p in theirs)
    names = {p.name for p in (ours if open_ended else theirs)}
    unknown = sorted(set(options) & names if open_ended else set(options) - names)
    if unknown:
        raise BadInputError(
            f"neither the strategy nor its proposer {name!r} has an option {unknown[0]!r}: see the "
            "list in docs/llm.md"
        )


def default_name(hardware: Hardware) -> str:
    """The best proposer that needs nothing from outside, for one kind of hardware."""
    from foretune.search.proposers.learned import has_weights

    return "learned" if has_weights(hardware) else "heuristic"


def asks_llm(name: str | None) -> bool:
    """Whether the proposer of a name takes a language model, as its option ``llm``."""
    if name is None or name not in names():
        return False
    return "llm" in inspect.signature(_PROPOSERS.factory(name)).parameters


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


def register(name: str, factory: Callable[..., Proposer[Any]]) -> None:
    """Makes ``factory`` known as ``name`` in this process; a taken name is refused."""
    _PROPOSERS.register(name, factory)


def unregister(name: str) -> None:
    """Takes back what ``register`` added."""
    _PROPOSERS.unregister(name)
