"""Expressions of float32 and of its bits, written as LLVM's instructions.

Formulas are written once, for one number or a vector of any width. A value is the name of what an
instruction left, so that it is computed once however often it is used.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

_TYPES = {"float32": "float", "float64": "double", "int32": "i32", "bool": "i1"}
_SUFFIXES = {"float32": "f32", "float64": "f64"}
# Products and sums may become one instruction that rounds once.
_FLOATS = {"+": "fadd contract", "-": "fsub contract", "*": "fmul contract", "/": "fdiv"}
_INTEGERS = {"+": "add", "-": "sub", "*": "mul", "&": "and", "|": "or", "^": "xor"}
_INTEGERS |= {"<<": "shl", ">>": "ashr"}
_ORDERS = {"<": ("fcmp olt", "icmp slt"), ">": ("fcmp ogt", "icmp sgt")}


_ZMM = 16
"""Numbers of float32 in the widest register."""
_LENGTHS = (4, 8, 16, 32, 64)
"""Of vectors that fill registers of AVX-512, one or several."""


class Code:
    """The body of a function that is being written.

    Attributes:
        lanes: Numbers in a vector; 1 for no vector.
        avx512: Whether AVX-512 is there, in all lengths, and the vector is one of them.
        lines: Instructions so far.
        needed: Declarations of LLVM's own functions that they call.
    """

    def __init__(self, lanes: int, avx512: bool = False) -> None:
        self.lanes = lanes
        self.avx512 = avx512 and lanes in _LENGTHS
        self.lines: list[str] = []
        self.needed: set[str] = set()

    def typed(self, kind: str) -> str:
        """LLVM's name of a type: ``float`` or ``<8 x float>``."""
        scalar = _TYPES[kind]
        return scalar if self.lanes == 1 else f"<{self.lanes} x {scalar}>"

    def emit(self, kind: str, instruction: str) -> Expr:
        """Writes an instruction; returns what it leaves, of type ``kind``."""
        name = f"%v{len(self.lines)}"
        self.lines.append(f"  {name} = {instruction}")
        return Expr(self, name, kind)

    def call(self, function: str, value: Expr) -> Expr:
        """Calls one of LLVM's own functions of a float, ``floor`` for example."""
        suffix = _SUFFIXES[value.kind]
        width = suffix if self.lanes == 1 else f"v{self.lanes}{suffix}"
        typed = self.typed(value.kind)
        self.needed.add(f"declare {typed} @llvm.{function}.{width}({typed})")
        return self.emit(value.kind, f"call {typed} @llvm.{function}.{width}({typed} {value.name})")

    def constant(self, value: float, kind: str) -> Expr:
        """A number, in every lane; floats by the bits of their float64."""
        if kind == "int32":
            text = str(int(np.array(int(value) & 0xFFFFFFFF, "uint32").view("int32")))
        else:
            exact = float(np.float32(value)) if kind == "float32" else float(value)
            text = f"0x{struct.unpack('<Q', struct.pack('<d', exact))[0]:016X}"
        if self.lanes > 1:
            text = "<" + ", ".join([f"{_TYPES[kind]} {text}"] * self.lanes) + ">"
        return Expr(self, text, kind, float(value))


class Expr:
    """One number, or a vector of them.

    Attributes:
        code: Where it is computed.
        name: Of what an instruction left, or a constant as LLVM writes it.
        kind: ``"float32"``, ``"float64"``, ``"int32"`` or ``"bool"``.
        known: The number that a constant is; None for anything else.
    """

    def __init__(self, code: Code, name: str, kind: str, known: float | None = None) -> None:
        self.code, self.name, self.kind, self.known = code, name, kind, known

    def _with(self, sign: str, other: Expr) -> Expr:
        if self.kind != other.kind:
            raise TypeError(f"{self.kind} {sign} {other.kind}: convert one of them")
        names = _FLOATS if self.kind in _SUFFIXES else _INTEGERS
        typed = self.code.typed(self.kind)
        return self.code.emit(self.kind, f"{names[sign]} {typed} {self.name}, {other.name}")

    def __add__(self, other: Expr) -> Expr:
        return self._with("+", other)

    def __sub__(self, other: Expr) -> Expr:
        return self._with("-", other)

    def __mul__(self, other: Expr) -> Expr:
        return self._with("*", other)

    def __truediv__(self, other: Expr) -> Expr:
        return self._with("/", other)

    def __and__(self, other: Expr) -> Expr:
        return self._with("&", other)

    def __or__(self, other: Expr) -> Expr:
        return self._with("|", other)

    def __xor__(self, other: Expr) -> Expr:
        return self._with("^", other)

    def __lshift__(self, other: Expr) -> Expr:
        return self._with("<<", other)

    def __rshift__(self, other: Expr) -> Expr:
        return self._with(">>", other)

    def __lt__(self, other: Expr) -> Expr:
        return _compared(self, other, *_ORDERS["<"])

    def __gt__(self, other: Expr) -> Expr:
        return _compared(self, other, *_ORDERS[">"])


def _compared(one: Expr, other: Expr, floats: str, integers: str) -> Expr:
    word = floats if one.kind in _SUFFIXES else integers
    typed = one.code.typed(one.kind)
    return one.code.emit("bool", f"{word} {typed} {one.name}, {other.name}")


def number(like: Expr, value: float, kind: str = "float32") -> Expr:
    """A constant beside ``like``."""
    return like.code.constant(value, kind)


def constant_of(value: Expr) -> float | None:
    """The number that a constant is in every lane; None for anything else."""
    return value.known


def root(value: Expr) -> Expr:
    """The square root, which processors have."""
    return value.code.call("sqrt", value)


def convert(value: Expr, kind: str) -> Expr:
    """The same numbers in another type; floats lose what is behind the point."""
    words = {
        ("float32", "float64"): "fpext", ("float64", "float32"): "fptrunc",
        ("float32", "int32"): "fptosi", ("float64", "int32"): "fptosi",
        ("int32", "float32"): "sitofp", ("int32", "float64"): "sitofp",
    }  # fmt: skip
    if kind == value.kind:
        return value
    return _changed(value, words[value.kind, kind], kind)


def reinterpret(value: Expr, kind: str) -> Expr:
    """The same bits in another type of that size."""
    return _changed(value, "bitcast", kind)


def _changed(value: Expr, word: str, kind: str) -> Expr:
    code = value.code
    return code.emit(kind, f"{word} {code.typed(value.kind)} {value.name} to {code.typed(kind)}")


def select(condition: Expr, one: Expr, other: Expr) -> Expr:
    """``one`` where the condition holds; both are computed."""
    code, typed = one.code, one.code.typed(one.kind)
    choice = f"{code.typed('bool')} {condition.name}, {typed} {one.name}, {typed} {other.name}"
    return code.emit(one.kind, f"select {choice}")


def equal(one: Expr, other: Expr) -> Expr:
    """Whether two numbers are equal."""
    return _compared(one, other, "fcmp oeq", "icmp eq")


def both(one: Expr, other: Expr) -> Expr:
    """Whether both hold."""
    return one & other


def either(one: Expr, other: Expr) -> Expr:
    """Whether one of them holds."""
    return one | other


def opposite(one: Expr) -> Expr:
    """Whether it does not hold."""
    code, typed = one.code, one.code.typed("bool")
    true = "true" if code.lanes == 1 else "<" + ", ".join(["i1 true"] * code.lanes) + ">"
    return code.emit("bool", f"xor {typed} {one.name}, {true}")


def floor(value: Expr) -> Expr:
    """The next integer below, in the same type."""
    return value.code.call("floor", value)


def polynomial(x: Expr, coefficients: Sequence[float], kind: str = "float32") -> Expr:
    """Horner's rule, the constant coefficient first."""
    total = number(x, coefficients[-1], kind)
    for coefficient in reversed(coefficients[:-1]):
        total = total * x + number(x, coefficient, kind)
    return total


def at_most(x: Expr, most: float, kind: str = "float32") -> Expr:
    """The smaller of ``x`` and a constant; NaN stays."""
    return select(x > number(x, most, kind), number(x, most, kind), x)


def at_least(x: Expr, least: float, kind: str = "float32") -> Expr:
    """The larger of ``x`` and a constant; NaN stays."""
    return select(x < number(x, least, kind), number(x, least, kind), x)


def magnitude(x: Expr) -> Expr:
    """``x`` without its sign."""
    return reinterpret(reinterpret(x, "int32") & number(x, 0x7FFFFFFF, "int32"), "float32")


def with_sign_of(value: Expr, x: Expr) -> Expr:
    """A number that is not negative, with the sign of another; of zeros, too."""
    sign = reinterpret(x, "int32") & number(x, -0x80000000, "int32")
    return reinterpret(reinterpret(value, "int32") | sign, "float32")


def opposite_sign(x: Expr) -> Expr:
    """``-x``, of zeros too."""
    sign = number(x, -0x80000000, "int32")
    return reinterpret(reinterpret(x, "int32") ^ sign, "float32")


def is_nan(x: Expr) -> Expr:
    """By the bits: TVM folds a comparison of ``x`` with itself."""
    return reinterpret(magnitude(x), "int32") > number(x, 0x7F800000, "int32")


def scaled(p: Expr, n: Expr) -> Expr:
    """``p * 2**n`` for whole ``n``, also those whose power is no float32, rounded once."""
    if p.code.avx512:
        return _in_registers(p.code, "mask.scalef.ps", [p, n], rounds=True)
    n = convert(n, "int32")
    # Each factor is a normal number, and the last product rounds.
    half = n >> number(n, 1, "int32")
    return p * power_of_two(half) * power_of_two(n - half)


def reciprocal(x: Expr) -> Expr:
    """``1 / x`` to two last places, where both are normal numbers."""
    one = number(x, 1.0)
    if not x.code.avx512:
        return one / x
    # To 14 bits, and a step of Newton's: half the time of a division.
    near = _in_registers(x.code, "rcp14.ps", [x])
    return near * (one - x * near) + near


def _in_registers(code: Code, name: str, operands: Sequence[Expr], rounds: bool = False) -> Expr:
    """An instruction of AVX-512, on vectors that may be wider than a register.

    Args:
        code: Where it is computed.
        name: LLVM's, without the width.
        operands: Vectors of float32.
        rounds: Whether it takes a rounding mode in its widest form.
    """
    width = min(code.lanes, _ZMM)
    typed, mask = f"<{width} x float>", f"i{max(width, 8)}"
    symbol = f"@llvm.x86.avx512.{name}.{32 * width}"
    types, rest = [typed] * (len(operands) + 1) + [mask], f"{typed} zeroinitializer, {mask} -1"
    if rounds and width == _ZMM:
        types, rest = [*types, "i32"], f"{rest}, i32 4"  # the mode that is set
    code.needed.add(f"declare {typed} {symbol}({', '.join(types)})")
    parts = []
    for names in zip(*(_parts(operand, width) for operand in operands), strict=True):
        given = ", ".join(f"{typed} {part}" for part in names)
        parts.append(code.emit("float32", f"call {typed} {symbol}({given}, {rest})"))
    return _joined(code, parts, width)


def _parts(value: Expr, width: int) -> list[str]:
    """Names of the vectors of ``width`` that a vector consists of."""
    code = value.code
    if code.lanes == width:
        return [value.name]
    typed = code.typed(value.kind)
    return [
        code.emit(
            value.kind,
            f"shufflevector {typed} {value.name}, {typed} poison, {_places(begin, width)}",
        ).name
        for begin in range(0, code.lanes, width)
    ]


def _joined(code: Code, parts: list[Expr], width: int) -> Expr:
    """One vector of several, two at a time."""
    while len(parts) > 1:
        typed, places = f"<{width} x float>", _places(0, 2 * width)
        parts = [
            code.emit("float32", f"shufflevector {typed} {a.name}, {typed} {b.name}, {places}")
            for a, b in zip(parts[::2], parts[1::2], strict=True)
        ]
        width *= 2
    return parts[0]


def _places(begin: int, count: int) -> str:
    inside = ", ".join(f"i32 {at}" for at in range(begin, begin + count))
    return f"<{count} x i32> <{inside}>"


def power_of_two(n: Expr) -> Expr:
    """``2**n`` in float32 for integers of 32 bits from -126 to 127."""
    biased = (n + number(n, 127, "int32")) << number(n, 23, "int32")
    return reinterpret(biased, "float32")
