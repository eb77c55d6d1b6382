"""The hardware in numbers, and how the sizes of a schedule stand to them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from foretune._arrays import FloatArray
from foretune.features.actions._columns import FOOTPRINTS, LEVELS, TABLE
from foretune.features.actions._decided import chunks_of, jobs_of
from foretune.features.actions._fit import vector_unit
from foretune.features.actions._shared import Shared
from foretune.hardware import FEATURE_COLUMNS

if TYPE_CHECKING:
    from foretune.hardware import Hardware


_STEPS_PER_OCTAVE = {"peak_gflops": 2, "bandwidth_gbs": 1}
"""Rounding of factors that are measured. What two probes of one machine differ by would otherwise
tell a tree which probe it was, and a tree would tell by noise how programs compare."""


_CLOCK_GHZ, _OPERATIONS = 4.0, 4.0
"""Of a core of today at work: clock, and operations per lane and cycle (two multiply-adds)."""
_MEMORY_GBS = 40.0
"""Bandwidth that one such core can draw, and of which two draw little more."""


def machine_features(machine: Hardware | None) -> FloatArray:
    """The factors of a machine, log2(1 + x), shape (len(FEATURE_COLUMNS),); 0 if unknown.

    Measured ones are rounded: the peak to half octaves, the bandwidth to octaves. Where nobody has
    measured them on a CPU, they are estimated from its lanes and threads: a network takes 0 for a
    machine unlike all that it knows.
    """
    if machine is None:
        return np.zeros(len(FEATURE_COLUMNS))
    factors = np.log2(1.0 + _completed(machine).features())
    for at, (name, _unit) in enumerate(FEATURE_COLUMNS):
        steps = _STEPS_PER_OCTAVE.get(name)
        if steps is not None:
            factors[at] = np.round(factors[at] * steps) / steps
    return factors


def _completed(machine: Hardware) -> Hardware:
    """A CPU whose peak and bandwidth are estimated where they are unknown."""
    if not machine.has_cores:
        return machine
    lanes = max(1, machine.simd_bits // 32)
    return replace(
        machine,
        peak_gflops=machine.peak_gflops or machine.threads * lanes * _OPERATIONS * _CLOCK_GHZ,
        bandwidth_gbs=machine.bandwidth_gbs or _MEMORY_GBS,
    )


def match(shared: Shared, levels: FloatArray, touched: FloatArray) -> FloatArray:
    """How the sizes stand to those of the machine; 0 where nothing is tiled."""
    nest, hardware = shared.nest, shared.hardware
    if nest is None:
        return np.zeros((shared.n, TABLE.width("match")))
    lanes, registers = vector_unit(hardware)
    innermost = shared.decided.tile(nest.spatial[-1])[:, -1]
    threads = max(1, hardware.threads)
    jobs = jobs_of(shared.decided, nest)
    columns = [
        np.log2(lanes / np.gcd(innermost, lanes)),
        np.log2(innermost / lanes),
        levels[:, 0] - math.log2(registers * lanes),
        np.log2(chunks_of(shared.decided, nest) / threads),
        np.log2(jobs / threads),
        np.log2(-(-jobs // threads) * threads / jobs),
    ]
    caches = (hardware.l1_bytes, hardware.l2_bytes, hardware.l3_bytes)
    for level in range(len(LEVELS)):
        total = touched[:, (level + 1) * len(FOOTPRINTS) - 1]
        # Where a footprint or a cache is unknown its size is 0, and so is the column.
        columns += [
            np.where(total > 0, total - math.log2(size), 0.0) if size else np.zeros(shared.n)
            for size in caches
        ]
    return np.column_stack(columns)
