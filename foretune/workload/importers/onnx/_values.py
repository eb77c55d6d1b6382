"""What a name stands for while a graph is walked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foretune._arrays import Array


@dataclass(eq=False)
class Value:
    """A tensor of static shape: a constant, or what a Relax expression computes.

    Attributes:
        shape: Extents.
        dtype: Name of the element type, the same in NumPy, ml_dtypes and TVM.
        array: The value of a constant; None for what is computed.
    """

    shape: tuple[int, ...]
    dtype: str
    array: Array | None = None
    _expression: Any = None

    @classmethod
    def constant(cls, array: Array) -> Value:
        """Wraps an array."""
        return cls(tuple(array.shape), str(array.dtype), array)

    @classmethod
    def computed(cls, expression: Any) -> Value:
        """Wraps a normalised Relax expression of static tensor type."""
        from foretune import _tvm

        if isinstance(expression, _tvm.tvm.ir.GenericConst):
            return cls.constant(expression.value.numpy())
        shape = tuple(int(extent) for extent in expression.ty.shape)
        dtype = str(expression.ty.dtype)
        # Without elements there is nothing to compute: the value is known.
        known = blank(shape, dtype) if 0 in shape else None
        return cls(shape, dtype, known, expression)

    @property
    def expression(self) -> Any:
        """The Relax expression; that of a constant is made when it is first asked for."""
        from foretune import _tvm

        if self._expression is None:
            assert self.array is not None
            tensor = _tvm.tvm.runtime.tensor(np.ascontiguousarray(self.array).reshape(self.shape))
            self._expression = _tvm.tvm.relax.const(tensor, self.dtype)
        return self._expression

    @property
    def bytes(self) -> int:
        """Size in memory."""
        return math.prod(self.shape) * int(np.dtype(_known(self.dtype)).itemsize)


class Missing:
    """Stands for what nothing here can compute, and for all that is computed from it."""


MISSING = Missing()

Slot = Value | Missing | None
"""What an input may be; None where an optional one is left out."""


def element_type(kind: int) -> str:
    """``TensorProto.FLOAT`` → ``"float32"``; words are ``"object"``."""
    import onnx

    return str(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind)))


def element_kind(dtype: str) -> int:
    """``"float32"`` → ``TensorProto.FLOAT``."""
    import onnx

    return int(onnx.helper.np_dtype_to_tensor_dtype(np.dtype(_known(dtype))))


def blank(shape: Sequence[int], dtype: str) -> Array:
    """An array of that type that takes no memory."""
    blank: Array = np.broadcast_to(np.zeros((), dtype=_known(dtype)), tuple(shape))
    return blank


def _known(dtype: str) -> Any:
    if dtype in np.sctypeDict or dtype == "object":
        return dtype
    import ml_dtypes

    return getattr(ml_dtypes, dtype)
