"""Real Ray clusters on this machine's loopback, and functions that misbehave on their nodes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests import ROOT
from tests.measure.farm import free_port


class Nodes:
    """A cluster with a head of no cores and some nodes of one core.

    Args:
        count: Nodes beside the head.
    """

    def __init__(self, count: int) -> None:
        from ray import cluster_utils

        # Workers find the functions of tests by it, as the processes that they start do.
        os.environ["PYTHONPATH"] = str(ROOT)
        self.port = free_port()
        head = {"num_cpus": 0, "ray_client_server_port": self.port, "include_dashboard": False}
        self._cluster = cluster_utils.Cluster(initialize_head=True, head_node_args=head)
        self.workers: list[Any] = []
        for _ in range(count):
            self.add()

    @property
    def url(self) -> str:
        """Its address for clients."""
        return f"ray://127.0.0.1:{self.port}"

    def add(self) -> None:
        """Starts another node."""
        self.workers.append(self._cluster.add_node(num_cpus=1))

    def kill(self) -> None:
        """Ends a node, at once."""
        self._cluster.remove_node(self.workers.pop(0), allow_graceful=False)

    def end(self) -> None:
        """Ends all."""
        self._cluster.shutdown()


@contextmanager
def running(count: int) -> Iterator[Nodes]:
    """A cluster for a while."""
    nodes = Nodes(count)
    try:
        yield nodes
    finally:
        nodes.end()


def square(number: int) -> int:
    """What a call computes."""
    return number * number


def slowly(number: int, began: str) -> tuple[int, int]:
    """A number and who told it, after a while; leaves a mark when it begins."""
    Path(began, f"{number}-{os.getpid()}").touch()
    time.sleep(1.0)
    return number, os.getpid()


def fail_once(number: int, folder: str) -> int:
    """Ends its worker the first time it is called with a number."""
    mark = Path(folder, str(number))
    if not mark.exists():
        mark.touch()
        os._exit(1)
    return number


def always_die(number: int) -> int:
    """Ends its worker."""
    os._exit(number)


def refuse(number: int) -> int:
    """Raises what the package raises."""
    from foretune.errors import BadInputError

    raise BadInputError(f"`number > 3` must hold, but got number={number}: pass another one")
