from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from foretune import _tvm
from foretune.describe import Nests, Statement, nests_of_program
from foretune.describe._nests import BLOCK, PARALLEL, THREAD, VECTORIZED
from foretune.errors import IllegalCandidateError
from foretune.space import Candidate, Space
from foretune.workload import Workload, catalog
from tests.describe.execution import Elements, elements, execute, iterations, normalised
from tests.space.programs import CPU, gpu, te


def softmax() -> Any:
    from tvm import topi

    a = te.placeholder((6, 20), name="A")
    return te.create_prim_func([a, topi.nn.softmax(a)])


def pooling() -> Any:
    from tvm import topi

    a = te.placeholder((1, 3, 10, 10), name="A")
    out = topi.nn.pool2d(a, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), "max")
    return te.create_prim_func([a, out])


def flipped() -> Any:
    """A convolution whose kernel is read from its end."""
    data, kernel = te.placeholder((12, 8), name="D"), te.placeholder((4, 8, 6), name="K")
    ry, rc = te.reduce_axis((0, 4), name="ry"), te.reduce_axis((0, 8), name="rc")
    out = te.compute(
        (9, 6), lambda i, o: te.sum(data[i + ry, rc] * kernel[3 - ry, rc, o], axis=[ry, rc])
    )
    return te.create_prim_func([data, kernel, out])


SMALL: dict[str, Callable[[], Any]] = {f.__name__: f for f in (softmax, pooling, flipped)}


@functools.lru_cache(maxsize=16)
def drawn(name: str, on_gpu: bool = False, most: int = 6) -> tuple[Candidate, ...]:
    workload = Workload.from_module(SMALL[name](), name) if name in SMALL else catalog.get(name)
    assert isinstance(workload, Workload)
    space = Space.generate(workload, gpu() if on_gpu else CPU)
    found = []
    for candidate in space.sample(np.random.default_rng(1), 12 * most if on_gpu else most):
        try:
            candidate.apply()
        except IllegalCandidateError:
            continue
        found.append(candidate)
    return tuple(found[:most])


def check(nests: Nests, module: Any) -> None:
    """Statements are those that are executed when the program runs."""
    expected = [store for store in execute(module) if store.computes]
    assert len(nests.statements) == len(expected)
    assert not nests.approximate.any()
    for statement, store in zip(nests.statements, expected, strict=True):
        assert iterations(nests, statement) == pytest.approx(store.times)
        assert statement.operations[0] == store.operations
        touched: dict[str, Elements] = {}
        for access in statement.accesses:
            buffer = nests.buffers[access.buffer]
            if buffer.parameter:
                # Loads of one buffer at several places are told apart by their constants.
                own = elements(nests, statement, access)
                np.testing.assert_array_equal(own, touched.setdefault(buffer.name, own))
        for name, found in touched.items():
            if store.guarded:
                # Of what is padded no more than is there, give or take the padding.
                assert found.shape[1] >= len(store.touched[name])
            elif statement.executed[0] == 1:
                np.testing.assert_array_equal(found, normalised(store.touched[name]))
            else:
                some = {tuple(each) for each in normalised(store.touched[name]).T.tolist()}
                assert some <= {tuple(each) for each in found.T.tolist()}


@pytest.mark.parametrize(
    "name",
    ["matmul:16x12x8", "matmul:13x7x11", "conv2d:1x6x6x4x8x3x1", "depthwise:1x8x8x4x3x2",
     "batch_matmul:2x6x8x4", *SMALL],
)  # fmt: skip
def test_statements_are_what_is_executed(name: str) -> None:
    for candidate in drawn(name):
        check(nests_of_program(candidate.apply()), candidate.apply())


@pytest.mark.parametrize("name", ["matmul:32x32x16", "conv2d:1x6x6x4x16x3x1"])
def test_statements_are_what_is_executed_on_gpus(name: str) -> None:
    found = drawn(name, on_gpu=True, most=3)
    assert found
    for candidate in found:
        nests = nests_of_program(candidate.apply(), candidate.hardware.target)
        assert nests.gpu
        check(nests, candidate.apply())
        kinds = {(int(k), axis) for k, axis in zip(nests.kinds[0], nests.axes, strict=True)}
        assert {(THREAD, "x"), (BLOCK, "x")} <= kinds


@pytest.mark.parametrize("name", ["matmul:16x12x8", "conv2d:1x6x6x4x8x3x1"])
def test_operations_are_those_of_the_workload(name: str) -> None:
    for candidate in drawn(name):
        nests = nests_of_program(candidate.apply())
        whole = sum(s.operations[0] * iterations(nests, s) for s in nests.statements)
        assert whole == candidate.workload.flops


def parsed(text: str) -> Any:
    return _tvm.tvm.script.from_source("\n@T.prim_func(s_tir=True)\n" + text)


def read(text: str) -> Nests:
    return nests_of_program(_tvm.IRModule({"main": parsed(text)}))


def of(nests: Nests, at: int, buffer: str) -> list[tuple[int, int, float, float, float]]:
    """Dimension, loop, coefficient, values and every of the terms of an access."""
    statement = nests.statements[at]
    (access,) = {
        access.buffer: access
        for access in statement.accesses
        if nests.buffers[access.buffer].name == buffer
    }.values()
    return [
        (t.dimension, statement.path[t.place], t.coefficient[0], t.values[0], t.every[0])
        for t in access.terms
    ]


def only(nests: Nests) -> Statement:
    (statement,) = nests.statements
    return statement


def test_a_fused_loop_has_digits_and_a_split_one_a_guard() -> None:
    nests = read("""
def main(A: T.Buffer((10, 9), "float32"), B: T.Buffer((10, 9), "float32")):
    for o in T.parallel(3, annotations={"pragma_auto_unroll_max_step": 16}):
        for i in T.vectorized(32):
            with T.sblock("b"):
                x = T.axis.spatial(10, (o * 32 + i) // 9)
                y = T.axis.spatial(9, (o * 32 + i) % 9)
                T.where(o * 32 + i < 90)
                B[x, y] = A[x, y] * T.float32(2)
""")
    assert nests.kinds.tolist() == [[PARALLEL, VECTORIZED]]
    assert only(nests).executed[0] == 90 / 96
    assert only(nests).unroll[0] == 16
    # 32 is no multiple of 9: digit by digit is close to it, and said to be.
    assert nests.approximate[0]


def test_an_intermediate_is_as_large_as_what_is_allocated() -> None:
    nests = read(
        """
def main(A: T.Buffer((32, 64), "float32"), C: T.Buffer((32, 64), "float32")):
    with T.sblock("root"):
        B = T.sblock_alloc_buffer((32, 64))
        for o in range(8):
            for i, j in T.grid(4, 64):
                with T.sblock("b"):
                    x, y = T.axis.remap("S", [j]), 0
                    r = T.axis.spatial(32, o * 4 + i)
                    B[r, x] = T.exp(A[r, x])
            for i, j in T.grid(4, 64):
                with T.sblock("c"):
                    x = T.axis.spatial(64, j)
                    r = T.axis.spatial(32, o * 4 + i)
                    C[r, x] = T.max(B[r, x], T.float32(0))
""".replace('x, y = T.axis.remap("S", [j]), 0', "x = T.axis.spatial(64, j)")
    )
    shapes = {b.name: (b.shape[0].tolist(), b.parameter) for b in nests.buffers}
    assert shapes == {"A": ([32, 64], True), "B": ([4, 64], False), "C": ([32, 64], True)}
    first, second = nests.statements
    assert (first.calls[0], first.selects[0]) == (1, 0)
    assert (second.calls[0], second.selects[0]) == (0, 1)
    assert first.path[0] == second.path[0]
    assert of(nests, 0, "B") == [(0, 1, 1, 4, 1), (1, 2, 1, 64, 1)]


def test_threads_stand_around_their_kernel_and_are_one_for_all() -> None:
    nests = read("""
def main(A: T.Buffer((8, 64), "float32"), B: T.Buffer((8, 64), "float32")):
    with T.sblock("root"):
        S = T.sblock_alloc_buffer((8, 64), scope="shared")
        for b in T.thread_binding(8, thread="blockIdx.x"):
            for k in range(2):
                for t in T.thread_binding(32, thread="threadIdx.x"):
                    with T.sblock("s"):
                        x = T.axis.spatial(8, b)
                        y = T.axis.spatial(64, k * 32 + t)
                        S[x, y] = A[x, y]
            for t in T.thread_binding(32, thread="threadIdx.x"):
                for k in range(2):
                    with T.sblock("o"):
                        x = T.axis.spatial(8, b)
                        y = T.axis.spatial(64, k * 32 + t)
                        B[x, y] = S[x, y]
""")
    assert nests.gpu
    assert nests.kinds[0, :2].tolist() == [BLOCK, THREAD]
    assert [s.path for s in nests.statements] == [(0, 1, 2), (0, 1, 3)]
    assert [(b.name, b.scope, b.shape[0].tolist()) for b in nests.buffers if not b.parameter] == [
        ("S", "shared", [1, 64])
    ]


def test_reductions_are_known_and_their_start_is_left_out() -> None:
    nests = read("""
def main(A: T.Buffer((8, 16), "float32"), B: T.Buffer((8,), "float32")):
    for i, k in T.grid(8, 16):
        with T.sblock("sum"):
            x, y = T.axis.remap("SR", [i, k])
            with T.init():
                B[x] = T.float32(0)
            B[x] = B[x] + A[x, y]
""")
    assert only(nests).reduces
    assert nests.reduction == (False, True)
    assert [a.store for a in only(nests).accesses] == [False, False, True]


def test_a_program_that_stores_constants_alone_keeps_them() -> None:
    nests = read("""
def main(A: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.sblock("zero"):
            x = T.axis.spatial(8, i)
            A[x] = T.float32(0)
""")
    assert iterations(nests, only(nests)) == 8


@pytest.mark.parametrize(
    ("index", "loads"),
    [("I[x]", {"I", "A"}), ("T.min(x * x, 7)", {"A"}), ("(x * 3 + 1) // 2", {"A"})],
)
def test_what_is_no_sum_of_digits_is_said_to_be_approximate(index: str, loads: set[str]) -> None:
    nests = read(f"""
def main(A: T.Buffer((16,), "float32"), I: T.Buffer((8,), "int32"), B: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.sblock("b"):
            x = T.axis.spatial(8, i)
            B[x] = A[{index}]
""")
    assert nests.approximate[0]
    names = {nests.buffers[a.buffer].name for a in only(nests).accesses if not a.store}
    assert names == loads


def test_loops_with_varying_extents_and_vectors_are_read() -> None:
    nests = read("""
def main(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    for i in range(4):
        for j in range(i + 1):
            with T.sblock("b"):
                T.reads(A[0:64])
                T.writes(B[0:64])
                B[T.ramp(i * 16 + j * 4, 1, 4)] = A[T.ramp(i * 16 + j * 4, 1, 4)]
""")
    assert nests.approximate[0]
    assert nests.extents[0].tolist() == [4, 4, 4]
    assert nests.kinds[0, 2] == VECTORIZED
    assert of(nests, 0, "A") == [(0, 0, 16, 4, 1), (0, 1, 4, 4, 1), (0, 2, 1, 4, 1)]


def test_the_target_says_what_a_program_without_threads_is_for() -> None:
    (candidate, *_) = drawn("matmul:16x12x8")
    module = candidate.workload.module
    assert not nests_of_program(module).gpu
    assert nests_of_program(module, '{"kind": "cuda"}').gpu
    assert not nests_of_program(module, CPU.target).gpu
    assert nests_of_program(module, _tvm.Target("nvidia/geforce-rtx-3090")).gpu


def test_a_tensor_intrinsic_is_described_by_its_vectors() -> None:
    # 16 sums of four products of bytes each.
    nests = read("""
def main(A: T.Buffer((8, 64), "int8"), B: T.Buffer((64,), "int8"), C: T.Buffer((8, 16), "int32")):
    for i in range(8):
        with T.sblock("dot"):
            T.reads(C[i, 0:16], A[i, 0:64], B[0:64])
            T.writes(C[i, 0:16])
            C[i, T.ramp(0, 1, 16)] = T.call_llvm_pure_intrin(
                "int32x16", 1, C[i, T.ramp(0, 1, 16)], A[i, T.ramp(0, 1, 64)],
                B[T.ramp(0, 1, 64)])
""")
    statement = only(nests)
    assert nests.approximate[0]
    assert statement.reduces
    assert iterations(nests, statement) * statement.operations[0] == 8 * 16 * 4 * 2
    assert of(nests, 0, "A") == [(0, 0, 1, 8, 1), (1, 1, 1, 64, 1)]
    assert of(nests, 0, "C") == [(0, 0, 1, 8, 1), (1, 1, 1, 16, 4)]
