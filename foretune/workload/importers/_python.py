"""``file.py:function``: a Python function that returns what to tune."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
import types
from pathlib import Path
from typing import Any

from foretune.errors import BadInputError
from foretune.workload._base import Workload
from foretune.workload.model import Model

_WANTED = "a PrimFunc, an IRModule, or (torch.nn.Module, example_inputs)"


def import_function(path: Path, function: str) -> Workload | Model:
    """Runs ``function()`` of a Python file and takes what it returns.

    Raises:
        BadInputError: The file cannot be run, has no such function, the function raises, or
            returns something else than a PrimFunc, an IRModule or a module with its inputs.
    """
    module = _run_file(path)
    functions = _functions(module)
    if function not in functions:
        known = ", ".join(sorted(functions)) or "none"
        raise BadInputError(f"{path} has no function {function!r}: it defines {known}")
    try:
        result = functions[function]()
    except Exception as error:  # the caller's own code may raise anything
        raise BadInputError(
            f"{function}() of {path} raised {_describe(error)}: it is called without arguments "
            f"and must return {_WANTED}"
        ) from error
    return from_object(result, name=function, where=f"{function}() of {path}")


def from_object(result: Any, name: str, where: str) -> Workload | Model:
    """Wraps a PrimFunc, an IRModule, or a torch module with its example inputs.

    Args:
        result: The object.
        name: Name of the workload or model.
        where: What produced it, for the error message.

    Raises:
        BadInputError: It is something else.
    """
    from foretune import _tvm

    if isinstance(result, _tvm.PrimFunc):
        return Workload.from_module(_tvm.IRModule({"main": result}), name)
    if isinstance(result, _tvm.IRModule):
        relax = _tvm.tvm.relax
        if any(isinstance(f, relax.Function) for f in result.functions.values()):
            return Model.from_relax(result, name)
        return Workload.from_module(result, name)
    if isinstance(result, tuple) and len(result) == 2 and _is_torch_module(result[0]):
        from foretune.workload.importers._torch import import_module

        return import_module(result[0], result[1], name)
    if _is_torch_module(result):
        raise BadInputError(
            f"{where} returned a torch module without inputs: return (module, example_inputs)"
        )
    raise BadInputError(f"{where} returned {type(result).__name__}, but must return {_WANTED}")


def _is_torch_module(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


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
    except Exception as error:  # the caller's own code may raise anything
        del sys.modules[name]
        raise BadInputError(f"{path} cannot be run: {_describe(error)}") from error
    finally:
        sys.path.remove(folder)
    return module


def _functions(module: types.ModuleType) -> dict[str, Any]:
    return {
        name: value
        for name, value in vars(module).items()
        if inspect.isfunction(value)
        and value.__module__ == module.__name__
        and not name.startswith("_")
    }


def _describe(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__
