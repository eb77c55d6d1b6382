"""The decisions of candidates of one sketch as columns of numbers, and the loops they make.

Symbols: MetaSchedule's CPU tiling is S S R S R S: every spatial loop has four factors ``s0..s3``,
outermost first, every reduction loop two. A *nest* is a block that is tiled so.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._arrays import IntArray
from foretune.space import Choice, ComputeLocation, PerfectTile
from foretune.space.actions import skeleton_of

if TYPE_CHECKING:
    from foretune.hardware import Hardware
    from foretune.space import Candidate


CPU_SPATIAL_PARTS = 4
CPU_REDUCTION_PARTS = 2
_OUTER_PARTS = 2


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
    parts = []
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
            parts.append((step.kind, int(part)))
    return tuple(parts)


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
    for places in rows.values():
        yield places, candidates[places[0]].hardware
