"""What the regressor reads of a program: scores, what bounds it, other devices' times, factors.

Columns, all float64 of shape (n,), NaN where something is not known:

- the scores of ``METRICS``;
- of each of ``LIMITS`` the log2 of its seconds over the predicted ones: which of them hold the
  program up, and how near the others are;
- log2 of the predicted seconds over those that inputs and outputs take to come from memory once.
  The latter are the same for all programs of a workload, so that a program's columns do not depend
  on which others are looked at (the roof is not: programs that fuse otherwise compute more). Of
  different workloads this number says nothing, so that only the line reads it;
- with a memory (``foretune.cost.behaviour.memory``), what other devices took;
- log2 of the device's factors, the same for all programs of a group.

A source of scores that predicts no seconds leaves the second and third part NaN.
"""

from __future__ import annotations

import numpy as np

from foretune._arrays import FloatArray
from foretune.describe import LIMITS, METRICS, Behaviours, Nests
from foretune.hardware import FACTORS, Device

COLUMNS_VERSION = 3
"""Raised whenever a column changes; the schema of scores has a version of its own."""

SCORE_NAMES = tuple(metric.name for metric in METRICS)
LIMIT_NAMES = tuple(f"limit.{name}" for name in LIMITS)
PREDICTED = "log2_seconds"
MEMORY_NAMES = (
    "memory.mean",
    "memory.near",
    "memory.nearest",
    "memory.least",
    "memory.most",
    "memory.shift",
    "memory.near_shift",
    "memory.expected",
)
FACTOR_NAMES = tuple(f"device.{factor.name}" for factor in FACTORS)
PROGRAM_NAMES = (*SCORE_NAMES, *LIMIT_NAMES, PREDICTED, *MEMORY_NAMES)
NAMES = (*PROGRAM_NAMES, *FACTOR_NAMES)
"""Names of columns in their order; those of the device come last."""
OF_A_GROUP = (PREDICTED, "memory.shift", "memory.near_shift", "memory.expected")
"""Columns whose level means nothing: they differ between workloads by a constant."""

SIGNS = (
    *(1,) * len(SCORE_NAMES),
    *(0,) * len(LIMIT_NAMES),
    -1,
    *(-1,) * 5,
    *(0, 0, -1),
    *(0,) * len(FACTOR_NAMES),
)
"""Of each column whether more of it is faster (1), slower (-1), or may be either (0)."""
assert len(SIGNS) == len(NAMES)

_LEAST_S = 1e-12
_LEAST_SHARE = -10.0
"""log2 of a limit's share of the seconds, below which less says nothing."""


def columns(
    behaviours: Behaviours,
    nests: Nests,
    memory: FloatArray | None = None,
    device: Device | None = None,
) -> FloatArray:
    """Columns of n programs, float64 of shape (n, len(NAMES)).

    Args:
        behaviours: What is known of their behaviour.
        nests: The programs.
        memory: What other devices took, shape (n, len(MEMORY_NAMES)); NaN if None.
        device: Whose factors are told; NaN if None.
    """
    n = len(behaviours.seconds)
    table = np.full((n, len(NAMES)), np.nan)
    at = len(SCORE_NAMES)
    table[:, :at] = behaviours.scores
    for name, seconds in behaviours.limits_s.items():
        place = at + LIMIT_NAMES.index(f"limit.{name}")
        table[:, place] = np.maximum(_log2(seconds) - _log2(behaviours.seconds), _LEAST_SHARE)
    table[:, at + len(LIMIT_NAMES)] = predicted(behaviours, nests)
    if memory is not None:
        start = len(PROGRAM_NAMES) - len(MEMORY_NAMES)
        table[:, start : len(PROGRAM_NAMES)] = memory
    if device is not None:
        table[:, len(PROGRAM_NAMES) :] = factor_columns(device)
    return table


def factor_columns(device: Device) -> FloatArray:
    """log2 of the factors of a device, shape (len(FACTORS),); NaN of those its kind has not.

    What is 0 (no third cache) is told as -1: half of the least there is.
    """
    known = [
        device.value(factor.name) if device.kind in factor.kinds else np.nan for factor in FACTORS
    ]
    values = np.array(known, dtype=np.float64)
    logs: FloatArray = np.log2(np.where(values == 0, 0.5, values))
    return logs


def predicted(behaviours: Behaviours, nests: Nests) -> FloatArray:
    """log2 of the predicted seconds over those of inputs and outputs alone, shape (n,)."""
    moved = sum(
        (each.bytes * each.shape.prod(axis=1) for each in nests.buffers if each.parameter),
        np.zeros(len(nests)),
    )
    rate = behaviours.device.value("memory_gb_per_s") * 1e9
    return _log2(behaviours.seconds) - _log2(np.maximum(moved, 1.0) / rate)


def _log2(values: FloatArray) -> FloatArray:
    logs: FloatArray = np.log2(np.maximum(values, _LEAST_S))
    return logs
