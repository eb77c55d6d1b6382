"""Options of the ranker behaviour that are its regressor's, refused by the names given."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from foretune._options import configured, constants, option_names, refuse_unknown
from foretune.cost.behaviour.regressor import Regressor
from foretune.errors import BadInputError

if TYPE_CHECKING:
    from foretune.cost.behaviour.ranker import BehaviourRanker


def regressor_options(ranker: type[BehaviourRanker], options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of the regressor by the names that it knows them by.

    Before → after, with an alias: ``{"lambda": 0.3}`` → ``{"rank_share": 0.3}``.

    Args:
        ranker: Whose constructor was given them beside its own.
        options: By the names that were given.

    Raises:
        BadInputError: One is unknown, also to the ranker, stands there twice, or makes no sense; by
            the names that were given.
    """
    name = "behaviour"
    kind = ranker.regressor_type.config_type
    known = [*ranker.needs.in_text, *ranker.aliases, *option_names(kind)]
    refuse_unknown(name, options, known, {**ranker.studied, **constants(kind)})
    found: dict[str, Any] = {}
    for given, value in options.items():
        meant = ranker.aliases.get(given, given)
        if meant in found:
            other = next(alias for alias, canonical in ranker.aliases.items() if canonical == meant)
            raise BadInputError(f"{name}: {other} and {meant} are one: leave one of them out")
        found[meant] = value
        try:
            configured(kind, name, {meant: value})
        except BadInputError as error:
            told = str(error).replace(f"{Regressor.owner}: ", f"{name}: ", 1)
            raise BadInputError(re.sub(rf"\b{meant}\b", given, told)) from None
    return found
