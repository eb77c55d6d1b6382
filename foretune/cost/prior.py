"""What can be said about a CPU schedule before anything is measured, from its decisions alone.

Idea: the innermost tiles of a multi-level tiled loop nest say whether its core can fill the vector
units and fit the registers, the outermost whether there is work for every thread. A few penalties
of that kind order random schedules of a dense kernel better than a model trained on dozens of
measurements does, and cost microseconds because no program is made. They say little about kernels
with hardly any reduction, so their weight falls with the reduction's size.

Symbols: MetaSchedule's CPU tiling is S S R S R S: every spatial loop has four factors ``s0..s3``,
every reduction loop two. ``lanes`` is the number of 32-bit elements in a vector register.

The unit is minus log2 of an estimated slow-down: 0 for a schedule without a penalty, -1 for one
guessed to be half as fast. On other targets than CPUs everything is 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretune.cost._base import FloatArray
from foretune.space import Choice, PerfectTile

if TYPE_CHECKING:
    from foretune.hardware import Hardware
    from foretune.space import Candidate

_SPATIAL_PARTS = 4
_REDUCTION_PARTS = 2
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


SUMMARY_VERSION = 1
SUMMARY_COLUMNS = (
    "parallel",
    "vectorize",
    "unroll",
    "chunks",
    "middle",
    "outer_tile",
    "inner_tile",
    "vector",
    "next_to_vector",
    "reduction_outer",
    "reduction_inner",
    "lanes_filled",
    "accumulators",
    "two_tiles",
    "footprint",
    "fit",
)
"""Columns of ``schedule_summary``: log2(2 + value), but for the last, which is ``machine_fit``."""


@dataclass(frozen=True)
class _Nest:
    """The multi-level tiled block with the most iterations; ones where a sketch has none.

    Attributes:
        levels: Product of the spatial factors at each of the four levels, outermost first.
        vector: Innermost factor of the last spatial loop.
        next_to_vector: The factor outside of it.
        reduction: Product of the reduction factors at both levels, outermost first.
    """

    levels: tuple[int, ...] = (1,) * _SPATIAL_PARTS
    vector: int = 1
    next_to_vector: int = 1
    reduction: tuple[int, ...] = (1,) * _REDUCTION_PARTS
    tiled: bool = False


def machine_fit(candidates: Sequence[Candidate]) -> FloatArray:
    """How well schedules suit the machine, judged by their decisions, shape (n,), at most 0.

    Penalties of the multi-level tiled block with the most iterations:

    - its innermost spatial factor does not fill the vector lanes;
    - its innermost tile needs more accumulators than there are vector registers (they spill), or
      so few that the latency of multiply-add is not hidden;
    - fewer or unevenly many outermost tiles than threads.

    And of every sketch: parallel or vectorise switched off.
    """
    return np.array([_fit(c, *_read(c)) for c in candidates], dtype=np.float64)


def schedule_summary(candidates: Sequence[Candidate]) -> FloatArray:
    """What the decisions say about schedules, as columns for a model, shape (n, columns)."""
    rows = np.array([_summary(c) for c in candidates], dtype=np.float64)
    return rows.reshape(len(candidates), len(SUMMARY_COLUMNS))


def _summary(candidate: Candidate) -> list[float]:
    choices, nest = _read(candidate)
    lanes, _ = _vector_unit(candidate.hardware)
    filled = math.gcd(nest.vector, lanes)
    two_tiles = nest.levels[2] * nest.levels[3]
    values = [
        choices.get("parallel", -1),
        choices.get("vectorize", -1),
        max(choices.get("unroll_explicit", -1), choices.get("unroll_implicit", -1)),
        *nest.levels,
        nest.vector,
        nest.next_to_vector,
        *nest.reduction,
        filled,
        nest.levels[3] / filled,
        two_tiles,
        two_tiles * nest.reduction[1],
    ]
    return [*(math.log2(2 + v) for v in values), _fit(candidate, choices, nest)]


def _read(candidate: Candidate) -> tuple[dict[str, int], _Nest]:
    """The values of the choices by name, and the heaviest nest."""
    choices: dict[str, int] = {}
    blocks: dict[str, list[tuple[PerfectTile, tuple[int, ...]]]] = {}
    for variable, decision in zip(candidate.sketch.variables, candidate.decisions, strict=True):
        if isinstance(variable, PerfectTile) and isinstance(decision, tuple):
            blocks.setdefault(variable.name.rpartition(".")[0], []).append((variable, decision))
        elif isinstance(variable, Choice) and isinstance(decision, int):
            choices[variable.name] = variable.values[decision]
    tiled = [n for n in blocks.values() if any(v.parts == _SPATIAL_PARTS for v, _ in n)]
    if not tiled:
        return choices, _Nest()
    heaviest = max(tiled, key=lambda nest: math.prod(v.extent for v, _ in nest))
    spatial = [tile for variable, tile in heaviest if variable.parts == _SPATIAL_PARTS]
    reduction = [tile for variable, tile in heaviest if variable.parts == _REDUCTION_PARTS]
    return choices, _Nest(
        levels=tuple(math.prod(t[i] for t in spatial) for i in range(_SPATIAL_PARTS)),
        vector=spatial[-1][-1],
        next_to_vector=spatial[-1][-2],
        reduction=tuple(math.prod(t[i] for t in reduction) for i in range(_REDUCTION_PARTS)),
        tiled=True,
    )


def _vector_unit(hardware: Hardware) -> tuple[int, int]:
    """Lanes of a vector register and number of such registers."""
    bits = hardware.simd_bits or _UNKNOWN_SIMD_BITS
    return max(1, bits // _ELEMENT_BITS), 32 if bits >= _AVX512_BITS else 16


def _fit(candidate: Candidate, choices: Mapping[str, int], nest: _Nest) -> float:
    hardware = candidate.hardware
    if hardware.kind != "llvm":
        return 0.0
    penalty = _SCALAR * (choices.get("vectorize") == 0) + _SERIAL * (choices.get("parallel") == 0)
    if not nest.tiled:
        return -penalty
    lanes, registers = _vector_unit(hardware)
    filled = math.gcd(nest.vector, lanes)
    accumulators = nest.levels[-1] / filled
    core = _LANE * math.log2(lanes / filled)
    # An eighth of the registers hold the operands.
    core += _SPILL * max(0.0, math.log2(accumulators / (registers * 7 / 8)))
    core += _LATENCY * max(0.0, math.log2(_MIN_ACCUMULATORS / accumulators))
    weight = min(1.0, math.log2(math.prod(nest.reduction)) / math.log2(_FULL_WEIGHT_REDUCTION))
    return -(penalty + weight * core + _balance_penalty(nest.levels[0], hardware.threads))


def _balance_penalty(chunks: int, threads: int) -> float:
    if chunks < threads:
        return _SERIAL
    # With four chunks per thread or more the unevenness is less than a quarter.
    return _UNEVEN if chunks % threads and chunks < 4 * threads else 0.0
