"""What candidates are compared with: the untuned program's result, kept in a file without a name.

Workers that share this machine's files open it by the path of its descriptor. Others are sent its
content, and answer with it where they computed it: inputs are small whole numbers, many of them
zeros, which pack well.
"""

from __future__ import annotations

import base64
import errno
import math
import os
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from foretune.errors import ForetuneError

if TYPE_CHECKING:
    from foretune.measure.transport import Worker
    from foretune.space import Candidate
    from foretune.workload import Workload

_PART_BYTES = 8 << 20
_SPARE_BYTES = 1 << 20


class Reference:
    """The untuned program's result for one workload, in an unlinked file that children map.

    The file has no name: nothing is left behind even when the tuner is killed.

    Attributes:
        signature: The workload's parameters; None until it is computed.
        seconds: What one call took.
        as_written: Whether in the program's own order of loops: it is to be, or was.
        error: Why there is none.

    Raises:
        ForetuneError: There is no place for the file.
    """

    def __init__(self, id: int, candidate: Candidate, as_written: bool = False) -> None:
        self.id = id
        self.candidate = candidate
        try:
            self.file: IO[bytes] = tempfile.TemporaryFile(prefix="foretune-")  # noqa: SIM115
        except OSError as error:
            remedy = "set TMPDIR to a directory with room"
            if error.errno in (errno.EMFILE, errno.ENFILE):
                remedy = "allow more open files (`ulimit -n`)"
            raise ForetuneError(
                "the output of an untuned program is kept in a temporary file, but none could be "
                f"made: {error}; {remedy}"
            ) from error
        self.path = f"/proc/{os.getpid()}/fd/{self.file.fileno()}"
        self.worker: Worker | None = None
        self.attempts = 0
        self.signature: dict[str, Any] | None = None
        self.seconds = 0.0
        self.as_written = as_written
        self.error = ""
        self._bad_content = ""

    @property
    def settled(self) -> bool:
        """Whether it is known, or known to be impossible."""
        return self.signature is not None or bool(self.error)

    def begin(self, worker: Worker) -> None:
        """Notes who computes it, from nothing."""
        self.worker, self.attempts, self._bad_content = worker, self.attempts + 1, ""
        self.file.seek(0)
        self.file.truncate()

    def take(self, fields: Mapping[str, Any]) -> None:
        """Notes what a worker answers: a part of the content, or the end.

        A worker that shares no files answers with the content. It may not be larger than the
        program's buffers are.
        """
        if "part" in fields:
            self._take_part(str(fields["part"]))
            return
        error = str(fields["error"])
        if not error and self._bad_content:
            error = self._bad_content
        self.error = error
        self.signature = None if error else fields.get("signature")
        self.seconds = float(fields.get("seconds", 0.0))
        self.as_written = bool(fields.get("as_written", True))

    def _take_part(self, text: str) -> None:
        if self._bad_content:
            return
        most = 4 * _buffer_bytes(self.candidate.workload) + _SPARE_BYTES
        try:
            packed = base64.b64decode(text, validate=True)
            # No more than a piece has: a few bytes may unpack to any number.
            data = zlib.decompressobj().decompress(packed, _PART_BYTES)
            if self.file.tell() + len(data) > most:
                self._bad_content = f"a worker sent more than the {most} bytes that there can be"
                return
            self.file.write(data)
            self.file.flush()
        except (ValueError, OSError, zlib.error) as error:
            self._bad_content = f"what a worker sent cannot be kept: {error}"

    def packed(self) -> bytes:
        """The content for a worker that shares no files, as ``zlib`` packs it."""
        self.file.seek(0)
        return zlib.compress(self.file.read(), 1)

    def close(self) -> None:
        """Frees the file."""
        self.file.close()


def parts(path: str) -> Iterator[str]:
    """A file in pieces that fit into an answer, for ``Reference.take``."""
    with open(path, "rb") as file:
        while data := file.read(_PART_BYTES):
            yield base64.b64encode(zlib.compress(data, 1)).decode("ascii")


def _buffer_bytes(workload: Workload) -> int:
    from foretune.measure.gate import Signature

    return sum(
        math.prod(parameter.shape) * np.dtype(parameter.dtype).itemsize
        for parameter in Signature.of(workload).parameters
    )
