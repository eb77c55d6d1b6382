"""``file.py:name``: a Python function that returns what to tune, or the thing itself."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
import types
from collections.abc import Sequence
from pathlib import Path

from foretune.errors import BadInputError, first_line
from foretune.workload._base import Workload
from foretune.workload.importers._objects import WANTED, is_program, wrap
from foretune.workload.model import Model


def import_function(path: Path, name: str, until: Sequence[str] = ()) -> Workload | Model:
    """Takes a tensor program by its name in a Python file, or what a function of it returns.

    The name may stand for a PrimFunc, an IRModule, a pair of module and inputs, or anything that
    can be called without arguments, wherever the file has it from.

    Raises:
        BadInputError: The file cannot be run, has no such name, the function raises, or it is
            something else than a PrimFunc, an IRModule or a module with its inputs.
    """
    module = _run_file(path)
    if name not in vars(module):
        known = ", ".join(sorted(_candidates(module))) or "none"
        raise BadInputError(f"{path} has no function {name!r}: it defines {known}")
    value = vars(module)[name]
    if is_program(value) or not callable(value):
        return wrap(value, name, where=f"{name} of {path}", until=until)
    try:
        result = value()
    except (Exception, SystemExit) as error:  # the caller's own code may raise anything
        raise BadInputError(
            f"{name}() of {path} raised {_describe(error)}: it is called without arguments "
            f"and must return {WANTED}"
        ) from error
    return wrap(result, name, where=f"what {name}() of {path} returned", until=until)


def _run_file(path: Path) -> types.ModuleType:
    # A stable name per file, so that classes defined in it can be pickled in this process.
    digest = hashlib.blake2b(str(path.resolve()).encode(), digest_size=4).hexdigest()
    name = f"foretune_input_{path.stem}_{digest}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # the caller's own code may raise anything
        del sys.modules[name]
        hint = ""
        if isinstance(error, SystemExit):
            hint = "; keep what a script does under if __name__ == '__main__'"
        raise BadInputError(f"{path} cannot be run: {_describe(error)}{hint}") from error
    finally:
        sys.path.remove(folder)
    return module


def _candidates(module: types.ModuleType) -> list[str]:
    """What the file itself offers: its own functions and its tensor programs."""
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (
            (inspect.isfunction(value) and value.__module__ == module.__name__) or is_program(value)
        )
    ]


def _describe(error: BaseException) -> str:
    kind, told = type(error).__name__, first_line(error)
    return kind if told == kind else f"{kind}: {told}"
