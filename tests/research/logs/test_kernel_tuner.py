"""Kernel Tuner's convolution and dedispersion, against what their sources do, counted by hand."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from foretune.dataset import Group, Program
from foretune.describe import BLOCK, THREAD, Access, Nests
from foretune.describe.logged import nests_of_group
from foretune_research.logs import describes, nests_of_programs

CONVOLUTION = json.dumps(["convolution_kernel", [4096, 4096]], separators=(",", ":"))
SMALL = json.dumps(["convolution_kernel", [20, 12]], separators=(",", ":"))
DEDISPERSION = json.dumps(["dedispersion_kernel", [25000, 2048, 1]], separators=(",", ":"))


def convolution(bx: int, by: int, tx: int, ty: int, **others: int) -> Program:
    configuration = {
        "block_size_x": bx,
        "block_size_y": by,
        "tile_size_x": tx,
        "tile_size_y": ty,
        "read_only": 0,
        "use_padding": 0,
        "use_shmem": 1,
        "use_cmem": 1,
        "filter_height": 15,
        "filter_width": 15,
    }
    return Program(configuration={**configuration, **others})


def dedispersion(bx: int, by: int, tx: int, ty: int, sx: int, sy: int) -> Program:
    names = ("block_size_x", "block_size_y", "tile_size_x", "tile_size_y")
    values = dict(zip(names, (bx, by, tx, ty), strict=True))
    return Program(configuration={**values, "tile_stride_x": sx, "tile_stride_y": sy})


def one(program: Program, workload: str) -> Nests:
    ((rows, nests),) = nests_of_programs([program], workload, "", "")
    assert rows.tolist() == [0]
    return nests


def reached(nests: Nests, number: int, access: Access) -> list[tuple[float, ...]]:
    """Indices of an access, in the order of execution, of the first program."""
    path = nests.statements[number].path
    extents = [int(nests.extents[0, loop]) for loop in path]
    rank = nests.buffers[access.buffer].shape.shape[1]
    found = []
    for point in itertools.product(*(range(extent) for extent in extents)):
        index = [0.0] * rank
        for t in access.terms:
            index[t.dimension] += t.coefficient[0] * (point[t.place] // t.every[0] % t.values[0])
        found.append(tuple(index))
    return found


def test_every_pixel_and_every_tap_is_computed_once():
    nests = one(convolution(4, 3, 2, 2, filter_height=3, filter_width=3), SMALL)
    copy, add, store = nests.statements
    # Blocks of 8 x 6 results: 20 x 12 pixels take 3 x 2 of them.
    pixels = reached(nests, 2, store.accesses[-1])
    assert len(set(pixels)) == len(pixels) == 24 * 12
    assert {(float(y), float(x)) for y in range(12) for x in range(20)} <= set(pixels)
    assert store.executed[0] == 20 * 12 / (24 * 12)
    # The tile of a block is 8 x 10 and filled by 3 x 3 turns of 3 x 4 threads.
    shared = nests.buffers[copy.accesses[1].buffer]
    assert shared.scope == "shared" and shared.shape[0].tolist() == [8, 10]
    filled = reached(nests, 0, copy.accesses[1])
    assert len(set(filled)) == 9 * 12
    assert copy.executed[0] == pytest.approx(8 * 10 / (9 * 12))
    # Additions: nine for each pixel of all blocks, from tiles that hold them.
    taps = reached(nests, 1, add.accesses[1])
    assert len(taps) == 24 * 12 * 9
    assert max(y for y, _ in taps) == 7 and max(x for _, x in taps) == 9
    assert add.operations[0] == 2 and add.reduces


def test_without_shared_memory_taps_come_from_the_image():
    nests = one(convolution(4, 3, 2, 2, use_shmem=0, filter_height=3, filter_width=3), SMALL)
    add, store = nests.statements
    assert {b.scope for b in nests.buffers} == {"global", "local"}
    taps = reached(nests, 0, add.accesses[1])
    assert len(taps) == 24 * 12 * 9 and max(taps) == (13.0, 25.0)
    assert nests.buffers[add.accesses[1].buffer].shape[0].tolist() == [14, 22]
    assert not store.reduces


@pytest.mark.parametrize(
    ("bx", "tx", "padding"),
    [
        # Threads that fill a row of banks need none, nor rows that are whole rows of banks apart.
        (32, 1, 0),
        (64, 2, 0),
        (18, 2, 0),
        # 16 and 14 more are 30; 46 = 16 + 30 wants two more to be 16 + 32.
        (16, 1, 18),
        (16, 2, 2),
    ],
)
def test_padding(bx, tx, padding):
    nests = one(convolution(bx, 4, tx, 1, use_padding=1), CONVOLUTION)
    shared = next(b for b in nests.buffers if b.scope == "shared")
    assert shared.shape[0, 1] == bx * tx + 14 + padding


def test_configurations_come_back_by_structure_and_row():
    programs = [convolution(16, 4, 1, 2, use_shmem=s) for s in (1, 0, 0, 1)]
    made = nests_of_programs(programs, CONVOLUTION, "", "")
    assert sorted(rows.tolist() for rows, _ in made) == [[0, 3], [1, 2]]
    assert not any(nests.approximate.any() for _, nests in made)


def test_amd_has_one_source():
    """Its kernel does not look at ``use_shmem``."""
    programs = [convolution(16, 4, 1, 2, use_shmem=s) for s in (1, 0)]
    made = {}
    for device in ("AMD Radeon PRO W7800", "NVIDIA A100-PCIE-40GB"):
        group = Group(CONVOLUTION, "", "conv2d", device, programs, np.array([1.0, 2.0]))
        made[device] = [rows.tolist() for rows, _ in nests_of_group(group)]
    assert made == {
        "AMD Radeon PRO W7800": [[0, 1]],
        "NVIDIA A100-PCIE-40GB": [[0], [1]],
    }


@pytest.mark.parametrize(("stride_x", "stride_y"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_dedispersion_reaches_every_sum_once(stride_x, stride_y):
    nests = one(dedispersion(4, 32, 2, 3, stride_x, stride_y), DEDISPERSION)
    add, store = nests.statements
    threads, blocks = nests.kinds[0] == THREAD, nests.kinds[0] == BLOCK
    assert nests.extents[0, threads].tolist() == [32, 4]
    assert nests.extents[0, blocks].tolist() == [np.ceil(2048 / 96), 25000 / 8]
    terms = {(t.dimension, t.place): t for t in store.accesses[-1].terms}
    # Of a block of 8 x 96 sums: thread and tile together reach each once.
    for dimension, thread, tile, size in ((0, 2, 5, 96), (1, 3, 4, 8)):
        pair = terms[dimension, thread], terms[dimension, tile]
        values = [
            a * pair[0].coefficient[0] + b * pair[1].coefficient[0]
            for a in range(int(pair[0].values[0]))
            for b in range(int(pair[1].values[0]))
        ]
        assert sorted(values) == list(range(size))
    strided = terms[1, 3].coefficient[0], terms[0, 2].coefficient[0]
    assert strided == (1 if stride_x else 2, 1 if stride_y else 3)
    assert store.executed[0] == pytest.approx(2048 / (22 * 96))
    assert nests.approximate.all()
    # 2,048 rows at steps of 0.02 reach less than the 650 samples that the data has more.
    by_row = [t for t in add.accesses[2].terms if t.dimension == 1 and t.place == 2]
    assert 0 < by_row[0].coefficient[0] * 2048 / (1 if stride_y else 3) < 650


def test_unknown_kernels_have_no_nests():
    program = convolution(16, 1, 1, 1)
    assert not describes([program], json.dumps(["other_kernel", [4096, 4096]]))
    assert not describes([program], "no JSON")
    assert not describes([Program(configuration={"block_size_x": 16})], CONVOLUTION)
    assert describes([program], CONVOLUTION)
    assert nests_of_programs([program], json.dumps(["other_kernel", [1, 1]]), "", "") == []
