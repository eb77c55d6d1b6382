"""Options come from command lines and files: their types are checked before use.

What a configuration declares as a class variable is no option but a constant: no user chooses it.
Code reads both alike (``config.loss``). The package ``foretune_research`` has subclasses that make
options of constants, for studies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from foretune.errors import BadInputError, VersionMismatchError

Config = TypeVar("Config")

RESEARCH = "foretune_research"
"""The package whose parts change what is constant here."""


def option_names(config: type[Any]) -> tuple[str, ...]:
    """Names of the fields of a dataclass, without its class variables."""
    return tuple(field.name for field in fields(config))


def constants(config: type[Any]) -> dict[str, Any]:
    """Class variables of a dataclass with their values: what it fixes."""
    own = set(option_names(config))
    return {n: getattr(config, n) for n in config.__dataclass_fields__ if n not in own}


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
    hints, names = get_type_hints(config), option_names(config)
    own = {name: value for name, value in options.items() if name in names}
    for name, value in own.items():
        require_type(owner, name, value, hints[name])
    return config(**own), {name: value for name, value in options.items() if name not in names}


def stored_options(
    fixed: Mapping[str, Any], what: object, options: Mapping[str, Any]
) -> dict[str, Any]:
    """What a file says of a configuration, without what is constant by now.

    Before → after: ``{"epochs": 40, "decay": True}`` → ``{"epochs": 40}``, where ``decay`` is a
    class variable that is true.

    Args:
        fixed: What is constant, with the values: ``constants`` of the configuration.
        what: The file, or the part of one, for the message.
        options: By name, as they were written.

    Raises:
        VersionMismatchError: The file has another value than the constant.
    """
    for name, value in options.items():
        if name in fixed and _as_json(value) != _as_json(fixed[name]):
            raise VersionMismatchError(
                f"{what}: {name} must be {fixed[name]!r}, but is {value!r}: such a part belongs to "
                f"the package {RESEARCH}, train it again with the names that it adds"
            )
    return {name: value for name, value in options.items() if name not in fixed}


def _as_json(value: object) -> object:
    """A file has lists where there were tuples."""
    return [_as_json(each) for each in value] if isinstance(value, (list, tuple)) else value


def refuse_unknown(
    owner: str, options: Iterable[str], known: Iterable[str], fixed: Iterable[str] = ()
) -> None:
    """Refuses names of options that nobody knows.

    Args:
        owner: Whose options they are, for messages.
        options: The names given.
        known: The names there are.
        fixed: Names of what is constant here, and an option in the research package.

    Raises:
        BadInputError: A name is unknown; the message lists the known ones.
    """
    known = list(known)
    unknown = sorted(set(options) - set(known))
    if not unknown:
        return
    name = unknown[0]
    remedy = f"choose from {', '.join(known)}" if known else "it has none, leave it out"
    if name in set(fixed):
        remedy = f"it is one of the package {RESEARCH} (docs/research.md), here {remedy}"
    raise BadInputError(f"{owner} has no option {name!r}: {remedy}")


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
