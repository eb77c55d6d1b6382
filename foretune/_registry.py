"""A named, open list of implementations: the built-in ones, registered ones, installed plug-ins.

A built-in is named by ``"module:attribute"`` and imported when it is first asked for, so that
listing names imports nothing heavy. A plug-in is a distribution with an entry point in the
registry's group, or a call of ``register`` in the running process. A distribution with many parts
has one entry point for all, in the group ``foretune.plugins``: a light module whose ``TABLES`` maps
groups to names to ``"module:attribute"``.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import inspect
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Generic, TypeVar

from foretune._options import RESEARCH
from foretune.errors import BadInputError, ForetuneError, MissingDependencyError, unknown_name

Made = TypeVar("Made")
Tables = Mapping[str, Mapping[str, str]]
"""Group -> name -> ``"module:attribute"`` of a factory."""

PLUGINS = "foretune.plugins"
"""Entry point group of modules with ``TABLES``."""
_log = logging.getLogger("foretune")


@functools.cache
def plugin_tables() -> Tables:
    """What installed modules of the group ``foretune.plugins`` add; looked up once per process.

    One that is broken adds nothing, and a warning says so.
    """
    merged: dict[str, dict[str, str]] = {}
    for entry in importlib.metadata.entry_points(group=PLUGINS):
        try:
            tables: Tables = entry.load().TABLES
            for group, rows in tables.items():
                merged.setdefault(group, {}).update(rows)
        # Somebody else's module: whatever it raises, foretune must stay usable.
        except Exception as error:
            _log.warning(
                "the plug-in %r (%s) cannot be loaded (%s: %s): repair or uninstall it",
                entry.name, entry.value, type(error).__name__, error,
            )  # fmt: skip
    return merged


class Registry(Generic[Made]):
    """Factories of one kind of thing by name.

    Args:
        kind: What a name stands for, used in messages, for example ``"cost model"``.
        group: Entry point group in which installed plug-ins are looked up.
        builtin: Name to ``"module:attribute"`` of the factory.
        studied: Names that the package foretune_research adds, for the message where it is missing.
    """

    def __init__(
        self, kind: str, group: str, builtin: Mapping[str, str], studied: Collection[str] = ()
    ) -> None:
        self.kind = kind
        self.group = group
        self._own = dict(builtin)
        self._studied = frozenset(studied)
        self._registered: dict[str, Callable[..., Made]] = {}

    def names(self) -> list[str]:
        """Every known name, sorted."""
        return sorted({*self._builtin(), *self._registered, *self._plugins()})

    def register(self, name: str, factory: Callable[..., Made]) -> None:
        """Adds ``factory`` under ``name`` for this process.

        Raises:
            BadInputError: The name is taken: silently replacing a part would change what an
                experiment measures.
        """
        if name in self.names():
            raise BadInputError(
                f"{self.kind} name {name!r} is taken: register the new one under another name"
            )
        self._registered[name] = factory

    def unregister(self, name: str) -> None:
        """Removes what ``register`` added; a name that was never registered is ignored."""
        self._registered.pop(name, None)

    def factory(self, name: str) -> Callable[..., Made]:
        """The factory behind ``name``, imported now.

        Raises:
            BadInputError: The name is unknown; the message lists the known ones. Or it is that of
                a plug-in that cannot be loaded.
            MissingDependencyError: The part needs a package that is not installed.
        """
        if name in self._registered:
            return self._registered[name]
        builtin = self._builtin()
        try:
            if name in builtin:
                module, _, attribute = builtin[name].partition(":")
                made: Callable[..., Made] = getattr(importlib.import_module(module), attribute)
                return made
            plugin = self._plugins().get(name)
            if plugin is not None:
                return self._load(plugin)
        except ModuleNotFoundError as error:
            raise MissingDependencyError(
                f"{self.kind} {name!r} needs the package {error.name!r}, which is not installed: "
                f"install it with `pip install {error.name}`"
            ) from error
        raise self._unknown(name)

    def require(self, name: str) -> None:
        """Refuses a name that is not known; imports nothing.

        Raises:
            BadInputError: The name is unknown; the message lists the known ones.
            MissingDependencyError: It is one of a package that is not installed.
        """
        if name not in self.names():
            raise self._unknown(name)

    def _unknown(self, name: str) -> BadInputError:
        if name in self._studied:
            return MissingDependencyError(
                f"{self.kind} {name!r} is one of the package {RESEARCH}, which is not installed: "
                f"install it with `pip install ./{RESEARCH}` in a checkout of foretune"
            )
        return unknown_name(self.kind, name, self.names())

    def descriptions(self) -> dict[str, str]:
        """One line for every name: the first of the factory's docstring, or why it cannot load."""
        return {name: self._describe(name) for name in self.names()}

    def _describe(self, name: str) -> str:
        try:
            text = inspect.getdoc(self.factory(name)) or ""
        except ForetuneError as error:
            return str(error)
        return text.partition("\n")[0]

    def _load(self, plugin: importlib.metadata.EntryPoint) -> Callable[..., Made]:
        try:
            made: Callable[..., Made] = plugin.load()
            return made
        except ModuleNotFoundError:
            raise
        # Somebody else's module: whatever it raises, others must stay usable.
        except Exception as error:
            raise BadInputError(
                f"{self.kind} {plugin.name!r} of the plug-in {plugin.value!r} cannot be loaded "
                f"({type(error).__name__}: {error}): repair or uninstall it"
            ) from error

    def _builtin(self) -> dict[str, str]:
        """What is imported by its place: our own rows and those of plug-ins' tables."""
        return {**plugin_tables().get(self.group, {}), **self._own}

    def _plugins(self) -> dict[str, importlib.metadata.EntryPoint]:
        return {e.name: e for e in importlib.metadata.entry_points(group=self.group)}
