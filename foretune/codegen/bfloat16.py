"""Bound names whose values read bfloat16, which TVM does not legalise.

TVM stores bfloat16 as ``uint16`` and computes with it in float32, but not in a ``Bind`` statement,
as reductions with several results have them: there it takes the bits for a number. Before → after,
there::

    cast(float32, x)  →  reinterpret(float32, cast(uint32, reinterpret(uint16, x)) << 16)

What else is computed in bfloat16 on the way is computed in float32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foretune import _tvm

if TYPE_CHECKING:
    from foretune._tvm import IRModule

_SHIFT = 16
_ARITHMETIC = ("Add", "Sub", "Mul", "Div", "Max", "Min")
_BINARY = frozenset([*_ARITHMETIC, "EQ", "NE", "LT", "LE", "GT", "GE", "And", "Or"])


def legal_bfloat16(module: IRModule) -> IRModule:
    """The same module, whose bound names read bfloat16 as numbers."""
    return _tvm.map_programs(module, _legal)


def _legal(function: Any) -> Any:
    def bind(statement: Any, _mutator: Any) -> Any:
        if _dtype(statement.var) == "bfloat16" or not _reads(statement.value):
            return statement
        return _tvm.tvm.tirx.Bind(statement.var, _wide(statement.value))

    return _tvm.structural_mutate(function, [(_tvm.tvm.tirx.Bind, bind)])


def _reads(value: Any) -> bool:
    """Whether an expression has bfloat16 in it."""
    return _dtype(value) == "bfloat16" or any(_reads(part) for part in _tvm.children(value))


def _wide(value: Any) -> Any:
    """The same expression with float32 wherever it has bfloat16."""
    tirx, kind = _tvm.tvm.tirx, type(value).__name__
    if not _reads(value):
        return value
    if kind in _BINARY:
        return type(value)(_wide(value.a), _wide(value.b))
    if kind == "Not":
        return tirx.Not(_wide(value.a))
    if kind == "Select":
        parts = value.condition, value.true_value, value.false_value
        return tirx.Select(*map(_wide, parts))
    if kind == "FloatImm":
        return tirx.const(float(value.value), "float32")
    if kind in ("BufferLoad", "TensorLoad"):
        bits = tirx.Cast("uint32", tirx.reinterpret("uint16", value))
        return tirx.reinterpret("float32", bits << tirx.const(_SHIFT, "uint32"))
    dtype = "float32" if _dtype(value) == "bfloat16" else _dtype(value)
    if kind == "Cast":
        inner = _wide(value.value)
        return inner if _dtype(inner) == dtype else tirx.Cast(dtype, inner)
    if kind == "Call":
        return tirx.call_intrin(dtype, value.op, *map(_wide, value.args))
    return value


def _dtype(value: Any) -> str:
    return str(getattr(getattr(value, "ty", None), "dtype", ""))
