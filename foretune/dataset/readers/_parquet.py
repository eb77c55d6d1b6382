"""Rows of Parquet files that others wrote, checked as far as a reader relies on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from foretune.dataset._schema import load_pyarrow
from foretune.errors import RecordError, first_line

MAGIC = b"PAR1"
"""How a Parquet file starts."""
_BATCH = 4096


def is_parquet(path: Path) -> bool:
    """Whether a file starts like Parquet.

    Raises:
        RecordError: It cannot be read.
    """
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise RecordError(f"{path} cannot be read ({error}): get it again") from error


def has_columns(path: Path, names: Sequence[str]) -> bool:
    """Whether a file is Parquet with at least these columns.

    Raises:
        RecordError: It starts like Parquet and is damaged.
    """
    return is_parquet(path) and set(names) <= set(_open(path).schema_arrow.names)


def rows(path: Path, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """The values of these columns, row by row.

    Raises:
        RecordError: The file is damaged.
    """
    pa = load_pyarrow()
    file = _open(path)
    try:
        for batch in file.iter_batches(_BATCH, columns=list(names)):
            columns = batch.to_pydict()
            yield from zip(*(columns[name] for name in names), strict=True)
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise _damaged(path, error) from error


def _open(path: Path) -> Any:
    pa = load_pyarrow()
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(path, page_checksum_verification=True)
    except (OSError, pa.ArrowException) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> RecordError:
    return RecordError(
        f"{path} cannot be read as Parquet ({first_line(error)}): it may be damaged or cut off, "
        "get it again"
    )
