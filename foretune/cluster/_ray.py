"""The one place that imports Ray: connecting, and what its errors mean."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from typing import TYPE_CHECKING, Any

from foretune.errors import BadInputError, ForetuneError, MissingDependencyError

if TYPE_CHECKING:
    from foretune.cluster._address import ClusterAddress

_NAMESPACE = "foretune"
_CONNECT_S = 5.0
_LOCAL_STORE_BYTES = 128 << 20
"""For the objects of a cluster of this machine: what goes through it is small."""


def ray() -> Any:
    """The package.

    Raises:
        MissingDependencyError: It is not installed.
    """
    # Read when it is imported: whom we tune for is nobody's statistics.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray as package
    except ImportError:
        raise MissingDependencyError(
            "a cluster needs Ray, which is not installed: pip install 'foretune[cluster]'"
        ) from None
    return package


def connect(address: ClusterAddress, cores: int) -> None:
    """Connects this process to a cluster, or starts one of this machine.

    Args:
        address: Where it is.
        cores: Of a cluster of this machine.

    Raises:
        BadInputError: It cannot be reached, or runs other versions of Ray or Python.
        MissingDependencyError: Ray is not installed.
    """
    package = ray()
    if package.is_initialized():
        raise BadInputError(
            f"one cluster is connected at a time, but --cluster {address} comes while another one "
            "is: close that first"
        )
    quiet: dict[str, Any] = {
        "namespace": _NAMESPACE,
        "log_to_driver": False,
        "configure_logging": False,
        "logging_level": logging.ERROR,
    }
    # Ray ends the process on SIGTERM; a run has its best so far to save.
    handler = signal.getsignal(signal.SIGTERM)
    try:
        _init(package, address, cores, quiet)
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)


def _init(package: Any, address: ClusterAddress, cores: int, quiet: dict[str, Any]) -> None:
    if address.local:
        try:
            package.init(
                address="local",
                num_cpus=cores,
                include_dashboard=False,
                object_store_memory=_LOCAL_STORE_BYTES,
                **quiet,
            )
        except Exception as error:  # Ray raises whatever it likes
            raise ForetuneError(
                f"--cluster {address} starts Ray on this machine, but that failed: "
                f"{' '.join(str(error).split())[:300]}: look at its memory and TMPDIR"
            ) from None
        return
    try:
        # Ray by itself asks for half a minute whether somebody listens there.
        socket.create_connection((address.host, address.port), _CONNECT_S).close()
        package.init(address=str(address), **quiet)
    except Exception as error:  # Ray and gRPC raise whatever they like
        told = " ".join(str(error).split())[:300]
        raise BadInputError(
            f"--cluster {address} must lead to the client server of a Ray cluster of this version "
            f"({package.__version__}), but {type(error).__name__}: {told}: start one with `ray "
            "start --head`, whose clients' port is 10001"
        ) from None


def is_lost(error: BaseException) -> bool:
    """Whether an error says that a worker or its node is gone, not that the work went wrong."""
    from ray import exceptions

    gone = (
        exceptions.RayActorError,
        exceptions.WorkerCrashedError,
        exceptions.NodeDiedError,
        exceptions.ObjectLostError,
        exceptions.OutOfMemoryError,
        exceptions.LocalRayletDiedError,
        # Its node went before it began.
        exceptions.TaskUnschedulableError,
        exceptions.ActorUnschedulableError,
    )
    return isinstance(error, gone)
