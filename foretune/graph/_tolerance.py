"""How far rounding may move a network's outputs, from the arithmetic in its graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from foretune.operators.recurrent import recurrence_of
from foretune.workload.element_types import element_type, is_float

if TYPE_CHECKING:
    from foretune.workload import Model

_FLOOR = 1e-4
_MOST = 1e-3
"""What a graph of float32 alone may grant; of half precision see ``_most_of_halves``."""
_BYTE = 1 / 255
"""A step of a tensor of bytes that fills its range."""
# Sums of half-precision products are kept in float32; what is rounded is what a call returns.
_ACCUMULATOR = float(np.finfo("float32").eps)
_MOVES = ("reshape", "permute_dims", "expand_dims", "squeeze", "concat", "split", "strided_slice")


@dataclass(frozen=True)
class Arithmetic:
    """What a network computes with.

    Attributes:
        halves: Calls whose results are rounded to a type of two bytes or less.
        half_epsilon: Largest rounding unit among those; 0 if there are none.
        epsilon: Rounding unit of the other floating-point numbers; of float32 if there are none.
        depth: Sum over contractions of the square root of the additions per output element.
        work: Multiply-adds of all contractions.
        has_float16: Whether something is computed in float16, which ends at 65504.
        rounds_to_bytes: Whether floats are rounded to bytes somewhere, as quantised networks do.
    """

    halves: int
    half_epsilon: float
    epsilon: float
    depth: float
    work: float
    has_float16: bool
    rounds_to_bytes: bool = False

    @property
    def tolerance(self) -> float:
        """Largest difference that rounding explains, as ``OutputDifference.relative`` counts."""
        rounded = self.half_epsilon * float(np.sqrt(self.halves))
        # Both runtimes round, each its own way.
        bound = max(_FLOOR, min(_MOST, self.epsilon * self.depth))
        bound += min(_most_of_halves(self.half_epsilon), rounded)
        return max(bound, _BYTE) if self.rounds_to_bytes else bound


def default_tolerance(model: Model) -> float:
    """Relative tolerance for a model, from the element types and the reductions in its graph.

    As the rounding error of a sum in another order does, it grows with the square root of the
    number of additions, and with that of the number of results that are rounded to half precision.
    It is never below 1e-4, and never above 1e-3 and what ``_most_of_halves`` gives: how far a deep
    network really is from what it should compute, float64 says (``_judge``).
    """
    return arithmetic_of(model).tolerance


def arithmetic_of(model: Model) -> Arithmetic:
    """Reads the graph of a model."""
    from foretune import _tvm

    relax = _tvm.tvm.relax
    calls: list[Any] = []
    relax.analysis.post_order_visit(
        model.module["main"], lambda n: calls.append(n) if isinstance(n, relax.Call) else None
    )
    halves, depth, work, seen = 0, 0.0, 0.0, {element_type(s.dtype) for s in model.inputs}
    to_bytes = False
    epsilons: dict[bool, float] = {}
    for call in calls:
        name = str(getattr(call.op, "name", "")).removeprefix("relax.")
        marked = recurrence_of(call)
        steps = 1 if marked is None else marked[0].steps
        for dtype in _dtypes(call.ty):
            epsilon = float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]
            seen.add(dtype)
            is_half = dtype.itemsize <= 2
            epsilons[is_half] = max(epsilons.get(is_half, 0.0), epsilon)
            halves += steps * (is_half and name not in _MOVES)
        to_bytes |= _rounds_to_bytes(name, call)
        additions = _additions(name, call)
        depth += float(np.sqrt(additions))
        work += additions * float(np.prod([int(e) for e in getattr(call.ty, "shape", None) or ()]))
        if marked is not None:
            depth += steps * float(np.sqrt(marked[0].width))
            work += float(marked[0].multiplications)
    wide = [element_type(s.dtype) for s in (*model.inputs, *model.outputs)]
    for dtype in (d for d in wide if is_float(d)):
        epsilons.setdefault(dtype.itemsize <= 2, float(ml_dtypes.finfo(dtype).eps))  # type: ignore[no-untyped-call]
    return Arithmetic(
        halves,
        epsilons.get(True, 0.0),
        epsilons.get(False, _ACCUMULATOR),
        depth,
        work,
        np.dtype("float16") in seen,
        to_bytes,
    )


def _most_of_halves(epsilon: float) -> float:
    """Five rounding units of float16, about one of bfloat16, one of narrower types."""
    return min(5 * epsilon, max(1e-2, epsilon))


def _dtypes(ty: Any) -> list[Any]:
    """Floating-point types of a tensor, or of the tensors of a tuple."""
    fields = getattr(ty, "fields", None)
    if fields is not None:
        return [dtype for part in fields for dtype in _dtypes(part)]
    name = str(getattr(ty, "dtype", ""))
    dtype = element_type(name) if name.startswith(("float", "bfloat")) else None
    return [dtype] if dtype is not None and is_float(dtype) else []


def _rounds_to_bytes(name: str, call: Any) -> bool:
    if name not in ("quantize", "astype") or str(call.ty.dtype) not in ("int8", "uint8"):
        return False
    return str(call.args[0].ty.dtype).startswith("float")


def _additions(name: str, call: Any) -> int:
    """Products that a contraction sums into one element; 0 for what is none."""
    if name.startswith("nn.conv"):
        extents = [int(extent) for extent in call.args[1].ty.shape]
        return int(np.prod(extents) // max(extents[0], 1))
    if name == "matmul":
        return int(call.args[0].ty.shape[-1])
    return 0
