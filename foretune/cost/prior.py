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
from collections.abc import Sequence
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


def machine_fit(candidates: Sequence[Candidate]) -> FloatArray:
    """How well schedules suit the machine, judged by their decisions, shape (n,), at most 0.

    Penalties of the multi-level tiled block with the most iterations:

    - its innermost spatial factor does not fill the vector lanes;
    - its innermost tile needs more accumulators than there are vector registers (they spill), or
      so few that the latency of multiply-add is not hidden;
    - fewer or unevenly many outermost tiles than threads.

    And of every sketch: parallel or vectorise switched off.
    """
    return np.array([_fit(c) for c in candidates], dtype=np.float64)


def _fit(candidate: Candidate) -> float:
    if candidate.hardware.kind != "llvm":
        return 0.0
    penalty = 0.0
    blocks: dict[str, list[tuple[PerfectTile, tuple[int, ...]]]] = {}
    for variable, decision in zip(candidate.sketch.variables, candidate.decisions, strict=True):
        if isinstance(variable, PerfectTile) and isinstance(decision, tuple):
            blocks.setdefault(variable.name.rpartition(".")[0], []).append((variable, decision))
        elif isinstance(variable, Choice) and isinstance(decision, int):
            off = variable.values[decision] == 0
            penalty += off * {"vectorize": _SCALAR, "parallel": _SERIAL}.get(variable.name, 0.0)
    nests = [n for n in blocks.values() if any(v.parts == _SPATIAL_PARTS for v, _ in n)]
    if nests:
        heaviest = max(nests, key=lambda nest: math.prod(v.extent for v, _ in nest))
        penalty += _nest_penalty(heaviest, candidate.hardware)
    return -penalty


def _nest_penalty(nest: Sequence[tuple[PerfectTile, tuple[int, ...]]], hardware: Hardware) -> float:
    spatial = [tile for variable, tile in nest if variable.parts == _SPATIAL_PARTS]
    reduction = math.prod(v.extent for v, _ in nest if v.parts == _REDUCTION_PARTS)
    bits = hardware.simd_bits or _UNKNOWN_SIMD_BITS
    lanes = max(1, bits // _ELEMENT_BITS)
    registers = 32 if bits >= _AVX512_BITS else 16
    filled = math.gcd(spatial[-1][-1], lanes)
    accumulators = math.prod(tile[-1] for tile in spatial) / filled
    core = _LANE * math.log2(lanes / filled)
    # An eighth of the registers hold the operands.
    core += _SPILL * max(0.0, math.log2(accumulators / (registers * 7 / 8)))
    core += _LATENCY * max(0.0, math.log2(_MIN_ACCUMULATORS / accumulators))
    weight = min(1.0, math.log2(max(reduction, 1)) / math.log2(_FULL_WEIGHT_REDUCTION))
    return weight * core + _balance_penalty(
        math.prod(tile[0] for tile in spatial), hardware.threads
    )


def _balance_penalty(chunks: int, threads: int) -> float:
    if chunks < threads:
        return _SERIAL
    # With four chunks per thread or more the unevenness is less than a quarter.
    return _UNEVEN if chunks % threads and chunks < 4 * threads else 0.0
