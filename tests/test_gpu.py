"""Tuning on a real GPU; everything else about GPUs is tested without one."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

import foretune
from foretune import _tvm
from foretune.graph import compile_model, compile_workload, extract
from foretune.hardware import probe
from foretune.workload import Model, Workload, catalog, from_object

pytestmark = [
    pytest.mark.machine,
    pytest.mark.gpu,
    pytest.mark.skipif(
        not _tvm.tvm.device("cuda", 0).exist,
        reason="TVM sees no CUDA device: needs an NVIDIA GPU, its driver, and a TVM with CUDA",
    ),
]


def test_a_matrix_product_is_tuned_on_the_gpu() -> None:
    result = foretune.tune("matmul:128x128x128", target="cuda", trials=4, seed=0)
    assert result.hardware.kind == "cuda"
    (task,) = result.tasks
    assert len(task.trials) == 4
    told = [(trial.status, trial.seconds) for trial in task.trials]
    # What is far behind TVM's rules for GPUs is read once.
    assert any(trial.status in ("ok", "cut_short") for trial in task.trials), told
    assert task.untuned_s is not None and task.best_s is not None
    assert task.untuned_s > 0 and task.best_s > 0


def test_a_network_computes_the_same_call_after_call_with_and_without_a_graph() -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(8, 8, 3, groups=8),
        torch.nn.Flatten(),
        torch.nn.Linear(8 * 6 * 6, 16),
        torch.nn.Softmax(-1),
    ).eval()
    exact = copy.deepcopy(module).double()
    model = from_object((module, (torch.randn(1, 3, 8, 8),)))
    assert isinstance(model, Model)
    hardware = probe("cuda")
    for without in ((), ("cuda-graph",)):
        artifact = compile_model(model, hardware, {}, extract(model, hardware, without))
        for _ in range(4):
            x = torch.randn(1, 3, 8, 8)
            with torch.no_grad():
                expected = exact(x.double()).numpy()
            np.testing.assert_allclose(artifact.run([x.numpy()])[0], expected, atol=2e-5)


def test_a_short_source_runs_like_tvms_own() -> None:
    workload = catalog.get("matmul:64x48x32")
    assert isinstance(workload, Workload)
    artifact = compile_workload(workload, probe("cuda"))
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((64, 32), (32, 48)))
    (got,) = artifact.run([a, b])
    np.testing.assert_allclose(got, a.astype(np.float64) @ b, atol=1e-4)
