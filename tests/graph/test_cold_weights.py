"""Which weights of a network are cold, and that kernels are timed with them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from foretune import _tvm
from foretune.graph import extract
from foretune.hardware import Hardware
from foretune.measure import LocalMeasurer, MeasurePolicy, Status
from foretune.measure._buffers import Buffers, compute_reference
from foretune.measure.gate import Parameter, Signature
from foretune.space import Space
from foretune.workload import ColdWeights, Model, Workload, from_object

torch = pytest.importorskip("torch")


def _workloads(module: torch.nn.Module, shape: Sequence[int], hardware: Hardware) -> list[Workload]:
    torch.manual_seed(0)
    model = from_object((module.eval(), (torch.randn(*shape),)))
    assert isinstance(model, Model)
    return extract(model, hardware).workloads


class _Twice(torch.nn.Module):
    """One product with a weight, and another with what the first one gave."""

    def __init__(self, size: int, same: bool) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(size, size))
        self.same = same

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = torch.relu(x @ self.weight)
        return first @ torch.relu(first) if self.same else first @ self.weight


def test_a_large_weight_is_cold_and_a_small_one_is_not(hardware: Hardware) -> None:
    large = _workloads(torch.nn.Linear(256, 512), (4, 256), hardware)
    assert [w.cold for w in large] == [ColdWeights((1,), 1 << 20)]
    small = _workloads(torch.nn.Linear(64, 64), (4, 64), hardware)
    assert [w.cold for w in small] == [None]


def test_it_is_as_far_away_as_the_network_is_large(hardware: Hardware) -> None:
    layers = [torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024)]
    found = _workloads(torch.nn.Sequential(*layers), (4, 1024), hardware)
    assert {w.cold and w.cold.between_bytes for w in found} == {16 << 20}


def test_what_is_computed_is_warm_in_each_call(hardware: Hardware) -> None:
    """Of two calls of one program: in both the weight is constant, or it is in one only."""
    both = _workloads(_Twice(256, same=False), (256, 256), hardware)
    assert all(w.cold is not None for w in both)
    one = _workloads(_Twice(256, same=True), (256, 256), hardware)
    assert {w.cold is None for w in one} == {True, False}


def test_a_program_with_cold_weights_is_another_workload(hardware: Hardware) -> None:
    (found,) = _workloads(torch.nn.Linear(256, 512), (4, 256), hardware)
    alone = Workload.from_module(found.module["main"].without_attr("foretune.cold"), "alone")
    assert alone.cold is None and alone.key != found.key
    assert Workload.from_module(found.module, "again").cold == found.cold


@pytest.fixture
def product(hardware: Hardware, tmp_path: Path) -> tuple[Workload, Signature, str]:
    (workload,) = _workloads(torch.nn.Linear(256, 512), (4, 256), hardware)
    path = tmp_path / "reference"
    path.touch()
    found = compute_reference(workload, hardware.tvm_target(), str(path))
    return workload, Signature.from_json(found["signature"]), str(path)


def test_calls_find_other_weights_of_the_same_values(
    product: tuple[Workload, Signature, str],
) -> None:
    workload, signature, path = product
    buffers = Buffers(signature, path, workload.key, _tvm.tvm.cpu(0))
    sets = list(buffers.turns.take(3))
    weights = [np.from_dlpack(tensors[1]) for tensors in sets]
    # Half a MiB of weights in a network of one: two sets, then the first again.
    assert weights[0].ctypes.data == weights[2].ctypes.data != weights[1].ctypes.data
    np.testing.assert_array_equal(weights[0], weights[1])
    for at in (0, 2, 3):
        assert sets[0][at] is sets[1][at]
    warm = Buffers(signature, path, workload.key, _tvm.tvm.cpu(0), cold=False)
    assert warm.turns.alike


def test_what_a_call_computes_from_is_spread_over_the_workspace(
    product: tuple[Workload, Signature, str],
) -> None:
    workload, signature, path = product
    # 4 x 256 and 4 x 512 numbers and a bias of 512: 14 KiB, three times in 40. The weights, half
    # a MiB of one, take turns of their own.
    buffers = Buffers(signature, path, workload.key, _tvm.tvm.cpu(0), workspace=40 << 10)
    calls = list(buffers.turns.take(6))
    for at, copies in ((0, 3), (1, 2), (2, 3), (3, 3)):
        places = [np.from_dlpack(tensors[at]).ctypes.data for tensors in calls]
        assert len(set(places)) == copies
        assert places == places[:copies] * (6 // copies)
    np.testing.assert_array_equal(*(np.from_dlpack(tensors[0]) for tensors in calls[:2]))


def test_what_a_call_changes_stays_where_it_is() -> None:
    changed = Parameter("x", (256,), "float32", "inout")
    written = Parameter("y", (256,), "float32", "output")
    for parameters, alike in (((changed, written), True), ((written,), False)):
        signature = Signature(parameters, reduction=1)
        buffers = Buffers(signature, None, "a1", _tvm.tvm.cpu(0), workspace=40 << 10)
        assert buffers.turns.alike is alike


def test_weights_that_were_overwritten_are_restored_in_every_set(
    product: tuple[Workload, Signature, str],
) -> None:
    workload, signature, path = product
    buffers = Buffers(signature, path, workload.key, _tvm.tvm.cpu(0))
    first, second = ([np.from_dlpack(t) for t in tensors] for tensors in buffers.turns.take(2))
    first[1][0, 0] += 1
    second[1][0, 0] += 1
    assert "was overwritten" in buffers.judge().message
    np.testing.assert_array_equal(first[1], second[1])


@pytest.mark.machine
@pytest.mark.parametrize("cold", [True, False])
def test_candidates_with_cold_weights_are_measured(hardware: Hardware, cold: bool) -> None:
    (workload,) = _workloads(torch.nn.Linear(256, 512), (4, 256), hardware)
    space = Space.generate(workload, hardware)
    candidates = space.starts[:2]
    policy = MeasurePolicy(budget_s=0.02, workspace_bytes=0 if cold else None, cut_factor=1e6)
    with LocalMeasurer(hardware, policy) as measurer:
        assert measurer.environment()["policy"]["cold_weights"] is cold
        statuses = [measured.status for _, measured in measurer.measure(candidates)]
    assert statuses == [Status.OK] * 2
