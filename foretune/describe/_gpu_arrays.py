"""Where a kernel's intermediate arrays lie: in registers, in shared memory, in memory of a thread.

An array that is local to a thread is in registers where every index of it is known when compiled,
which takes that the loops that move it are unrolled.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretune._arrays import BoolArray, FloatArray, Int8Array
from foretune.describe._gpu_footprint import Footprint
from foretune.describe._gpu_work import UNROLLED_UNASKED, path_of, sequential
from foretune.describe._nests import SERIAL, THREAD, VTHREAD, Access, Nests, Statement


def _common(paths: list[tuple[int, ...]]) -> int:
    """Length of the path that all share."""
    length = 0
    for loops in zip(*paths, strict=False):
        if len(set(loops)) > 1:
            break
        length += 1
    return length


def _users(
    nests: Nests, statements: tuple[Statement, ...], scope: str
) -> dict[int, list[Statement]]:
    users: dict[int, list[Statement]] = {}
    for statement in statements:
        for access in statement.accesses:
            if nests.buffers[access.buffer].scope == scope:
                seen = users.setdefault(access.buffer, [])
                if not any(statement is each for each in seen):
                    seen.append(statement)
    return users


def fences_of(nests: Nests, statements: tuple[Statement, ...]) -> list[int]:
    """Of each statement, the outer loops over which registers keep nothing that it accesses.

    They are shared with the other users of an array that is written meanwhile.
    """
    fences = [0] * len(statements)
    for scope in ("shared", "global"):
        for number, users in _users(nests, statements, scope).items():
            written = any(a.store for s in users for a in s.accesses if a.buffer == number)
            if len(users) < 2 or not written:
                continue
            common = _common([s.path for s in users])
            for at, statement in enumerate(statements):
                if any(statement is user for user in users):
                    fences[at] = max(fences[at], common)
    return fences


@dataclass(frozen=True)
class Allocated:
    """Where intermediate arrays lie; arrays of shape (n,).

    Attributes:
        registers: Of a thread for local arrays.
        shared_bytes: Of a block.
        private_bytes: Of a thread in memory: local arrays whose index is not known when compiled.
        private_accesses: Of a thread to these.
    """

    registers: FloatArray
    shared_bytes: FloatArray
    private_bytes: FloatArray
    private_accesses: FloatArray


def allocated(nests: Nests, statements: tuple[Statement, ...]) -> Allocated:
    """Room that the intermediate arrays of a kernel take."""
    n = len(nests)
    registers, shared, private, accesses = (np.zeros(n) for _ in range(4))
    for number, users in _users(nests, statements, "local").items():
        buffer = nests.buffers[number]
        # What one statement alone uses outlives its loops.
        common = _common([s.path for s in users]) if len(users) > 1 else 0
        size, indexed, times = np.zeros(n), np.zeros(n, bool), np.zeros(n)
        for statement in users:
            kinds, extents = path_of(nests, statement)
            own = sequential(kinds)
            live = own.copy()
            live[:, :common] &= kinds[:, :common] == VTHREAD
            for access in statement.accesses:
                if access.buffer == number:
                    elements = Footprint(access, buffer).elements(np.where(live, extents, 1.0))
                    size = np.maximum(size, elements * _copies(kinds, extents, access))
                    loops, runs = _indexed(statement, access, kinds, np.where(own, extents, 1.0))
                    indexed |= loops
                    times = times + runs * statement.executed
        registers += np.where(indexed, 0.0, size * max(buffer.bytes / 4, 1.0))
        private += np.where(indexed, size * buffer.bytes, 0.0)
        accesses += np.where(indexed, times, 0.0)
    for number in _users(nests, statements, "shared"):
        shared += nests.buffers[number].shape.prod(axis=1) * nests.buffers[number].bytes
    return Allocated(registers, shared, private, accesses)


def _indexed(
    statement: Statement, access: Access, kinds: Int8Array, own: FloatArray
) -> tuple[BoolArray, FloatArray]:
    """Whether loops that are not unrolled move the index of a local array, and its accesses then.

    Loops inside of all that move it leave the element in a register.
    """
    moved = np.zeros(own.shape, bool)
    for term in access.terms:
        moved[:, term.place] |= (term.values > 1) & (term.coefficient != 0)
    moved &= own > 1
    inside = np.cumsum(moved, axis=1) > 0
    copies = np.where(inside | (kinds == VTHREAD), own, 1.0).prod(axis=1)
    loops = (inside & (kinds == SERIAL) & (own > 1)).any(axis=1)
    outside = np.cumsum(moved[:, ::-1], axis=1)[:, ::-1] > 0
    accesses = np.where(outside, own, 1.0).prod(axis=1)
    return loops & (copies > np.maximum(statement.unroll, UNROLLED_UNASKED)), accesses


def _copies(kinds: Int8Array, extents: FloatArray, access: Access) -> FloatArray:
    """Virtual threads that a local buffer's index does not name: each has a buffer of its own."""
    named = {term.place for term in access.terms}
    copies = np.ones(len(extents))
    for place in range(extents.shape[1]):
        if place not in named:
            copies = copies * np.where(kinds[:, place] == VTHREAD, extents[:, place], 1.0)
    return copies


def barriers_of(nests: Nests, statements: tuple[Statement, ...]) -> FloatArray:
    """Barriers that a block passes: before and after shared memory is filled, in every iteration
    of the loops that the filling and the use share."""
    barriers: dict[tuple[int, ...], FloatArray] = {}
    for users in _users(nests, statements, "shared").values():
        common = _common([s.path for s in users])
        prefix = users[0].path[:common]
        kinds, extents = nests.kinds[:, list(prefix)], nests.extents[:, list(prefix)]
        own = sequential(kinds) & (kinds != VTHREAD) & (kinds != THREAD)
        times = np.where(own, extents, 1.0).prod(axis=1) if prefix else np.ones(len(nests))
        # After the last filling nothing is overwritten; buffers filled together share barriers.
        barriers[prefix] = 2.0 * times - 1.0
    return sum(barriers.values(), np.zeros(len(nests)))
