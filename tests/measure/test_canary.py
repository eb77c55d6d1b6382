"""What the canary computes and how much memory it touches; not how fast it is."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from foretune import _tvm
from foretune._arrays import Array
from foretune.hardware import Hardware
from foretune.measure._canary import build_canary, row_length


def _run(hardware: Hardware, rows: list[float]) -> tuple[list[Array], int]:
    """The arguments after a call in which each row of ``a`` held one value; and the depth."""
    program, arrays = build_canary(hardware)
    for row, value in enumerate(rows):
        arrays[0][row] = value
    tensors = [_tvm.tvm.runtime.tensor(array) for array in arrays]
    program["main"](*tensors)
    return [tensor.numpy() for tensor in tensors], len(arrays[1])


def test_one_thread_exchanges_nothing(hardware: Hardware) -> None:
    (_a, _b, c), depth = _run(replace(hardware, threads=1), [2.0])
    np.testing.assert_array_equal(c, np.full(c.shape, 2.0 * 0.5 * depth))


@pytest.mark.parametrize("l2_bytes", [256 << 10, 1 << 20, 4 << 20])
def test_two_threads_pass_their_sums_back_and_forth(hardware: Hardware, l2_bytes: int) -> None:
    (_a, _b, c, d), depth = _run(replace(hardware, threads=2, l2_bytes=l2_bytes), [1.0, 2.0])
    # Every exchange halves; the last one wrote c, from what the neighbour had written into d.
    np.testing.assert_array_equal(d, 2 * c[::-1])
    np.testing.assert_array_equal(c[1], 2 * c[0])
    assert len(np.unique(c[0])) == 1
    exchanges = math.log2(0.5 * depth / c[0].flat[0])
    assert exchanges == int(exchanges) >= 4


@pytest.mark.parametrize(
    ("l2_bytes", "elements"),
    [
        (128 << 10, 4096),
        (256 << 10, 4096),
        (512 << 10, 8192),
        (1 << 20, 16384),
        (2 << 20, 32768),
        (64 << 20, 32768),
        (0, 8192),
    ],
)
def test_rows_leave_half_of_the_second_level_cache(
    hardware: Hardware, l2_bytes: int, elements: int
) -> None:
    assert row_length(replace(hardware, l2_bytes=l2_bytes)) == elements


@pytest.mark.parametrize("l2_bytes", [256 << 10, 1280 << 10, 2 << 20])
def test_what_a_thread_touches_fits_half_of_the_second_level_cache(
    hardware: Hardware, l2_bytes: int
) -> None:
    _, arrays = build_canary(replace(hardware, threads=2, l2_bytes=l2_bytes))
    a, _b, c, d = (array.nbytes // 2 for array in arrays)
    assert a + 2 * c + 2 * d <= l2_bytes // 2


def test_the_work_is_the_same_however_long_the_rows_are(hardware: Hardware) -> None:
    for l2_bytes in (256 << 10, 1 << 20, 4 << 20):
        _, arrays = build_canary(replace(hardware, threads=1, l2_bytes=l2_bytes))
        assert arrays[0].size * arrays[1].size == 128 * 32768
