"""Bytes that move between the levels of a CPU's memory, by the distance of reuse.

What a loop touches again in its next iteration is still in a cache if all that one iteration
touches fits into it. So a loop whose single iteration fits brings every line once, and one whose
iteration does not brings everything as often as it runs. The border is softened by a power of
working set to cache, since caches are neither fully associative nor a program's alone.

The tree of loops is walked from the inside: statements that share loops share their working sets.
Programs run again and again: what fits into a cache as a whole is there from the run before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from foretune._arrays import FloatArray
from foretune.describe._cpu_machine import LINE_BYTES, PAGE_BYTES, PAGES, Constants, Machine
from foretune.describe._cpu_touched import BLOCKS, Visits
from foretune.describe._nests import Nests

LEVELS = 3
"""Caches."""
_BLOCK_BYTES = np.array([LINE_BYTES] * LEVELS + [PAGE_BYTES] * 2, dtype=np.float64)[:, None]


@dataclass(frozen=True)
class Traffic:
    """Bytes of one stage of a program: a loop nest at its top.

    Attributes:
        beyond: Bytes that the busiest thread moves from and to what lies beyond the first, second
            and third cache, shape (LEVELS, n).
        all_memory: Bytes that all threads together move from and to memory, shape (n,).
        page_misses, page_walks: Of the busiest thread, addresses that the first and the second
            table of translations has not, shape (n,).
        used: Share of the bytes of moved lines that the program asks for, shape (n,).
        needed: Bytes that must move at least: every line once, shape (n,).
        fitting: Working set of the largest part whose reuse each cache holds, shape (LEVELS, n).
        spilling: Working set of the smallest part whose reuse it does not, 0 if none,
            shape (LEVELS, n).
        total: Bytes touched by all threads, shape (n,).
    """

    beyond: FloatArray
    all_memory: FloatArray
    page_misses: FloatArray
    page_walks: FloatArray
    used: FloatArray
    needed: FloatArray
    fitting: FloatArray
    spilling: FloatArray
    total: FloatArray


@dataclass
class _Walk:
    """What is known while the tree of loops is walked.

    Attributes:
        capacity: Bytes of caches and of what tables of translations reach, shape (BLOCKS, 1).
        sharpness: How suddenly they give up.
        copies: Of each buffer, how many times as much all threads together touch, shape (n,).
        fitting, spilling: See ``Traffic``.
    """

    capacity: FloatArray
    sharpness: float
    copies: dict[int, FloatArray]
    fitting: FloatArray
    spilling: FloatArray

    @classmethod
    def new(
        cls, capacity: FloatArray, sharpness: float, copies: dict[int, FloatArray], n: int
    ) -> _Walk:
        """At the start."""
        return cls(capacity, sharpness, copies, np.zeros((LEVELS, n)), np.full((LEVELS, n), np.inf))

    def held(self, blocks: dict[int, FloatArray]) -> FloatArray:
        """Share of the reuse at this distance that each holds, shape (BLOCKS, n)."""
        each = list(blocks.values())
        distance = np.add.reduce([b[:BLOCKS] for b in each]) * _BLOCK_BYTES
        shared = np.add.reduce([b[2] * self.copies[k] for k, b in blocks.items()])
        distance[2] = shared * LINE_BYTES
        fits = distance[:LEVELS] <= self.capacity[:LEVELS]
        np.maximum(self.fitting, np.where(fits, distance[:LEVELS], 0.0), out=self.fitting)
        np.minimum(self.spilling, np.where(fits, np.inf, distance[:LEVELS]), out=self.spilling)
        crowded = np.maximum.reduce([b[BLOCKS:] for b in each]) * LINE_BYTES
        distance[:2] = np.maximum(distance[:2], crowded)
        with np.errstate(over="ignore"):
            return np.asarray(1 / (1 + (distance / self.capacity) ** self.sharpness))


def traffic_of(
    nests: Nests,
    stages: Sequence[Sequence[Visits]],
    machine: Machine,
    constants: Constants,
) -> list[Traffic]:
    """Traffic of each stage: statements that share the first loop of their paths, or one alone."""
    n = len(nests)
    tables = np.array(PAGES) * PAGE_BYTES
    capacity = np.concatenate([np.array(machine.caches) * constants.filled, tables])[:, None]
    threads = [np.maximum.reduce([each.loops.threads.used for each in stage]) for stage in stages]
    copies = [_copies(stage, used) for stage, used in zip(stages, threads, strict=True)]
    whole: dict[int, FloatArray] = {}
    whole_copies: dict[int, FloatArray] = {}
    for stage, own in zip(stages, copies, strict=True):
        for b, lines in _most(stage, 0).items():
            whole[b] = np.maximum(whole.get(b, 0.0), lines)
            whole_copies[b] = np.maximum(whole_copies.get(b, 0.0), own[b])
    walk = _Walk.new(capacity, constants.sharpness, whole_copies, n)
    again = 1 - walk.held(whole)
    return [
        _of_stage(nests, stage, _Walk.new(capacity, constants.sharpness, own, n), again, machine)
        for stage, own in zip(stages, copies, strict=True)
    ]


def _of_stage(
    nests: Nests, stage: Sequence[Visits], walk: _Walk, again: FloatArray, machine: Machine
) -> Traffic:
    n = len(nests)
    moved = _walk(walk, stage, 0)
    touched = _most(stage, 0)
    walk.held(touched)
    lines = {b: each[0] * walk.copies[b] for b, each in touched.items()}
    stored = {f.motion.access.buffer for s in stage for f in s.footprints if f.motion.access.store}
    ways = {b: 2.0 if b in stored else 1.0 for b in moved}
    beyond = _sum(n, (moved[b][:LEVELS] * ways[b] for b in moved)) * LINE_BYTES * again[:LEVELS]
    # Inner caches bring at least what outer ones do.
    beyond = np.maximum.accumulate(beyond[::-1], axis=0)[::-1]
    last = LEVELS - 1 if machine.has_l3 else 1
    all_memory = _sum(n, (moved[b][last] * ways[b] * walk.copies[b] for b in moved))
    pages = _sum(n, (each[LEVELS:] for each in moved.values())) * again[LEVELS:]
    needed = _sum(n, (each * ways[b] for b, each in lines.items() if nests.buffers[b].parameter))
    return Traffic(
        beyond=beyond,
        all_memory=all_memory * LINE_BYTES * again[last],
        page_misses=pages[0],
        page_walks=pages[1],
        used=_used(nests, stage, moved, np.broadcast_to(walk.capacity[0], n)),
        needed=needed * LINE_BYTES,
        fitting=walk.fitting,
        spilling=np.where(np.isfinite(walk.spilling), walk.spilling, 0.0),
        total=_sum(n, lines.values()) * LINE_BYTES,
    )


def _sum(n: int, several: Iterable[FloatArray]) -> FloatArray:
    return np.asarray(sum(several, np.zeros(n)))


def _walk(walk: _Walk, statements: Sequence[Visits], depth: int) -> dict[int, FloatArray]:
    """Blocks of each buffer that loops from a depth inwards bring, of shape (BLOCKS, n)."""
    first = statements[0].loops.path
    if len(statements) == 1 and depth == len(first):
        return {b: each[:BLOCKS] for b, each in _most(statements, depth).items()}
    inner: dict[int, FloatArray] = {}
    several = parts(statements, depth + 1)
    for part in several:
        for b, each in _walk(walk, part, depth + 1).items():
            inner[b] = inner[b] + each if b in inner else each
    extent = statements[0].extents[:, depth]
    union, once = _most(statements, depth + 1), _most(statements, depth)
    held = walk.held(union)
    runs = extent > 1
    touched = {}
    for b, each in inner.items():
        # Statements side by side read what the ones before them brought.
        one = each
        if len(several) > 1:
            one = held * np.minimum(union[b][:BLOCKS], each) + (1 - held) * each
        all_ = one * extent
        kept = held * np.minimum(once[b][:BLOCKS], all_) + (1 - held) * all_
        touched[b] = np.where(runs, kept, one)
    return touched


def parts(statements: Sequence[Visits], depth: int) -> list[list[Visits]]:
    """Neighbours that share the loops outside of a depth and the loop at it."""
    groups: list[list[Visits]] = []
    for each in statements:
        path = each.loops.path
        last = groups[-1][-1].loops.path if groups else ()
        if groups and len(path) > depth and path[: depth + 1] == last[: depth + 1]:
            groups[-1].append(each)
        else:
            groups.append([each])
    return groups


def _most(statements: Sequence[Visits], depth: int) -> dict[int, FloatArray]:
    """Blocks of each buffer that loops from a depth inwards touch: those of its widest access."""
    most: dict[int, FloatArray] = {}
    for each in statements:
        for footprint in each.footprints:
            b = footprint.motion.access.buffer
            blocks = footprint.blocks[:, :, depth]
            most[b] = np.maximum(most[b], blocks) if b in most else blocks
    return most


def _copies(stage: Sequence[Visits], threads: FloatArray) -> dict[int, FloatArray]:
    """How many threads touch lines of a buffer that no other touches, as if each had its own."""
    copies: dict[int, FloatArray] = {}
    for each in stage:
        for footprint in each.footprints:
            apart = np.clip(footprint.whole_lines / footprint.blocks[0, :, 0], 1.0, threads)
            b = footprint.motion.access.buffer
            copies[b] = np.maximum(copies[b], apart) if b in copies else apart
    return copies


def _used(
    nests: Nests, stage: Sequence[Visits], moved: dict[int, FloatArray], capacity: FloatArray
) -> FloatArray:
    """Bytes asked for beside bytes of the lines that carry them, where the first cache gives up.

    Lines that stay until their other elements are asked for are used well.
    """
    asked, carried = np.zeros(len(nests)), np.full(len(nests), 1e-30)
    for each in stage:
        if not each.footprints:
            continue
        touched = np.asarray(sum(f.blocks[0] for f in each.footprints)) * LINE_BYTES
        # The outermost loop of which one iteration fits brings every line once.
        fits = touched <= capacity[:, None]
        place = np.where(fits.any(axis=1), fits.argmax(axis=1), touched.shape[1] - 1)
        at = (np.arange(len(nests)), np.maximum(place - 1, 0))
        for footprint in each.footprints:
            b = footprint.motion.access.buffer
            weight = moved[b][0]
            lines = footprint.blocks[0][at] * LINE_BYTES
            share = footprint.distinct[at] * nests.buffers[b].bytes / lines
            asked += weight * np.minimum(share, 1.0)
            carried += weight
    return np.asarray(asked / carried)
