"""Arrays of an ``.npz`` file, read with a check of each, the largest one in pieces.

NumPy unpacks an array of a zip file whole. Configurations of the largest official graphs would be
tens of GiB that way, so theirs are read row by row.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from foretune._arrays import Array, IntArray
from foretune.errors import BadInputError, first_line

_UNREADABLE = (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error,
               NotImplementedError, RuntimeError, SyntaxError, TypeError, MemoryError)  # fmt: skip
"""What NumPy and zipfile raise on files that are cut short, damaged, or something else."""
_BLOCK_BYTES = 32 * 2**20


class NpzFile:
    """An open ``.npz`` file; a context manager.

    Args:
        path: The file.

    Raises:
        BadInputError: It is not one, or not whole.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.name = str(path)
        try:
            self._zip = zipfile.ZipFile(path)
        except _UNREADABLE as error:
            raise self._unreadable(error) from error
        self.keys = frozenset(
            name.removesuffix(".npy") for name in self._zip.namelist() if name.endswith(".npy")
        )

    def __enter__(self) -> NpzFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._zip.close()

    def require(self, *keys: str) -> None:
        """Refuses a file that lacks keys.

        Raises:
            BadInputError: One is missing.
        """
        missing = [key for key in keys if key not in self.keys]
        if missing:
            raise BadInputError(
                f"{self._path} must have {', '.join(keys)}, but lacks {', '.join(missing)}: give a "
                "whole file of TpuGraphs"
            )

    def numbers(self, key: str, shape: Sequence[int | None]) -> Array:
        """An array of finite numbers.

        Args:
            key: Its name.
            shape: What it must have; None for a length that may be any.

        Raises:
            BadInputError: It is missing, unreadable, of another shape, or holds something else.
        """
        array = self._array(key)
        self._check(key, array.shape, array.dtype, shape)
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise self.wrong(key, "finite numbers", "NaN or infinity")
        return np.asarray(array)

    def integers(
        self, key: str, shape: Sequence[int | None], low: int = 0, high: int = 2**62
    ) -> IntArray:
        """The same for whole numbers ``low <= x < high``, as int64, whatever type they are of."""
        array = self.numbers(key, shape)
        if array.size:
            if (array != np.rint(array)).any():
                raise self.wrong(key, "whole numbers", "fractions")
            least, most = array.min(), array.max()
            if least < low or most >= high:
                raise self.wrong(key, f"numbers from {low} to {high - 1}", f"{least} to {most}")
        return array.astype(np.int64)

    def text(self, key: str) -> str:
        """A text; errors as for ``numbers``."""
        array = self._array(key)
        if array.shape or array.dtype.kind != "U":
            raise self.wrong(key, "a text", f"{array.dtype} of shape {array.shape}")
        return str(array)

    def header(self, key: str, shape: Sequence[int | None]) -> tuple[int, ...]:
        """The shape of an array that is not read yet; errors as for ``numbers``."""
        self.require(key)
        try:
            with self._zip.open(f"{key}.npy") as file:
                held, _, dtype = _read_header(file)
        except _UNREADABLE as error:
            raise self._unreadable(error, key) from error
        self._check(key, held, dtype, shape)
        return held

    def rows(self, key: str) -> Iterator[Array]:
        """An array in pieces: some rows at a time, all of its other axes whole.

        Raises:
            BadInputError: It ends too early.
        """
        try:
            with self._zip.open(f"{key}.npy") as file:
                shape, by_columns, dtype = _read_header(file)
                if by_columns:
                    file.seek(0)
                    yield np.lib.format.read_array(file, allow_pickle=False)
                    return
                width = dtype.itemsize * int(np.prod(shape[1:], dtype=np.int64))
                block = max(1, _BLOCK_BYTES // max(1, width))
                for at in range(0, shape[0], block):
                    count = min(block, shape[0] - at)
                    data = file.read(count * width)
                    yield np.frombuffer(data, dtype).reshape(count, *shape[1:])
        except _UNREADABLE as error:
            raise self._unreadable(error, key) from error

    def wrong(self, key: str, wanted: str, held: str) -> BadInputError:
        """The error for an array that holds something else than it must."""
        return BadInputError(
            f"{self._path}: {key} must hold {wanted}, but holds {held}: give a file of TpuGraphs"
        )

    def _array(self, key: str) -> Array:
        self.require(key)
        try:
            with self._zip.open(f"{key}.npy") as file:
                return np.asarray(np.lib.format.read_array(file, allow_pickle=False))
        except _UNREADABLE as error:
            raise self._unreadable(error, key) from error

    def _check(
        self, key: str, held: Sequence[int], dtype: np.dtype[Any], wanted: Sequence[int | None]
    ) -> None:
        if dtype.kind not in "biuf":
            raise self.wrong(key, "numbers", f"values of type {dtype}")
        if len(held) != len(wanted) or any(
            w is not None and f != w for f, w in zip(held, wanted, strict=True)
        ):
            shape = ", ".join("any" if w is None else str(w) for w in wanted)
            raise BadInputError(
                f"{self._path}: {key} must have shape ({shape}), but has {tuple(held)}: give a "
                "file of TpuGraphs"
            )

    def _unreadable(self, error: BaseException, key: str = "") -> BadInputError:
        what = f"{self._path}{f': {key}' if key else ''}"
        return BadInputError(
            f"{what} must be readable as .npz, but is not ({first_line(error)}): copy it again"
        )


def _read_header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read is None:
        raise ValueError(f"version {version} of the .npy format is unknown")
    shape, by_columns, dtype = read(file)
    return tuple(shape), bool(by_columns), dtype
