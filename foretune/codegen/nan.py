"""Maximum and minimum that keep NaN, as PyTorch and ONNX Runtime have them, on CPUs.

TVM compiles ``max(a, b)`` as ``a > b ? a : b`` and ``min`` likewise: where one of them is NaN the
result is ``b``. Before → after, of floats, with a constant ``c`` and a number ``x`` of any kind::

    max(x, c)  →  max(c, x)
    max(a, x)  →  x <= infinity ? max(x, a) : x

The first is the same one instruction (``vmaxps`` returns its second operand where they are not
ordered). The second takes a comparison and a blend more; it also holds where ``a`` is the running
result of a reduction. Other ways to write it are slower: TVM does not vectorise ``isnan``, folds
``x != x`` to false, and ``llvm.maximum`` tells zeros apart by their sign.

It is done to what is scheduled and not to what is tuned: workloads, spaces and records know
``max``, and so do graph passes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foretune import _tvm

if TYPE_CHECKING:
    from foretune._tvm import IRModule

_SOFTMAX = "softmax_maxelem"
"""TVM's name of the block that finds the largest element of a softmax: it needs no NaN, as the
exponential of a NaN puts one into the sum, which every element is divided by."""


def keep_nan(module: IRModule) -> IRModule:
    """The same module, whose tensor programs keep NaN in every maximum and minimum of floats."""
    return _tvm.map_programs(module, _kept)


def _kept(function: Any) -> Any:
    tirx, tvm = _tvm.tvm.tirx, _tvm.tvm

    def extreme(value: Any, mutator: Any) -> Any:
        value = mutator.default_mutate(value)
        return value if not _is_float(value) else _ordered(type(value), value.a, value.b)

    def block(value: Any, mutator: Any) -> Any:
        return value if _SOFTMAX in str(value.name_hint) else mutator.default_mutate(value)

    return _tvm.structural_mutate(
        function, [((tirx.Max, tirx.Min), extreme), (tvm.s_tir.SBlock, block)]
    )


def _ordered(extreme: Any, first: Any, second: Any) -> Any:
    """``extreme(first, second)``, or NaN."""
    tirx = _tvm.tvm.tirx
    if isinstance(first, tirx.FloatImm):
        return extreme(first, second)
    if isinstance(second, tirx.FloatImm):
        return extreme(second, first)
    if str(getattr(second, "op", "")).endswith("if_then_else"):
        # An element, or padding, which is a constant: the branch is taken once.
        inside, element, padding = second.args
        branches = (_ordered(extreme, first, element), _ordered(extreme, first, padding))
        return tirx.if_then_else(inside, *branches)
    dtype = str(second.ty.dtype)
    if dtype == "bfloat16":  # which TVM compares by its bits
        wide = _ordered(extreme, first.astype("float32"), second.astype("float32"))
        return wide.astype(dtype)
    is_number = second <= tirx.const(float("inf"), dtype)
    return tirx.Select(is_number, extreme(second, first), second)


def _is_float(value: Any) -> bool:
    return str(value.ty.dtype).startswith(("float", "bfloat"))
