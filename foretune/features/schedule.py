"""What can be said about a schedule before anything is measured, from its decisions alone.

Idea: the innermost tiles of a multi-level tiled loop nest say whether its core can fill the vector
units and fit the registers, the outermost whether there is work for every thread. A few penalties
of that kind order random schedules of a dense kernel better than a model trained on dozens of
measurements does, and cost microseconds because no program is made. They say little about kernels
with hardly any reduction, so their weight falls with the reduction's size.

Symbols: MetaSchedule's CPU tiling is S S R S R S: every spatial loop has four factors ``s0..s3``,
every reduction loop two. ``lanes`` is the number of 32-bit elements in a vector register.

The unit of ``machine_fit`` is minus log2 of an estimated slow-down: 0 for a schedule without a
penalty, -1 for one guessed to be half as fast. On other targets than CPUs everything is 0.

Candidates of one sketch are read together, as columns (``Decided``); the functions here accept any
mix and sort them by sketch first.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from foretune.space import Choice, ComputeLocation, PerfectTile

if TYPE_CHECKING:
    from foretune.hardware import Hardware
    from foretune.space import Candidate

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

SPATIAL_PARTS = 4
REDUCTION_PARTS = 2
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
class Nest:
    """A multi-level tiled block.

    Attributes:
        block: Its name.
        spatial: Indices of the variables that tile its spatial loops, outermost loop first.
        reduction: The same of its reduction loops.
        spatial_parts: Factors per spatial loop: 4 on CPUs, 5 on GPUs.
        iterations: Product of the extents of the tiled loops.
    """

    block: str
    spatial: tuple[int, ...]
    reduction: tuple[int, ...]
    spatial_parts: int
    iterations: int


@dataclass(frozen=True)
class Layout:
    """What the variables of a sketch are about.

    Attributes:
        choices: Name -> index of the variable; the last one where a name occurs twice.
        nests: Multi-level tiled blocks, the one with the most iterations first.
        splits: Variables that tile a loop of another block (a reduction split for ``rfactor``).
        locations: Location variables, in the order in which they are decided.
    """

    choices: Mapping[str, int]
    nests: tuple[Nest, ...]
    splits: tuple[int, ...]
    locations: tuple[int, ...]


@functools.lru_cache(maxsize=512)
def layout(sketch: Any) -> Layout:
    """Sorts the variables of a sketch by what they are about."""
    choices: dict[str, int] = {}
    blocks: dict[str, list[int]] = {}
    locations: list[int] = []
    for index, variable in enumerate(sketch.variables):
        if isinstance(variable, PerfectTile):
            blocks.setdefault(variable.name.rpartition(".")[0], []).append(index)
        elif isinstance(variable, Choice):
            choices[variable.name] = index
        elif isinstance(variable, ComputeLocation):
            locations.append(index)
    nests, splits = [], []
    for block, indices in blocks.items():
        parts = max(sketch.variables[i].parts for i in indices)
        if parts < SPATIAL_PARTS:
            splits += indices
            continue
        nests.append(
            Nest(
                block,
                tuple(i for i in indices if sketch.variables[i].parts == parts),
                tuple(i for i in indices if sketch.variables[i].parts < parts),
                parts,
                math.prod(sketch.variables[i].extent for i in indices),
            )
        )
    nests.sort(key=lambda nest: -nest.iterations)
    return Layout(choices, tuple(nests), tuple(splits), tuple(locations))


class Decided:
    """The decisions of ``n`` candidates of one sketch, as columns.

    Args:
        candidates: At least one.
    """

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self.sketch = candidates[0].sketch
        self.layout = layout(self.sketch)
        self.n = len(candidates)
        self._columns = list(zip(*(c.decisions for c in candidates), strict=True))
        self._arrays: dict[int, IntArray] = {}

    def tile(self, variable: int) -> IntArray:
        """Factors of a tile, shape (n, parts)."""
        return self._array(variable)

    def index(self, variable: int) -> IntArray:
        """Decisions of a choice or a location as they are, shape (n,)."""
        return self._array(variable)

    def _array(self, variable: int) -> IntArray:
        if variable not in self._arrays:
            self._arrays[variable] = np.array(self._columns[variable], dtype=np.int64)
        return self._arrays[variable]

    def choice(self, name: str, missing: int = -1) -> IntArray:
        """Values of the choice called ``name``, shape (n,)."""
        at = self.layout.choices.get(name)
        if at is None:
            return np.full(self.n, missing, dtype=np.int64)
        variable = self.sketch.variables[at]
        assert isinstance(variable, Choice)
        return np.array(variable.values, dtype=np.int64)[self.index(at)]

    def products(self, variables: Sequence[int], parts: int) -> IntArray:
        """Product over tiles of each of their ``parts`` factors, shape (n, parts)."""
        product = np.ones((self.n, parts), dtype=np.int64)
        for variable in variables:
            product *= self.tile(variable)
        return product


def by_sketch(candidates: Sequence[Candidate]) -> Iterator[tuple[list[int], Hardware]]:
    """Rows of the candidates that share a sketch and a hardware, and that hardware."""
    rows: dict[tuple[str, int], list[int]] = {}
    for row, candidate in enumerate(candidates):
        # The key of a sketch covers the target, but not the factors of the machine.
        key = (candidate.sketch.key, id(candidate.hardware))
        rows.setdefault(key, []).append(row)
    for found in rows.values():
        yield found, candidates[found[0]].hardware


def machine_fit(candidates: Sequence[Candidate]) -> FloatArray:
    """How well schedules suit the machine, judged by their decisions, shape (n,), at most 0.

    Penalties of the multi-level tiled block with the most iterations:

    - its innermost spatial factor does not fill the vector lanes;
    - its innermost tile needs more accumulators than there are vector registers (they spill), or
      so few that the latency of multiply-add is not hidden;
    - fewer or unevenly many outermost tiles than threads.

    And of every sketch: parallel or vectorise switched off.
    """
    scores = np.zeros(len(candidates))
    for rows, hardware in by_sketch(candidates):
        scores[rows] = fit_of(Decided([candidates[row] for row in rows]), hardware)
    return scores


def schedule_summary(candidates: Sequence[Candidate]) -> FloatArray:
    """What the decisions say about schedules, as columns for a model, shape (n, columns)."""
    summaries = np.zeros((len(candidates), len(SUMMARY_COLUMNS)))
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
    """

    levels: IntArray
    vector: IntArray
    next_to_vector: IntArray
    reduction: IntArray
    tiled: bool


def _core(decided: Decided) -> _Core:
    nests = [n for n in decided.layout.nests if n.spatial_parts == SPATIAL_PARTS]
    if not nests:
        ones = np.ones((decided.n, SPATIAL_PARTS), dtype=np.int64)
        return _Core(ones, ones[:, 0], ones[:, 0], ones[:, :REDUCTION_PARTS], False)
    nest = nests[0]
    last = decided.tile(nest.spatial[-1])
    variables: Any = decided.sketch.variables
    halves = [i for i in nest.reduction if variables[i].parts == REDUCTION_PARTS]
    return _Core(
        decided.products(nest.spatial, SPATIAL_PARTS),
        last[:, -1],
        last[:, -2],
        decided.products(halves, REDUCTION_PARTS),
        True,
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
    if hardware.kind != "llvm":
        return np.zeros(decided.n)
    penalty = _SCALAR * (decided.choice("vectorize") == 0)
    penalty = penalty + _SERIAL * (decided.choice("parallel") == 0)
    core = _core(decided)
    if not core.tiled:
        return np.asarray(-penalty)
    lanes, registers = vector_unit(hardware)
    filled = np.gcd(core.vector, lanes)
    accumulators = core.levels[:, -1] / filled
    waste = _LANE * np.log2(lanes / filled)
    # An eighth of the registers hold the operands.
    waste += _SPILL * np.maximum(0.0, np.log2(accumulators / (registers * 7 / 8)))
    waste += _LATENCY * np.maximum(0.0, np.log2(_MIN_ACCUMULATORS / accumulators))
    size = np.log2(core.reduction.prod(axis=1).astype(np.float64))
    weight = np.minimum(1.0, size / math.log2(_FULL_WEIGHT_REDUCTION))
    penalty = penalty + weight * waste + _balance_penalty(core.levels[:, 0], hardware.threads)
    return np.asarray(-penalty)


def _balance_penalty(chunks: IntArray, threads: int) -> FloatArray:
    # With four chunks per thread or more the unevenness is less than a quarter.
    uneven = (chunks % threads != 0) & (chunks < 4 * threads)
    return np.where(chunks < threads, _SERIAL, np.where(uneven, _UNEVEN, 0.0))
