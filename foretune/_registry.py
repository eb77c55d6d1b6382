"""A named, open list of implementations: the built-in ones, registered ones, installed plug-ins.

A built-in is named by ``"module:attribute"`` and imported when it is first asked for, so that
listing names imports nothing heavy. A plug-in is a distribution with an entry point in the
registry's group, or a call of ``register`` in the running process.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar, cast

from foretune.errors import BadInputError, ForetuneError, MissingDependencyError, unknown_name

Made = TypeVar("Made")


class Registry(Generic[Made]):
    """Factories of one kind of thing by name.

    Args:
        kind: What a name stands for, used in messages, for example ``"cost model"``.
        group: Entry point group in which installed plug-ins are looked up.
        builtin: Name to ``"module:attribute"`` of the factory.
    """

    def __init__(self, kind: str, group: str, builtin: Mapping[str, str]) -> None:
        self.kind = kind
        self.group = group
        self._builtin = dict(builtin)
        self._registered: dict[str, Callable[..., Made]] = {}

    def names(self) -> list[str]:
        """Every known name, sorted."""
        return sorted({*self._builtin, *self._registered, *self._plugins()})

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
        try:
            if name in self._builtin:
                module, _, attribute = self._builtin[name].partition(":")
                made = getattr(importlib.import_module(module), attribute)
                return cast("Callable[..., Made]", made)
            plugin = self._plugins().get(name)
            if plugin is not None:
                return self._load(plugin)
        except ModuleNotFoundError as error:
            raise MissingDependencyError(
                f"{self.kind} {name!r} needs the package {error.name!r}, which is not installed: "
                f"install it with `pip install {error.name}`"
            ) from error
        raise unknown_name(self.kind, name, self.names())

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
            return cast("Callable[..., Made]", plugin.load())
        except ModuleNotFoundError:
            raise
        # Somebody else's module: whatever it raises, others must stay usable.
        except Exception as error:
            raise BadInputError(
                f"{self.kind} {plugin.name!r} of the plug-in {plugin.value!r} cannot be loaded "
                f"({type(error).__name__}: {error}): repair or uninstall it"
            ) from error

    def _plugins(self) -> dict[str, importlib.metadata.EntryPoint]:
        return {e.name: e for e in importlib.metadata.entry_points(group=self.group)}
