"""Modules beside a Python file of the user's: found while its code runs, out of the way afterwards.

Python has one table of modules by name, and each input file may have a ``helper.py`` of its own.
So a folder is on the path, and its modules are in that table, only while code of its file runs.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import types
from collections.abc import Iterator, Set
from pathlib import Path

INPUT_PREFIX = "foretune_input_"
"""How the names begin that input files have as modules; no two files have the same."""


class Siblings:
    """The modules of one folder, loaded when they are first imported and then kept.

    Attributes:
        folder: Where they lie.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._loaded: dict[str, types.ModuleType] = {}
        self._users = 0

    @contextlib.contextmanager
    def importable(self) -> Iterator[None]:
        """Code that runs inside finds them, as that of a script finds what lies beside it.

        What the process has loaded itself stays, and a folder that is on its path anyway is its
        own business.
        """
        self._users += 1
        try:
            if self._users > 1 or self.folder in sys.path:
                yield
            else:
                with self._in_place():
                    yield
        finally:
            self._users -= 1

    @contextlib.contextmanager
    def _in_place(self) -> Iterator[None]:
        others = {name: module for name, module in sys.modules.items() if name in self._loaded}
        foreign = sys.modules.keys() - self._loaded.keys()
        sys.modules.update(self._loaded)
        sys.path.insert(0, self.folder)
        try:
            yield
        finally:
            with contextlib.suppress(ValueError):  # the code may have changed the path
                sys.path.remove(self.folder)
            self._take_out(foreign)
            sys.modules.update(others)

    def _take_out(self, foreign: Set[str]) -> None:
        """Keeps the modules of the folder that are not of the process, and only here."""
        for name, module in list(sys.modules.items()):
            outermost = name.partition(".")[0]
            if not {name, outermost} & foreign and self._has(sys.modules.get(outermost)):
                self._loaded[name] = module
        for name in self._loaded:
            sys.modules.pop(name, None)

    def _has(self, module: types.ModuleType | None) -> bool:
        """Whether a module or package lies in the folder itself."""
        if module is None or module.__name__.startswith(INPUT_PREFIX):
            return False
        places = [*getattr(module, "__path__", ())] or [getattr(module, "__file__", None) or ""]
        return any(os.path.dirname(place) == self.folder for place in places)


def siblings_of(file: Path) -> Siblings:
    """The modules beside a file: for all files of a folder the same."""
    return _of_folder(str(file.resolve().parent))


@functools.cache
def _of_folder(folder: str) -> Siblings:
    return Siblings(folder)
