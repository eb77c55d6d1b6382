"""What all language models of transformers need that are read here."""

from __future__ import annotations

import inspect
from typing import Any

from foretune.errors import BadInputError


def argument_of_cache(model: Any) -> str:
    """What the model calls the states that it keeps; newer releases call them otherwise."""
    known = inspect.signature(type(model).forward).parameters
    return "cache" if "cache" in known else "past_key_values"


def unreadable(what: str, error: Exception, other: str = "") -> BadInputError:
    """Why a model could not be read.

    Args:
        what: The model, as the message begins.
        error: What transformers said.
        other: What else may be given than a folder.
    """
    said = (str(error).splitlines() or [type(error).__name__])[0][:200]
    return BadInputError(
        f"{what} must be a causal language model of transformers, but cannot be read ({said}): "
        f"give a folder of `save_pretrained` {other}".rstrip()
    )
