"""Objects of Python: tensor programs, Relax modules, torch modules with their inputs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from foretune.errors import BadInputError
from foretune.workload._base import Workload
from foretune.workload.model import Model

WANTED = "a PrimFunc, an IRModule, or (torch.nn.Module, example_inputs)"


def is_program(value: Any) -> bool:
    """Whether this is a program itself, although Python could call some of them like functions."""
    from foretune import _tvm

    return isinstance(value, (_tvm.PrimFunc, _tvm.IRModule)) or _is_torch_module(value)


def wrap(value: Any, name: str | None, where: str, until: Sequence[str] = ()) -> Workload | Model:
    """Makes a workload or a model of an object.

    Args:
        value: ``WANTED``, or a ``Workload`` or ``Model``, which is returned as it is.
        name: Name of the workload or model; the function's own or ``"model"`` if None.
        where: What it is, for the error message.
        until: Nodes of the exported graph of a torch module to cut it at.

    Raises:
        BadInputError: It is something else, or something else than a torch module is to be cut.
    """
    from foretune import _tvm

    is_pair = isinstance(value, tuple) and len(value) == 2 and _is_torch_module(value[0])
    if until and not is_pair:
        raise BadInputError(
            f"--until {until[0]} cuts a torch module, but {where} is {type(value).__name__}: "
            "leave it out"
        )
    if isinstance(value, (Workload, Model)):
        return value
    if isinstance(value, _tvm.PrimFunc):
        return Workload.from_module(_tvm.IRModule({"main": value}), name or _symbol(value))
    if isinstance(value, _tvm.IRModule):
        relax = _tvm.tvm.relax
        if any(isinstance(f, relax.Function) for f in value.functions.values()):
            return Model.from_relax(value, name or "model")
        return Workload.from_module(value, name or "model")
    if is_pair:
        from foretune.workload.importers.torch import import_module

        return import_module(value[0], value[1], name or "model", until)
    if _is_torch_module(value):
        raise BadInputError(
            f"{where} is a torch module without inputs: give (module, example_inputs)"
        )
    raise BadInputError(f"{where} is {type(value).__name__}, but must be {WANTED}")


def _symbol(function: Any) -> str:
    attributes = function.attrs or {}
    return str(attributes["global_symbol"]) if "global_symbol" in attributes else "model"


def _is_torch_module(value: Any) -> bool:
    # Without torch loaded nothing can be one of its modules.
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)
