"""Calls of kernels with a schedule of their own, on flat float32 buffers."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

from foretune.graph.passes.rewrites import extents

if TYPE_CHECKING:
    from foretune.hardware import Hardware

MOST_ELEMENTS = 2**31 - 1
"""Of a buffer: places in it are 32-bit integers."""
_USUAL_BITS = 256


def float_lanes(hardware: Hardware) -> int:
    """Numbers of float32 in a vector; a usual CPU's where the hardware does not say."""
    return (hardware.simd_bits or _USUAL_BITS) // 32


class Kernels:
    """The kernels that a mutator has added to its module: one for all calls that are alike."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Any] = {}

    def call(
        self,
        mutator: Any,
        name: str,
        key: Hashable,
        program: Callable[[], Any],
        operands: Sequence[Any],
        shape: Sequence[int],
    ) -> Any:
        """A call of a kernel, as an expression of the shape that is wanted.

        Args:
            mutator: Its builder takes the bindings.
            name: Of the kernel, where it is a new one.
            key: Calls of equal keys have one kernel.
            program: Makes the PrimFunc ``(*operands, result)``.
            operands: Tensors of any shapes.
            shape: Of the expression.
        """
        from foretune import _tvm

        relax, builder = _tvm.tvm.relax, mutator.builder_
        if key not in self._known:
            self._known[key] = builder.add_func(program(), name)
        flat = [_flat(builder, operand) for operand in operands]
        type_ = relax.TensorType([math.prod(shape)], "float32")
        result = builder.emit(relax.call_tir(self._known[key], flat, type_))
        return relax.op.reshape(result, shape)


def _flat(builder: Any, tensor: Any) -> Any:
    from foretune import _tvm

    size = math.prod(extents(tensor))
    if extents(tensor) == [size]:
        return tensor
    return builder.emit(_tvm.tvm.relax.op.reshape(tensor, [size]))
