"""One kernel: tuned, checked against float64, timed beside PyTorch's kernel of the same work."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import foretune
from benchmarks._cuda.device import events, in_turns, torch_fp32
from foretune.measure import MeasurePolicy
from foretune.measure._worker import build
from foretune.space import Space
from foretune.tuning import TaskResult


def run_kernel(
    name: str, seconds: float, workers: int | None, rounds: int, folder: Path
) -> dict[str, Any]:
    """Tunes a kernel of the catalog for ``seconds`` and times it beside PyTorch."""
    began = time.perf_counter()
    policy = MeasurePolicy(workers=workers)
    result = foretune.tune(
        name, target="cuda", time_s=seconds, seed=0, policy=policy, work_dir=folder, fresh=True
    )
    (task,) = result.tasks
    statuses = Counter(trial.status for trial in task.trials)
    told = {
        "elapsed_s": time.perf_counter() - began,
        "trials": len(task.trials),
        "statuses": dict(statuses),
        "untuned_s": task.untuned_s,
        "best_s": task.best_s,
        "flops": task.workload.flops,
        "spent_s": dict(result.spent_s),
    }
    return {**told, **_beside_torch(name, task, rounds)}


def _beside_torch(name: str, task: TaskResult, rounds: int) -> dict[str, Any]:
    from foretune._tvm import tvm

    torch = torch_fp32()
    device = tvm.runtime.device("cuda", 0)
    rng = np.random.default_rng(0)
    function = task.workload.module["main"]
    shapes = [tuple(int(extent) for extent in p.ty.shape) for p in function.params]
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes[:-1]]
    out = np.full(shapes[-1], np.nan, np.float32)
    expected, call, got = _original(torch, name, arrays)
    sides: dict[str, Callable[[int], float]] = {"pytorch": events(torch, call)}
    errors = {"pytorch": _error(got(), expected)}
    assert task.best is not None
    untuned = Space.generate(task.workload, task.best.hardware).untuned
    for side, candidate in (("foretune", task.best), ("untuned", untuned)):
        program = build(candidate)
        tensors = [tvm.runtime.tensor(array, device) for array in (*arrays, out)]
        program["main"](*tensors)
        device.sync()
        errors[side] = _error(tensors[-1].numpy(), expected)

        def read(count: int, program: Any = program, tensors: Any = tensors) -> float:
            timer = program.time_evaluator("main", device, number=count, repeat=1)
            return float(timer(*tensors).results[0])

        sides[side] = read
    return {"relative_errors": errors, "timed": in_turns(sides, rounds)}


def _error(actual: Any, expected: Any) -> float:
    """The norm of the difference over that of what it should be; NaN stays NaN."""
    wanted = expected.ravel()
    return float(
        np.linalg.norm(actual.ravel().astype(np.float64) - wanted) / np.linalg.norm(wanted)
    )


def _original(
    torch: Any, name: str, arrays: list[Any]
) -> tuple[Any, Callable[[], Any], Callable[[], Any]]:
    """The float64 result, PyTorch's call on the GPU, and its result in the kernel's layout."""
    x, w = (torch.from_numpy(array).cuda() for array in arrays)
    kind = name.partition(":")[0]
    if kind.startswith("conv2d"):
        x = x.permute(0, 3, 1, 2)  # channels last, as the kernel has them
        w = w.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)
        edge, stride = w.shape[-1] // 2, int(name.rpartition("x")[2]) if ":" in name else 1
        convolve = torch.nn.functional.conv2d
        exact = convolve(x.double(), w.double(), None, stride, edge).permute(0, 2, 3, 1)
        return (
            exact.cpu().numpy(),
            lambda: convolve(x, w, None, stride, edge),
            lambda: convolve(x, w, None, stride, edge).permute(0, 2, 3, 1).cpu().numpy(),
        )
    other = w.transpose(-1, -2) if name == "attention_qk" else w
    exact = torch.matmul(x.double(), other.double()).cpu().numpy()
    return (
        exact,
        lambda: torch.matmul(x, other),
        lambda: torch.matmul(x, other).cpu().numpy(),
    )
