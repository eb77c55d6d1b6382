"""Options of the ranker behaviour that are its regressor's, refused by the names given."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any

from foretune._options import configured, constants, option_names, refuse_unknown
from foretune.cost._ranker import Ranker
from foretune.cost.behaviour.regressor import Regressor, RegressorConfig
from foretune.errors import BadInputError

ALIASES = {"lambda": "rank_share", "regressor": "form"}
_NO_OPTIONS = ("read_nests", "seed", "source")
"""Arguments that no command line has, or says otherwise."""


def regressor_options(ranker: type[Ranker], options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of the regressor by the names that it knows them by.

    Before → after: ``{"lambda": 0.3}`` → ``{"rank_share": 0.3}``.

    Args:
        ranker: Whose constructor was given them beside its own.
        options: By the names that were given.

    Raises:
        BadInputError: One is unknown, also to the ranker, stands there twice, or makes no sense; by
            the names that were given.
    """
    name = "behaviour"
    own = inspect.signature(ranker).parameters.values()
    known = [p.name for p in own if p.kind is p.KEYWORD_ONLY and p.name not in _NO_OPTIONS]
    fields = option_names(RegressorConfig)
    refuse_unknown(name, options, [*known, *ALIASES, *fields], constants(RegressorConfig))
    found: dict[str, Any] = {}
    for given, value in options.items():
        meant = ALIASES.get(given, given)
        if meant in found:
            other = next(alias for alias, canonical in ALIASES.items() if canonical == meant)
            raise BadInputError(f"{name}: {other} and {meant} are one: leave one of them out")
        found[meant] = value
        try:
            configured(RegressorConfig, name, {meant: value})
        except BadInputError as error:
            told = str(error).replace(f"{Regressor.owner}: ", f"{name}: ", 1)
            raise BadInputError(re.sub(rf"\b{meant}\b", given, told)) from None
    return found
