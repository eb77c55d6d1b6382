"""Tuning on a real GPU; everything else about GPUs is tested without one."""

from __future__ import annotations

import pytest

import foretune
from foretune import _tvm

pytestmark = [
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
