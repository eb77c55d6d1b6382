"""Execution behaviour of programs on a device, in scores and in the numbers behind them.

The schema is that of LLMTuner (parallelism, memory, computation), completed and with CPU and GPU in
shared slots, so that one regressor serves both. Scores are in [0, 1], higher is better, also those
of risks (1: no risk). NaN where a metric says nothing of a kind of device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretune._arrays import FloatArray

if TYPE_CHECKING:
    from foretune.hardware import Device


@dataclass(frozen=True)
class Metric:
    """One score.

    Attributes:
        name: Key in JSON, ending in ``_score``.
        group: ``"parallelism"``, ``"memory"`` or ``"computation"``.
        kinds: Kinds of devices that have it.
        text: What it says, for prompts and pages.
    """

    name: str
    group: str
    kinds: tuple[str, ...]
    text: str


_BOTH, _CPU, _GPU = ("cpu", "gpu"), ("cpu",), ("gpu",)
METRICS: tuple[Metric, ...] = (
    Metric("unit_utilization_score", "parallelism", _BOTH,
           "share of cores (multiprocessors) that have work over the whole run"),
    Metric("load_balance_score", "parallelism", _BOTH,
           "work per core (wave of blocks) beside that of the busiest"),
    Metric("lane_efficiency_score", "parallelism", _BOTH,
           "share of vector lanes (threads of warps) that do useful work"),
    Metric("occupancy_score", "parallelism", _GPU,
           "warps in flight beside those that a multiprocessor holds"),
    Metric("synchronization_score", "parallelism", _BOTH,
           "work between barriers and starts of parallel loops, beside what these cost"),
    Metric("coalescing_score", "memory", _BOTH,
           "bytes used of the cache lines (sectors) that are moved"),
    Metric("l1_reuse_score", "memory", _BOTH,
           "share of loads that need not go beyond the first cache (shared memory)"),
    Metric("l2_reuse_score", "memory", _BOTH,
           "share of traffic beyond the first cache that the second serves"),
    Metric("l3_reuse_score", "memory", _CPU,
           "share of traffic beyond the second cache that the third serves"),
    Metric("memory_traffic_score", "memory", _BOTH,
           "bytes that must come from memory beside those that do"),
    Metric("bank_conflict_score", "memory", _GPU,
           "ideal beside actual passes over the banks of shared memory"),
    Metric("register_score", "memory", _BOTH,
           "1 where values fit into registers, less where they spill"),
    Metric("vector_compute_score", "computation", _BOTH,
           "arithmetic that uses whole vectors (wide units) at full rate"),
    Metric("instruction_parallelism_score", "computation", _BOTH,
           "independent operations in flight beside what hides their latency"),
    Metric("instruction_mix_score", "computation", _BOTH,
           "arithmetic among all instructions that are issued"),
    Metric("roofline_score", "computation", _BOTH,
           "time at the peak of the nearer roof beside predicted time"),
)  # fmt: skip
"""The schema. Its order is that of columns; ``SCHEMA_VERSION`` is raised whenever it changes."""

SCHEMA_VERSION = 1

LIMITS = (
    "arithmetic",
    "instructions",
    "latency",
    "l1",
    "l2",
    "l3",
    "memory",
    "shared",
    "overhead",
)
"""What can bound a kernel: floating-point units; the instructions issued around them; waiting for
results that depend on each other; the bandwidth of a cache, of memory, of shared memory; starts of
threads and barriers. Each with the parallelism that a program has: fewer cores make all longer."""


@dataclass(frozen=True)
class Behaviours:
    """Behaviour of n programs on one device.

    Attributes:
        device: The device.
        scores: float64 of shape (n, len(METRICS)), in [0, 1], NaN where a metric does not apply.
        limits_s: Of each of ``LIMITS`` that applies, the seconds that the program takes if nothing
            else held it up, float64 of shape (n,).
        seconds: Predicted, float64 of shape (n,).
        numbers: What scores are made of, by name with the unit in it (``"bytes_from_l2"``,
            ``"warps_per_unit"``...), float64 of shape (n,). ``"units_busy"`` is the share of the
            cores or multiprocessors that work, mean over the run: not the product of utilisation
            and balance, which both count a unit without work. ``"launchable"`` of a GPU is 0
            where the device cannot start the program at all.
    """

    device: Device
    scores: FloatArray
    limits_s: Mapping[str, FloatArray]
    seconds: FloatArray
    numbers: Mapping[str, FloatArray]

    @property
    def bound(self) -> list[str]:
        """Of each program, the one of ``LIMITS`` that takes longest."""
        names = list(self.limits_s)
        table = np.stack([self.limits_s[name] for name in names])
        return [names[i] for i in table.argmax(axis=0).tolist()]
