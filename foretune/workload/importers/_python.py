"""``file.py:name``: a Python function that returns what to tune, or the thing itself."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import inspect
import random
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from foretune.errors import BadInputError, first_line
from foretune.workload._base import Workload
from foretune.workload._siblings import INPUT_PREFIX, siblings_of
from foretune.workload.importers._objects import WANTED, is_program, wrap
from foretune.workload.model import Model

_SEED = 0


def import_function(path: Path, name: str, until: Sequence[str] = ()) -> Workload | Model:
    """Takes a tensor program by its name in a Python file, or what a function of it returns.

    The name may stand for a PrimFunc, an IRModule, a pair of module and inputs, or anything that
    can be called without arguments, wherever the file has it from.

    Raises:
        BadInputError: The file cannot be run, has no such name, the function raises, or it is
            something else than a PrimFunc, an IRModule or a module with its inputs.
    """
    siblings = siblings_of(path)
    with siblings.importable():
        value, where = _value(path, name)
        made = wrap(value, name, where=where, until=until)
    return made.beside(siblings) if isinstance(made, Model) else made


def _value(path: Path, name: str) -> tuple[Any, str]:
    """What the file has by that name, or what that returns, and where it is from.

    Random weights are the same in every process. PyTorch begins at random when it is loaded, so
    that a file that names it has it loaded before.
    """
    with _seeded(), contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError, ImportError):  # running the file says what is wrong
            if b"torch" in path.read_bytes():
                import torch  # noqa: F401
        is_seeded = _seed_torch(stack)
        module = _run_file(path)
        if not is_seeded:
            _seed_torch(stack)
        if name not in vars(module):
            known = ", ".join(sorted(_candidates(module))) or "none"
            raise BadInputError(f"{path} has no function {name!r}: it defines {known}")
        value = vars(module)[name]
        if is_program(value) or not callable(value):
            return value, f"{name} of {path}"
        return _called(value, name, path), f"what {name}() of {path} returned"


def _called(function: Callable[[], Any], name: str, path: Path) -> Any:
    try:
        return function()
    except (Exception, SystemExit) as error:  # the caller's own code may raise anything
        raise BadInputError(
            f"{name}() of {path} raised {_describe(error)}: it is called without arguments "
            f"and must return {WANTED}"
        ) from error


@contextlib.contextmanager
def _seeded() -> Iterator[None]:
    """Python and NumPy draw from a fixed seed inside; their own states are as before afterwards."""
    python, numpy = random.getstate(), np.random.get_state()
    random.seed(_SEED)
    np.random.seed(_SEED)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


def _seed_torch(stack: contextlib.ExitStack) -> bool:
    """The same for PyTorch until the stack is left; False where it is not loaded."""
    if sys.modules.get("torch") is None:
        return False
    from foretune import _torch

    stack.enter_context(_torch.seeded(_SEED))
    return True


def _run_file(path: Path) -> types.ModuleType:
    # A stable name per file, so that classes defined in it can be pickled in this process.
    digest = hashlib.blake2b(str(path.resolve()).encode(), digest_size=4).hexdigest()
    name = f"{INPUT_PREFIX}{path.stem}_{digest}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # the caller's own code may raise anything
        del sys.modules[name]
        hint = ""
        if isinstance(error, SystemExit):
            hint = "; keep what a script does under if __name__ == '__main__'"
        raise BadInputError(f"{path} cannot be run: {_describe(error)}{hint}") from error
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
