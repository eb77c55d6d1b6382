"""ONNX files.

The way of a file: ``_load`` reads and checks it, ``_prepare`` cuts it, fixes its shapes, sorts its
nodes and converts old operator sets, ``_walk`` goes from inputs to outputs. Every node there has
inputs of known type, so each is either computed at once (``_evaluate``), expanded into its body or
its function, or lowered: by our tables (``_table``) or by TVM's converters (``_front_end``), whose
result must have the type that ONNX infers (``_types``).

A node is a ``_node`` whose names stand for ``_values``; ``_control`` and ``_functions`` expand.
Tables: ``_lower_arithmetic``, ``_lower_indexing``, ``_lower_layers``, ``_lower_quantised``,
``_lower_recurrent``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from foretune._arrays import Array
from foretune.workload.importers.onnx._load import load, read_by
from foretune.workload.importers.onnx._prepare import cut, prepare, specialise
from foretune.workload.model import Model, OnnxSource

__all__ = ["cut", "import_onnx", "load", "read_by", "specialise"]


def import_onnx(
    path: Path,
    shapes: Mapping[str, Sequence[int]] | None = None,
    seed: int = 0,
    until: Sequence[str] = (),
    constants: Mapping[str, Array] | None = None,
) -> Model:
    """Imports an ONNX file, with external data if it has any.

    Args:
        path: The file.
        shapes: Fixed shapes of inputs, by name: required for inputs with dynamic dimensions.
        seed: For the example inputs.
        until: Names of tensors that become the outputs; what lies behind them is cut off.
        constants: Values of inputs that the model is specialised for: they are inputs no more.

    Raises:
        BadInputError: Not an ONNX file, truncated, or a name or a shape does not fit.
        UnsupportedModelError: A dimension is dynamic.
        UnsupportedOperatorsError: Operators cannot be compiled; the error has all of them.
    """
    from foretune.workload.importers.onnx._walk import walk

    original = load(path)
    if until:
        original = cut(original, path, until)
    prepared = prepare(original, path, shapes or {}, constants or {})
    module = walk(prepared, path, {name for node in original.graph.node for name in node.output})
    source = OnnxSource(
        str(path.resolve()),
        {name: tuple(shape) for name, shape in (shapes or {}).items()},
        tuple(until),
        dict(constants or {}),
    )
    names = [value.name for value in prepared.graph.output]
    return Model.from_relax(module, path.stem, source, seed=seed, until=until, outputs=names)
