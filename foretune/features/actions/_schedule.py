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
from foretune.space.actions import skeleton_of

if TYPE_CHECKING:
    from foretune.hardware import Hardware
    from foretune.space import Candidate

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

CPU_SPATIAL_PARTS = 4
CPU_REDUCTION_PARTS = 2
_OUTER_PARTS = 2
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


SUMMARY_VERSION = 2
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
        if parts < CPU_SPATIAL_PARTS:
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
        self.outer_loops: dict[Nest, IntArray] = {}

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


@functools.lru_cache(maxsize=512)
def _attached(sketch: Any, block: str) -> tuple[tuple[str, int], ...]:
    """What the sketch itself computes at spatial loops of a block: kinds of actions and parts."""
    found = []
    variables = {variable.name: variable for variable in sketch.variables}
    for step in skeleton_of(sketch):
        if step.kind not in ("compute_at", "reverse_compute_at"):
            continue
        loop, _, part = str(step.args[1]).rpartition(".")
        # A location that is decided is a slot, not the name of a loop.
        if loop.rpartition(".")[0] != block or not part.isdigit():
            continue
        tile = variables.get(loop)
        if not isinstance(tile, PerfectTile) or tile.parts >= CPU_SPATIAL_PARTS:
            found.append((step.kind, int(part)))
    return tuple(found)


def single_parts(sketch: Any, block: str) -> int:
    """Outer spatial parts of a tiled block whose loops can be fused: 1 or 2.

    A loop that holds another block beside the next loop ends what is fused. Only what the sketch
    fixes is looked at; see ``jobs_of`` for locations that are decided.
    """
    return min([_OUTER_PARTS, *(1 + part for _, part in _attached(sketch, block))])


def kept_from(sketch: Any, block: str) -> int | None:
    """The first spatial part inside which a block's results are kept until they are read.

    None where nothing that reads them is computed at the block's loops: they go to memory.
    """
    parts = [1 + part for kind, part in _attached(sketch, block) if kind == "reverse_compute_at"]
    return max(parts, default=None)


@functools.lru_cache(maxsize=1 << 14)
def _around(
    sketch: Any, nest: Nest, variable: int, context: tuple[int, ...], location: int
) -> tuple[bool, ...]:
    """Which outer loops of a nest hold a block that has this location; all if it is elsewhere.

    The order is that of ``_outer_loops``.
    """
    known = sketch.locations.nests.get(variable, {}).get(context)
    places = [(tile, part) for part in range(_OUTER_PARTS) for tile in nest.spatial]
    if known is None or location < 0:
        return (True,) * len(places)
    above = {loop.unit for loop in known.loops[: location + 1]}
    # The loop of one factor is the one that has one iteration when just this factor is 1.
    bits = {place: 1 << bit for bit, place in enumerate(sketch.locations.bits)}
    around = tuple(bits.get(place) in above for place in places)
    return around if any(around) else (True,) * len(places)


def _outer_loops(decided: Decided, nest: Nest) -> IntArray:
    """Iterations of the outer loops, outermost first, 1 where one cannot be fused, shape (n, l)."""
    if nest in decided.outer_loops:
        return decided.outer_loops[nest]
    tiles = [decided.tile(variable) for variable in nest.spatial]
    loops = np.stack([tile[:, part] for part in range(_OUTER_PARTS) for tile in tiles], axis=1)
    loops[:, single_parts(decided.sketch, nest.block) * len(tiles) :] = 1
    locations = decided.layout.locations
    for order, variable in enumerate(locations):
        if (decided.index(variable) < 0).all():
            continue
        chosen = np.stack([decided.index(v) for v in locations[: order + 1]], axis=1)
        distinct, which = np.unique(chosen, axis=0, return_inverse=True)
        around = [
            _around(decided.sketch, nest, variable, tuple(row[:-1]), row[-1])
            for row in distinct.tolist()
        ]
        loops = np.where(np.array(around)[which.reshape(-1)], loops, 1)
    decided.outer_loops[nest] = loops
    return loops


def chunks_of(decided: Decided, nest: Nest) -> IntArray:
    """Iterations of all outer loops that can be fused, whatever the limit, shape (n,)."""
    return np.asarray(_outer_loops(decided, nest).prod(axis=1))


def jobs_of(decided: Decided, nest: Nest) -> IntArray:
    """Iterations of the parallel loop of a nest, which threads share out, shape (n,); 1: serial.

    TVM fuses the outer loops of both outermost spatial parts one by one. It stops after the loop
    that exceeds the limit, which is fused all the same, and after a loop that another block is
    computed at. A sketch without the decision is not parallel.

    Before → after, with limit 8: ``4, 2 | 2, 2`` iterations → 4 * 2 * 2 = 16 jobs.

    Source: RewriteParallelVectorizeUnroll in TVM's ``rewrite_parallel_vectorize_unroll.cc``.
    """
    loops = _outer_loops(decided, nest)
    products = np.cumprod(loops, axis=1)
    before = products // loops
    # The first loop is fused under any limit but 0, which switches it off.
    fused = before <= decided.choice("parallel", 0)[:, None]
    return np.asarray(np.where(fused, products, 1).max(axis=1))


@functools.lru_cache(maxsize=512)
def _ends_tiled(sketch: Any, nest: Nest) -> bool:
    """Whether the innermost loop belongs to a tile that is decided, not to an axis of extent 1."""
    split = [
        step.args[0]
        for step in skeleton_of(sketch)
        if step.kind == "split"
        and len(step.args) == 1 + nest.spatial_parts
        and str(step.args[0]).rpartition(".")[0] == nest.block
    ]
    return not split or split[-1] == sketch.variables[nest.spatial[-1]].name


def vector_of(decided: Decided, nest: Nest) -> IntArray:
    """Iterations of the vectorised loop of a nest, shape (n,); 1: scalar code.

    TVM fuses innermost loops only as far as every access stays contiguous. An operand of a product
    or a convolution does not depend on the last axis, and strides along the one before; so only
    the last axis is vectorised, and where its factor exceeds the limit nothing is. It differs where
    the innermost factor is a whole axis and TVM cannot see the strides (of padding that is
    inlined) or where these run on (a convolution by 1 x 1 in NCHW): more axes may be fused there.

    Source: as ``jobs_of``.
    """
    last = decided.tile(nest.spatial[-1])[:, -1]
    limit = decided.choice("vectorize", 0) * _ends_tiled(decided.sketch, nest)
    return np.asarray(np.where(last <= limit, last, 1))


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
    - fewer jobs than threads, or unevenly many (``jobs_of``).

    And of every sketch: vectorise switched off; where nothing is tiled, parallel, too.
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
