"""A network and its plans with the keys and columns of TpuGraphs' layout files.

Nodes are the network's inputs, constants, calls and parts of tuples, each behind what it reads, as
the network is before the first pass that has a choice. Columns of a node have the meaning that
``foretune.tgraph.COLUMNS`` gives them; a node has an edge to each that it reads. Configurable nodes
are the operators about which passes have a choice.

The 18 numbers of a configurable node in a plan: 0 to 5 the axes of its result and 6 to 11 those of
what it reads first, minor to major; 12 its algorithm, 13 its packing, 14 its fusion, each an index
into ``KERNEL``, -1 where the plan has nothing to choose; -1 beyond.

Source: Phothilimthana et al., TpuGraphs (2023); the file's keys are in docs/formats.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._arrays import Float32Array, Int8Array, Int32Array
from foretune.graph.passes import kind_of, operands_of
from foretune.graph.passes.layouts import CHANNELS_LAST, LAST
from foretune.graph.passes.rewrites import extents
from foretune.plans.opcodes import number_of
from foretune.tgraph import COLUMNS
from foretune.tgraph.opcodes import OPCODES

if TYPE_CHECKING:
    from foretune._tvm import IRModule
    from foretune.plans.space import PlanCandidate, PlanSpace

KERNEL = {
    "algorithms": ("direct", "winograd2", "winograd4"),
    "packed-weights": ("plain", "panels"),
    "fusion": ("alone", "fused"),
}
"""Passes of columns 12, 13 and 14, with what their numbers mean."""
FEATURES = 18
ANCHORS = 16
"""Plans of a network that its other plans are compared with."""
RANK = 6
_LAYOUTS = "layouts"
_PROGRAM = "call_tir"
_PLACE = {name: at for at, name in enumerate(COLUMNS)}
_TYPES = {
    "bool": "pred", "int8": "s8", "int16": "s16", "int32": "s32", "int64": "s64", "uint8": "u8",
    "uint16": "u16", "uint32": "u32", "uint64": "u64", "float16": "f16", "float32": "f32",
    "float64": "f64", "bfloat16": "bf16",
}  # fmt: skip
"""Element type to that of XLA; others are opaque."""
_SPATIAL = "DHW"
_CONVOLUTION = "conv"


@dataclass(frozen=True)
class NetworkGraph:
    """A network as a graph of TpuGraphs. Symbols: n nodes, m edges.

    Attributes:
        features: float32 of shape (n, 140).
        opcode: int32 of shape (n,).
        edges: int32 of shape (m, 2): a node, and one that it reads.
        calls: Node of each call, in the order of ``PlanNetwork.calls``.
        layouts: For each call the axes of its result and of what it reads first, minor to major,
            as they are and channels last: four rows of 6 numbers each.
    """

    features: Float32Array
    opcode: Int32Array
    edges: Int32Array
    calls: Int32Array
    layouts: Int8Array


def graph_of(module: IRModule) -> NetworkGraph:
    """The graph of a network.

    Args:
        module: With ``main`` in normal form.
    """
    builder = _Builder()
    main = module["main"]
    for number, parameter in enumerate(main.params):
        builder.add(parameter, "parameter", (), parameter_number=number)
    calls, layouts = [], []
    for block in getattr(main.body, "blocks", ()):
        for binding in block.bindings:
            value = getattr(binding, "value", None)
            if value is None:
                continue
            builder.bind(binding.var, value)
            if _is_call(value):
                calls.append(builder.places[binding.var])
                layouts.append(_layouts(value))
    builder.finish(getattr(main.body, "body", main.body))
    features, opcode, edges = builder.arrays()
    return NetworkGraph(
        features,
        opcode,
        edges,
        np.array(calls, np.int32),
        np.array(layouts, np.int8).reshape(-1, 4, RANK),
    )


def configurations(graph: NetworkGraph, plans: Sequence[PlanCandidate]) -> Float32Array:
    """The plans of a network as numbers, shape (plans, operators with a choice, 18).

    A plan is what is asked for, whether or not a pass can do it: that is all that is known of it
    before it is measured.

    Args:
        graph: Of the network.
        plans: Of its space.
    """
    return np.array([_configuration(graph, plan) for plan in plans], np.float32)


def anchors(graph: NetworkGraph, space: PlanSpace) -> Float32Array:
    """The plans that others of a network are compared with, drawn by its key.

    Returns:
        As ``configurations``: ``ANCHORS`` plans, fewer only of a small space.
    """
    rng = np.random.default_rng(int(space.sketch.key, 16))
    return configurations(graph, space.sample(rng, ANCHORS))


def configurable(graph: NetworkGraph, plan: PlanCandidate) -> Int32Array:
    """Nodes of the operators with a choice, in the order of ``configurations``."""
    calls = [operator.node for operator in plan.sketch.operators]
    return np.asarray(graph.calls[calls], np.int32)


def _configuration(graph: NetworkGraph, plan: PlanCandidate) -> list[list[int]]:
    rows = []
    for operator, path in zip(plan.sketch.operators, plan.paths, strict=True):
        chosen = dict(path)
        written = graph.layouts[operator.node]
        layout = written[2:] if chosen.get(_LAYOUTS) == LAST else written[:2]
        kernel = [
            names.index(chosen[step]) if step in chosen else -1 for step, names in KERNEL.items()
        ]
        rows.append([*layout.reshape(-1).tolist(), *_filled(kernel, RANK, -1)])
    return rows


class _Builder:
    """Collects nodes, each behind those that it reads."""

    def __init__(self) -> None:
        self.places: dict[Any, int] = {}
        self._rows: list[Float32Array] = []
        self._opcodes: list[int] = []
        self._edges: list[tuple[int, int]] = []

    def add(self, key: Any, operation: str | int, reads: Sequence[int], **columns: float) -> int:
        """A node for an expression, whose type is that of the node."""
        place = len(self._rows)
        row = np.zeros(len(COLUMNS), np.float32)
        _fill_type(row, key.ty)
        for name, value in columns.items():
            row[_PLACE[name]] = value
        self._rows.append(row)
        self._opcodes.append(OPCODES[operation] if isinstance(operation, str) else operation)
        self._edges += [(place, read) for read in dict.fromkeys(reads)]
        self.places[key] = place
        return place

    def bind(self, variable: Any, value: Any) -> None:
        """The nodes of a binding."""
        if _is_call(value):
            program = kind_of_operator(value) == _PROGRAM
            number = number_of(kind_of(value), program)
            place = self.add(variable, number, self._read(value))
            _fill_call(self._rows[place], value)
            return
        self.places[variable] = self._place(value)

    def finish(self, result: Any) -> None:
        """Marks the node of the result."""
        self._rows[self._place(result)][_PLACE["is_root"]] = 1

    def arrays(
        self,
    ) -> tuple[Float32Array, Int32Array, Int32Array]:
        """Features, operations and edges."""
        return (
            np.stack(self._rows),
            np.array(self._opcodes, np.int32),
            np.array(sorted(self._edges), np.int32).reshape(-1, 2),
        )

    def _read(self, call: Any) -> list[int]:
        """What a call reads: shapes and numbers among its arguments are no nodes."""
        operands = operands_of(call)
        return [self._place(o) for part in operands for o in _parts(part) if _is_value(o)]

    def _place(self, value: Any) -> int:
        """The node of an expression, made where there is none."""
        if value in self.places:
            return self.places[value]
        if hasattr(value, "tuple_value"):
            return self.add(value, "get-tuple-element", [self._place(value.tuple_value)])
        if hasattr(value, "fields"):
            return self.add(value, "tuple", [self._place(f) for f in value.fields if _is_value(f)])
        return self.add(value, "constant", ())


def kind_of_operator(call: Any) -> str:
    """Name of the operator of a call; ``call_tir`` for a tensor program."""
    return str(getattr(call.op, "name", "")).rpartition(".")[2]


def _is_call(value: Any) -> bool:
    return hasattr(value, "op") and hasattr(value, "args") and hasattr(value.op, "name")


def _parts(value: Any) -> list[Any]:
    fields = getattr(value, "fields", None)
    return [value] if fields is None else [part for field in fields for part in _parts(field)]


def _is_value(value: Any) -> bool:
    """Whether an expression is a tensor or several."""
    kind = type(getattr(value, "ty", None)).__name__
    return kind.startswith(("Tensor", "Tuple"))


def _fill_type(row: Float32Array, ty: Any) -> None:
    """Columns of the element type, the shape and the layout, which is row by row."""
    shape = getattr(ty, "shape", None)
    if shape is None:
        row[_PLACE["shape_element_type_is_tuple"]] = 1
        row[_PLACE["shape_tuple_shapes_size"]] = len(getattr(ty, "fields", ()))
        _put(row, "layout_minor_to_major", [-1] * RANK)
        _put_numbers(row, "shape_dimensions", [], RANK)
        return
    dimensions = [int(getattr(extent, "value", extent)) for extent in shape]
    element = _TYPES.get(str(ty.dtype), "opaque_type")
    row[_PLACE[f"shape_element_type_is_{element}"]] = 1
    _put_numbers(row, "shape_dimensions", dimensions, RANK)
    _put(row, "layout_minor_to_major", _row_major(len(dimensions)))


def _fill_call(row: Float32Array, call: Any) -> None:
    """Columns of what an operator does."""
    name, attrs = kind_of_operator(call), call.attrs
    window = {part: [] for part in _WINDOW} if name == _PROGRAM else _window(name, call)
    for part, values in window.items():
        _put_numbers(row, f"window_{part}", values, RANK)
    row[_PLACE["window_window_reversal_false_count"]] = len(window["size"])
    for part in ("slice_dims_start", "slice_dims_stride", "slice_dims_limit"):
        _put_numbers(row, part, _slice(name, call).get(part, []), 2)
    _put_numbers(row, "dynamic_slice_sizes", [], 2)
    low, high = _padding(name, call)
    _put_numbers(row, "padding_config_edge_padding_low", low, 2)
    _put_numbers(row, "padding_config_edge_padding_high", high, 2)
    _put(row, "dimensions", _filled(_dimensions(name, call), RANK, 0))
    if name.startswith(_CONVOLUTION):
        _put_convolution(row, attrs)


_WINDOW = ("size", "stride", "padding_low", "padding_high", "window_dilation", "base_dilation")


def _window(name: str, call: Any) -> dict[str, list[int]]:
    """What a convolution or pooling reads for one number, axis by axis."""
    attrs = call.attrs
    window: dict[str, list[int]] = {part: [] for part in _WINDOW}
    if name.startswith(_CONVOLUTION):
        kernel = extents(call.args[1])
        size = [kernel[str(attrs.kernel_layout).index(axis)] for axis in _axes(attrs.kernel_layout)]
    elif "pool" in name and hasattr(attrs, "pool_size"):
        size = _integers(attrs.pool_size)
    else:
        return window
    ones = [1] * len(size)
    transposed = name.endswith("transpose")
    padding = _integers(attrs.padding)
    padding = padding * 2 if len(padding) == len(size) else padding
    strides = _integers(attrs.strides)
    window["size"] = size
    window["stride"] = ones if transposed else strides
    window["padding_low"], window["padding_high"] = padding[: len(size)], padding[len(size) :]
    window["window_dilation"] = _integers(attrs.dilation)
    window["base_dilation"] = strides if transposed else ones
    return window


def _axes(layout: Any) -> list[str]:
    return [axis for axis in str(layout) if axis in _SPATIAL]


def _put_convolution(row: Float32Array, attrs: Any) -> None:
    data, kernel = str(attrs.data_layout), str(attrs.kernel_layout)
    result = str(attrs.out_layout) or data
    spatial = _axes(kernel)
    named = {
        "input_batch_dim": [data.index("N")],
        "input_feature_dim": [data.index("C")],
        "input_spatial_dims": [data.index(axis) for axis in spatial],
        "kernel_input_feature_dim": [kernel.index("I")],
        "kernel_output_feature_dim": [kernel.index("O")],
        "kernel_spatial_dims": [kernel.index(axis) for axis in spatial],
        "output_batch_dim": [result.index("N")],
        "output_feature_dim": [result.index("C")],
    }
    for name, values in named.items():
        column = f"convolution_dim_numbers_{name}"
        if column in _PLACE:
            row[_PLACE[column]] = values[0]
        else:
            _put(row, column, values)
    row[_PLACE["feature_group_count"]] = int(attrs.groups)
    row[_PLACE["batch_group_count"]] = 1


def _slice(name: str, call: Any) -> dict[str, list[int]]:
    """Begin, step and end of a slice for each axis of what is sliced, where they are constant."""
    if name != "strided_slice":
        return {}
    lists = [_constants(argument) for argument in call.args[1:]]
    if len(lists) < 3 or None in lists:
        return {}
    axes, begins, ends = (each or [] for each in lists[:3])
    steps = (lists[3] if len(lists) > 3 else None) or [1] * len(axes)
    whole = extents(call.args[0])
    start, stride, limit = [0] * len(whole), [1] * len(whole), list(whole)
    for axis, begin, end, step in zip(axes, begins, ends, steps, strict=True):
        at = axis % len(whole)
        start[at] = min(max(begin + whole[at] if begin < 0 else begin, 0), whole[at])
        limit[at] = min(max(end + whole[at] if end < 0 else end, 0), whole[at])
        stride[at] = step
    return {"slice_dims_start": start, "slice_dims_stride": stride, "slice_dims_limit": limit}


def _constants(expression: Any) -> list[int] | None:
    fields = getattr(expression, "fields", None)
    values = [getattr(field, "value", None) for field in fields or ()]
    if fields is None or not all(isinstance(value, int) for value in values):
        return None
    return [int(value) for value in values if value is not None]


def _padding(name: str, call: Any) -> tuple[list[int], list[int]]:
    widths = _integers(call.attrs.pad_width) if name == "pad" else []
    return widths[::2], widths[1::2]


def _dimensions(name: str, call: Any) -> list[int]:
    """The axes that an operator is about: transposed, reduced, joined."""
    attrs = call.attrs
    rank = len(extents(call.args[0])) if call.args and hasattr(call.args[0].ty, "shape") else 0
    if name == "permute_dims":
        axes = getattr(attrs, "axes", None)
        return _integers(axes) if axes else list(range(rank))[::-1]
    dimension = getattr(attrs, "axis", None) if attrs is not None else None
    if dimension is None:
        return []
    axes = (
        [int(dimension)]
        if isinstance(dimension, int) or hasattr(dimension, "value")
        else _integers(dimension)
    )
    rank = rank or len(getattr(call.ty, "shape", None) or ())
    return [axis % rank for axis in axes] if rank else axes


def _layouts(call: Any) -> list[list[int]]:
    """Result and first operand as they are, and both channels last."""
    rows = [_row_major(len(getattr(call.ty, "shape", None) or ()))]
    operands = operands_of(call)
    first = operands[0] if operands else call
    rows.append(_row_major(len(getattr(first.ty, "shape", None) or ())))
    wanted = CHANNELS_LAST.get(str(getattr(call.op, "name", "")))
    if wanted is None:
        return [*rows, *rows]
    written = str(call.attrs.data_layout)
    minor = [written.index(axis) for axis in reversed(wanted[0])]
    return [*rows, _filled(minor, RANK, -1), _filled(minor, RANK, -1)]


def _row_major(rank: int) -> list[int]:
    """Axes from the last to the first; axes that have no column are left out."""
    return _filled(range(min(rank, RANK))[::-1], RANK, -1)


def _integers(values: Iterable[Any]) -> list[int]:
    return [int(getattr(value, "value", value)) for value in values]


def _put(row: Float32Array, name: str, values: Sequence[int]) -> None:
    begin = _PLACE[f"{name}_0"]
    row[begin : begin + len(values)] = values


def _put_numbers(row: Float32Array, name: str, values: Sequence[int], count: int) -> None:
    """The first values, the sum and the product of all, which is 1 for none."""
    _put(row, name, _filled(values, count, 0))
    row[_PLACE[f"{name}_sum"]] = sum(values)
    row[_PLACE[f"{name}_product"]] = float(np.prod(values, dtype=np.float64))


def _filled(values: Iterable[int], count: int, pad: int) -> list[int]:
    first = list(values)[:count]
    return first + [pad] * (count - len(first))
