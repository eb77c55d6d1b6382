"""Where a search starts: candidates of a space whose tiles are those of the default schedule.

A few of them are close to the best that a space of millions holds. Symbols: a spatial loop of
TVM's tiling ``SSRSRS`` has four factors, a loop of sums two, the outermost first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from foretune.errors import IllegalCandidateError
from foretune.space import _replay
from foretune.space._tiles import MOST_UNROLLED, Tile, can_be_tiled, tiles_of
from foretune.space.decision import (
    INLINE,
    ROOT,
    Choice,
    ComputeLocation,
    Decision,
    PerfectTile,
    Variable,
)
from foretune.space.sketch import Candidate, Sketch

if TYPE_CHECKING:
    from foretune.hardware import Hardware
    from foretune.workload import Workload

_SPATIAL = 0
_RESULT_PARTS, _SUM_PARTS = 4, 2
_TILES = 3
"""Tiles of a block that are tried in each sketch."""
_JOBS = 4
"""Parallel iterations for each thread, at least, where there are so many."""


def starts_of(
    workload: Workload, hardware: Hardware, sketches: Sequence[Sketch]
) -> tuple[Candidate, ...]:
    """The candidates, the most promising first; none for a GPU, or where nothing is summed."""
    if not hardware.has_cores:
        return ()
    schedule = _replay.program(workload.module_json, hardware.target).schedule()
    ranks: dict[Candidate, int] = {}
    tiles: dict[str, list[Tile]] = {}  # of a block, the same in all sketches
    for sketch in reversed(sketches):
        summing = [name for name in sketch.axes if _is_tiled_sum(sketch, name)]
        if len(summing) != 1:
            continue
        content = schedule.get(schedule.get_sblock(summing[0]))
        if len(content.iter_vars) != len(sketch.axes[summing[0]]) or not can_be_tiled(content):
            continue
        if summing[0] not in tiles:
            every = tiles_of(content, max(hardware.simd_bits, 0))
            tiles[summing[0]] = [tile for tile in every if _is_vector(tile)][:_TILES]
        for rank, tile in enumerate(tiles[summing[0]]):
            for candidate in _candidates(sketch, summing[0], content, tile):
                ranks.setdefault(candidate, rank)
    return tuple(sorted(ranks, key=lambda candidate: ranks[candidate]))


def _is_tiled_sum(sketch: Sketch, block: str) -> bool:
    return any(
        isinstance(each, PerfectTile)
        and each.parts == _SUM_PARTS
        and each.name.rpartition(".")[0] == block
        for each in sketch.variables
    )


def _along(tile: Tile) -> int:
    """Results along the last axis that are in the tile."""
    return dict(tile.factors).get(len(tile.once) + len(tile.again) - 1, 1) * tile.lanes


def _is_vector(tile: Tile) -> bool:
    """Whether there are vectors, and they are one to TVM, which has them by powers of two."""
    return tile.lanes > 1 and (_along(tile) // tile.lanes).bit_count() == 1


def _candidates(sketch: Sketch, block: str, content: Any, tile: Tile) -> Iterator[Candidate]:
    """Candidates of a sketch with this tile: they differ in what is unrolled."""
    factors = _factors(sketch, block, content, tile)
    along = _along(tile)
    sums = [each for each in factors.values() if len(each) == _SUM_PARTS]
    whole = tile.vectors * math.prod(map(math.prod, sums))
    inner = tile.vectors * math.prod(within for _, within in sums)
    for unrolled in (tile.vectors, whole if whole <= MOST_UNROLLED else inner):
        decisions = [_decision(variable, factors, along, unrolled) for variable in sketch.variables]
        if any(each is None for each in decisions):
            return
        for location in (INLINE, ROOT):
            located = [
                location if isinstance(v, ComputeLocation) else decision
                for v, decision in zip(sketch.variables, decisions, strict=True)
            ]
            try:
                yield Candidate(sketch, located)
            except IllegalCandidateError:
                continue


def _factors(sketch: Sketch, block: str, content: Any, tile: Tile) -> dict[str, tuple[int, ...]]:
    """The factors of each loop of a block, by the name of its variable."""
    loops = [f"{block}.{name}" for name in sketch.axes[block]]
    axes = list(zip(loops, content.iter_vars, strict=True))
    results = [(name, int(axis.dom.extent)) for name, axis in axes if _is_result(axis)]
    sums = [(name, int(axis.dom.extent)) for name, axis in axes if not _is_result(axis)]
    inner = dict(tile.factors)
    inner[len(results) - 1] = inner.get(len(results) - 1, 1) * tile.lanes
    limits = {v.name: v for v in sketch.variables if isinstance(v, PerfectTile)}
    choices = {v.name: v for v in sketch.variables if isinstance(v, Choice)}
    most = max(choices["parallel"].values) if "parallel" in choices else 1
    enough, jobs = _JOBS * sketch.hardware.threads, 1
    factors: dict[str, tuple[int, ...]] = {}
    for at in (*tile.once, *tile.again):
        name, extent = results[at]
        rest = extent // inner.get(at, 1)
        wanted = most // jobs if at in tile.once or jobs < enough else 1
        parallel = max(n for n in range(1, max(1, min(rest, wanted)) + 1) if rest % n == 0)
        jobs *= parallel
        factors[name] = (parallel, rest // parallel, 1, inner.get(at, 1))
    for name, extent in sums:
        limit = (limits[name].limit if name in limits else 0) or extent
        within = max(n for n in range(1, min(extent, limit) + 1) if extent % n == 0)
        factors[name] = (extent // within, within) if name == sums[-1][0] else (extent, 1)
    return factors


def _is_result(axis: Any) -> bool:
    return int(axis.iter_type) == _SPATIAL


def _decision(
    variable: Variable, factors: Mapping[str, tuple[int, ...]], along: int, unrolled: int
) -> Decision | None:
    """What a variable is decided to be; None where it is not known what it does."""
    if isinstance(variable, PerfectTile):
        known = factors.get(variable.name)
        return known if known is not None and len(known) == variable.parts else None
    if isinstance(variable, ComputeLocation):
        return ROOT
    least = {"parallel": math.inf, "vectorize": along, "unroll_explicit": unrolled}
    if variable.name not in least:
        return None
    values = sorted(value for value in variable.values if value)
    return variable.values.index(next((v for v in values if v >= least[variable.name]), values[-1]))
