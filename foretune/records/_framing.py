"""One journal line: JSON that carries its own version and checksum.

A line is one JSON object, so that a journal stays readable with ordinary JSON tools::

    {"foretune":1,"kind":"record","data":{...},"crc":"1a2b3c4d"}

``crc`` is the CRC-32 of every byte of the line before ``,"crc"``. A line that was torn by a kill,
damaged on disk or written by another program does not match it. Later versions keep this framing,
so that an older program can tell "newer" from "damaged".
"""

from __future__ import annotations

import json
import re
import zlib
from typing import Any

from foretune.errors import VersionMismatchError

VERSION = 1
"""Version that is written. Every version up to it can be read."""

_MAGIC = b'{"foretune":'
_HEAD = re.compile(rb'\{"foretune":(\d{1,9}),')
_CRC_LENGTH = len(',"crc":"00000000"}')


class BadLineError(ValueError):
    """A line is not an intact journal line; the message is the reason."""


def encode(kind: str, data: dict[str, Any]) -> bytes:
    """One line with its line feed. ASCII only, whatever the strings hold."""
    text = json.dumps({"foretune": VERSION, "kind": kind, "data": data}, separators=(",", ":"))
    body = text[:-1].encode("ascii")
    return body + b',"crc":"%08x"}\n' % zlib.crc32(body)


def decode(line: bytes) -> tuple[str, Any]:
    """Kind and data of a line without its line feed.

    Raises:
        BadLineError: The line is torn, damaged or foreign.
        VersionMismatchError: The line is intact and was written by a newer version.
    """
    head = _HEAD.match(line)
    if head is None:
        raise BadLineError("not a journal line")
    body, tail = line[:-_CRC_LENGTH], line[-_CRC_LENGTH:]
    if tail != b',"crc":"%08x"}' % zlib.crc32(body):
        raise BadLineError("torn or damaged: the checksum does not match")
    version = int(head[1])
    if version > VERSION:
        raise VersionMismatchError(
            f"journal version must be at most {VERSION}, but got {version}: "
            "read it with the newer foretune that wrote it"
        )
    try:
        entry = json.loads(line)
        return str(entry["kind"]), entry["data"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadLineError(f"unreadable: {error!r}") from error


def may_be_journal(start: bytes) -> bool:
    """Whether a file that starts like this can be a journal, if only one with a torn first line."""
    return start.startswith(_MAGIC) or _MAGIC.startswith(start.rstrip(b"\n"))
