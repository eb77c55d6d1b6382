"""What can be said about a schedule before anything is measured, from its decisions alone.

Idea: the innermost tiles of a multi-level tiled loop nest say whether its core can fill the vector
units and fit the registers, the outer ones whether there is work for every thread. A few penalties
of that kind order random schedules of a dense kernel better than a model trained on dozens of
measurements does, and cost microseconds because no program is made. They say little about kernels
with hardly any reduction, so their weight falls with the reduction's size.

Symbols: MetaSchedule's CPU tiling is S S R S R S: every spatial loop has four factors ``s0..s3``,
every reduction loop two. ``lanes`` is the number of 32-bit elements in a vector register.

The unit of ``machine_fit`` is minus log2 of an estimated slow-down: 0 for a schedule without a
penalty, -1 for one guessed to be half as fast. On other targets than CPUs everything is 0.

Candidates of one sketch are read together (``_decided``); the public functions here accept any mix
and sort them by sketch first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._arrays import FloatArray, IntArray
from foretune.features.actions._columns import TABLE
from foretune.features.actions._decided import (
    CPU_REDUCTION_PARTS,
    CPU_SPATIAL_PARTS,
    Decided,
    Nest,
    by_sketch,
    jobs_of,
)

if TYPE_CHECKING:
    from foretune.hardware import Hardware
    from foretune.space import Candidate


_ELEMENT_BITS = 32
_UNKNOWN_SIMD_BITS = 128
_AVX512_BITS = 512

_LANE = 0.8
_SPILL = 0.7
_LATENCY = 0.5
_SCALAR = 0.7
_SERIAL = 0.7
_UNEVEN = 0.4
_FULL_WEIGHT_REDUCTION = 64
_MIN_ACCUMULATORS = 4


def machine_fit(candidates: Sequence[Candidate]) -> FloatArray:
    """How well schedules suit the machine, judged by their decisions, shape (n,), at most 0.

    Penalties of the multi-level tiled block with the most iterations:

    - its innermost spatial factor does not fill the vector lanes;
    - its innermost tile needs more accumulators than there are vector registers (they spill), or
      so few that the latency of multiply-add is not hidden;
    - fewer jobs than threads, or unevenly many (``jobs_of``).

    And of every sketch: vectorise switched off; where nothing is tiled, parallel, too.
    """
    scores = np.zeros(len(candidates))
    for rows, hardware in by_sketch(candidates):
        scores[rows] = fit_of(Decided([candidates[row] for row in rows]), hardware)
    return scores


def schedule_summary(candidates: Sequence[Candidate]) -> FloatArray:
    """What the decisions say about schedules, shape (n, len(SUMMARY_COLUMNS))."""
    summaries = np.zeros((len(candidates), TABLE.width("summary")))
    for rows, hardware in by_sketch(candidates):
        summaries[rows] = summary_of(Decided([candidates[row] for row in rows]), hardware)
    return summaries


@dataclass(frozen=True)
class _Core:
    """Sizes of the heaviest CPU nest; ones where a sketch has none.

    Attributes:
        levels: Product of the spatial factors at each of the four levels, shape (n, 4).
        vector: Innermost factor of the last spatial loop, shape (n,).
        next_to_vector: The factor outside of it, shape (n,).
        reduction: Product of the reduction factors at both levels, shape (n, 2).
        nest: The nest; None where a sketch has none.
    """

    levels: IntArray
    vector: IntArray
    next_to_vector: IntArray
    reduction: IntArray
    nest: Nest | None


def _core(decided: Decided) -> _Core:
    nests = [n for n in decided.layout.nests if n.spatial_parts == CPU_SPATIAL_PARTS]
    if not nests:
        ones = np.ones((decided.n, CPU_SPATIAL_PARTS), dtype=np.int64)
        return _Core(ones, ones[:, 0], ones[:, 0], ones[:, :CPU_REDUCTION_PARTS], None)
    nest = nests[0]
    last = decided.tile(nest.spatial[-1])
    variables: Any = decided.sketch.variables
    halves = [i for i in nest.reduction if variables[i].parts == CPU_REDUCTION_PARTS]
    return _Core(
        decided.products(nest.spatial, CPU_SPATIAL_PARTS),
        last[:, -1],
        last[:, -2],
        decided.products(halves, CPU_REDUCTION_PARTS),
        nest,
    )


def summary_of(decided: Decided, hardware: Hardware) -> FloatArray:
    """``schedule_summary`` of candidates of one sketch."""
    core = _core(decided)
    lanes, _ = vector_unit(hardware)
    filled = np.gcd(core.vector, lanes)
    two_tiles = core.levels[:, 2] * core.levels[:, 3]
    values = [
        decided.choice("parallel"),
        decided.choice("vectorize"),
        np.maximum(decided.choice("unroll_explicit"), decided.choice("unroll_implicit")),
        *core.levels.T,
        core.vector,
        core.next_to_vector,
        *core.reduction.T,
        filled,
        core.levels[:, 3] / filled,
        two_tiles,
        two_tiles * core.reduction[:, 1],
    ]
    fit = fit_of(decided, hardware)
    return np.column_stack([*(np.log2(2.0 + value) for value in values), fit])


def vector_unit(hardware: Hardware) -> tuple[int, int]:
    """Lanes of a vector register and number of such registers."""
    bits = hardware.simd_bits or _UNKNOWN_SIMD_BITS
    return max(1, bits // _ELEMENT_BITS), 32 if bits >= _AVX512_BITS else 16


def fit_of(decided: Decided, hardware: Hardware) -> FloatArray:
    """``machine_fit`` of candidates of one sketch."""
    if not hardware.has_cores:
        return np.zeros(decided.n)
    penalty = _SCALAR * (decided.choice("vectorize") == 0)
    core = _core(decided)
    if core.nest is None:
        return np.asarray(-penalty - _SERIAL * (decided.choice("parallel") == 0))
    lanes, registers = vector_unit(hardware)
    filled = np.gcd(core.vector, lanes)
    accumulators = core.levels[:, -1] / filled
    waste = _LANE * np.log2(lanes / filled)
    # An eighth of the registers hold the operands.
    waste += _SPILL * np.maximum(0.0, np.log2(accumulators / (registers * 7 / 8)))
    waste += _LATENCY * np.maximum(0.0, np.log2(_MIN_ACCUMULATORS / accumulators))
    size = np.log2(core.reduction.prod(axis=1).astype(np.float64))
    weight = np.minimum(1.0, size / math.log2(_FULL_WEIGHT_REDUCTION))
    balance = _balance_penalty(jobs_of(decided, core.nest), hardware.threads)
    return np.asarray(-(penalty + weight * waste + balance))


def _balance_penalty(jobs: IntArray, threads: int) -> FloatArray:
    # With four jobs per thread or more the unevenness is less than a quarter.
    uneven = (jobs % threads != 0) & (jobs < 4 * threads)
    return np.where(jobs < threads, _SERIAL, np.where(uneven, _UNEVEN, 0.0))
