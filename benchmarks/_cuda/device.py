"""PyTorch on the GPU, fp32 without TF32, and readings that take turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

_WARM_UP_S = 0.05
_READING_S = 0.02


def torch_fp32() -> Any:
    """PyTorch with fp32 products and convolutions, its fastest convolution for each shape."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    torch.set_grad_enabled(False)
    return torch


def events(torch: Any, call: Callable[[], Any]) -> Callable[[int], float]:
    """Seconds per call on the device's clock, over a number of calls in a row."""

    def read(count: int) -> float:
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        for _ in range(count):
            call()
        last.record()
        last.synchronize()
        return float(first.elapsed_time(last)) / 1e3 / count

    return read


def wall(call: Callable[[], Any]) -> Callable[[int], float]:
    """Seconds per call that returns when the device is done, the median of a number of calls."""

    def read(count: int) -> float:
        seconds = []
        for _ in range(count):
            began = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - began)
        return float(np.median(seconds))

    return read


def in_turns(sides: Mapping[str, Callable[[int], float]], rounds: int) -> dict[str, Any]:
    """Medians of all sides, with every reading; a side is warm before each of its readings."""
    counts = {name: _calls(read) for name, read in sides.items()}
    readings: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, read in sides.items():
            read(max(1, counts[name] // 4))
            readings[name].append(read(counts[name]))
    return {
        name: {"median_s": float(np.median(values)), "calls": counts[name], "readings": values}
        for name, values in readings.items()
    }


def _calls(read: Callable[[int], float]) -> int:
    began = time.perf_counter()
    while time.perf_counter() - began < _WARM_UP_S:
        read(3)
    return max(3, min(2000, int(_READING_S / max(read(3), 1e-7))))
