"""What ``--cluster`` says: a cluster that runs, or one of this machine's spare cores."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from foretune.errors import BadInputError

_READS = (
    "ray://HEAD:10001 of a cluster that runs, local for the spare cores of this machine, or "
    "local:N for N of them"
)
_LOCAL = "local"
_MOST_LOCAL = 1024


@dataclass(frozen=True)
class ClusterAddress:
    """Where a cluster is.

    Attributes:
        host: Name or address of the head; empty for a cluster of this machine.
        port: Of the head's server for clients.
        workers: Cores that a cluster of this machine may use; 0: those that nothing is timed on.
    """

    host: str = ""
    port: int = 0
    workers: int = 0

    @property
    def local(self) -> bool:
        """Whether it is started on this machine, for one run."""
        return not self.host

    def __str__(self) -> str:
        if self.local:
            return f"{_LOCAL}:{self.workers}" if self.workers else _LOCAL
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"ray://{host}:{self.port}"


def parse_cluster(text: str) -> ClusterAddress:
    """An address as it is written on the command line.

    Raises:
        BadInputError: It cannot be read. Whatever may be a password is not repeated.
    """
    if "@" in text:
        raise BadInputError(
            "the address of a cluster has no user and no password: Ray takes its token from the "
            f"file that RAY_AUTH_TOKEN_PATH names. It reads {_READS}"
        )
    told = repr(text[:200])
    name, _, count = text.partition(":")
    if name == _LOCAL:
        return ClusterAddress(workers=_count(count, told) if ":" in text else 0)
    if not text.startswith("ray://"):
        raise BadInputError(f"a cluster reads {_READS}, but got --cluster {told}")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise BadInputError(
            f"a cluster reads {_READS}, but got --cluster {told}: {error}"
        ) from None
    if not host or not port or parts.path.strip("/") or parts.query or parts.fragment:
        missing = "" if port else ": the port is missing, Ray's clients use 10001"
        raise BadInputError(f"a cluster reads {_READS}, but got --cluster {told}{missing}")
    return ClusterAddress(host, port)


def _count(text: str, told: str) -> int:
    count = int(text) if text.isascii() and text.isdigit() else 0
    if not 1 <= count <= _MOST_LOCAL:
        raise BadInputError(
            f"`1 <= N <= {_MOST_LOCAL}` must hold for local:N, but got --cluster {told}"
        )
    return count
