"""Instructions that multiply small integers and add the products in 32 bits, exactly.

A group of neighbouring operands is multiplied with the group of each lane, and the sum is added to
the lane: the operands of one instruction lie in memory as ``[group]`` and ``[lanes, group]``. What
saturates on the way (``vpmaddubsw``) is no such instruction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretune._tvm import Target
    from foretune.hardware._hardware import Hardware

PRODUCT = "foretune.product"
"""Annotation of a block that the instruction of that name computes."""
FILLED = "filled"
"""Name of the block that fills up the data of such a block."""


@dataclass(frozen=True)
class IntegerProduct:
    """One such instruction.

    Attributes:
        name: Of the tensor intrinsic.
        features: What LLVM calls the features that a processor needs for it.
        data: Element type of the data.
        weight: Element type of the weights.
        group: Products that are added into one lane.
        lanes: Lanes of 32 bits.
    """

    name: str
    features: tuple[str, ...]
    data: str
    weight: str
    group: int
    lanes: int


_VNNI = IntegerProduct("dot_16x4_vnni", ("avx512vnni",), "uint8", "int8", 4, 16)
_AVX512 = IntegerProduct("foretune_dot_16x2", ("avx512bw",), "int16", "int16", 2, 16)
_AVX2 = IntegerProduct("foretune_dot_8x2", ("avx2",), "int16", "int16", 2, 8)
_PRODUCTS = (_VNNI, _AVX512, _AVX2)
_MADD = {
    _AVX512.name: "llvm.x86.avx512.pmaddw.d.512",
    _AVX2.name: "llvm.x86.avx2.pmadd.wd",
}
"""Products of 16-bit integers; what is multiplied here has nine bits, so that no sum overflows."""

_DESCRIPTION = """
@T.prim_func(s_tir=True)
def description(
    A: T.Buffer((2,), "int16", offset_factor=1),
    B: T.Buffer(({lanes}, 2), "int16", offset_factor=1),
    C: T.Buffer(({lanes},), "int32", offset_factor=1),
) -> None:
    with T.sblock("root"):
        T.reads(C[0:{lanes}], A[0:2], B[0:{lanes}, 0:2])
        T.writes(C[0:{lanes}])
        for i in T.serial(0, {lanes}):
            for k in T.serial(0, 2):
                with T.sblock("update"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    C[vi] = C[vi] + T.cast(A[vk], "int32") * T.cast(B[vi, vk], "int32")
"""
_IMPLEMENTATION = """
@T.prim_func(s_tir=True)
def implementation(
    A: T.Buffer((2,), "int16", offset_factor=1),
    B: T.Buffer(({lanes}, 2), "int16", offset_factor=1),
    C: T.Buffer(({lanes},), "int32", offset_factor=1),
) -> None:
    with T.sblock("root"):
        T.reads(C[0:{lanes}], A[0:2], B[0:{lanes}, 0:2])
        T.writes(C[0:{lanes}])
        pair = T.reinterpret(A.vload([0], "int16x2"), dtype="int32")
        C[T.ramp(T.int32(0), 1, {lanes})] = C.vload(
            [0], dtype="int32x{lanes}"
        ) + T.call_llvm_pure_intrin(
            T.llvm_lookup_intrinsic_id("{instruction}"),
            T.reinterpret(T.broadcast(pair, {lanes}), dtype="int16x{pairs}"),
            B.vload([0, 0], dtype="int16x{pairs}"),
            dtype="int32x{lanes}",
        )
"""


def integer_product(hardware: Hardware) -> IntegerProduct | None:
    """The best such instruction that a target has; None if it has none that is known here."""
    from foretune import _tvm

    if not hardware.has_cores:
        return None
    target, known = hardware.tvm_target(), _tvm.tvm.target.codegen
    with target:
        return next(
            (p for p in _PRODUCTS if all(known.target_has_features(f, target) for f in p.features)),
            None,
        )


def product_named(name: str, target: Target) -> IntegerProduct:
    """The instruction of that name, its tensor intrinsic registered.

    Raises:
        KeyError: There is none.
    """
    from foretune import _tvm

    product = {p.name: p for p in _PRODUCTS}[name]
    _tvm.load_intrinsics(target)
    intrinsics = _tvm.tvm.s_tir.TensorIntrin
    if name in _MADD and intrinsics.get(name, allow_missing=True) is None:
        fields = {
            "lanes": product.lanes,
            "pairs": product.lanes * product.group,
            "instruction": _MADD[name],
        }
        parse: Callable[[str], Any] = _tvm.tvm.script.from_source
        intrinsics.register(
            name, parse(_DESCRIPTION.format(**fields)), parse(_IMPLEMENTATION.format(**fields))
        )
    return product
