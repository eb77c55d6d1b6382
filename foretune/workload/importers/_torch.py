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
from foretune.workload.model import Model, TorchSource, without_leaf_warning


def import_module(module: Any, example_inputs: Any, name: str) -> Model:
    """Exports a ``torch.nn.Module`` and imports what was exported.

    Args:
        module: The module; it is put into evaluation mode.
        example_inputs: A tensor, a sequence of positional arguments, or a mapping of keyword
            arguments. Their shapes are the shapes that are tuned.
        name: What people call the model.

    Raises:
        UnsupportedModelError: PyTorch cannot export it, or it holds an operator TVM does not know
            or an element type NumPy does not know.
    """
    torch = require_torch()
    args, kwargs = _beside(module, *_arguments(example_inputs, name))
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
        UnsupportedModelError: It holds an operator TVM does not know, a dynamic shape, or an
            element type NumPy does not know.
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
    with without_leaf_warning():
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
    _refuse_types(program, name)
    leaves = pytree.tree_leaves((source.args, source.kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    try:
        with without_leaf_warning():
            module = from_exported_program(_on_host(program))
    except Exception as error:  # the front end asserts, raises ValueError, KeyError and its own
        raise UnsupportedModelError(_explain(error, name)) from error
    return Model.from_relax(module, name, source, [t.detach().cpu().numpy() for t in tensors])


def _beside(
    module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments on the accelerator that holds the module; as they are if none does."""
    from torch.utils import _pytree as pytree

    torch = require_torch()
    devices = {tensor.device for tensor in (*module.parameters(), *module.buffers())}
    if len(devices) != 1 or next(iter(devices)).type in ("cpu", "meta"):
        return args, kwargs
    device = devices.pop()
    moved = pytree.tree_map_only(torch.Tensor, lambda t: t.to(device), (args, kwargs))
    return tuple(moved[0]), dict(moved[1])


def _on_host(program: Any) -> Any:
    """The program with its parameters in the host's memory, where TVM reads them."""
    from torch.export.passes import move_to_device_pass

    torch = require_torch()
    held = (*program.state_dict.values(), *program.constants.values())
    if all(t.device.type == "cpu" for t in held if isinstance(t, torch.Tensor)):
        return program
    return move_to_device_pass(program, "cpu")


def _refuse_types(program: Any, name: str) -> None:
    """Refuses a program that computes in a type whose results NumPy could not hold."""
    from torch.utils import _pytree as pytree

    torch = require_torch()
    holders: dict[Any, str] = {}
    for node in program.graph.nodes:
        for value in pytree.tree_leaves(node.meta.get("val")):
            if isinstance(value, torch.Tensor):
                holders.setdefault(value.dtype, str(node.name))
    for dtype, holder in holders.items():
        try:
            torch.empty(0, dtype=dtype).numpy()
        except (TypeError, RuntimeError):
            raise UnsupportedModelError(
                f"results are checked in NumPy, which has no {str(dtype).removeprefix('torch.')}, "
                f"but model {name!r} computes in it ({holder}): convert the model and its inputs "
                "to float32, for example with module.float()"
            ) from None


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
