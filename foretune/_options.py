"""Options come from command lines and files: their types are checked before use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from foretune.errors import BadInputError

Config = TypeVar("Config")


def configured(
    config: type[Config], owner: str, options: Mapping[str, Any]
) -> tuple[Config, dict[str, Any]]:
    """A configuration made of those options that are its fields, and the options that are not.

    Args:
        config: A dataclass whose fields have defaults.
        owner: Who is configured, for messages.
        options: By name.

    Raises:
        BadInputError: A value is of another type than its field.
    """
    hints = get_type_hints(config)
    own = {name: value for name, value in options.items() if name in hints}
    for name, value in own.items():
        require_type(owner, name, value, hints[name])
    return config(**own), {name: value for name, value in options.items() if name not in hints}


def refuse_unknown(owner: str, options: Iterable[str], known: Iterable[str]) -> None:
    """Refuses names of options that nobody knows.

    Args:
        owner: Whose options they are, for messages.
        options: The names given.
        known: The names there are.

    Raises:
        BadInputError: A name is unknown; the message lists the known ones.
    """
    known = list(known)
    unknown = sorted(set(options) - set(known))
    if unknown:
        remedy = f"choose from {', '.join(known)}" if known else "it has none, leave it out"
        raise BadInputError(f"{owner} has no option {unknown[0]!r}: {remedy}")


def require_types(what: str, options: Any) -> None:
    """Refuses a dataclass whose values are not of the types of its fields.

    An int does for a float, a list for a tuple; what containers hold is not looked at.

    Args:
        what: Whose options they are, for messages.
        options: An instance of a dataclass.

    Raises:
        BadInputError: A value is of another type.
    """
    hints = get_type_hints(type(options))
    for field in fields(options):
        require_type(what, field.name, getattr(options, field.name), hints[field.name])


def require_type(what: str, name: str, value: object, hint: Any) -> None:
    """Refuses a value that is not of a type; see ``require_types``.

    Args:
        what: Whose option it is.
        name: Of the option.
        value: Of the option.
        hint: Its type, for example ``int``, ``float | None`` or ``tuple[int, ...]``.

    Raises:
        BadInputError: It is of another type.
    """
    union = get_origin(hint) in (Union, UnionType)
    kinds = {get_origin(kind) or kind for kind in (get_args(hint) if union else (hint,))}
    if float in kinds:
        kinds.add(int)
    if tuple in kinds:
        kinds.add(list)
    # A bool is an int to Python, and never meant as one.
    fits = bool in kinds if isinstance(value, bool) else isinstance(value, tuple(kinds))
    if not fits:
        raise BadInputError(f"{what}: {name} must be {_readable(hint)}, but got {value!r}")


def _readable(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)
