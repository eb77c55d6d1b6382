"""PyTorch modules and ``torch.export`` archives.

The way of a module: ``_prepare`` exports it, cuts it, finds the buffers it writes and takes its
operators apart as PyTorch does; ``_walk`` goes over the graph and lowers each operator by our
tables (``_table``), whose results must have the types that PyTorch says.

An operator is a ``_node``; ``_rules`` and ``_special_functions`` take some apart, ``_attributes``
keeps what exports forget, ``_refusals`` explains. Tables: ``_pointwise``, ``_reduce``, ``_shapes``,
``_index``, ``_network``, ``_recurrent``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from foretune._arrays import Array
from foretune.errors import (
    BadInputError,
    MissingDependencyError,
    UnsupportedModelError,
    UnsupportedOperatorsError,
)
from foretune.workload.model import Model, TorchSource, from_tensor, without_leaf_warning

__all__ = ["exported", "import_archive", "import_module", "import_part", "require_torch"]


def import_module(module: Any, example_inputs: Any, name: str, until: Sequence[str] = ()) -> Model:
    """Exports a ``torch.nn.Module`` and imports what was exported.

    Args:
        module: The module; it is put into evaluation mode. Buffers that it writes become inputs
            and outputs of the model, called ``state.NAME``; what they hold now is where they start.
        example_inputs: A tensor, a sequence of positional arguments, or a mapping of keyword
            arguments; tensors in them are inputs, all else is constant. Their shapes are the
            shapes that are tuned.
        name: What people call the model.
        until: Nodes of the exported graph to cut the model at.

    Raises:
        BadInputError: No node is called as ``until`` says.
        UnsupportedModelError: PyTorch cannot export it, or it writes an input.
        UnsupportedOperatorsError: It holds operators that nothing here can compile.
    """
    from foretune.workload.importers.torch import _prepare

    require_torch()
    args, kwargs = _told_apart(*_beside(module, *_arguments(example_inputs, name)))
    module = module.eval()
    program = _prepare.export(module, args, kwargs, name)
    if until:
        module = _prepare.cut(program, until, name)
        program = _prepare.export(module, args, kwargs, name)
    return _import_program(program, name, module, args, dict(kwargs), until)


def import_archive(
    path: Path, shapes: Mapping[str, Sequence[int]] | None = None, until: Sequence[str] = ()
) -> Model:
    """Imports a ``.pt2`` archive written by ``torch.export.save``.

    Args:
        path: The archive.
        shapes: Refused: it has the shapes it was exported with.
        until: Nodes of its graph to cut the model at.

    Raises:
        BadInputError: Not such an archive, it holds no example inputs, or no node is called as
            ``until`` says.
        UnsupportedModelError: It has a dynamic shape, or writes an input.
        UnsupportedOperatorsError: It holds operators that nothing here can compile.
    """
    from foretune.workload.importers.torch import _prepare

    torch = require_torch()
    try:
        with _prepare.quiet_export():
            program = torch.export.load(str(path))
    except Exception as error:  # a foreign reader: damaged zip, pickle, schema, anything
        raise BadInputError(
            f"{path} is not a readable torch.export archive ({_prepare.first_line(error)}): write "
            "it again with torch.export.save(torch.export.export(module, inputs), path)"
        ) from error
    if program.example_inputs is None:
        raise BadInputError(
            f"{path} holds no example inputs: save it with torch.export.save from the same "
            "process that exported it, which keeps them"
        )
    _refuse_dynamic(program, path, shapes or {})
    args, kwargs = program.example_inputs
    args, kwargs = _told_apart(tuple(args), dict(kwargs))
    with without_leaf_warning():
        if until:
            module = _prepare.cut(program, until, path.stem)
            program = _prepare.export(module, args, kwargs, path.stem)
        else:
            module = program.module(check_guards=False)
    return _import_program(program, path.stem, module, args, kwargs, until)


def exported(source: TorchSource, name: str) -> Any:
    """The exported program of an original."""
    from foretune.workload.importers.torch import _prepare

    with source.importable():
        return _prepare.export(source.module, source.args, source.kwargs, name)


def import_part(source: TorchSource, name: str, until: Sequence[str]) -> Model:
    """Imports an original up to some nodes of its exported graph; raises as ``import_module``."""
    from foretune.workload.importers.torch import _prepare

    module = _prepare.cut(exported(source, name), until, name)
    program = _prepare.export(module, source.args, source.kwargs, name)
    part = _import_program(program, name, module, source.args, source.kwargs, until)
    return part.beside(source.siblings)


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


def _import_program(
    program: Any,
    name: str,
    module: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    until: Sequence[str],
) -> Model:
    from torch.utils import _pytree as pytree

    from foretune.workload.importers.torch import _prepare
    from foretune.workload.importers.torch._walk import walk

    torch = require_torch()
    decomposed = _prepare.decompose(_prepare.on_host(program), name)
    # Only a decomposed program has its writes in its signature.
    written = _prepare.states_of(decomposed, name)
    buffers = dict(module.named_buffers())
    start: dict[str, Array] = {
        buffer: from_tensor(buffers[buffer]).copy() for buffer in written.values()
    }
    states = {at: f"state.{buffer}" for at, buffer in written.items()}
    walked = walk(decomposed, states)
    if walked.module is None:
        raise _refusal(program, name, walked.refused, walked.reasons)
    source = TorchSource(module, args, kwargs, tuple(written.values()))
    leaves = pytree.tree_leaves((args, kwargs))
    examples = [from_tensor(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor)]
    model = Model.from_relax(
        walked.module,
        name,
        source,
        [*examples, *start.values()],
        until=until,
        states=tuple(states.values()),
        outputs=until,
    )
    if not model.outputs:
        raise UnsupportedModelError(f"model {name!r} returns no tensor: nothing can be compared")
    return model


def _origin(node: Any, known: Collection[str]) -> str:
    """The node of the exported graph that a node was taken apart from."""
    waiting, origin = list(node.meta.get("from_node", ())), str(node.name)
    while waiting:
        source = waiting.pop()
        if source.name in known:
            origin = str(source.name)
        waiting += source.from_node
    return origin


def _refusal(
    program: Any, name: str, refused: Mapping[str, Sequence[Any]], reasons: Mapping[str, str]
) -> Exception:
    """The error with the names of the exported graph, and where the graph could be cut."""
    known = {str(node.name): node for node in program.graph.nodes}
    named: dict[str, list[str]] = {}
    bad = set()
    for operator, nodes in refused.items():
        origins = [_origin(node, known) for node in nodes]
        named[operator] = list(dict.fromkeys(origins))
        bad |= {known[origin] for origin in origins if origin in known}
    frontier: dict[str, None] = {}
    for node in program.graph.nodes:
        if node in bad or any(before in bad for before in node.all_input_nodes):
            bad.add(node)
            for before in node.all_input_nodes:
                computed = before.op == "call_function" and hasattr(before.meta.get("val"), "shape")
                if computed and before not in bad:
                    frontier[str(before.name)] = None
    return UnsupportedOperatorsError(f"model {name!r}", named, list(frontier), reasons)


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


def _told_apart(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with a copy of each tensor, that shares neither identity nor memory.

    ``torch.export`` knows a tensor by its identity: one that is given for several arguments would
    be one input, and a parameter of the module no input at all.
    """
    from torch.utils import _pytree as pytree

    copied = pytree.tree_map_only(require_torch().Tensor, _copy, (args, kwargs))
    return tuple(copied[0]), dict(copied[1])


def _copy(tensor: Any) -> Any:
    """The same values on the same device with the same strides."""
    tensor = tensor.detach()
    copy = tensor.clone()
    if tensor.layout is not require_torch().strided or not tensor.numel():
        return copy
    if copy.stride() == tensor.stride():
        return copy
    # PyTorch gives a tensor with gaps, or one whose elements share memory, other strides.
    extents = zip(tensor.shape, tensor.stride(), strict=True)
    span = 1 + sum((size - 1) * stride for size, stride in extents)
    memory = tensor.as_strided((span,), (1,)).clone()
    return memory.as_strided(tensor.shape, tensor.stride())


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
