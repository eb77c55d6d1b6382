"""What is rebuilt from knobs is what is read from the program that the template makes of them."""

from __future__ import annotations

from math import prod

import numpy as np

from foretune import _tvm
from foretune.describe import PARALLEL, Nests, Statement, behaviours, nests_of_program
from foretune.hardware import device
from foretune_research.logs import nests_of_programs

from .running import program, workload

# conv2d_NCHWc.x86 of 1x16x10x10 by 32x16x3x3, padded by 1: tile_ic 8, tile_oc 16, tile_ow 5,
# unroll_kw, written down by hand.
PROGRAM = """
@T.prim_func(s_tir=True)
def main(data: T.Buffer((1, 2, 10, 10, 8), "float32"),
         weights: T.Buffer((2, 2, 3, 3, 8, 16), "float32"),
         out: T.Buffer((1, 2, 10, 10, 16), "float32")):
    padded = T.alloc_buffer((1, 2, 12, 12, 8), "float32")
    total = T.alloc_buffer((1, 2, 10, 10, 16), "float32")
    for f in T.parallel(24):
        for w in range(12):
            for c in T.vectorized(8):
                with T.sblock("pad"):
                    vc = T.axis.spatial(2, f // 12)
                    vh = T.axis.spatial(12, f % 12)
                    vw, vi = T.axis.remap("SS", [w, c])
                    padded[0, vc, vh, vw, vi] = T.if_then_else(
                        1 <= vh and vh < 11 and 1 <= vw and vw < 11,
                        data[0, vc, vh - 1, vw - 1, vi], T.float32(0))
    for f in T.parallel(20):
        for o in range(2):
            for b in T.unroll(5):
                for c in T.vectorized(16):
                    with T.sblock("init"):
                        vo = T.axis.spatial(2, f // 10)
                        vh = T.axis.spatial(10, f % 10)
                        vw = T.axis.spatial(10, o * 5 + b)
                        vb = T.axis.spatial(16, c)
                        total[0, vo, vh, vw, vb] = T.float32(0)
            for i, y, j in T.grid(2, 3, 8):
                for x in T.unroll(3):
                    for b in T.unroll(5):
                        for c in T.vectorized(16):
                            with T.sblock("sum"):
                                vo = T.axis.spatial(2, f // 10)
                                vh = T.axis.spatial(10, f % 10)
                                vw = T.axis.spatial(10, o * 5 + b)
                                vb = T.axis.spatial(16, c)
                                vc, vy, vi, vx = T.axis.remap("RRRR", [i, y, j, x])
                                total[0, vo, vh, vw, vb] = total[0, vo, vh, vw, vb] + padded[
                                    0, vc, vh + vy, vw + vx, vi] * weights[vo, vc, vy, vx, vi, vb]
            for b in range(5):
                for c in T.vectorized(16):
                    with T.sblock("copy"):
                        vo = T.axis.spatial(2, f // 10)
                        vh = T.axis.spatial(10, f % 10)
                        vw = T.axis.spatial(10, o * 5 + b)
                        vb = T.axis.spatial(16, c)
                        out[0, vo, vh, vw, vb] = total[0, vo, vh, vw, vb]
"""


def loops(nests: Nests, statement: Statement) -> list[tuple]:
    """Parallel iterations, then the other loops of more than one."""
    rows = [(nests.kinds[0, at], nests.extents[0, at], nests.reduction[at])
            for at in statement.path]  # fmt: skip
    parallel = prod(extent for kind, extent, _ in rows if kind == PARALLEL)
    return [parallel, *(row for row in rows if row[0] != PARALLEL and row[1] > 1)]


def addresses(nests: Nests, statement: Statement) -> dict[str, list[int]]:
    """Flat addresses that each iteration loads and stores, of arrays that no program compacts."""
    extents = nests.extents[0, list(statement.path)].astype(int)
    cells = np.indices(extents).reshape(len(extents), -1)
    found = {}
    for access in statement.accesses:
        buffer = nests.buffers[access.buffer]
        if buffer.name == "total":
            continue
        index = np.zeros((buffer.shape.shape[1], cells.shape[1]), int)
        for term in access.terms:
            step = cells[term.place] // term.every[0] % term.values[0]
            index[term.dimension] += (term.coefficient[0] * step).astype(int)
        found[buffer.name] = np.ravel_multi_index(index, buffer.shape[0].astype(int)).tolist()
    return found


def test_a_packed_convolution_is_as_the_program_says():
    function = _tvm.tvm.script.from_source(PROGRAM)
    theirs = nests_of_program(_tvm.IRModule({"main": function}), "llvm")
    key = workload("conv2d_NCHWc.x86", [1, 16, 10, 10], [32, 16, 3, 3], [1, 1], [1] * 4, [1, 1])
    one = program(tile_ic=(8,), tile_oc=(16,), tile_ow=(5,), unroll_kw=1)
    ((_, ours),) = nests_of_programs([one], key, "", "conv2d")
    assert len(ours.statements) == len(theirs.statements) == 3
    for mine, other in zip(ours.statements, theirs.statements, strict=True):
        assert loops(ours, mine) == loops(theirs, other)
        touched, right = addresses(ours, mine), addresses(theirs, other)
        if mine.selects:
            # The border reads nothing, so that only which elements are read is comparable.
            assert set(touched.pop("data")) == set(right.pop("data")) == set(range(1600))
        assert touched == right
        for name in ("operations", "calls", "selects", "unroll", "reduces", "executed"):
            assert getattr(mine, name) == getattr(other, name)
    shapes = [
        {buffer.name: prod(buffer.shape[0]) for buffer in nests.buffers} for nests in (ours, theirs)
    ]
    assert shapes[0].keys() == shapes[1].keys()
    machine = device("ryzen-3700x")
    first, second = behaviours(ours, machine), behaviours(theirs, machine)
    np.testing.assert_allclose(first.seconds, second.seconds, rtol=0.02)
    np.testing.assert_allclose(first.scores, second.scores, atol=0.05)
