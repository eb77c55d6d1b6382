"""Measurement processes lay out their memory alike."""

from __future__ import annotations

import contextlib
import json
import logging
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretune.hardware import Hardware
from foretune.measure import LocalMeasurer, MeasurePolicy
from foretune.measure._layout import fixed_addresses, host_tensor
from foretune.measure.transport import processes
from tests.measure.misbehaviour import BUILDER, Trick, TrickSketch
from tests.measure.programs import matmul

pytestmark = pytest.mark.machine

_NO_RANDOMIZE = 0x0040000
_PERSONALITY = f"import ctypes; print(ctypes.CDLL(None).personality(0xFFFFFFFF) & {_NO_RANDOMIZE})"
_ALLOWED = f"""
import ctypes
libc = ctypes.CDLL(None)
libc.personality(libc.personality(0xFFFFFFFF) | {_NO_RANDOMIZE})
print(libc.personality(0xFFFFFFFF) & {_NO_RANDOMIZE})
"""
_ADDRESS = (
    "import mmap, numpy; print(numpy.frombuffer(mmap.mmap(-1, 1 << 20), numpy.uint8).ctypes.data)"
)
# What a process frees makes the allocator raise the size from which it maps pages of their own,
# and what it keeps of freed memory would be handed out again.
_ALLOCATIONS = """
import ctypes, json
from foretune.measure._layout import give_back_freed_memory, give_large_allocations_own_pages

libc = ctypes.CDLL(None)
libc.malloc.restype = libc.aligned_alloc.restype = libc.sbrk.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.aligned_alloc.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
libc.sbrk.argtypes = [ctypes.c_ssize_t]
libc.free.argtypes = [ctypes.c_void_p]
give_large_allocations_own_pages()
libc.free(libc.malloc(24 << 20))
blocks = (ctypes.c_void_p * 512)()
for index in range(512):
    blocks[index] = libc.malloc(32 << 10)
full = libc.sbrk(0)
for index in range(512):
    libc.free(blocks[index])
kept = libc.sbrk(0)
give_back_freed_memory()
offsets = [libc.aligned_alloc(64, megabytes << 20) % 4096 for megabytes in (2, 3, 5, 8)]
print(json.dumps({"full": full, "kept": kept, "left": libc.sbrk(0), "offsets": offsets}))
"""


def _child(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout


@pytest.fixture(scope="module")
def allowed() -> bool:
    """Whether the system lets a process switch randomisation off, asked of the system itself."""
    return sys.platform.startswith("linux") and int(_child(_ALLOWED)) != 0


@pytest.fixture(scope="module")
def measurer(hardware: Hardware) -> Iterator[LocalMeasurer]:
    with LocalMeasurer(hardware, MeasurePolicy(workers=2)) as measurer:
        yield measurer


def test_children_are_not_randomised_and_the_parent_stays_as_it_was(allowed: bool) -> None:
    if not allowed:
        pytest.skip("this container's system-call filter forbids it")
    before = int(_child(_PERSONALITY))
    with fixed_addresses() as fixed:
        addresses = {_child(_ADDRESS) for _ in range(3)}
    assert fixed
    assert len(addresses) == 1
    assert int(_child(_PERSONALITY)) == before


def test_the_parent_is_restored_after_an_error() -> None:
    before = int(_child(_PERSONALITY))
    with pytest.raises(RuntimeError), fixed_addresses():
        raise RuntimeError
    assert int(_child(_PERSONALITY)) == before


def test_measurement_processes_are_not_randomised_where_that_is_allowed(
    measurer: LocalMeasurer, allowed: bool
) -> None:
    assert measurer.environment()["fixed_addresses"] is allowed
    for pid in measurer.pids:
        try:
            personality = int(Path(f"/proc/{pid}/personality").read_text(), 16)
        except PermissionError:
            pytest.skip("another process's personality may not be read here")
        assert bool(personality & _NO_RANDOMIZE) is allowed


def test_measurement_processes_hash_alike(measurer: LocalMeasurer) -> None:
    for pid in measurer.pids:
        assert b"PYTHONHASHSEED=0" in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


def test_randomised_measurement_processes_are_told_once(
    hardware: Hardware, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if int(_child(_PERSONALITY)):
        pytest.skip("the tests themselves run without randomisation")

    @contextlib.contextmanager
    def without_effect() -> Iterator[bool]:
        yield True

    monkeypatch.setattr(processes, "fixed_addresses", without_effect)
    policy = MeasurePolicy(workers=1, budget_s=0.01, max_rereads=0)
    sketch = TrickSketch(matmul(32), hardware)
    with caplog.at_level(logging.WARNING), LocalMeasurer(hardware, policy, BUILDER) as measurer:
        for number in range(2):
            ((_, result),) = measurer.measure([Trick(sketch, "good", number)])
            assert result.ok
        assert measurer.environment()["fixed_addresses"] is False
    assert caplog.text.count("randomised addresses") == 1


@pytest.fixture(scope="module")
def allocations() -> dict[str, Any]:
    if platform.libc_ver()[0] != "glibc":
        pytest.skip("the GNU allocator only")
    found: dict[str, Any] = json.loads(_child(_ALLOCATIONS))
    return found


def test_large_allocations_start_at_the_same_place_of_a_page(allocations: dict[str, Any]) -> None:
    assert allocations["offsets"] == [64] * 4


def test_freed_memory_is_kept_for_the_compiler_until_it_is_asked_back(
    allocations: dict[str, Any],
) -> None:
    assert allocations["kept"] == allocations["full"]
    assert allocations["left"] < allocations["full"] - (8 << 20)


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


def test_a_host_tensor_lies_in_private_memory() -> None:
    tensor = host_tensor(np.ones((64, 1024), np.float32))
    address = np.from_dlpack(tensor).ctypes.data
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, permissions, *_ = line.split()
        begin, end = (int(bound, 16) for bound in span.split("-"))
        if begin <= address < end:
            assert permissions.endswith("p")
            return
    raise AssertionError("the tensor lies nowhere")


def test_a_host_tensor_may_be_empty_or_not_contiguous() -> None:
    assert host_tensor(np.empty((0, 4), np.float32)).shape[0] == 0
    values = np.arange(12, dtype=np.float32).reshape(3, 4).T
    np.testing.assert_array_equal(host_tensor(values).numpy(), values)
