"""Protobuf messages of raw TpuGraphs files: the fields that features are made of, and no others.

Idea: ``raw/*.pb`` holds ``ModuleTuningData`` (one network, layouts) or ``TuningData`` (kernels,
tiles): an XLA module with the configurations that were run. The wire format needs field numbers
only, so messages are described here and built at run time; neither TensorFlow nor generated code
is needed. Fields that are not listed are skipped when a file is parsed.

Sources of names and numbers: ``tpu_graphs/proto/tuning.proto`` of
google-research-datasets/tpu_graphs, ``xla/service/hlo.proto`` and ``xla/xla_data.proto`` of
openxla/xla (all Apache-2.0).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

_Fields = Mapping[str, tuple[int, str]]

_MESSAGES: Mapping[str, _Fields] = {
    "Layout": {"minor_to_major": (1, "int64 *")},
    "Shape": {
        "element_type": (2, "int32"),
        "dimensions": (3, "int64 *"),
        "tuple_shapes": (4, "Shape *"),
        "layout": (5, "Layout"),
    },
    "WindowDimension": {
        "size": (1, "int64"),
        "stride": (2, "int64"),
        "padding_low": (3, "int64"),
        "padding_high": (4, "int64"),
        "window_dilation": (5, "int64"),
        "base_dilation": (6, "int64"),
        "window_reversal": (7, "bool"),
    },
    "Window": {"dimensions": (1, "WindowDimension *")},
    "ConvolutionDimensionNumbers": {
        "kernel_input_feature_dimension": (3, "int64"),
        "kernel_output_feature_dimension": (4, "int64"),
        "kernel_spatial_dimensions": (6, "int64 *"),
        "input_batch_dimension": (7, "int64"),
        "input_feature_dimension": (8, "int64"),
        "output_batch_dimension": (9, "int64"),
        "output_feature_dimension": (10, "int64"),
        "input_spatial_dimensions": (11, "int64 *"),
    },
    "SliceDimensions": {"start": (1, "int64"), "limit": (2, "int64"), "stride": (3, "int64")},
    "PaddingDimension": {"edge_padding_low": (1, "int64"), "edge_padding_high": (2, "int64")},
    "PaddingConfig": {"dimensions": (1, "PaddingDimension *")},
    "Instruction": {
        "opcode": (2, "string"),
        "shape": (3, "Shape"),
        "parameter_number": (9, "int64"),
        "dimensions": (14, "int64 *"),
        "window": (15, "Window"),
        "convolution_dimension_numbers": (16, "ConvolutionDimensionNumbers"),
        "slice_dimensions": (17, "SliceDimensions *"),
        "dynamic_slice_sizes": (20, "int64 *"),
        "padding_config": (21, "PaddingConfig"),
        "id": (35, "int64"),
        "operand_ids": (36, "int64 *"),
        "called_computation_ids": (38, "int64 *"),
        "feature_group_count": (50, "int64"),
        "batch_group_count": (58, "int64"),
        "is_stable": (60, "bool"),
    },
    "Computation": {
        "name": (1, "string"),
        "instructions": (2, "Instruction *"),
        "id": (5, "int64"),
        "root_id": (6, "int64"),
    },
    "Module": {"name": (1, "string"), "computations": (3, "Computation *")},
    "TileSize": {
        "kernel_bounds": (1, "int64 *"),
        "output_bounds": (2, "int64 *"),
        "input_bounds": (3, "int64 *"),
    },
    "OpConfig": {"tile_size_config": (1, "TileSize")},
    "TensorLayout": {"dims": (1, "int32 *")},
    "NodeLayout": {"tensors": (1, "TensorLayout *")},
    "LayoutConfig": {"nodes": (1, "NodeLayout *")},
    "ModuleConfig": {"layout_config": (1, "LayoutConfig")},
    "Profile": {"compute_time_ns": (4, "int64")},
    "Run": {
        "op_config": (1, "OpConfig"),
        "module_config": (2, "ModuleConfig"),
        "error": (3, "bool"),
        "profile": (4, "Profile"),
        "is_default": (5, "bool"),
    },
    "ModuleTuningData": {
        "module": (1, "Module"),
        "fingerprint": (2, "uint64"),
        "runs": (3, "Run *"),
        "config_index_to_node": (4, "uint64 *"),
    },
    "TuningData": {"modules": (1, "ModuleTuningData *")},
}
"""Message -> field -> its number and type; ``*`` marks a repeated field."""

_PACKAGE = "foretune.tgraph"


def message(name: str) -> type[Any]:
    """The class of a message, for example ``message("TuningData")``."""
    from google.protobuf import message_factory

    found: type[Any] = message_factory.GetMessageClass(
        _pool().FindMessageTypeByName(f"{_PACKAGE}.{name}")
    )
    return found


@functools.cache
def _pool() -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool

    file = descriptor_pb2.FileDescriptorProto(
        name="foretune/tgraph/hlo.proto", package=_PACKAGE, syntax="proto3"
    )
    for title, fields in _MESSAGES.items():
        added = file.message_type.add(name=title)
        for field, (number, text) in fields.items():
            _add_field(added, field, number, text)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


def _add_field(added: Any, name: str, number: int, text: str) -> None:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

    kind, _, repeated = text.partition(" ")
    field = added.field.add(
        name=name,
        number=number,
        label=Field.LABEL_REPEATED if repeated else Field.LABEL_OPTIONAL,
    )
    if kind in _MESSAGES:
        field.type = Field.TYPE_MESSAGE
        field.type_name = f".{_PACKAGE}.{kind}"
    else:
        field.type = getattr(Field, f"TYPE_{kind.upper()}")
