"""Cold weights are fetched ahead: which lines, where it is done, and that nothing else changes."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from foretune import _tvm
from foretune.codegen import prefetch
from foretune.codegen.prefetch import prefetch_weights
from foretune.hardware import probe
from foretune.operators.panels import convolution, panels, product
from foretune.space import Space
from foretune.workload import ColdWeights, Workload, mark_cold

HARDWARE = replace(probe(), simd_bits=256)
LANES = 8
te = _tvm.tvm.te


def placeholder(name, *shape):
    return te.placeholder(shape, dtype="float32", name=name)


def workload(operands, made, cold=(1,)):
    function = _tvm.rooted(te.create_prim_func([*operands, made]))
    marked = mark_cold(function, ColdWeights(cold, 1 << 26)) if cold else function
    return Workload.from_module(marked, "w")


def matmul(rows, inner, columns, cold=(1,), lanes=LANES):
    x, w = placeholder("x", rows, inner), placeholder("w", -(-columns // lanes), inner, lanes)
    return workload([x, w], product(x, w, columns), cold)


def conv(size, inner, outer, stride=1):
    x, w = (
        placeholder("x", 1, size, size, inner),
        placeholder("w", outer // LANES, 3, 3, inner, LANES),
    )
    return workload([x, w], convolution(x, w, outer, [stride] * 2, [1] * 4, [1] * 2))


def schedules(work, count, seed=0):
    space = Space.generate(work, HARDWARE)
    return [c.apply() for c in space.sample(np.random.default_rng(seed), count)]


def runs(module):
    with HARDWARE.code_target():
        library = _tvm.tvm.compile(module, HARDWARE.code_target())
    function = module["main"]
    rng = np.random.default_rng(0)
    shapes = [tuple(int(e) for e in p.shape) for p in function.params]
    arrays = [rng.integers(-3, 4, shape).astype("float32") for shape in shapes]
    tensors = [_tvm.tvm.runtime.tensor(array) for array in arrays]
    library["main"](*tensors)
    return tensors[-1].numpy()


@pytest.mark.parametrize(
    "work",
    [
        matmul(50, 96, 128),
        matmul(49, 60, 24),
        matmul(7, 64, 40),
        conv(7, 16, 32),
        conv(9, 12, 24, 2),
    ],
    ids=["product", "odd product", "filled up", "convolution", "strided convolution"],
)
def test_results_are_the_same_to_the_bit(work):
    changed = 0
    for module in schedules(work, 60):
        fetching = prefetch_weights(module, HARDWARE)
        if fetching is module:
            continue
        changed += 1
        if changed <= 3:
            np.testing.assert_array_equal(runs(fetching), runs(module))
    assert changed, "some of the schedules read weights several times"


def loops_and_fetches(module):
    """The loops around each fetch, and what it fetches."""
    found = []

    def visit(node, loops):
        if isinstance(node, _tvm.tvm.tirx.For):
            loops = [*loops, node]
        if isinstance(node, _tvm.tvm.tirx.Evaluate) and "foretune_fetch" in str(node):
            (load,) = [n for n in prefetch.walk(node) if isinstance(n, _tvm.tvm.ir.TensorLoad)]
            found.append((loops, load))
        for child in _tvm.children(node):
            visit(child, loops)

    visit(module["main"].body, [])
    return found


def value(expression, values):
    values = {v: _tvm.tvm.tirx.const(n, v.ty.dtype) for v, n in values.items()}
    return int(_tvm.tvm.sym.Analyzer().simplify(prefetch._substituted(expression, values)))


def fixed(rows, inner, panel_count, split):
    """A schedule with loops o, m0 | k0, m1, k1, m2, lanes, to count what is fetched in it."""
    work = matmul(rows, inner, panel_count * LANES)
    schedule = _tvm.Schedule(work.module)
    block = schedule.get_sblock("matmul")
    m, o, lane, k = schedule.get_loops(block)
    m0, m1 = schedule.split(m, [None, split])
    schedule.reorder(o, m0, k, m1, lane)
    schedule.parallel(o) if panel_count > 4 else None
    schedule.vectorize(lane)
    schedule.decompose_reduction(block, m0)
    return schedule.mod


@pytest.mark.parametrize("inner", [32, 30, 14])
def test_every_line_of_the_next_panel_is_fetched_once_in_the_passes_over_this_one(inner):
    module = prefetch_weights(fixed(60, inner, 4, 12), HARDWARE)
    fetches = loops_and_fetches(module)
    assert fetches
    rows = 64 // (4 * LANES)
    for panel in range(3):
        lines = []
        for loops, load in fetches:
            names = [loop.loop_var for loop in loops]
            extents = [int(loop.extent.value) for loop in loops]
            for places in itertools.product(*(range(e) for e in extents)):
                values = dict(zip(names, places, strict=True))
                at = [value(index, values) for index in load.indices]
                if places[0] == panel:
                    lines.append((at[0], at[1] // rows))
                    assert at[1] % rows == 0 and at[2] == 0
        inside = {line for line in lines if line[0] == panel + 1}
        assert inside == {(panel + 1, n) for n in range(inner // rows)}
        # What goes beyond are the first lines of the panel after it.
        assert {line[0] for line in lines} <= {panel + 1, panel + 2}
        passes = math.prod([5, inner])
        assert len(lines) <= passes * len(fetches)


@pytest.mark.parametrize(
    "work",
    [matmul(50, 96, 128, cold=()), matmul(1, 96, 128), matmul(600, 96, 128)],
    ids=["weights that are not cold", "one use of each", "many uses of each"],
)
def test_elsewhere_programs_stay_as_they_are(work):
    for module in schedules(work, 6):
        assert prefetch_weights(module, HARDWARE) is module


def test_the_code_has_the_instruction():
    module = prefetch_weights(fixed(60, 32, 8, 12), HARDWARE)
    target = HARDWARE.code_target()
    with target:
        code = _tvm.tvm.compile(module, target).mod.inspect_source("asm")
    assert code.count("prefetcht1") or code.count("pldl2keep")


def test_processors_whose_instruction_is_not_known_are_left_alone():
    module = fixed(60, 32, 4, 12)
    riscv = replace(HARDWARE, target='{"kind": "llvm", "mtriple": "riscv64-linux-gnu"}')
    assert prefetch_weights(module, riscv) is module
    arm = replace(HARDWARE, target='{"kind": "llvm", "mtriple": "aarch64-linux-gnu"}')
    changed = prefetch_weights(module, arm)
    assert "prfm pldl2keep" in changed["main"].script(show_meta=True)


def test_panels_hold_what_the_test_takes_them_for():
    weight = np.arange(6 * 16, dtype="float32").reshape(6, 16)
    np.testing.assert_array_equal(panels(weight, LANES)[1], weight[:, 8:])


def test_blocks_that_are_one_instruction_stay_as_they_are():
    x = te.placeholder((48, 64), "uint8", name="x")
    w = te.placeholder((8, 16, 16, 4), "int8", name="w")
    k, g = te.reduce_axis((0, 16), "k"), te.reduce_axis((0, 4), "g")

    def element(i, o, lane):
        number = x[i, k * 4 + g].astype("int32") * w[o, k, lane, g].astype("int32")
        return te.sum(number, axis=[k, g])

    made = te.compute((48, 8, 16), element, name="y")
    work = workload([x, w], made)
    target = '{"kind": "llvm", "mcpu": "znver4", "num-cores": 2}'
    hardware = replace(probe(), target=target)
    space = Space.generate(work, hardware)
    for candidate in space.sample(np.random.default_rng(0), 8):
        module = candidate.apply()
        assert "vpdpbusd" in module.script()
        assert prefetch_weights(module, hardware) is module
