"""Nests of Ansor's programs beside those of the same programs made with this TVM."""

from __future__ import annotations

import importlib
import json
import math
from typing import Any

import numpy as np
import pytest

from foretune import _tvm
from foretune.describe import Nests, nests_of_program

from .ansor_programs import nests_of, tiled_for_threads, touched
from .running import executed

te, topi = _tvm.tvm.te, _tvm.tvm.topi


def tensor(name: str, *shape: int) -> Any:
    return te.placeholder(shape, name=name, dtype="float32")


def convolution(n: int, ci: int, h: int, w: int, co: int, kh: int, kw: int, s: int, p: Any) -> list:
    data, weight = tensor("data", n, ci, h, w), tensor("weight", co, ci, kh, kw)
    return [data, weight, topi.nn.conv2d_nchw(data, weight, s, p, 1, out_dtype="float32")]


def biased(n: int, h: int, w: int, co: int, ci: int, kh: int, kw: int, s: Any, p: Any) -> list:
    data, weight, _ = convolution(n, ci, h, w, co, kh, kw, s, p)
    bias = tensor("bias", 1, co, 1, 1)
    out = topi.nn.conv2d_nchw(data, weight, s, p, 1, out_dtype="float32")
    return [data, weight, bias, topi.nn.relu(out + bias)]


def product_and_sum(rows: int, inner: int, columns: int, _dtype: str) -> list:
    left, right, out = product(rows, inner, columns)
    added = tensor("added", rows, columns)
    sum_ = te.compute((rows, columns), lambda i, j: out[i, j] + added[i, j])
    return [left, right, added, sum_]


def depthwise(n: int, c: int, h: int, w: int, kh: int, kw: int, s: int, p: Any) -> list:
    data, weight = tensor("data", n, c, h, w), tensor("weight", c, 1, kh, kw)
    return [data, weight, topi.nn.depthwise_conv2d_nchw(data, weight, s, p, 1, "float32")]


def channels_last(data_shape: list, weight_shape: list, _dtype: str) -> list:
    data, weight = tensor("data", *data_shape), tensor("weight", *weight_shape)
    out = topi.nn.depthwise_conv2d_nhwc(data, weight, (1, 1), (1, 1), (1, 1), out_dtype="float32")
    return [data, weight, out]


def convolution3d(data_shape: list, weight_shape: list) -> list:
    data, weight = tensor("data", *data_shape), tensor("weight", *weight_shape)
    ones = (1, 1, 1)
    return [data, weight, topi.nn.conv3d_ncdhw(data, weight, ones, ones, ones, 1, "float32")]


def convolution2d(data_shape: list, weight_shape: list) -> list:
    data, weight = tensor("data", *data_shape), tensor("weight", *weight_shape)
    return [data, weight, topi.nn.conv2d_nchw(data, weight, 1, 1, 1, out_dtype="float32")]


def product(rows: int, inner: int, columns: int, _dtype: str = "float32") -> list:
    left, right = tensor("left", rows, inner), tensor("right", inner, columns)
    k = te.reduce_axis((0, inner), name="k")
    out = te.compute((rows, columns), lambda i, j: te.sum(left[i, k] * right[k, j], axis=k))
    return [left, right, out]


def pool(kind: str, n: int, c: int, h: int, w: int, kh: int, kw: int, s: int, p: Any) -> list:
    data = tensor("data", n, c, h, w)
    padding = importlib.import_module("tvm.topi.nn.utils").get_pad_tuple(p, (kh, kw))
    return [data, topi.nn.pool2d(data, (kh, kw), (s, s), (1, 1), padding, pool_type=kind)]


def pool_of_ones(shape: list, _dtype: str) -> list:
    return pool("avg", *shape, 1, 1, 2, "VALID")


def reduction(shape: list, axis: Any, keep: bool) -> list:
    data = tensor("data", *shape)
    return [data, topi.sum(data, axis, keep)]


def relu(*shape: Any) -> list:
    data = tensor("data", *(s for s in shape if not isinstance(s, str)))
    return [data, topi.nn.relu(data)]


def module(tensors: list) -> Any:
    return _tvm.IRModule({"main": te.create_prim_func(tensors)})


def work(nests: Nests, at: int) -> tuple:
    statement = nests.statements[at]
    return (
        executed(nests, statement)[0],
        statement.operations[0],
        statement.calls[0],
        statement.selects[0],
        statement.reduces,
        len(statement.accesses),
    )


@pytest.mark.parametrize(
    ("build", "key"),
    [
        (convolution, ["conv2d_layer", 2, 4, 9, 9, 6, 3, 3, 2, 1]),
        (convolution, ["conv2d_layer", 2, 4, 9, 9, 6, 3, 3, 2, "SAME"]),
        (convolution, ["conv2d_layer", 2, 4, 6, 6, 6, 1, 1, 1, 0]),
        (convolution, ["conv2d_layer", 2, 4, 6, 6, 6, 2, 2, 1, "SAME"]),
        (biased, ["conv2d_layer", 2, 9, 9, 6, 4, 3, 3, [2, 2], [1, 1]]),
        (product_and_sum, ["matmul_add", 6, 5, 4, "float32"]),
        (depthwise, ["depthwise_conv2d_layer", 2, 4, 9, 9, 5, 5, 2, 2]),
        (depthwise, ["depthwise_conv2d_layer", 2, 4, 9, 9, 3, 3, 2, "SAME"]),
        (channels_last, ["ansor_depthwise", [2, 5, 6, 3], [3, 2, 3, 4], "float32"]),
        (convolution2d, ["conv2d_ansor", [1, 3, 6, 6], [4, 3, 3, 3]]),
        (convolution3d, ["conv3d_ansor", [1, 3, 3, 6, 6], [4, 3, 3, 3, 3]]),
        (product, ["matmul_layer", 6, 5, 4]),
        (product, ["ansor_mm", 6, 5, 4, "float32"]),
        (product, ["matmul", 6, 5, 4, "float32"]),
        (pool, ["pool_layer", "avg", 2, 3, 9, 9, 3, 3, 2, "SAME"]),
        (pool, ["pool_layer", "avg", 2, 3, 9, 9, 3, 3, 1, 1]),
        (pool, ["pool_layer", "avg", 2, 3, 9, 9, 1, 1, 2, 0]),
        (pool, ["pool_layer", "max", 2, 3, 9, 9, 3, 3, 2, 1]),
        (pool_of_ones, ["ansor_pool2d", [2, 3, 9, 9], "float32"]),
        (reduction, ["reduction_layer", [3, 4, 5], 2, False]),
        (reduction, ["reduction_layer", [3, 4, 5, 6], [1, 3], False]),
        (reduction, ["reduction_layer", [3, 4, 5], [1], True]),
        (relu, ["relu_layer", 2, 3, 4, 5]),
        (relu, ["ansor_relu", 6, 7, "float32"]),
    ],
)
def test_computations_are_those_of_the_functions_that_the_keys_name(build, key):
    right = nests_of_program(module(build(*key[1:])), "llvm")
    found = nests_of(json.dumps(key), [])
    assert len(found.statements) == len(right.statements)
    for at in range(len(right.statements)):
        assert work(found, at) == work(right, at)
        for access in range(len(right.statements[at].accesses)):
            assert np.array_equal(touched(found, at, access), touched(right, at, access))
    for statement, other in zip(found.statements, right.statements, strict=True):
        for access, another in zip(statement.accesses, other.accesses, strict=True):
            a, b = found.buffers[access.buffer], right.buffers[another.buffer]
            assert (a.parameter, a.shape.tolist()) == (b.parameter, b.shape.tolist())


def scheduled(tensors: list, steps: list[list], inlined: bool) -> Any:
    """What Ansor's sketch for GPUs is, made with this TVM's schedule from the same lengths."""
    schedule = _tvm.tvm.s_tir.Schedule(module(tensors))
    blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
    main = blocks[-1]
    write = schedule.cache_write(main, 0, "local")
    lengths = [step[4] for step in steps if step[0] == "SP" and len(step[4]) > 1]
    tiles = [
        schedule.split(loop, [None, *length])
        for loop, length in zip(schedule.get_loops(main), lengths, strict=True)
    ]
    spatial = [tile for tile in tiles if len(tile) == 5]
    summed = [tile for tile in tiles if len(tile) == 3]
    levels = [[tile[level] for tile in spatial] for level in range(5)]
    sums = [[tile[level] for tile in summed] for level in range(3)]
    schedule.reorder(*levels[0], *levels[1], *levels[2], *sums[0], *sums[1], *levels[3], *sums[2],
                     *levels[4])  # fmt: skip
    blocks_, virtual, threads = (schedule.fuse(*levels[level]) for level in range(3))
    schedule.bind(blocks_, "blockIdx.x")
    schedule.bind(virtual, "vthread.x")
    schedule.bind(threads, "threadIdx.x")
    schedule.reverse_compute_at(write, threads)
    count = math.prod(length[1] for length in lengths if len(length) == 4)
    vectors = [step[4][0] for step in steps if step[0] == "SP" and len(step[4]) == 1]
    for number, vector in enumerate(vectors):
        copy = schedule.cache_read(main, number, "shared")
        schedule.compute_at(copy, sums[0][-1])
        inside = 3 + len(sums[0])
        fused = schedule.fuse(*schedule.get_loops(copy)[inside:])
        _, thread, lane = schedule.split(fused, [None, count, vector])
        schedule.bind(thread, "threadIdx.x")
        schedule.vectorize(lane)
    if inlined:
        schedule.compute_inline(blocks[0])
    return schedule.mod


@pytest.mark.parametrize(
    ("build", "key", "spatial", "summed", "inputs", "inlined"),
    [
        (product, ["matmul_layer", 16, 8, 8], [16, 8], [8], [(1, 2), (0, 2)], []),
        (convolution, ["conv2d_layer", 2, 4, 8, 8, 8, 3, 3, 1, 1], [2, 8, 8, 8], [4, 3, 3],
         [(2, 4), (1, 4)], [1]),
        (convolution, ["conv2d_layer", 2, 4, 9, 9, 8, 3, 3, 2, 1], [2, 8, 5, 5], [4, 3, 3],
         [(2, 4), (1, 4)], [1]),
        (depthwise, ["depthwise_conv2d_layer", 2, 8, 8, 8, 3, 3, 1, 1], [2, 8, 8, 8], [3, 3],
         [(2, 4), (1, 4)], [1]),
    ],
)  # fmt: skip
def test_tiles_of_gpus_are_those_of_the_same_schedule(build, key, spatial, summed, inputs, inlined):
    for seed in range(4):
        steps = tiled_for_threads(np.random.default_rng(seed), spatial, summed, inputs, inlined)
        found = nests_of(json.dumps(key), steps)
        right = nests_of_program(scheduled(build(*key[1:]), steps, bool(inlined)), "cuda")
        sizes = [
            sorted((b.scope, *(e for e in b.shape[0].tolist() if e > 1)) for b in n.buffers)
            for n in (found, right)
        ]
        assert sizes[0] == sizes[1], seed
        (compute,) = [at for at, s in enumerate(found.statements) if s.reduces]
        (other,) = [at for at, s in enumerate(right.statements) if s.reduces]
        assert work(found, compute) == work(right, other)
        for access in range(len(found.statements[compute].accesses)):
            assert np.array_equal(touched(found, compute, access), touched(right, other, access))
        for copies, others in (
            (found.statements[:compute], right.statements[:other]),
            (found.statements[compute + 1 :], right.statements[other + 1 :]),
        ):
            assert sorted(executed(found, s)[0] for s in copies) == pytest.approx(
                sorted(executed(right, s)[0] for s in others)
            )


def test_padding_that_is_not_read_is_not_computed():
    # Windows of 3 with stride 2 over 8 rows and a border read nine of the ten rows.
    nests = nests_of('["conv2d_layer",1,1,8,8,1,3,3,2,1]', [])
    assert nests.buffers[1].shape.tolist() == [[1, 1, 9, 9]]
