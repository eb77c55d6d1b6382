"""Our lowerings: of what TVM's converters lack, compute wrongly, or compute in another type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from foretune.workload.importers.onnx._node import Node

Lowering = Callable[[Node], Any]

LOWERINGS: dict[tuple[str, str], Lowering] = {}
"""Domain and operator to lowering: it returns one Relax expression, or one for each output."""
