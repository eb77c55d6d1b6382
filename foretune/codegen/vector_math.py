"""Vector mathematics: functions of float32 as polynomials, in place of calls of the C library.

A call of ``expf`` takes one number at a time, 1 to 8 ns; polynomials take a vector, a tenth of a
nanosecond a number. Before → after, in what is scheduled::

    exp(x)               →  foretune.exp(x)
    power(x, 3)          →  foretune.short_power(x, 3)
    1 + erf(x * 0.7071)  →  2 * foretune.normal_cdf(x)

Names of our own live from here until TVM has vectorised and unrolled loops. Then they become calls
of functions in LLVM's own language, handed to TVM with the program and inlined by LLVM. To TVM a
call is one thing; expressions it would look at again and again, minutes long where functions are
taken of functions, as it puts the definitions in place of names.
They are in no program that is kept: workloads, records and databases have TVM's, and who uses TVM
beside us keeps its lowering.
Numbers of two bytes are computed in float32; float64 stays with the C library.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Collection, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from foretune import _tvm
from foretune.codegen import _circular, _exponentials, _logarithms, _powers
from foretune.codegen._expressions import Code, Expr
from foretune.codegen._llvm import with_code
from foretune.codegen._patterns import match_one_plus

if TYPE_CHECKING:
    from foretune._tvm import IRModule
    from foretune.hardware import Hardware

_Constant = tuple[float, str]
_Used = tuple[str, tuple[_Constant | None, ...]]
"""A function, and for each of its arguments the number and type that it always has, or None.

Only arguments that a function needs to be constants count as such: others may become constants when
loops are unrolled, long after code was written for what is called.
"""
_PREFIX = "foretune."
_WIDTHS = (1, 2, 4, 8, 16, 32, 64)
"""Of vectors; those of a program's own vectorised loops are added."""
_FORMULAS: dict[str, Callable[..., Any]] = {
    "exp": _exponentials.exp,
    "exp2": _exponentials.exp2,
    "exp10": _exponentials.exp10,
    "expm1": _exponentials.expm1,
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
    "short_power": _powers.short_power,
    "normal_cdf": _exponentials.normal_cdf,
    "logistic_cubic": _exponentials.logistic_cubic,
}
_CONSTANTS = {"short_power": (1,), "logistic_cubic": (1, 2)}
"""Places of the arguments that are constants."""
_OWN = ("power", "short_power", "normal_cdf", "logistic_cubic")
_TVM_NAMES = {f"tirx.{name}": name for name in _FORMULAS if name not in _OWN}
_TVM_NAMES |= {"tirx.pow": "power", "prim.log2": "log2"}
_EXTERN = "tirx.call_pure_extern"
_LIBRARY_NAMES = {f"{name}f": name for name in _FORMULAS if name not in _OWN} | {"powf": "power"}
"""What importers call of the C library by its name."""
_PURE = 1
"""TVM's ``CallEffectKind::kPure``."""
_LEVEL = 99
_HALVES = ("float16", "bfloat16")


def vector_math(module: IRModule, hardware: Hardware) -> IRModule:
    """The same module, whose tensor programs compute functions of float32 as polynomials."""
    _register()
    avx512 = _has_avx512(hardware.target)
    return _tvm.map_programs(module, lambda function: _expanded(function, avx512))


@cache
def _has_avx512(target: str) -> bool:
    """Whether the processor has AVX-512, in all lengths."""
    has_features = _tvm.tvm.target.codegen.target_has_features
    known = _tvm.Target(json.loads(target))
    return all(has_features(feature, known) for feature in ("avx512f", "avx512vl"))


def _expanded(function: Any, avx512: bool) -> Any:
    used: set[_Used] = set()
    widths = set(_WIDTHS)

    def call(value: Any, mutator: Any) -> Any:
        value = mutator.default_mutate(value)
        name, arguments = _function_of(value)
        return value if name is None else _replaced(value, name, arguments, used)

    def add(value: Any, mutator: Any) -> Any:
        matched = match_one_plus(value)
        if matched is None:
            return mutator.default_mutate(value)
        factor, name, arguments = matched
        arguments = [mutator.mutate(argument) for argument in arguments]
        return _tvm.tvm.tirx.const(factor, "float32") * _called(name, arguments, used)

    def loop(value: Any, mutator: Any) -> Any:
        tirx = _tvm.tvm.tirx
        # A loop whose extent is not known is not vectorised.
        if value.kind == tirx.ForKind.VECTORIZED and isinstance(value.extent, tirx.IntImm):
            widths.add(int(value.extent))
        return mutator.default_mutate(value)

    callbacks = [
        (_tvm.tvm.ir.Call, call), (_tvm.tvm.tirx.Add, add), (_tvm.tvm.tirx.For, loop),
    ]  # fmt: skip
    changed = _tvm.structural_mutate(function, callbacks)
    return changed if not used else with_code(changed, _code_of(used, widths, avx512))


def _function_of(call: Any) -> tuple[str | None, list[Any]]:
    """The function of ours that a call is one of, None if of none, and its arguments."""
    name, arguments = str(getattr(call.op, "name", "")), list(call.args)
    if name != _EXTERN:
        return _TVM_NAMES.get(name), arguments
    return _LIBRARY_NAMES.get(str(getattr(arguments[0], "value", ""))), arguments[1:]


def _code_of(used: Collection[_Used], widths: Collection[int], avx512: bool) -> str:
    """LLVM's code of every function that is used, in every width."""
    functions = [
        _function(one, width, avx512) for one in sorted(used, key=str) for width in sorted(widths)
    ]
    needed = sorted({line for _, lines in functions for line in lines})
    return "\n".join([*needed, *(text for text, _ in functions)])


@cache
def _function(used: _Used, lanes: int, avx512: bool) -> tuple[str, frozenset[str]]:
    """A function's code, and the declarations it needs: written once for all candidates."""
    name, constants = used
    code = Code(lanes, avx512)
    kind = "float32"
    arguments = [
        Expr(code, f"%a{at}", kind) if value is None else code.constant(*value)
        for at, value in enumerate(constants)
    ]
    result = _FORMULAS[name](*arguments)
    typed = code.typed(kind)
    given = ", ".join(f"{typed} {a.name}" for a in arguments if a.known is None)
    text = "\n".join(
        [
            f"define {typed} @{_symbol(used, lanes)}({given}) alwaysinline {{",
            *code.lines,
            f"  ret {typed} {result.name}",
            "}",
        ]
    )
    return text, frozenset(code.needed)


def _symbol(used: _Used, lanes: int) -> str:
    """Of a function's code: its name, its constants by their bits, and its width."""
    name, constants = used
    bits = "".join(
        f"_{at}_{struct.pack('>d', value[0]).hex()}"
        for at, value in enumerate(constants)
        if value is not None
    )
    return f"foretune_{name}{bits}_x{lanes}"


def _constants(name: str, arguments: Sequence[Any]) -> tuple[_Constant | None, ...]:
    needed = _CONSTANTS.get(name, ())
    return tuple(
        _constant(argument) if at in needed else None for at, argument in enumerate(arguments)
    )


def _constant(argument: Any) -> _Constant | None:
    tirx = _tvm.tvm.tirx
    plain = argument.value if isinstance(argument, tirx.Broadcast) else argument
    return (float(plain.value), str(plain.ty.dtype)) if isinstance(plain, tirx.FloatImm) else None


def _replaced(value: Any, name: str, arguments: list[Any], used: set[_Used]) -> Any:
    dtype = str(value.ty.dtype)
    if dtype in _HALVES:
        arguments = [argument.astype("float32") for argument in arguments]
        return _called(name, arguments, used).astype(dtype)
    return value if dtype != "float32" else _called(name, arguments, used)


def _called(name: str, arguments: list[Any], used: set[_Used]) -> Any:
    if name == "power":
        exponent = _constant(arguments[1])
        name = "short_power" if exponent and _powers.is_short(exponent[0]) else name
    used.add((name, _constants(name, arguments)))
    return _tvm.tvm.tirx.call_intrin("float32", _PREFIX + name, *arguments)


@cache
def _register() -> None:
    """Makes the names known to TVM, and what they become for LLVM: once in a process."""
    register = _tvm.tvm.ir.register_op_attr

    def lower(name: str) -> Callable[[Any], Any]:
        def lowered(call: Any) -> Any:
            dtype, constants = str(call.ty.dtype), _constants(name, call.args)
            lanes = int(dtype.partition("x")[2] or 1)
            given = [a for a, known in zip(call.args, constants, strict=True) if known is None]
            symbol = _symbol((name, constants), lanes)
            return _tvm.tvm.tirx.call_pure_extern(call.ty.dtype, symbol, *given)

        return lowered

    for name in _FORMULAS:
        own = _PREFIX + name
        register(own, "TVectorizable", True)
        register(own, "TCallEffectKind", _PURE)
        register(own, "TScriptPrinterName", own)
        _tvm.tvm.tirx.register_intrin_lowering(own, target="llvm", f=lower(name), level=_LEVEL)
