"""What is asked of an RPC tracker, with an end to every wait and to every answer.

The protocol is TVM's (``tvm.rpc.tracker``): a magic number from both sides, then messages of JSON
behind their length. TVM's own client waits for as long as a tracker lets it, and reads whatever it
sends.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from types import TracebackType
from typing import Any

from foretune.errors import ForetuneError

_MAGIC = 0x2F271
_SUCCESS, _REQUEST, _SUMMARY = 0, 4, 6
_LONGEST_ANSWER = 1 << 20
_INT = struct.Struct("<i")


class TrackerError(ForetuneError):
    """A tracker cannot be reached, or what answers there is none."""


class Tracker:
    """A connection to a tracker.

    Args:
        host, port: Where it listens.
        timeout_s: Seconds that each exchange may take.

    Raises:
        TrackerError: Nothing answers there, or something else; so do the methods.
    """

    def __init__(self, host: str, port: int, timeout_s: float = 5.0) -> None:
        self._name = f"{host}:{port}"
        try:
            self._socket = socket.create_connection((host, port), timeout_s)
        except OSError as error:
            raise TrackerError(
                f"no tracker can be reached at {self._name}: {_why(error)}"
            ) from None
        try:
            self._exchange_magic(timeout_s)
        except TrackerError:
            self.close()
            raise

    def _exchange_magic(self, timeout_s: float) -> None:
        until = time.monotonic() + timeout_s
        try:
            self._socket.sendall(_INT.pack(_MAGIC))
            if _INT.unpack(self._receive(_INT.size, until))[0] == _MAGIC:
                return
        except OSError as error:
            raise TrackerError(
                f"what listens at {self._name} is no tracker: {_why(error)}"
            ) from None
        raise TrackerError(f"what listens at {self._name} is no tracker: it answers otherwise")

    def devices(self) -> dict[str, tuple[int, int]]:
        """Of each key the number of devices, and how many of them are free."""
        summary = self._ask([_SUMMARY], 5.0)
        try:
            status, told = summary
            assert status == _SUCCESS
            keys = [str(entry["key"]).removeprefix("server:") for entry in told["server_info"]]
            queues = {str(key): queue for key, queue in told["queue_info"].items()}
            return {
                key: (keys.count(key), int(queues.get(key, {}).get("free", 0)))
                for key in dict.fromkeys(keys)
            }
        except (AssertionError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise self._nonsense(error) from None

    def request(self, key: str, timeout_s: float) -> tuple[str, int, str]:
        """Waits for a device of a key; returns its host, its port and the key of the session."""
        answer = self._ask([_REQUEST, key, "", 1], timeout_s)
        try:
            status, (host, port, session) = answer
            if status != _SUCCESS or not 0 < int(port) < 1 << 16 or len(session) > 256:
                raise ValueError("not a device")
            return str(host)[:256], int(port), str(session)
        except (ValueError, TypeError) as error:
            raise self._nonsense(error) from None

    def _nonsense(self, error: Exception) -> TrackerError:
        return TrackerError(f"the tracker at {self._name} answers what makes no sense: {error!r}")

    def _ask(self, message: list[Any], timeout_s: float) -> Any:
        until = time.monotonic() + timeout_s
        try:
            data = json.dumps(message).encode()
            self._socket.sendall(_INT.pack(len(data)) + data)
            size = _INT.unpack(self._receive(_INT.size, until))[0]
            if not 0 < size <= _LONGEST_ANSWER:
                raise ValueError(f"an answer of {size} bytes")
            return json.loads(self._receive(size, until))
        except OSError as error:
            raise TrackerError(f"the tracker at {self._name} is gone: {_why(error)}") from None
        except ValueError as error:
            raise self._nonsense(error) from None

    def _receive(self, size: int, until: float) -> bytes:
        data = bytearray()
        while len(data) < size:
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._socket.settimeout(left)
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise ConnectionError("it closed the connection")
            data += piece
        return bytes(data)

    def close(self) -> None:
        """Ends the connection. May be called twice."""
        self._socket.close()

    def __enter__(self) -> Tracker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _why(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "it does not answer in time"
    return error.strerror or str(error) or type(error).__name__
