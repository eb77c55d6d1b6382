"""Our lowerings: of what TVM's converters lack, compute wrongly, or compute in another type."""

from __future__ import annotations

from foretune.workload.importers.onnx import (
    _lower_arithmetic,
    _lower_indexing,
    _lower_layers,
    _lower_quantised,
    _lower_recurrent,
)
from foretune.workload.importers.onnx._node import Lowering

LOWERINGS: dict[tuple[str, str], Lowering] = {
    ("", operator): lowering
    for table in (
        _lower_arithmetic.TABLE,
        _lower_indexing.TABLE,
        _lower_layers.TABLE,
        _lower_quantised.TABLE,
        _lower_recurrent.TABLE,
    )
    for operator, lowering in table.items()
} | {("com.microsoft", name): lowering for name, lowering in _lower_quantised.CONTRIBUTED.items()}
"""Domain and operator to lowering: it returns one Relax expression, or one for each output."""
