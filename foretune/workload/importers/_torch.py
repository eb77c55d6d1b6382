"""PyTorch modules and ``torch.export`` archives."""

from __future__ import annotations

import contextlib
import logging
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from foretune.errors import BadInputError, MissingDependencyError, UnsupportedModelError
from foretune.workload.model import Model, TorchSource


def import_module(module: Any, example_inputs: Any, name: str) -> Model:
    """Exports a ``torch.nn.Module`` and imports what was exported.

    Args:
        module: The module; it is put into evaluation mode.
        example_inputs: A tensor, a sequence of positional arguments, or a mapping of keyword
            arguments. Their shapes are the shapes that are tuned.
        name: What people call the model.

    Raises:
        UnsupportedModelError: PyTorch cannot export it, or it holds an operator TVM does not know.
    """
    torch = require_torch()
    args, kwargs = _arguments(example_inputs, name)
    module = module.eval()
    try:
        with _quiet_export():
            program = torch.export.export(module, args, kwargs or None, strict=False)
    except Exception as error:  # torch.export raises anything the model's own code may raise
        raise UnsupportedModelError(
            f"PyTorch could not export {name!r}: {_first_line(error)}; "
            "make torch.export.export(module, inputs, strict=False) pass first"
        ) from error
    source = TorchSource(module, args, dict(kwargs))
    return _import_program(program, name, source)


def import_archive(path: Path, shapes: Mapping[str, Sequence[int]] | None = None) -> Model:
    """Imports a ``.pt2`` archive written by ``torch.export.save``.

    Raises:
        BadInputError: Not such an archive, or it holds no example inputs.
        UnsupportedModelError: It holds an operator TVM does not know, or a dynamic shape.
    """
    torch = require_torch()
    try:
        with _quiet_export():
            program = torch.export.load(str(path))
    except Exception as error:  # a foreign reader: damaged zip, pickle, schema, anything
        raise BadInputError(
            f"{path} is not a readable torch.export archive ({_first_line(error)}): write it "
            "again with torch.export.save(torch.export.export(module, inputs), path)"
        ) from error
    if program.example_inputs is None:
        raise BadInputError(
            f"{path} holds no example inputs: save it with torch.export.save from the same "
            "process that exported it, which keeps them"
        )
    _refuse_dynamic(program, path, shapes or {})
    args, kwargs = program.example_inputs
    source = TorchSource(program.module(), tuple(args), dict(kwargs))
    return _import_program(program, path.stem, source)


@contextlib.contextmanager
def _quiet_export() -> Iterator[None]:
    """Keeps torch.export's own warnings to itself: what is wrong is said once, by us."""
    logger = logging.getLogger("torch.export")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        logger.setLevel(level)


def require_torch() -> Any:
    """The torch package, or the command that installs it."""
    try:
        import torch
    except ImportError:
        raise MissingDependencyError("a PyTorch model needs PyTorch: pip install torch") from None
    return torch


def _arguments(example_inputs: Any, name: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    torch = require_torch()
    if isinstance(example_inputs, torch.Tensor):
        return (example_inputs,), {}
    if isinstance(example_inputs, Mapping):
        return (), dict(example_inputs)
    if isinstance(example_inputs, (tuple, list)):
        return tuple(example_inputs), {}
    raise BadInputError(
        f"example inputs of {name!r} must be a tensor, a tuple of arguments or a mapping of "
        f"keyword arguments, but got {type(example_inputs).__name__}"
    )


def _import_program(program: Any, name: str, source: TorchSource) -> Model:
    from torch.utils import _pytree as pytree

    from foretune import _tvm  # noqa: F401  the seam loads TVM before its front end
    from tvm.relax.frontend.torch import from_exported_program  # isort: skip

    torch = require_torch()
    leaves = pytree.tree_leaves((source.args, source.kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    try:
        module = from_exported_program(program)
    except Exception as error:  # the front end asserts, raises ValueError, KeyError and its own
        raise UnsupportedModelError(_explain(error, name)) from error
    return Model.from_relax(module, name, source, [t.detach().cpu().numpy() for t in tensors])


def _explain(error: Exception, name: str) -> str:
    text = str(error)
    unsupported = re.search(r"Unsupported function types \[(.*?)\]", text, re.DOTALL)
    if unsupported:
        return (
            f"model {name!r} holds operators that TVM cannot import: "
            f"{unsupported.group(1)}; replace them in the model"
        )
    return f"TVM could not import {name!r}: {type(error).__name__}: {_first_line(error)}"


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__


def _refuse_dynamic(program: Any, path: Path, shapes: Mapping[str, Sequence[int]]) -> None:
    names = set(program.graph_signature.user_inputs)
    for node in program.graph.nodes:
        value = node.meta.get("val")
        if node.op != "placeholder" or node.name not in names or not hasattr(value, "shape"):
            continue
        for axis, extent in enumerate(value.shape):
            if not isinstance(extent, int):
                raise UnsupportedModelError(
                    f"{path}: input {node.name!r} dimension {axis} is dynamic ({extent}): export "
                    "it again without dynamic_shapes"
                )
    if shapes:
        raise BadInputError(
            f"{path} has the shapes it was exported with: --shape is for .onnx files; export it "
            "again with inputs of the wanted shape"
        )
