"""Options come from command lines and files: their types and bounds are checked before use.

A configuration declares with each field where its values lie
(``rounds: Annotated[int, Bounds(ge=1)] = 30``, or ``rounds: Count = 30``), and ``require_options``
checks that. What it declares as a class variable is no option but a constant: no user chooses it.
Code reads both alike (``config.loss``). The package ``foretune_research`` has subclasses that make
options of constants, for studies.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from foretune.errors import BadInputError, VersionMismatchError, unknown_name

Config = TypeVar("Config")

RESEARCH = "foretune_research"
"""The package whose parts change what is constant here."""


@dataclass(frozen=True)
class Bounds:
    """Where the number of an option lies. None, where the option may be None, is always right.

    Attributes:
        ge, gt, le, lt: What it is at least, more than, at most, less than.
        multiple_of: What it is a multiple of.
        finite: Whether infinity is refused.
    """

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    multiple_of: int | None = None
    finite: bool = False

    def hold(self, value: Any) -> bool:
        """Whether a number is within them; a NaN is within none."""
        return (
            (self.ge is None or value >= self.ge)
            and (self.gt is None or value > self.gt)
            and (self.le is None or value <= self.le)
            and (self.lt is None or value < self.lt)
            and (self.multiple_of is None or value % self.multiple_of == 0)
            and not (self.finite and math.isinf(value))
        )

    def rule(self, name: str) -> str:
        """What must hold, for a message.

        Before → after: ``Bounds(ge=0, le=1).rule("epsilon")`` → ``"0 <= epsilon <= 1"``.
        """
        least, above = (self.gt, ">") if self.ge is None else (self.ge, ">=")
        most, below = (self.lt, "<") if self.le is None else (self.le, "<=")
        if most is None:
            told = f"{name} {above} {least}"
        elif least is None:
            told = f"{name} {below} {most}"
        else:
            told = f"{least} {above.replace('>', '<')} {name} {below} {most}"
        told += f" and {name} % {self.multiple_of} == 0" if self.multiple_of else ""
        return told + (", and finite" if self.finite else "")


Count = Annotated[int, Bounds(ge=1)]
Positive = Annotated[float, Bounds(gt=0)]
NotNegative = Annotated[float, Bounds(ge=0)]
Share = Annotated[float, Bounds(ge=0, le=1)]
Fraction = Annotated[float, Bounds(ge=0, lt=1)]


class OneOf(tuple[Any, ...]):
    """The values that an option may have: ``style: Annotated[str, OneOf(("diff", "full"))]``."""

    __slots__ = ()


def option_names(config: type[Any]) -> tuple[str, ...]:
    """Names of the fields of a dataclass, without its class variables."""
    return tuple(field.name for field in fields(config))


def constants(config: type[Any]) -> dict[str, Any]:
    """Class variables of a dataclass with their values: what it fixes."""
    own = set(option_names(config))
    return {n: getattr(config, n) for n in config.__dataclass_fields__ if n not in own}


def split_options(name: str, *, alone: str = "", file: str = "") -> tuple[str, dict[str, Any]]:
    """A name and the options that stand behind it: ``NAME:option=value:...``.

    Before → after: ``"mcts:branching=4"`` → ``"mcts"`` and ``{"branching": 4}``.

    Args:
        name: As somebody wrote it.
        alone: The option that a word without an equals sign is the value of; empty where such a
            word belongs to the name.
        file: Ending of a file, which is a name whatever else is in it; empty where none is.

    Raises:
        BadInputError: An option occurs twice.
    """
    base = name
    options: dict[str, Any] = {}
    while not (file and base.endswith(file)):
        rest, _, word = base.rpartition(":")
        option, equals, value = word.partition("=")
        if not equals:
            option, value = alone, word
        if not (rest and option):
            break
        if option in options:
            raise BadInputError(f"{name!r} gives {option!r} twice: leave one of them out")
        options[option] = option_value(value) if equals else value
        base = rest
    return base, options


def option_value(text: str) -> Any:
    """What an option's text says: JSON where it is, else the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


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


def require_options(what: str, options: Any) -> None:
    """Refuses a dataclass whose values are not what its fields declare: a type, bounds, a choice.

    Args:
        what: Whose options they are, for messages.
        options: An instance of a dataclass.

    Raises:
        BadInputError: A value is of another type, or out of bounds.
    """
    types, limits = get_type_hints(type(options)), _declared(type(options))
    for name in option_names(type(options)):
        value = getattr(options, name)
        require_type(what, name, value, types[name])
        for limit in limits.get(name, ()):
            if isinstance(limit, OneOf) and value not in limit:
                raise unknown_name(f"{name} of {what}", value, map(str, limit))
            if isinstance(limit, Bounds) and value is not None and not limit.hold(value):
                raise BadInputError(
                    f"{what}: `{limit.rule(name)}` must hold, but got {name}={value!r}: "
                    f"give another {name}"
                )


def _declared(config: type[Any]) -> dict[str, list[Any]]:
    """Bounds and choices by field: a subclass that changes a default keeps those of its base."""
    declared = {}
    for kind in filter(is_dataclass, reversed(config.__mro__)):
        for name, hint in get_type_hints(kind, include_extras=True).items():
            if limits := _limits(hint):
                declared[name] = limits
    return declared


def _limits(hint: Any) -> list[Any]:
    """What a field is annotated with, or one of the types that it may have."""
    if get_origin(hint) is Annotated:
        return list(hint.__metadata__)
    union = get_origin(hint) in (Union, UnionType)
    return [limit for kind in get_args(hint) for limit in _limits(kind)] if union else []


def require_type(what: str, name: str, value: object, hint: Any) -> None:
    """Refuses a value that is not of a type.

    An int does for a float, a list for a tuple; what containers hold is not looked at.

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
