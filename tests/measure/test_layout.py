"""Measurement processes lay out their memory alike."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from foretune.measure._layout import fixed_addresses, host_tensor

_PERSONALITY = "import ctypes; print(ctypes.CDLL(None).personality(0xFFFFFFFF) & 0x0040000)"
_ADDRESS = (
    "import mmap, numpy; print(numpy.frombuffer(mmap.mmap(-1, 1 << 20), numpy.uint8).ctypes.data)"
)


def _child(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout


def _allowed() -> bool:
    with fixed_addresses():
        return int(_child(_PERSONALITY)) != 0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux only")
def test_children_are_not_randomised_and_the_parent_stays_as_it_was() -> None:
    if not _allowed():
        pytest.skip("this container's system-call filter forbids it")
    before = int(_child(_PERSONALITY))
    with fixed_addresses():
        addresses = {_child(_ADDRESS) for _ in range(3)}
    assert len(addresses) == 1
    assert int(_child(_PERSONALITY)) == before


def test_the_parent_is_restored_after_an_error() -> None:
    before = int(_child(_PERSONALITY))
    with pytest.raises(RuntimeError), fixed_addresses():
        raise RuntimeError
    assert int(_child(_PERSONALITY)) == before


@pytest.mark.parametrize(
    "dtype", ["float32", "float16", "float64", "int8", "uint8", "int32", "int64", "bool"]
)
@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (64, 1024)])
def test_a_host_tensor_holds_the_values_and_starts_at_the_same_place_of_a_page(
    dtype: str, shape: tuple[int, ...]
) -> None:
    values = np.asarray(np.random.default_rng(0).integers(0, 2, shape)).astype(dtype)
    tensor = host_tensor(values)
    assert tuple(tensor.shape) == shape
    assert str(tensor.dtype) == dtype
    np.testing.assert_array_equal(tensor.numpy(), values)
    if dtype != "bool":
        assert np.from_dlpack(tensor).ctypes.data % 4096 == 64


def test_a_host_tensor_may_be_empty_or_not_contiguous() -> None:
    assert host_tensor(np.empty((0, 4), np.float32)).shape[0] == 0
    values = np.arange(12, dtype=np.float32).reshape(3, 4).T
    np.testing.assert_array_equal(host_tensor(values).numpy(), values)
