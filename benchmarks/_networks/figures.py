"""Ratios of readings that were taken in turn, and what they say of all networks together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from foretune.engines import bootstrap_median

RIVALS = ("onnxruntime", "openvino")
"""The engines to beat; the better of them counts."""

Figures = Mapping[str, Any]


def ratio(over: Sequence[float], under: Sequence[float], seed: int = 0) -> dict[str, float]:
    """Median of the ratios within rounds, with the 95 % interval of a bootstrap over rounds."""
    ratios = [one / other for one, other in zip(over, under, strict=True)]
    low, high = bootstrap_median(ratios, seed)
    return {"median": float(np.median(ratios)), "low": low, "high": high}


def interval(found: Mapping[str, float], digits: int = 2) -> str:
    """A ratio with its interval, as tables have it."""
    low, high = (f"{found[end]:.{digits}f}" for end in ("low", "high"))
    return f"{found['median']:.{digits}f} ({low} to {high})"


def gains(compared: Figures) -> dict[str, dict[str, float]]:
    """How many times as fast as each engine that ran foretune is, and as the ``best`` rival."""
    latency = compared["latency_s"]
    ours = latency["foretune"]
    ran = {e: found for e, found in latency.items() if e != "foretune" and found["median"]}
    result = {e: ratio(found["readings"], ours["readings"]) for e, found in ran.items()}
    best = best_rival(compared)
    return result if best is None else {**result, "best": result[best]}


def best_rival(compared: Figures) -> str | None:
    """The faster of ONNX Runtime and OpenVINO; None if neither ran."""
    medians = {e: (compared["latency_s"].get(e) or {}).get("median") for e in RIVALS}
    ran = {engine: median for engine, median in medians.items() if median}
    return min(ran, key=lambda engine: ran[engine]) if ran else None


def geometric_mean(values: Iterable[float]) -> float:
    """Of positive numbers, at least one."""
    return math.exp(float(np.mean([math.log(value) for value in values])))


def mean_interval(values: Sequence[float]) -> dict[str, float]:
    """``low`` and ``high`` of their geometric mean: 95 % of a bootstrap over the values."""
    logs = np.log(values)
    drawn = np.random.default_rng(0).integers(len(logs), size=(2000, len(logs)))
    low, high = np.exp(np.quantile(logs[drawn].mean(axis=1), (0.025, 0.975)))
    return {"low": float(low), "high": float(high)}


def sum_of_kernels(kernels: Iterable[Figures]) -> float | None:
    """Seconds of all kernels timed alone, each times its calls; None if one is unknown."""
    total = 0.0
    for kernel in kernels:
        if kernel["seconds"] is None:
            return None
        total += kernel["seconds"] * kernel["count"]
    return total
