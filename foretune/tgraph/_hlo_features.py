"""Node features of an XLA module: what the columns of ``node_feat`` are, and how they are made.

Idea: every instruction becomes a node with 140 numbers: fields of the instruction as they are, the
first few entries of lists, their sum and product. Lists that are too short are filled up with 0,
the physical layout of the result with -1, because 0 is an axis there (official files have 0 in both
places; ``foretune.tgraph.prepare.repad`` mends them). A node has an edge to everything that it
consumes, and to the result of every computation that it calls.

Source: Phothilimthana et al., TpuGraphs (2023), section "Node features" of the data set's README;
``foretune.tgraph`` is checked against its files column by column (docs/tgraph.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from foretune._arrays import Float32Array, IntArray
from foretune.errors import BadInputError
from foretune.tgraph.opcodes import OPCODES

TYPES = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 16, 15, 18, 13, 14, 17)
"""Numbers of XLA's element types in the order of their columns."""
_TYPE_NAMES = (
    "invalid_type pred s8 s16 s32 s64 u8 u16 u32 u64 f16 f32 f64 bf16 c64 c128 tuple opaque_type "
    "token"
)
_WINDOW = ("size", "stride", "padding_low", "padding_high", "window_dilation", "base_dilation")
RANK = 6
"""Axes of a tensor that have columns."""


def _listed(name: str, count: int, *totals: str) -> list[str]:
    return [f"{name}_{n}" for n in (*range(count), *totals)]


def _column_names() -> tuple[str, ...]:
    totals = ("sum", "product")
    return (
        "is_root",
        "element_size_in_bits",
        *(f"shape_element_type_is_{name}" for name in _TYPE_NAMES.split()),
        *_listed("shape_dimensions", RANK, *totals),
        "shape_tuple_shapes_size",
        "parameter_number",
        *_listed("dimensions", RANK),
        *(name for part in _WINDOW for name in _listed(f"window_{part}", RANK, *totals)),
        *_listed("window_window_reversal", RANK, "true_count", "false_count"),
        *(f"convolution_dim_numbers_{name}" for name in _CONVOLUTION),
        "feature_group_count",
        "batch_group_count",
        *(n for part in _SLICE for n in _listed(f"slice_dims_{part}", 2, *totals)),
        *_listed("dynamic_slice_sizes", 2, *totals),
        *_listed("padding_config_edge_padding_low", 2, *totals),
        *_listed("padding_config_edge_padding_high", 2, *totals),
        "is_stable",
        *_listed("layout_minor_to_major", RANK),
    )


_SLICE = ("start", "stride", "limit")
_CONVOLUTION = (
    "input_batch_dim",
    "input_feature_dim",
    *_listed("input_spatial_dims", 4),
    "kernel_input_feature_dim",
    "kernel_output_feature_dim",
    *_listed("kernel_spatial_dims", 4),
    "output_batch_dim",
    "output_feature_dim",
)

COLUMNS = _column_names()
"""Names of the 140 columns of ``node_feat``."""
LAYOUT = slice(len(COLUMNS) - RANK, len(COLUMNS))
"""Columns of the physical layout, minor to major."""
DIMENSIONS = slice(COLUMNS.index("shape_dimensions_0"), COLUMNS.index("shape_dimensions_0") + RANK)
"""Columns of the shape."""
_MAJOR = ("cluster", "while", "cond")
"""What the names of computations contain at whose end ``node_splits`` has an entry."""


def encode_module(
    module: Any,
) -> tuple[
    Float32Array,
    npt.NDArray[np.uint8],
    IntArray,
    IntArray,
]:
    """Nodes and edges of an XLA module.

    Args:
        module: A ``Module`` message of ``foretune.tgraph._hlo_messages``.

    Returns:
        Features, float32 of shape (n, 140), in the order of ``COLUMNS``; operations, uint8 of shape
        (n,); edges, int64 of shape (m, 2), from the consumer to what it consumes; and ends of the
        module's computations, int64 of shape (k,), the first of them 0.

    Raises:
        BadInputError: The module refers to an instruction or a computation that it lacks.
    """
    instructions = [(i, c) for c in module.computations for i in c.instructions]
    if not instructions:
        raise BadInputError(
            f"module {module.name!r} must have instructions, but has none: give another file"
        )
    place = {instruction.id: at for at, (instruction, _) in enumerate(instructions)}
    roots = {computation.id: computation.root_id for computation in module.computations}
    try:
        # Official files have them in order, an operand once, a computation for each call.
        edges = sorted(
            (at, used)
            for at, (instruction, _) in enumerate(instructions)
            for used in (
                *{place[operand] for operand in instruction.operand_ids},
                *(place[roots[called]] for called in instruction.called_computation_ids),
            )
        )
    except KeyError as error:
        raise BadInputError(
            f"module {module.name!r} refers to instruction or computation {error}, which it lacks: "
            "give a whole module"
        ) from error
    return (
        np.array([_row(i, c.root_id) for i, c in instructions], dtype=np.float32),
        np.array([OPCODES.get(i.opcode, 0) for i, _ in instructions], dtype=np.uint8),
        np.array(edges, dtype=np.int64).reshape(-1, 2),
        np.array(_splits(module.computations), dtype=np.int64),
    )


def tile_features(tile: Any) -> list[float]:
    """The 24 numbers of a ``TileSize`` message: bounds of kernel, output and input."""
    return [
        number
        for bounds in (tile.kernel_bounds, tile.output_bounds, tile.input_bounds)
        # Here, other than in nodes, the product of nothing is 0.
        for number in (*_numbers(bounds, RANK)[:-1], _product(bounds) if len(bounds) else 0.0)
    ]


def layout_features(config: Any) -> list[list[int]]:
    """The 18 numbers of each node of a ``LayoutConfig`` message, -1 where there is no axis."""
    return [
        [
            axis
            for at in range(3)
            for axis in _filled(node.tensors[at].dims if at < len(node.tensors) else (), RANK, -1)
        ]
        for node in config.nodes
    ]


def _row(instruction: Any, root: int) -> list[float]:
    shape, window = instruction.shape, instruction.window.dimensions
    slices, padding = instruction.slice_dimensions, instruction.padding_config.dimensions
    reversed_ = [dimension.window_reversal for dimension in window]
    return [
        float(instruction.id == root),
        0.0,
        *(float(shape.element_type == number) for number in TYPES),
        *_numbers(shape.dimensions, RANK),
        float(len(shape.tuple_shapes)),
        float(instruction.parameter_number),
        *_filled(instruction.dimensions, RANK, 0),
        *(n for part in _WINDOW for n in _numbers([getattr(d, part) for d in window], RANK)),
        *_filled(reversed_, RANK, 0),
        float(sum(reversed_)),
        float(len(reversed_) - sum(reversed_)),
        *_convolution(instruction.convolution_dimension_numbers),
        float(instruction.feature_group_count),
        float(instruction.batch_group_count),
        *(n for part in _SLICE for n in _numbers([getattr(s, part) for s in slices], 2)),
        *_numbers(instruction.dynamic_slice_sizes, 2),
        *_numbers([dimension.edge_padding_low for dimension in padding], 2),
        *_numbers([dimension.edge_padding_high for dimension in padding], 2),
        float(instruction.is_stable),
        *_filled(shape.layout.minor_to_major, RANK, -1),
    ]


def _convolution(numbers: Any) -> list[float]:
    return [
        float(numbers.input_batch_dimension),
        float(numbers.input_feature_dimension),
        *_filled(numbers.input_spatial_dimensions, 4, 0),
        float(numbers.kernel_input_feature_dimension),
        float(numbers.kernel_output_feature_dimension),
        *_filled(numbers.kernel_spatial_dimensions, 4, 0),
        float(numbers.output_batch_dimension),
        float(numbers.output_feature_dimension),
    ]


def _numbers(values: Sequence[int], count: int) -> list[float]:
    """The first values, the sum and the product of all; the product of nothing is 1."""
    return [*_filled(values, count, 0), float(sum(values)), _product(values)]


def _filled(values: Iterable[Any], count: int, pad: int) -> list[Any]:
    first = list(values)[:count]
    return first + [pad] * (count - len(first))


def _product(values: Iterable[int]) -> float:
    product = 1
    for value in values:
        product *= value
    # Official features are made in 64 bits, where products of large shapes wrap around.
    return float((product + 2**63) % 2**64 - 2**63)


def _splits(computations: Iterable[Any]) -> list[int]:
    """Node numbers at which the module's major computations end, with 0 and the last node."""
    ends, count = [0], 0
    for computation in computations:
        count += len(computation.instructions)
        if any(part in computation.name for part in _MAJOR):
            ends.append(count)
    return ends if ends[-1] == count else [*ends, count]
