"""Every error foretune raises on purpose.

A message states the rule that was broken, the name and the value that broke it, and the remedy.
The command line turns each class into its exit code (``exit_code``) and prints one line.
"""

from __future__ import annotations

from collections.abc import Iterable


class ForetuneError(Exception):
    """Base of all errors raised on purpose. ``exit_code`` is what the command line exits with."""

    exit_code = 2


class BadInputError(ForetuneError):
    """The caller gave something foretune cannot work with: a file, a name, a number."""


class UnsupportedModelError(BadInputError):
    """A model was read but holds an operator or a dynamic shape that cannot be tuned."""


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
