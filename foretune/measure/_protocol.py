"""What parent and child say to each other, and how it is framed.

The parent sends pickles: it trusts itself. The child answers in JSON: it runs candidates, which may
write anything anywhere, and reading JSON can do nothing but fail. A sketch crosses the pipe once
per child; after that a candidate is a few hundred bytes that name its sketch.
"""

from __future__ import annotations

import io
import os
import pickle
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretune.hardware import Hardware
    from foretune.measure.devices import DeviceAddress
    from foretune.measure.policy import MeasurePolicy
    from foretune.space import Candidate

_MAGIC = b"FtM1"
_HEADER = struct.Struct("<4sI")
_LONGEST = 1 << 28


BUILDER = "foretune.measure._worker:build"
LIBRARY_BUILDER = "foretune.measure._worker:compile_candidate"


@dataclass(frozen=True)
class WorkerConfig:
    """The first message to a child.

    Attributes:
        hardware: What candidates are compiled for and run on.
        policy: How they are timed.
        builder: ``"module:function"`` that makes a candidate a runtime module or a callable.
        address_space_bytes: Allowed beyond what the child needs itself; None: no limit.
        parent: Process id of the parent, to die if it has died already.
        device: Name of the device that the child times on, where that is not this machine.
        address: Where it holds a session on that device.
        linker: The C++ compiler that links programs for devices; empty where they run in the child.
    """

    hardware: Hardware
    policy: MeasurePolicy
    builder: str
    address_space_bytes: int | None
    parent: int
    device: str = ""
    address: DeviceAddress | None = None
    linker: str = ""


class GarbageError(Exception):
    """What came through the pipe is not a frame."""


def frame(payload: bytes) -> bytes:
    """One message, ready to be written to a pipe."""
    return _HEADER.pack(_MAGIC, len(payload)) + payload


class FrameReader:
    """Cuts a stream of bytes into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Takes in what was read and returns the messages that are complete.

        Raises:
            GarbageError: The stream does not consist of frames.
        """
        self._buffer += data
        messages = []
        while len(self._buffer) >= _HEADER.size:
            magic, length = _HEADER.unpack_from(self._buffer)
            if magic != _MAGIC or length > _LONGEST:
                raise GarbageError(bytes(self._buffer[:16]).hex())
            end = _HEADER.size + length
            if len(self._buffer) < end:
                break
            messages.append(bytes(self._buffer[_HEADER.size : end]))
            del self._buffer[:end]
        return messages


def read_frame(fd: int) -> bytes | None:
    """Reads one message from a blocking file descriptor; None at the end of the stream."""
    header = _read_exactly(fd, _HEADER.size)
    if header is None:
        return None
    _, length = _HEADER.unpack(header)
    return _read_exactly(fd, length)


def _read_exactly(fd: int, size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        data = os.read(fd, size - len(parts))
        if not data:
            return None
        parts += data
    return bytes(parts)


def sketch_name(candidate: Candidate) -> str:
    """The name under which a candidate's sketch is known to the children."""
    return f"{candidate.workload.key}/{candidate.sketch.key}"


class _ByName(pickle.Pickler):
    def __init__(self, file: io.BytesIO, named: Mapping[int, str]) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._named = named

    def persistent_id(self, obj: object) -> str | None:
        return self._named.get(id(obj))


class _FromName(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, objects: Mapping[str, Any]) -> None:
        super().__init__(file)
        self._objects = objects

    def persistent_load(self, pid: str) -> Any:
        return self._objects[pid]


def dump_candidate(candidate: Candidate) -> bytes:
    """A candidate without its sketch."""
    file = io.BytesIO()
    _ByName(file, {id(candidate.sketch): sketch_name(candidate)}).dump(candidate)
    return file.getvalue()


def load_candidate(data: bytes, sketches: Mapping[str, Any]) -> Candidate:
    """Reverses ``dump_candidate`` where the sketch is known by its name."""
    candidate: Candidate = _FromName(io.BytesIO(data), sketches).load()
    return candidate
