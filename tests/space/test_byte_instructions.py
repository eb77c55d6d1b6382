"""Sketches with byte instructions of x86 give code with those instructions."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from foretune import _tvm
from foretune.hardware import probe
from foretune.space import Space
from foretune.workload import Workload


def _product() -> Workload:
    """8x64 bytes times 64x32 packed bytes, in groups of 4 and lanes of 16."""
    te = _tvm.tvm.te
    x = te.placeholder((8, 64), "uint8", name="x")
    w = te.placeholder((2, 16, 16, 4), "int8", name="w")
    k, g = te.reduce_axis((0, 16), "k"), te.reduce_axis((0, 4), "g")
    y = te.compute(
        (8, 2, 16),
        lambda i, o, lane: te.sum(
            x[i, k * 4 + g].astype("int32") * w[o, k, lane, g].astype("int32"), axis=[k, g]
        ),
        name="y",
    )
    return Workload.from_module(_tvm.IRModule({"main": te.create_prim_func([x, w, y])}), "product")


@pytest.mark.parametrize("processor", ["znver4", "icelake-server"])
def test_the_space_of_a_vnni_processor_gives_code_with_vpdpbusd(processor: str) -> None:
    target = f'{{"kind": "llvm", "mcpu": "{processor}", "num-cores": 2}}'
    hardware = dataclasses.replace(probe(), target=target)
    space = Space.generate(_product(), hardware)
    (candidate,) = space.sample(np.random.default_rng(0), 1)
    built = _tvm.tvm.compile(candidate.apply(), hardware.code_target())
    assert "vpdpbusd" in built.mod.inspect_source("asm")
