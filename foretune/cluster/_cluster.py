"""A connection to a cluster: its nodes, and calls that survive the loss of one."""

from __future__ import annotations

import logging
import platform
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretune._code import code_fingerprint
from foretune.cluster._address import ClusterAddress, parse_cluster
from foretune.cluster._ray import connect, is_lost, ray
from foretune.errors import BadInputError, ForetuneError
from foretune.hardware import Hardware, probe, usable_cores

_log = logging.getLogger(__name__)

_PROBE_S = 120.0
"""For a node to start a worker, which imports foretune."""
_LOOK_S = 2.0
"""How often nodes are looked for that came or went, while calls run."""
_REST_S = 10.0
"""For so long a node that lost a call gets no other."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Node:
    """A machine of a cluster.

    Attributes:
        id: Ray's name of it.
        host: Its own name.
        cores: That Ray may use there.
        here: Whether it is the machine that this process runs on.
    """

    id: str
    host: str
    cores: int
    here: bool


class LostError(ForetuneError):
    """A call was lost with its worker or node, as often as that is borne."""


class Cluster:
    """A Ray cluster, connected from here until it is closed.

    One of this machine is started here and ends with ``close``, or with this process.

    Args:
        address: Where it is.
        timed: Cores of this machine that programs are timed on: nothing else runs there.

    Raises:
        BadInputError: It cannot be reached, a node has other versions than this process, or this
            machine has no core to spare.
        MissingDependencyError: Ray is not installed.
    """

    def __init__(self, address: ClusterAddress, timed: int = 0) -> None:
        self.address = address
        self._timed = timed
        cores = address.workers or usable_cores() - timed
        if address.local and cores < 1:
            raise BadInputError(
                f"`threads < cores` must hold for --cluster local, but got threads={timed} and "
                f"{usable_cores()} cores: give --threads {max(1, usable_cores() - 1)} or fewer, or "
                "a cluster on other machines"
            )
        connect(address, cores)
        self._closed = False
        self._known: dict[str, Node] = {}
        self._left_out: set[str] = set()
        try:
            if not self._nodes(refuse=True):
                raise BadInputError(
                    f"--cluster {address} must have a core for builds, but its nodes have none: "
                    "add a node, or start them with --num-cpus"
                )
        except BaseException:
            self.close()
            raise

    def nodes(self) -> list[Node]:
        """Those that are there now and have the versions of this process.

        Raises:
            ForetuneError: The cluster does not answer any more.
        """
        try:
            return self._nodes(refuse=False)
        except (ConnectionError, RuntimeError) as error:
            raise self._lost(error) from None

    def _lost(self, error: Exception) -> ForetuneError:
        told = " ".join(str(error).split())[:200]
        return ForetuneError(
            f"--cluster {self.address} does not answer any more ({type(error).__name__}: {told}): "
            "run the same command again when it does, what was measured is kept"
        )

    def _nodes(self, refuse: bool) -> list[Node]:
        alive = {
            str(told["NodeID"]): int(told["Resources"].get("CPU", 0))
            for told in ray().nodes()
            if told["Alive"]
        }
        for id, cores in alive.items():
            if id in self._known or id in self._left_out:
                continue
            try:
                node = self._met(id, cores)
            except BadInputError as error:
                if refuse:
                    raise
                # One that came later must not end what runs.
                _log.warning("a node is left out: %s", error)
                self._left_out.add(id)
                continue
            if node is not None:
                self._known[id] = node
        return [node for id, node in self._known.items() if id in alive and node.cores > 0]

    def _met(self, id: str, cores: int) -> Node | None:
        """A node that was not seen before; None if it is gone again."""
        ask = ray().remote(num_cpus=0, max_retries=0)(_facts).options(**on_node(id))
        try:
            facts = ray().get(ask.remote(), timeout=_PROBE_S)
        except Exception as error:  # what a node cannot import has many names
            if is_lost(error):
                return None
            told = " ".join(str(error).split())[-300:]
            raise BadInputError(
                f"every node of --cluster {self.address} must have foretune, but {id[:12]} has not "
                f"({told}): install this version there"
            ) from None
        own = _facts()
        for name in ("foretune", "python"):
            if facts[name] != own[name]:
                raise BadInputError(
                    f"every node of --cluster {self.address} must have the {name} of this machine, "
                    f"{own[name]}, but {facts['host']} has {facts[name]}: install that there"
                )
        here = facts["machine"] == own["machine"]
        # One of this machine was started with as many as may be used.
        shared = here and not self.address.local
        spare = max(0, min(cores, usable_cores() - self._timed)) if shared else cores
        return Node(id, facts["host"], spare, here)

    @property
    def cores(self) -> int:
        """Cores that work can be given to now."""
        return sum(node.cores for node in self.nodes())

    def share(self, value: Any) -> Any:
        """What stands for a value in the arguments of ``map``, so that it is sent once a node."""
        return ray().put(value)

    def map(
        self,
        function: Callable[..., Any],
        arguments: Sequence[tuple[Any, ...]],
        cores: int = 1,
        retries: int = 3,
    ) -> Iterator[tuple[int, Any]]:
        """Calls a function once for each tuple of arguments, on whatever cores are free.

        A call whose worker or node is lost is made again elsewhere, so the function may run more
        than once: what it does beside returning must bear that.

        Args:
            function: Of a module that the nodes have.
            arguments: A tuple for each call.
            cores: That a call takes.
            retries: How often a call may be lost.

        Yields:
            The index of a call and what it returned, in the order in which they end.

        Raises:
            LostError: A call was lost too often. Whatever the function raises, too.
        """
        call = ray().remote(num_cpus=cores, max_retries=retries)(function)
        running = {call.remote(*each): index for index, each in enumerate(arguments)}
        try:
            while running:
                (ended, *_), _ = ray().wait(list(running), num_returns=1)
                index = running.pop(ended)
                yield index, self._got(ended, retries)
        finally:
            for left in running:
                ray().cancel(left, force=True)

    def map_alone(
        self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], retries: int = 3
    ) -> Iterator[tuple[int, Any]]:
        """As ``map``, with one call at a time on each node, which has all its cores: for timing."""
        call = ray().remote(max_retries=0)(function)
        waiting = deque(range(len(arguments)))
        lost = Counter[int]()
        rests: dict[str, float] = {}
        running: dict[Any, tuple[int, Node]] = {}
        try:
            while waiting or running:
                taken = {node.id for _, node in running.values()}
                now, nodes = time.monotonic(), self.nodes()
                if not nodes:
                    raise ForetuneError(f"no node of --cluster {self.address} is left: add one")
                free = [n for n in nodes if n.id not in taken and now >= rests.get(n.id, now)]
                for node in free[: len(waiting)]:
                    index = waiting.popleft()
                    own = call.options(num_cpus=node.cores, **on_node(node.id))
                    running[own.remote(*arguments[index])] = index, node
                if not running:
                    time.sleep(_LOOK_S)
                    continue
                ended, _ = ray().wait(list(running), num_returns=1, timeout=_LOOK_S)
                for each in ended:
                    index, node = running.pop(each)
                    try:
                        yield index, self._got(each, lost[index])
                    except LostError:
                        # A node that is dead may be told as alive for some seconds.
                        rests[node.id] = time.monotonic() + _REST_S
                        lost[index] += 1
                        if lost[index] > retries:
                            raise
                        waiting.append(index)
        finally:
            for left in running:
                ray().cancel(left, force=True)

    def _got(self, ended: Any, retries: int) -> Any:
        try:
            return ray().get(ended)
        except Exception as error:
            if isinstance(error, ConnectionError) and not hasattr(error, "cause"):
                raise self._lost(error) from None
            if not is_lost(error):
                raise _cause(error) from None
            raise LostError(
                f"a call on --cluster {self.address} was lost {retries + 1} times with its worker "
                f"({' '.join(str(error).split())[:200]}): look at the memory of the nodes"
            ) from None

    def close(self) -> None:
        """Lets go of it; one of this machine ends. May be called twice."""
        if not self._closed:
            self._closed = True
            ray().shutdown()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_cluster(text: str, timed: int = 0) -> Cluster:
    """A cluster by its address as it is written on the command line; see ``Cluster``."""
    return Cluster(parse_cluster(text), timed)


def require_processor(hardware: Hardware) -> None:
    """Refuses, on a node, to time for another processor than the node's.

    Raises:
        BadInputError: It is another one.
    """
    here = probe().name
    if hardware.has_cores and here != hardware.name:
        raise BadInputError(
            f"every node that times must have the processor {hardware.name!r} that is asked for, "
            f"but {platform.node()} has {here!r}: leave it out of the cluster, or tune for it there"
        )


def on_node(id: str) -> dict[str, Any]:
    """Ray's options for something that runs on a certain node or not at all."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(id, soft=False)}


def _cause(error: Exception) -> BaseException:
    """What the function raised, out of what Ray wraps it in."""
    return getattr(error, "cause", None) or error


def _facts() -> Mapping[str, str]:
    """What a node must have in common with this process, and what tells machines apart."""
    boot = _BOOT.read_text().strip() if _BOOT.is_file() else ""
    return {
        "foretune": code_fingerprint(),
        "python": platform.python_version(),
        "host": platform.node(),
        "machine": f"{platform.node()} {boot}",
    }
