"""Addresses of devices that are reached over TVM's RPC.

``rpc://HOST:PORT/KEY`` are the devices that a tracker knows under a key; ``rpc://HOST:PORT`` is one
server, without a tracker. Several stand behind each other, separated by commas.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from foretune.errors import BadInputError

_READS = "rpc://TRACKER:9190/KEY, or rpc://HOST:9090 of a server without a tracker"
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HOST = re.compile(r"[A-Za-z0-9._:-]+")
_MOST_DEVICES = 64


@dataclass(frozen=True, order=True)
class DeviceAddress:
    """Where a device, or several of one key, can be reached.

    Attributes:
        host: Name or address of the tracker, or of the server itself.
        port: Its port.
        key: What the tracker knows the devices by; empty without a tracker.
    """

    host: str
    port: int
    key: str = ""

    @property
    def endpoint(self) -> str:
        """``"host:port"``; an IPv6 address in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def place(self) -> str:
        """What records know it by: the key, whichever tracker it is asked for, or the server."""
        return self.key or self.endpoint

    def __str__(self) -> str:
        return f"rpc://{self.endpoint}" + (f"/{self.key}" if self.key else "")


def parse_devices(texts: Sequence[str]) -> tuple[DeviceAddress, ...]:
    """Addresses as they are written on the command line, each once, in the order given.

    Before → after: ``["rpc://farm:9190/pi4,rpc://farm:9190/pi5", "rpc://pi:9090"]`` → three.

    Raises:
        BadInputError: One cannot be read. Whatever may be a password is not repeated.
    """
    parsed = [
        _parse(each.strip()) for text in texts for each in text.split(",") if text and each.strip()
    ]
    if texts and not parsed:
        raise BadInputError(f"a device reads {_READS}, but got an empty --device")
    addresses = tuple(dict.fromkeys(parsed))
    if len(addresses) > _MOST_DEVICES:
        raise BadInputError(
            f"`addresses of devices <= {_MOST_DEVICES}` must hold, but got {len(addresses)}: give "
            "devices of one kind one key"
        )
    return addresses


def place_of(addresses: Sequence[DeviceAddress]) -> str:
    """What ``Hardware.place`` says of these devices, in whatever order they were given."""
    return ",".join(sorted({address.place for address in addresses}))


def _parse(text: str) -> DeviceAddress:
    if "@" in text:
        # Behind an @ there may be no password any more, but before it there may.
        raise BadInputError(
            "the address of a device has no user and no password, because TVM's RPC knows none, "
            f"but one with an @ was given: it reads {_READS}"
        )
    told = repr(text[:200])
    if not text.startswith("rpc://"):
        raise BadInputError(f"a device reads {_READS}, but got --device {told}")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise BadInputError(f"a device reads {_READS}, but got --device {told}: {error}") from None
    if not host or not _HOST.fullmatch(host) or not port or parts.query or parts.fragment:
        missing = "" if port else ": the port is missing"
        raise BadInputError(f"a device reads {_READS}, but got --device {told}{missing}")
    key = parts.path.removeprefix("/")
    if key and not _KEY.fullmatch(key):
        raise BadInputError(
            "the key of a device has letters, digits, dots, dashes and underscores, at most 64, "
            f"but got {key[:80]!r} in --device {told}"
        )
    return DeviceAddress(host, port, key)
