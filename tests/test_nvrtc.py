"""CUDA source without the headers that it has no use for."""

from __future__ import annotations

import numpy as np
import pytest

from foretune import _nvrtc, _tvm
from foretune.hardware import preset
from foretune.space import Space
from foretune.workload import Workload

_HEADERS = """
#ifdef __CUDACC_RTC__
  #include <cuda/std/cstdint>
  #include <cuda/std/type_traits>
#else
  #include <cstdint>
  #include <cuda.h>
#endif
"""
_KERNEL = 'extern "C" __global__ void __launch_bounds__(32) f(float* x, uint8_t* y) { x[0] = 1; }\n'


def _product(dtype: str) -> str:
    te = _tvm.tvm.te
    a, b = (te.placeholder((64, 64), dtype, name=name) for name in "ab")
    axis = te.reduce_axis((0, 64), name="k")
    c = te.compute((64, 64), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), name="c")
    workload = Workload.from_module(te.create_prim_func([a, b, c]), "product")
    space = Space.generate(workload, preset("h100"))
    with space.hardware.tvm_target() as target:
        built = _tvm.tvm.compile(space.untuned.apply(), target)
    return str(built.mod.imports[0].inspect_source())


def test_what_a_float_kernel_does_not_need_goes_and_the_kernel_stays() -> None:
    source = _product("float32")
    short = _nvrtc.shortened(source)
    assert short is not None
    assert "#include" in source and "#include" not in short and "std::" not in short
    kernels = source[source.index('extern "C"') :]
    assert short.endswith(kernels)


def test_a_kernel_of_half_precision_keeps_its_headers() -> None:
    source = _product("float16")
    assert "half" in source
    assert _nvrtc.shortened(source) is None


@pytest.mark.parametrize(
    "more",
    ["#include <mma.h>\n", "std::is_same<int, int> s;\n", "CUtensorMap m;\n", '__asm__("");\n'],
)
def test_what_names_something_of_the_headers_keeps_them(more: str) -> None:
    assert _nvrtc.shortened(_HEADERS + _KERNEL) is not None
    assert _nvrtc.shortened(_HEADERS + more + _KERNEL) is None


def test_source_without_the_known_headers_is_left_to_tvm() -> None:
    assert _nvrtc.shortened(_KERNEL) is None


def test_tvms_own_function_stays_where_the_user_chose_a_compiler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TVM_CUDA_COMPILE_MODE", "nvcc")

    class Nothing:
        def __getattr__(self, name: str) -> None:
            raise AssertionError(f"{name} is asked for")

    _nvrtc.use_short_sources(Nothing(), Nothing())


def test_a_short_source_becomes_a_cubin() -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-bindings and NVRTC")
    short = _nvrtc.shortened(_HEADERS + _KERNEL)
    assert short is not None
    with preset("h100").tvm_target():
        try:
            cubin = _nvrtc._compile(short, _tvm.tvm.support.nvcc)
        except RuntimeError as error:
            pytest.skip(f"NVRTC is not here: {error}")
        broken = _nvrtc._compile(short + "no such thing;", _tvm.tvm.support.nvcc)
    assert cubin is not None and np.frombuffer(cubin[:4], np.uint8).tolist() == [127, 69, 76, 70]
    assert broken is None
