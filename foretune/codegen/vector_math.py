"""Vector mathematics: functions of float32 as polynomials, in place of calls of the C library.

A call of ``expf`` takes one number at a time, 1 to 8 ns; polynomials take a vector, a tenth of a
nanosecond a number. Before → after, in what is scheduled::

    exp(x)               →  foretune.exp(x)
    power(x, 3)          →  foretune.power(x, 3)
    1 + erf(x * 0.7071)  →  2 * foretune.normal_cdf(x)

Names of our own live from here until TVM has vectorised and unrolled loops; then LLVM targets
expand them. They are in no program that is kept: workloads, records and databases
have TVM's, and who uses TVM beside us keeps its lowering.
Numbers of two bytes are computed in float32; float64 stays with the C library.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from foretune import _tvm
from foretune.codegen import _circular, _exponentials, _logarithms, _powers
from foretune.codegen._expressions import Names
from foretune.codegen._patterns import match_one_plus

if TYPE_CHECKING:
    from foretune._tvm import IRModule

_PREFIX = "foretune."
_FORMULAS: dict[str, Callable[..., Any]] = {
    "exp": _exponentials.exp,
    "exp2": _exponentials.exp2,
    "exp10": _exponentials.exp10,
    "log": _logarithms.log,
    "log2": _logarithms.log2,
    "log10": _logarithms.log10,
    "log1p": _logarithms.log1p,
    "tanh": _exponentials.tanh,
    "sigmoid": _exponentials.sigmoid,
    "erf": _exponentials.erf,
    "sin": _circular.sin,
    "cos": _circular.cos,
    "power": _powers.power,
    "normal_cdf": _exponentials.normal_cdf,
    "logistic_cubic": _exponentials.logistic_cubic,
}
_OWN = ("power", "normal_cdf", "logistic_cubic")
_TVM_NAMES = {f"tirx.{name}": name for name in _FORMULAS if name not in _OWN}
_TVM_NAMES |= {"tirx.pow": "power", "prim.log2": "log2"}
_PURE = 1
"""TVM's ``CallEffectKind::kPure``."""
_LEVEL = 99
_HALVES = ("float16", "bfloat16")


def vector_math(module: IRModule) -> IRModule:
    """The same module, whose tensor programs compute functions of float32 as polynomials."""
    _register()
    return _tvm.map_programs(module, _expanded)


def _expanded(function: Any) -> Any:
    def call(value: Any, mutator: Any) -> Any:
        value = mutator.default_mutate(value)
        name = _TVM_NAMES.get(str(getattr(value.op, "name", "")))
        return value if name is None else _replaced(value, name)

    def add(value: Any, mutator: Any) -> Any:
        found = match_one_plus(value)
        if found is None:
            return mutator.default_mutate(value)
        factor, name, arguments = found
        arguments = [mutator.mutate(argument) for argument in arguments]
        return _tvm.tvm.tirx.const(factor, "float32") * _called(name, arguments)

    callbacks = [(_tvm.tvm.ir.Call, call), (_tvm.tvm.tirx.Add, add)]
    return _tvm.structural_mutate(function, callbacks)


def _replaced(value: Any, name: str) -> Any:
    dtype = str(value.ty.dtype)
    if dtype in _HALVES:
        arguments = [argument.astype("float32") for argument in value.args]
        return _called(name, arguments).astype(dtype)
    return value if dtype != "float32" else _called(name, list(value.args))


def _called(name: str, arguments: list[Any]) -> Any:
    return _tvm.tvm.tirx.call_intrin("float32", _PREFIX + name, *arguments)


@cache
def _register() -> None:
    """Makes the names known to TVM, and how LLVM targets expand them: once in a process."""
    register = _tvm.tvm.ir.register_op_attr

    def expand(formula: Callable[..., Any]) -> Callable[[Any], Any]:
        def expanded(call: Any) -> Any:
            let = Names()
            return let.around(formula(let, *call.args))

        return expanded

    for name, formula in _FORMULAS.items():
        own = _PREFIX + name
        register(own, "TVectorizable", True)
        register(own, "TCallEffectKind", _PURE)
        register(own, "TScriptPrinterName", own)
        _tvm.tvm.tirx.register_intrin_lowering(own, target="llvm", f=expand(formula), level=_LEVEL)
