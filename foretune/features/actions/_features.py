"""Features of schedules from their decisions alone: no program is made, tens of microseconds each.

Idea: the multi-level tiled block with the most iterations tells most of what a schedule costs. Its
tile sizes, together with how the block indexes its buffers, give the bytes that each level of tiles
touches and how often it is visited; the hardware's factors turn these into "fits the first cache"
or "work for every thread". What is the same for all candidates of a sketch is read once; candidates
of one sketch are filled in as columns.

Symbols: a nest has spatial parts ``s`` and reduction parts ``r``, counted from the innermost: on a
CPU (S S R S R S) the register tile is ``s0``, its last axis the vector; ``s3`` and ``s2`` make up
the parallel loop. Axes are counted from the innermost, too. Sizes are log2.

Programs that others measured have actions but no sketch: they get the counts of kinds and the
``foreign`` columns, which align the numbers of split steps and flatten the first steps; the others
are 0. The column ``own`` tells which. Where nothing is known of the machine, its columns are 0.

Sources: the columns follow what TenSet's and MetaSchedule's per-store features hold (bytes touched
and reuse per level, Ansor, OSDI 2020, appendix B), computed from the tiles instead of the program.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._arrays import Float32Array, FloatArray
from foretune.features.actions import _sections as sections
from foretune.features.actions._blocks import blocks_of
from foretune.features.actions._columns import TABLE
from foretune.features.actions._decided import Decided, by_sketch
from foretune.features.actions._fit import summary_of
from foretune.features.actions._footprints import footprints
from foretune.features.actions._foreign import foreign_features
from foretune.features.actions._generated import generated
from foretune.features.actions._machine import machine_features, match
from foretune.features.actions._shared import Shared
from foretune.features.memory import Memory
from foretune.features.tokens import actions_of, kind_index

if TYPE_CHECKING:
    from foretune.hardware import Hardware


_REMEMBERED_BYTES = 16 << 20
"""Rows kept in memory per process: a search asks several models about a program."""
_memory: Memory[Float32Array] = Memory(_REMEMBERED_BYTES)


def action_features(programs: Sequence[Any], machine: Hardware | None = None) -> Float32Array:
    """Features of programs of one hardware from their decisions or actions.

    Args:
        programs: Each with its ``candidate``, or with ``actions`` or a ``configuration``
            (``foretune.dataset.Program``). Several workloads may be mixed.
        machine: What they run on; the hardware of each candidate if None.

    Returns:
        float32 of shape (n, len(action_columns())). Nothing is NaN.
    """
    features = np.zeros((len(programs), len(TABLE)), dtype=np.float32)
    marks: dict[int, str] = {}
    found: dict[str, Float32Array] = {}
    missing: dict[str, Any] = {}
    places: list[tuple[int, str]] = []
    factors = machine_features(machine)
    for row, program in enumerate(programs):
        candidate = program.candidate
        if candidate is None:
            _fill_foreign(features[row], program, factors)
            continue
        known = machine if machine is not None else candidate.hardware
        if id(known) not in marks:
            marks[id(known)] = _mark(known)
        key = candidate.key + marks[id(known)]
        places.append((row, key))
        if key in _memory:
            found[key] = _memory[key]
        else:
            missing[key] = candidate
    found |= _made(missing, machine)
    _memory.remember(found)
    for row, key in places:
        features[row, : len(found[key])] = found[key]
    return features


def _mark(hardware: Hardware) -> str:
    """16 hex digits that change with any figure of a machine, which ``Hardware.key`` does not."""
    return hashlib.blake2b(repr(hardware).encode(), digest_size=8).hexdigest()


def _made(candidates: Mapping[str, Any], machine: Hardware | None) -> dict[str, Float32Array]:
    """The own columns of candidates that may be of several sketches, by the keys given."""
    keys, values = list(candidates), list(candidates.values())
    made: dict[str, Float32Array] = {}
    for rows, own in by_sketch(values):
        filled = _own([values[row] for row in rows], own if machine is None else machine)
        for row, columns in zip(rows, filled.astype(np.float32), strict=True):
            # A row of its own each: one that is kept must not keep the whole table.
            made[keys[row]] = columns.copy()
    return made


def _own(candidates: Sequence[Any], hardware: Hardware) -> FloatArray:
    """The columns of candidates of one sketch, all but the foreign ones."""
    decided = Decided(candidates)
    shared = Shared(decided, hardware, blocks_of(decided.sketch.workload.module_json))
    levels, touched = sections.levels(shared), footprints(shared)
    return TABLE.join(
        {
            "own": np.ones((shared.n, 1)),
            "actions": sections.kinds(shared),
            "machine": shared.same(machine_features(hardware).tolist()),
            "workload": sections.workload(shared),
            "tile": sections.tiles(shared),
            "level": levels,
            "footprint": touched,
            "choice": sections.choices(shared),
            "location": sections.locations(shared),
            "split": sections.splits(shared),
            "summary": summary_of(decided, hardware),
            "match": match(shared, levels, touched),
            "generated": generated(shared),
        }
    )


def _fill_foreign(row: Float32Array, program: Any, machine: FloatArray) -> None:
    """Fills the columns of a program that others measured.

    Args:
        row: Of all columns, to be filled.
        program: Of actions or a configuration.
        machine: ``machine_features`` of what it ran on, which all programs share.
    """
    actions = actions_of(program)
    kinds = row[TABLE.place("actions")]
    for action in actions:
        kinds[kind_index(action.kind)] += 1
    kinds[-1] = len(actions)
    row[TABLE.place("machine")] = machine
    row[TABLE.place("foreign")] = foreign_features(actions)
