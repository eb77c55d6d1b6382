"""Layout configurations of a graph, packed so that 100,000 of them fit into memory or on a disk.

Idea: a configuration gives each configurable node three lists of six axes (layouts of output, input
and kernel), filled up with -1. An axis is one of -1, 0, ..., 5, so that a list is a number of six
digits to base 7:

    before  (1, 0, -1, -1, -1, -1)
    after   2·1 + 1·7 = 9

which is a sixth of the memory (section 2.2.3 of Tatarkhanov et al., TGraph, 2025). Rows are
unpacked when they are used. Where even the packed form is large, it lies in a file that is mapped
into memory.

Symbols: c configurations, nc configurable nodes.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foretune._arrays import Array, IndexArray, Int8Array, Int32Array
from foretune._files import no_temporary_files
from foretune.errors import BadInputError

LISTS, AXES = 3, 6
FEATURES = LISTS * AXES
"""Numbers of a configurable node in one configuration."""
BASE = 7
_POWERS = BASE ** np.arange(AXES, dtype=np.int32)
_IN_MEMORY = 32 * 2**20
"""Bytes up to which a graph's packed configurations are held in memory."""


def pack(features: Array) -> Int32Array:
    """Lists of six axes as one number each.

    Args:
        features: Whole numbers from -1 to 5, of shape (..., 18).

    Returns:
        int32 of shape (..., 3), from 0 to 7^6 - 1.

    Raises:
        BadInputError: Another number is among them.
    """
    known = (features >= -1) & (features < BASE - 1)
    if features.dtype.kind == "f":
        known &= features == np.rint(features)
    if not known.all():
        raise BadInputError(
            f"a configuration must hold whole numbers from -1 to {BASE - 2}, but holds "
            f"{features[~known][0]}: give a file of TpuGraphs"
        )
    lists = (features.astype(np.int32) + 1).reshape(*features.shape[:-1], LISTS, AXES)
    return np.asarray(lists @ _POWERS, dtype=np.int32)


def unpack(codes: Array) -> Int8Array:
    """What ``pack`` packed: (..., 3) -> int8 of shape (..., 18)."""
    digits = codes[..., None] // _POWERS % BASE - 1
    return digits.astype(np.int8).reshape(*codes.shape[:-1], FEATURES)


@dataclass(frozen=True)
class Configurations:
    """Packed configurations of one graph.

    Attributes:
        codes: int32 of shape (c, nc, 3), in memory or a file that is mapped into it.
        keys: A digest of each, of type ``V16`` and shape (c,): equal where configurations are.
    """

    codes: Int32Array
    keys: npt.NDArray[np.void]

    def __len__(self) -> int:
        return len(self.codes)

    def features(self, rows: IndexArray) -> Int8Array:
        """Some of them unpacked, int8 of shape (rows, nc, 18)."""
        return unpack(np.asarray(self.codes[rows]))


def packed(blocks: Iterable[Array], count: int, nodes: int) -> Configurations:
    """Packs configurations that come in pieces.

    Args:
        blocks: Of shape (rows, nc, 18) each.
        count: All of their rows together.
        nodes: nc.

    Raises:
        BadInputError: A number is no axis, or there is no room for temporary files.
    """
    codes = _room_for((count, nodes, LISTS))
    keys = np.empty(count, dtype="V16")
    at = 0
    for block in blocks:
        done = pack(block)
        codes[at : at + len(done)] = done
        for row, one in enumerate(done, start=at):
            keys[row] = np.void(hashlib.blake2b(one.tobytes(), digest_size=16).digest())
        at += len(done)
    return Configurations(codes, keys)


def distinct(keys: npt.NDArray[np.void], runtime: Array | None, keep: str = "min") -> IndexArray:
    """One row for each different configuration, in the order in which they first occur.

    Before → after: configurations a, b, a with run times 5, 7, 4 → rows 1, 2 (``"min"``).

    Args:
        keys: Digests, shape (c,).
        runtime: Of each, or None where none is known.
        keep: Of equal ones, ``"min"``: the fastest (the paper; equal ones differ by up to 0.4 %);
            ``"first"``: the first (the released code); ``"none"``: all.
    """
    if keep == "none":
        return np.arange(len(keys), dtype=np.intp)
    group = np.unique(keys, return_inverse=True)[1]
    first = np.unique(group, return_index=True)[1]
    if keep == "first" or runtime is None:
        return np.sort(first).astype(np.intp)
    order = np.lexsort((runtime, group))
    fastest = order[np.searchsorted(group[order], np.arange(len(first)))]
    return np.asarray(fastest[np.argsort(first)], dtype=np.intp)


def _room_for(shape: tuple[int, int, int]) -> Int32Array:
    size = int(np.prod(shape, dtype=np.int64)) * 4
    if size <= _IN_MEMORY:
        return np.empty(shape, dtype=np.int32)
    try:
        # Without a name: the system frees the room when the array goes.
        with tempfile.TemporaryFile() as file:
            # A disk that is full by the time a page is written would end the process.
            os.posix_fallocate(file.fileno(), 0, size)
            return np.memmap(file, dtype=np.int32, mode="r+", shape=shape)
    except OSError as error:
        raise no_temporary_files(error) from error
