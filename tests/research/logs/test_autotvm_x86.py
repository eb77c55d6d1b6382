"""Programs of AutoTVM's templates for CPUs compute the operator, and count as it does."""

from __future__ import annotations

import numpy as np
import pytest

from foretune.dataset import Program
from foretune_research.logs import nests_of_programs

from .running import conv, executed, program, run, workload

COMMON = ([2, 4, 7, 8], [6, 4, 3, 3], [1, 1], [0, 0, 0, 0], [1, 1])
STRIDED = ([1, 4, 9, 9], [6, 4, 3, 2], [2, 1], [1, 0, 1, 1], [1, 2])
ONE = ([1, 6, 4, 6], [8, 6, 1, 1], [1, 1], [0, 0, 0, 0], [1, 1])
ONE_STRIDED = ([2, 6, 7, 7], [8, 6, 1, 1], [2, 2], [0, 0, 0, 0], [1, 1])
DEPTHWISE = ([2, 8, 6, 8], [8, 1, 3, 3], [1, 1], [1, 1, 1, 1], [1, 1])


def packed(array: np.ndarray, block: int) -> np.ndarray:
    """NCHW → NCHW[block]c."""
    n, c, h, w = array.shape
    return array.reshape(n, c // block, block, h, w).transpose(0, 1, 3, 4, 2)


def packed_weights(array: np.ndarray, ic: int, oc: int) -> np.ndarray:
    """OIHW → OIHW[ic]i[oc]o."""
    o, i, h, w = array.shape
    return array.reshape(o // oc, oc, i // ic, ic, h, w).transpose(0, 2, 4, 5, 3, 1)


@pytest.mark.parametrize(
    ("template", "shape", "knobs"),
    [
        ("conv2d_NCHWc.x86", COMMON, {"unroll_kw": [0, 1]}),
        ("conv2d_NCHWc.x86", STRIDED, {"unroll_kw": [1]}),
        ("conv2d_NCHWc.x86", ONE, {"tile_oh": [1, 2]}),
        ("conv2d_NCHWc.x86", ONE_STRIDED, {"tile_oh": [1, 2]}),
        ("depthwise_conv2d_NCHWc.x86", DEPTHWISE, {"unroll_kw": [0, 1]}),
    ],
)
def test_packed_convolutions_compute_the_operator(template, shape, knobs):
    data, weights, stride, pad, dilation = shape
    draw = np.random.default_rng(0)
    x, w = draw.normal(size=data), draw.normal(size=weights)
    border = np.pad(x, [(0, 0), (0, 0), (pad[0], pad[2]), (pad[1], pad[3])])
    right = conv(border, w, stride, dilation)
    ow = right.shape[-1]
    ((name, values),) = knobs.items()
    configs = [
        (ic, oc, tile, value)
        for ic in (1, 2, data[1]) for oc in (1, 2, weights[0]) for tile in (1, 2, ow)
        for value in values if ow % tile == 0
    ]  # fmt: skip
    configs = [configs[at] for at in draw.permutation(len(configs))[:12]]
    key = workload(template, *shape, "NCHW", "NCHW", "float32")
    programs = [
        program(tile_ic=(ic,), tile_oc=(oc,), tile_ow=(tile,), **{name: value})
        for ic, oc, tile, value in configs
    ]
    seen = []
    for rows, nests in nests_of_programs(programs, key, "", "conv2d"):
        assert not nests.approximate.any() and not nests.gpu
        for at, row in enumerate(rows.tolist()):
            ic, oc, *_ = configs[row]
            numbers = {buffer.name: at for at, buffer in enumerate(nests.buffers)}
            given = {numbers["data"]: packed(x, ic)}
            if "padded" in numbers:
                given[numbers["padded"]] = packed(border, ic)
            if weights[1] == 1:
                given[numbers["weights"]] = packed_weights(w, 1, oc)[:, 0, :, :, 0]
            else:
                given[numbers["weights"]] = packed_weights(w, ic, oc)
            made = run(nests, at, given)[numbers["out"]]
            np.testing.assert_allclose(made, packed(right, oc), atol=1e-9)
            seen.append(row)
    assert sorted(seen) == list(range(len(configs)))


def test_a_cut_tile_counts_as_what_is_in_it():
    # 7 columns in tiles of 4 and 7 rows in pairs: 8 * 8 iterations, of which 7 * 7 count.
    key = workload("conv2d_NCHWc.x86", [1, 4, 7, 7], [8, 4, 1, 1], [1, 1], [0] * 4, [1, 1])
    one = program(tile_ic=(2,), tile_oc=(4,), tile_ow=(4,), tile_oh=2)
    ((rows, nests),) = nests_of_programs([one], key, "", "conv2d")
    assert rows.tolist() == [0]
    total, copy = nests.statements
    assert executed(nests, total) == pytest.approx(7 * 7 * 8 * 4)
    assert executed(nests, copy) == pytest.approx(7 * 7 * 8)


def test_padding_reads_the_whole_input_once():
    key = workload("conv2d_NCHWc.x86", [1, 4, 5, 6], [8, 4, 3, 3], [1, 1], [1, 2, 1, 0], [1, 1])
    one = program(tile_ic=(2,), tile_oc=(4,), tile_ow=(2,), unroll_kw=1)
    ((_, nests),) = nests_of_programs([one], key, "", "conv2d")
    pad = nests.statements[0]
    load, store = pad.accesses
    touched = {}
    for access in (load, store):
        cells = np.indices(nests.extents[0, list(pad.path)].astype(int)).reshape(len(pad.path), -1)
        index = np.zeros((nests.buffers[access.buffer].shape.shape[1], cells.shape[1]))
        for term in access.terms:
            index[term.dimension] += term.coefficient[0] * (
                cells[term.place] // term.every[0] % term.values[0]
            )
        touched[access.store] = {tuple(column) for column in index.T}
        assert (index.max(axis=1) == nests.buffers[access.buffer].shape[0] - 1).all()
    assert len(touched[False]) == 4 * 5 * 6
    assert len(touched[True]) == 4 * 7 * 8
    assert pad.selects == 1


def test_programs_with_other_knobs_are_in_none():
    key = workload("conv2d_NCHWc.x86", [1, 4, 5, 5], [8, 4, 3, 3], [1, 1], [0] * 4, [1, 1])
    good = program(tile_ic=(2,), tile_oc=(4,), tile_ow=(1,), unroll_kw=1)
    uneven = program(tile_ic=(3,), tile_oc=(4,), tile_ow=(1,), unroll_kw=1)
    lacks = program(tile_ic=(2,), tile_oc=(4,), unroll_kw=1)
    zero = program(tile_ic=(0,), tile_oc=(4,), tile_ow=(1,), unroll_kw=1)
    made = nests_of_programs([uneven, good, lacks, zero, Program(actions=())], key, "", "conv2d")
    assert [rows.tolist() for rows, _ in made] == [[1]]


@pytest.mark.parametrize(
    "key",
    [
        "no json",
        '["conv2d_of_tomorrow", []]',
        '["conv2d_NCHWc.x86", []]',
        '["conv2d_NCHWc.x86", [["TENSOR", [1, 4, 5], "float32"], 3, 1, 1, 1]]',
        "[1, 2]",
        "3",
    ],
)
def test_of_what_is_not_known_nothing_is_said(key):
    one = program(tile_ic=(2,), tile_oc=(4,), tile_ow=(1,), unroll_kw=1)
    assert nests_of_programs([one], key, "", "conv2d") == []
