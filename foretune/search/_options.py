"""Options by name: which of them are a configuration's, and whether they are of its types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from foretune.errors import BadInputError

Config = TypeVar("Config")

_WORDS: dict[type, str] = {
    bool: "a flag",
    int: "a whole number",
    float: "a number",
    str: "text",
}


def configured(
    config: type[Config], owner: str, options: Mapping[str, Any]
) -> tuple[Config, dict[str, Any]]:
    """A configuration made of those options that are its fields, and the options that are not.

    Args:
        config: A dataclass whose fields have defaults.
        owner: Who is configured, for messages.
        options: By name; they may come from a command line.

    Raises:
        BadInputError: A value is of another type than the default.
    """
    fields: dict[str, Any] = config.__dataclass_fields__  # type: ignore[attr-defined]
    own = {name: value for name, value in options.items() if name in fields}
    for name, value in own.items():
        wanted = type(fields[name].default)
        allowed = (int, float) if wanted is float else (wanted,)
        if type(value) not in allowed:
            raise BadInputError(f"{owner}: {name} is {_WORDS[wanted]}, but got {value!r}")
    return config(**own), {name: value for name, value in options.items() if name not in fields}
