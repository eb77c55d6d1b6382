"""The columns of a candidate, and the sizes that their numbers follow from.

Axes, levels and parts count from the innermost. A column of something that is not there is 0.
"""

from __future__ import annotations

from collections.abc import Iterator

from foretune.features.table import Column, Row, Table
from foretune.features.tokens import KINDS
from foretune.hardware import FEATURE_COLUMNS

MACHINE_FEATURE_VERSION = 2
"""Number of what ``machine_features`` makes of known factors: how they are scaled and rounded.

What stands in for unknown ones may change under it: nothing learns from them."""

SUMMARY_VERSION = 2
"""Number of what ``schedule_summary`` gives."""

ACTION_FEATURE_VERSION = f"3+{MACHINE_FEATURE_VERSION}+{SUMMARY_VERSION}"
"""Number of the layout. Raised whenever a column changes its place or meaning."""

SPATIAL_AXES, REDUCTION_AXES = 6, 4
"""Axes with columns of their own."""
SPATIAL_PARTS = 5
"""Factors of a spatial loop at most: five on GPUs, four on CPUs."""
REDUCTION_PARTS = 3
"""Factors of a reduction loop at most: three on GPUs, two on CPUs."""
LOCATIONS = 6
"""Compute locations with columns of their own, in the order in which they are decided."""
SPLITS = 2
"""Splits of blocks that are not tiled, in the same way."""

CHOICES = ("parallel", "vectorize", "unroll_explicit", "unroll_implicit", "cooperative_fetch")
"""Choices with a column of their own."""

LEVELS = ((3, 2), (2, 2), (2, 1), (1, 1), (1, 0))
"""Tiles inside one another, as (spatial parts, reduction parts) from the innermost: the work of an
outermost tile, the tile inside it, ... down to the register tile."""
READS = 3
"""Buffers read that have columns of their own."""
FOOTPRINTS = (*(f"read{b}" for b in range(READS)), "write", "all")
"""What is counted at each of ``LEVELS``; columns of a level stand together, in this order."""

FOREIGN_ANNOTATIONS = 11
"""Ansor's annotations: none, unroll, vectorize, parallel, vthread, three blocks, three threads."""
FOREIGN_SPLITS = 12
FOREIGN_STEPS, FOREIGN_NUMBERS = 16, 4
"""Actions of others of which the first numbers are given as they are, and how many."""


def _products(group: str, spatial: str, reduction: str) -> Iterator[Row]:
    for letter, parts, loops in (("s", SPATIAL_PARTS, spatial), ("r", REDUCTION_PARTS, reduction)):
        for part in range(parts):
            yield f"{group}.{letter}{part}", "log2(iterations)", f"product of part N of {loops}"


def _tiles() -> Iterator[Row]:
    for letter, axes, parts in (
        ("s", SPATIAL_AXES, SPATIAL_PARTS),
        ("r", REDUCTION_AXES, REDUCTION_PARTS),
    ):
        loop = "spatial" if letter == "s" else "reduction"
        for axis in range(axes):
            for part in range(parts):
                name = f"tile.{letter}{axis}.part{part}"
                yield name, "log2(iterations)", f"part N of {loop} axis N"


def _workload() -> Iterator[Row]:
    yield "workload.flops", "log2(1 + operations)", "floating-point operations"
    yield "workload.blocks", "blocks", "of the untransformed program"
    yield "workload.input", "log2(1 + bytes)", "read and not written"
    yield "workload.output", "log2(1 + bytes)", "written and not read"
    yield "workload.between", "log2(1 + bytes)", "written and read"
    yield "workload.intensity", "log2(operations/byte)", "operations per byte of input and output"
    yield "workload.spatial", "log2(iterations)", "of all spatial axes of the block with most"
    yield "workload.reduction", "log2(iterations)", "of all its reduction axes"
    for axis in range(SPATIAL_AXES):
        yield f"workload.s{axis}", "log2(iterations)", "of spatial axis N of more than one"
    for axis in range(REDUCTION_AXES):
        yield f"workload.r{axis}", "log2(iterations)", "of reduction axis N of more than one"


def _footprints() -> Iterator[Row]:
    for level in range(len(LEVELS)):
        for name in FOOTPRINTS:
            touched = {"write": "of the result", "all": "of all buffers"}.get(
                name, "of buffer N that is read, those along the vector first, then by size"
            )
            meaning = f"that a tile of level N touches {touched}"
            yield f"footprint{level}.{name}", "log2(1 + bytes)", meaning
    for level in range(len(LEVELS)):
        meaning = "that a tile of level N touches per iteration"
        yield f"traffic.{level}", "log2(bytes/operation)", meaning
    for name in FOOTPRINTS[:-1]:
        yield f"{name}.varies_along_vector", "flag", "the vector's axis moves the access"
        yield f"{name}.contiguous_along_vector", "flag", "its neighbours are neighbours in memory"


def _locations() -> Iterator[Row]:
    for location in range(LOCATIONS):
        yield f"location{location}.inline", "flag", "the block is inlined"
        yield f"location{location}.root", "flag", "it stays a nest of its own"
        yield f"location{location}.depth", "loops", "of another nest that it is computed under"
        yield f"location{location}.relative", "loops/loops", "the same by the deepest there is"
    yield "locations.inline", "blocks", "that are inlined"
    yield "locations.root", "blocks", "that stay nests of their own"
    yield "locations.attached", "blocks", "that are computed under loops of others"
    yield "locations.all", "blocks", "whose location is decided"


def _match() -> Iterator[Row]:
    yield "match.lanes_empty", "log2(lanes/lanes)", "of a register over those the vector fills"
    yield "match.vector", "log2(iterations/lanes)", "innermost factor over lanes of a register"
    yield "match.registers", "log2(elements/register elements)", "register tile over all registers"
    yield "match.chunks", "log2(iterations/threads)", "of the loops that could be parallel"
    yield "match.parallel", "log2(jobs/threads)", "iterations of the parallel loop over threads"
    yield "match.uneven", "log2(time/ideal time)", "threads that wait for the last jobs"
    for level in range(len(LEVELS)):
        for cache in ("l1", "l2", "l3"):
            meaning = "bytes touched by a tile of level N over the size of cache N"
            yield f"match.footprint{level}_{cache}", "log2(bytes/cache bytes)", meaning


def _foreign() -> Iterator[Row]:
    yield "foreign.pragma", "log2(1 + steps)", "that Ansor's pragma allows to unroll"
    for annotation in range(FOREIGN_ANNOTATIONS):
        yield f"foreign.annotation{annotation}", "actions", "that annotate a loop with Ansor's N"
    for choice in CHOICES:
        yield f"foreign.{choice}", "log2(1 + value)", "annotated by MetaSchedule's trace"
    yield from _products("foreign", "splits with the most factors", "all other splits")
    for split in range(FOREIGN_SPLITS):
        yield f"foreign.split{split}.extent", "log2(iterations)", "of the loop of split N"
        for part in range(SPATIAL_PARTS):
            yield f"foreign.split{split}.part{part}", "log2(iterations)", "factor N of split N"
    for step in range(FOREIGN_STEPS):
        for number in range(FOREIGN_NUMBERS):
            unit = "sign(x) log2(1 + |x|)"
            yield f"foreign.step{step}.number{number}", unit, "number N of action N"


_SUMMARY = (
    ("parallel", "most iterations that the parallel loop is to have, -1: not decided"),
    ("vectorize", "most lanes of a vector, -1: not decided"),
    ("unroll", "most steps to unroll, -1: not decided"),
    ("chunks", "product of the outermost spatial factors"),
    ("middle", "product of the second ones"),
    ("outer_tile", "product of the third ones"),
    ("inner_tile", "product of the innermost ones"),
    ("vector", "innermost factor of the last spatial loop"),
    ("next_to_vector", "factor outside of it"),
    ("reduction_outer", "product of the outer reduction factors"),
    ("reduction_inner", "product of the inner ones"),
    ("lanes_filled", "lanes of a register that the vector fills"),
    ("accumulators", "registers that the innermost tile takes"),
    ("two_tiles", "product of both innermost spatial factors"),
    ("footprint", "the same times the inner reduction factors"),
)

TABLE = Table(
    {
        "own": [("own", "flag", "the program is a candidate, not one that others measured")],
        "actions": [
            *((f"actions.{kind}", "actions", "of this kind") for kind in KINDS),
            ("actions.all", "actions", "of all kinds"),
        ],
        "machine": [
            (f"machine.{name}", f"log2(1 + {unit})", "what is known of the hardware")
            for name, unit in FEATURE_COLUMNS
        ],
        "workload": _workload(),
        "tile": _tiles(),
        "level": [
            *_products("level", "spatial loops of the first block", "reductions of the first"),
            ("level.parallel", "log2(jobs)", "of the parallel loop of the first block"),
            ("level.vector", "log2(iterations)", "of the vectorised loop of the first block"),
            ("level.nests", "blocks", "that are tiled"),
            ("second.share", "log2(iterations/iterations)", "of the second block over the first"),
            *_products("second", "spatial loops of the second block", "reductions of the second"),
        ],
        "footprint": _footprints(),
        "choice": [
            *((f"choice.{name}", "log2(1 + value)", "decided") for name in CHOICES),
            ("choice.others", "log2(1 + value)", "sum over all other choices"),
        ],
        "location": _locations(),
        "split": [
            (f"split{split}.{name}", "log2(iterations)", f"{name} part of split N of other blocks")
            for split in range(SPLITS)
            for name in ("outer", "inner")
        ],
        "summary": [
            *((f"summary.{name}", "log2(2 + value)", meaning) for name, meaning in _SUMMARY),
            ("summary.fit", "-log2(slow-down)", "guessed from all that wastes the machine"),
        ],
        "match": _match(),
        "generated": [
            ("generated.lanes_empty", "log2(lanes/lanes)", "of its registers over the vector's"),
            ("generated.unrolled", "log2(steps)", "of the innermost loops that may be unrolled"),
            ("generated.tile_unrolled", "flag", "the whole register tile is"),
            ("generated.registers", "log2(registers/registers)", "that a tile takes, over all"),
            (
                "generated.registers_if_unrolled",
                "log2(registers/registers), 6 if not unrolled",
                "the same where accumulators stay in registers",
            ),
            ("generated.loads", "log2(loads/multiply-add)", "of operands"),
            ("generated.pieces", "log2(pieces)", "that a vector's elements are read in"),
            ("generated.kept", "log2(KiB)", "written by a tile before something reads it"),
            ("generated.kept_l1", "log2(bytes/cache bytes)", "the same over the first cache"),
        ],
        "foreign": _foreign(),
    }
)

SUMMARY_COLUMNS = tuple(
    column.name.removeprefix("summary.") for column in TABLE.columns if column.section == "summary"
)
"""Columns of ``schedule_summary``."""


def action_columns() -> tuple[Column, ...]:
    """All columns in order."""
    return TABLE.columns
