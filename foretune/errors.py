"""Every error foretune raises on purpose.

A message states the rule that was broken, the name and the value that broke it, and the remedy.
The command line turns each class into its exit code (``exit_code``) and prints one line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


class ForetuneError(Exception):
    """Base of all errors raised on purpose. ``exit_code`` is what the command line exits with."""

    exit_code = 2


class BadInputError(ForetuneError):
    """The caller gave something foretune cannot work with: a file, a name, a number."""


class UnsupportedModelError(BadInputError):
    """A model was read but holds an operator or a dynamic shape that cannot be tuned."""


class UnsupportedOperatorsError(UnsupportedModelError):
    """A model holds operators that nothing here can compile; the message names all of them.

    Attributes:
        operators: Operator to the names of its nodes.
        until: Names of tensors that the model can be cut at, for ``--until``.
        reasons: Operator to why its first such node cannot be compiled, where that is known.
    """

    def __init__(
        self,
        model: str,
        operators: Mapping[str, Sequence[str]],
        until: Sequence[str] = (),
        reasons: Mapping[str, str] | None = None,
    ) -> None:
        self.operators = {operator: tuple(nodes) for operator, nodes in operators.items()}
        self.until = tuple(until)
        given = reasons or {}
        self.reasons = {name: given[name] for name in self.operators if given.get(name)}
        told = self.reasons if len(self.operators) <= _EXPLAINED else {}
        named = "; ".join(
            f"{operator} ({', '.join(nodes[:_NODES])}{', ...' if len(nodes) > _NODES else ''})"
            + (f": {_short(told[operator])}" if operator in told else "")
            for operator, nodes in self.operators.items()
        )
        remedy = (
            f"tune the part before them with --until {','.join(self.until)}"
            if self.until
            else "replace them in the model"
        )
        super().__init__(f"{model} holds operators that cannot be compiled: {named}; {remedy}")


_NODES = 4
"""Nodes of one operator that a message names."""
_EXPLAINED = 6
"""Operators up to which a message says why: of more, names alone can be read."""
_LONGEST_REASON = 120


def _short(reason: str) -> str:
    text = " ".join(reason.split())
    return text if len(text) <= _LONGEST_REASON else f"{text[: _LONGEST_REASON - 3]}..."


class MissingDependencyError(BadInputError):
    """An optional package is needed and not installed; the message holds the install command."""


class IllegalCandidateError(ForetuneError):
    """A candidate cannot be applied: a post-processor rejected it or TVM would change a decision.

    The one error that search catches, and nothing else.
    """


class RecordError(ForetuneError):
    """A journal or a database cannot be read or written."""


class VersionMismatchError(RecordError):
    """A file was written under another schema version, feature version or journal version."""


class NothingMeasuredError(ForetuneError):
    """No candidate, and not even the untuned program, could be measured."""

    exit_code = 3


class WrongResultError(ForetuneError):
    """A compiled artifact computes something else than what it was compiled from."""

    exit_code = 3


def unknown_name(kind: str, name: str, known: Iterable[str]) -> BadInputError:
    """The error for a name that is not registered; it lists the names that are.

    Args:
        kind: What the name should have named, for example ``"strategy"``.
        name: The name that was given.
        known: The names that would have been accepted.
    """
    return BadInputError(f"unknown {kind} {name!r}: choose one of {', '.join(sorted(known))}")


def first_line(error: BaseException, limit: int = 300) -> str:
    """The first line of a foreign error that says something, else the name of its class."""
    return _line(error, 0)[:limit]


def last_line(error: BaseException, limit: int = 300) -> str:
    """The last such line, where TVM says what failed."""
    return _line(error, -1)[:limit]


def _line(error: BaseException, at: int) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[at] if lines else type(error).__name__


def listed(names: Sequence[str], most: int = 8) -> str:
    """Names as a sentence has them: the first ``most``, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
