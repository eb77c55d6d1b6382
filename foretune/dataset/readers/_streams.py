"""Lines of files, folders and archives, compressed or not, without unpacking anything to disk.

A file that ends too early gives no lines in silence: it is an error, whatever was read before.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from foretune.dataset.readers._parquet import MAGIC
from foretune.errors import RecordError

_GZIP = b"\x1f\x8b"
_BLOCK = tarfile.BLOCKSIZE


def lines(path: Path) -> Iterator[tuple[str, bytes]]:
    """The lines that are not empty, each with the name of its file.

    Args:
        path: A file, a folder (all files below it) or a tar archive; each file, and the archive,
            plain or compressed with gzip. A Parquet file has no lines: it counts as one.

    Yields:
        Name within the folder or archive, empty for a single file; the line.

    Raises:
        RecordError: Something cannot be read, is damaged or ends too early.
    """
    for name, file in files(path):
        with _checked(file), _open(file) as stream:
            if stream.read(len(MAGIC)) == MAGIC:
                yield name, MAGIC
                continue
            stream.seek(0)
            whole: Iterator[tuple[str, IO[bytes]]] = iter([("", stream)])
            for member, text in _members(stream) if _is_tar(stream) else whole:
                where = "/".join(part for part in (name, member) if part)
                for line in text:
                    if not line.isspace():
                        yield where, line


def content(path: Path, limit: int = -1) -> bytes:
    """The content of one file, plain or compressed with gzip: all of it, or up to ``limit`` bytes.

    Raises:
        RecordError: It cannot be read, is damaged or ends too early.
    """
    with _checked(path), _open(path) as stream:
        return stream.read(limit)


def files(path: Path) -> Iterator[tuple[str, Path]]:
    """The files of a folder with their names within it, or a file itself with no name."""
    if not path.is_dir():
        yield "", path
        return
    for file in sorted(path.rglob("*")):
        if file.is_file():
            yield file.relative_to(path).as_posix(), file


@contextlib.contextmanager
def _checked(path: Path) -> Iterator[None]:
    """Makes a RecordError of whatever goes wrong while reading."""
    try:
        yield
    except (EOFError, zlib.error, tarfile.TarError, OSError) as error:
        raise RecordError(
            f"{path} cannot be read ({error}): it may be damaged or cut off, get it again"
        ) from error


@contextlib.contextmanager
def _open(path: Path) -> Iterator[IO[bytes]]:
    with path.open("rb") as file:
        yield _plain(file)


def _plain(stream: Any) -> Any:
    """The stream itself, or what it holds compressed."""
    if not stream.peek(2).startswith(_GZIP):
        return stream
    packed: Any = gzip.GzipFile(fileobj=stream)
    # Lines come much faster from a buffer that is not Python's own.
    return io.BufferedReader(packed, 1 << 18)


def _is_tar(stream: IO[bytes]) -> bool:
    head = stream.read(_BLOCK)
    stream.seek(0)
    return head[257:262] == b"ustar"


class _Blocks:
    """Hands a stream to ``tarfile`` block by block and remembers the last one."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.last = b""

    def read(self, size: int) -> bytes:
        self.last = self._stream.read(size)
        return self.last


def _members(stream: IO[bytes]) -> Iterator[tuple[str, IO[bytes]]]:
    """Name and content of the files of an archive, one after the other.

    Raises:
        tarfile.ReadError: The archive does not end as archives do. ``tarfile`` itself takes a
            header that is cut off or damaged for the end.
    """
    blocks: Any = _Blocks(stream)
    with tarfile.open(fileobj=blocks, mode="r|", bufsize=_BLOCK) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isfile() else None
            if file is not None:
                yield member.name, _plain(file)
    ended = bool(blocks.last) and not any(blocks.last)
    while rest := stream.read(1 << 16):
        ended = ended and not any(rest)
    if not ended:
        raise tarfile.ReadError("unexpected end of archive")
