"""Builders on the nodes of a Ray cluster.

An actor on a node keeps one child process, as the transport of this machine does, and does for it
what is done here: limits its memory, ends it when it is overdue, tells what its death means. So a
program that breaks the compiler breaks a child over there. Libraries come back with the answers.
What may happen to the actor itself, or its node, is a death from outside: what it was building is
built again elsewhere.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from foretune.cluster import Cluster, Node, is_lost, on_node, ray
from foretune.errors import ForetuneError
from foretune.hardware import usable_cores
from foretune.measure._base import Status
from foretune.measure._memory import SPARE_BYTES, default_memory
from foretune.measure._protocol import WorkerConfig
from foretune.measure.transport._base import TICK_S, Death, Reply, Transport, Worker
from foretune.measure.transport.processes import Processes, ProcessWorker, Slot

_GRACE_S = 10.0
"""Beyond what a request may take: for the way there and back."""
_START_S = 180.0
"""For Ray to start an actor, which imports foretune, and the actor its child."""
_NODES_S = 5.0
"""How often nodes are looked for that came or went."""
_REST_S = 10.0
"""For so long a node that lost a builder gets no other."""
_CLOSE_S = 2.0
"""For builders that are idle to end by themselves."""
_WAIT_S = 60.0
"""After so long without a builder that is ready the log says so."""
_LONGEST_LIBRARY = 1 << 28
_MOST_BUILDERS = 256

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Answer:
    """What became of a request, as an actor tells it.

    Attributes:
        replies: Of the child, in order.
        death: Status, message and whether it was killed from outside, where the child died.
        guilty: Whether it died of the request.
        library: What was built.
    """

    replies: tuple[dict[str, Any], ...]
    death: tuple[Status, str, bool] | None = None
    guilty: bool = False
    library: bytes | None = None


class Station:
    """Keeps a child process on a node; the actor.

    Args:
        config: Of the child; what depends on the node is filled in here.
        builders: Such actors on the node, which share its memory.
    """

    def __init__(self, config: WorkerConfig, builders: int) -> None:
        from foretune.graph import linker_for

        memory = config.policy.memory_bytes or default_memory(builders)
        config = replace(
            config,
            parent=os.getpid(),
            address_space_bytes=2 * memory + SPARE_BYTES,
            linker=linker_for(config.hardware.target),
        )
        start_s = config.policy.start_timeout_s
        self._folder = tempfile.TemporaryDirectory(prefix="foretune-")
        slot = Slot(lambda: ProcessWorker(config, usable_cores(), start_s), patient=True)
        self._processes = Processes([slot], memory, 1, shares_files=False)

    def start(self) -> _Answer:
        """Starts a child and waits until it is ready."""
        self._processes.refill()
        while self._processes.busy:
            for event in self._processes.wait():
                if isinstance(event, Death):
                    return _died(event, ())
        return _Answer(())

    def close(self) -> None:
        """Ends the child and removes what was built: an actor that is killed leaves its files."""
        self._processes.close()
        self._folder.cleanup()

    def tell(self, payload: bytes) -> None:
        """Carries what is not answered."""
        for worker in self._processes.workers:
            worker.send(payload)

    def ask(self, id: int, op: str, limit_s: float, what: str, fields: dict[str, Any]) -> _Answer:
        """Carries a request and waits for the end of it."""
        library = Path(self._folder.name, "program.so")
        library.unlink(missing_ok=True)
        if "library" in fields:
            fields = {**fields, "library": str(library)}
        workers = self._processes.workers
        if not workers:
            return _Answer((), (Status.CRASH, "its child was gone", True))
        workers[0].request(op, limit_s, what, id=id, **fields)
        replies: list[dict[str, Any]] = []
        while self._processes.busy or not (replies or not workers[0].alive):
            for event in self._processes.wait():
                if isinstance(event, Death):
                    return _died(event, tuple(replies))
                replies.append(event.fields)
        if not library.is_file():
            return _Answer(tuple(replies))
        if library.stat().st_size > _LONGEST_LIBRARY:
            size = library.stat().st_size
            told = f"`bytes of a library <= {_LONGEST_LIBRARY}` must hold, but it has {size}"
            failed = {**replies[-1], "status": Status.COMPILE_ERROR.value, "message": told}
            return _Answer((failed,))
        return _Answer(tuple(replies), library=library.read_bytes())


def _died(death: Death, replies: tuple[dict[str, Any], ...]) -> _Answer:
    told = death.status, death.message, death.from_outside
    return _Answer(replies, told, death.id is not None)


class _Place:
    """An actor, as long as there is one, and the node that it is to run on."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.actor: Any = None
        self.worker: RayBuilder | None = None


class RayBuilder(Worker):
    """A child that builds on a node; created busy with starting.

    Args:
        number: Tells it from others.
        place: Where.
    """

    def __init__(self, number: int, place: _Place) -> None:
        super().__init__(number)
        self.place = place
        self.task = self.new_task(0, _START_S, "starting")
        self.pending: Any = place.actor.start.remote()
        self.library = ""

    def request(self, op: str, limit_s: float, what: str, **fields: Any) -> None:
        """See ``Worker.request``."""
        assert self.task is None
        id = fields.pop("id")
        self.library = fields.get("library", "")
        self.task = self.new_task(id, limit_s, what)
        self.pending = self.place.actor.ask.remote(id, op, limit_s, what, fields)

    def send(self, payload: bytes) -> None:
        """See ``Worker.send``; an actor takes calls in the order in which they are made."""
        self.place.actor.tell.remote(payload)

    def kill(self) -> None:
        """See ``Worker.kill``."""
        with contextlib.suppress(Exception):  # gone already
            ray().kill(self.place.actor)

    def exited(self) -> bool:
        """See ``Worker.exited``; that an actor is gone is told by its answer."""
        return not self.alive


class RayBuilders(Transport):
    """Builders on a cluster, one for each core of its nodes.

    Args:
        cluster: Where; left open.
        config: Of the children.
        most: How many builders at most; None for all cores.

    Raises:
        ForetuneError: No node is left (``refill``), or none starts a child (``wait``).
    """

    shares_files = False

    def __init__(self, cluster: Cluster, config: WorkerConfig, most: int | None = None) -> None:
        super().__init__()
        self._cluster = cluster
        self._config = config
        self._most = min(most or _MOST_BUILDERS, _MOST_BUILDERS)
        self._places: list[_Place] = []
        self._numbers = itertools.count(1)
        self._looked = -_NODES_S
        self._failures = 0
        self._rests: dict[str, float] = {}
        self._waits: float | None = None

    def refill(self) -> None:
        """See ``Transport.refill``; nodes that came are used, those that went forgotten."""
        if time.monotonic() >= self._looked + _NODES_S:
            self._looked = time.monotonic()
            self._look()
        for place in self._places:
            if place.worker is None:
                self._start(place)

    def _look(self) -> None:
        nodes = {node.id: node for node in self._cluster.nodes()}
        self._places = [p for p in self._places if p.node.id in nodes or p.worker is not None]
        held = [place.node.id for place in self._places]
        for node in nodes.values():
            for _ in range(node.cores - held.count(node.id)):
                if len(self._places) < self._most:
                    self._places.append(_Place(node))
        if not self._places:
            raise ForetuneError(
                f"no node of --cluster {self._cluster.address} is left to build on: add one, and "
                "run the same command again, what was measured is kept"
            )

    def _start(self, place: _Place) -> None:
        if time.monotonic() < self._rests.get(place.node.id, 0.0):
            return
        if place.actor is None:
            make = ray().remote(num_cpus=1, max_restarts=0)(Station)
            own = make.options(**on_node(place.node.id))
            place.actor = own.remote(self._config, place.node.cores)
        place.worker = RayBuilder(next(self._numbers), place)
        self.workers.append(place.worker)

    def wait(self, seconds: float = TICK_S) -> Sequence[Reply | Death]:
        """See ``Transport.wait``."""
        asked = {w.pending: w for w in self._builders if w.pending is not None}
        if not asked:
            time.sleep(seconds)
            return []
        ended, rest = ray().wait(list(asked), num_returns=1, timeout=seconds)
        if ended and rest:
            # All that is there, before anybody is judged by the clock: the loop may have stood.
            also, _ = ray().wait(rest, num_returns=len(rest), timeout=0)
            ended = [*ended, *also]
        events = [event for each in ended for event in self._take(asked[each])]
        self._tell_of_waiting()
        for worker in self._builders:
            task = worker.task
            # One that starts waits for a core of the node, which others may hold for long.
            if task is not None and worker.ready and time.monotonic() > task.deadline + _GRACE_S:
                message = f"{task.what} took longer than {task.limit_s:.3g} s"
                worker.kill()
                events.append(self._bury(worker, Status.TIMEOUT, message, task.id, lost=True))
        return events

    def _tell_of_waiting(self) -> None:
        """Says once that no builder has a core yet, which others may hold for long."""
        if any(worker.ready for worker in self._builders):
            self._waits = None
        elif self._waits is None:
            self._waits = time.monotonic()
        elif time.monotonic() > self._waits + _WAIT_S:
            self._waits = float("inf")
            _log.warning(
                "no builder on --cluster %s is ready after %.0f s: its cores may be others'",
                self._cluster.address,
                _WAIT_S,
            )

    @property
    def _builders(self) -> list[RayBuilder]:
        return [place.worker for place in self._places if place.worker is not None]

    def _take(self, worker: RayBuilder) -> list[Reply | Death]:
        ended, worker.pending = worker.pending, None
        try:
            answer: _Answer = ray().get(ended)
        except Exception as error:  # Ray's, or what the actor could not do
            told = " ".join(str(error).split())[:300]
            lost = is_lost(error)
            if lost:
                _log.warning("a builder on %s is gone: %s", worker.place.node.host, told)
                # Its node may be dead, and told as alive for some seconds still.
                self._rests[worker.place.node.id] = time.monotonic() + _REST_S
                self._looked = -_NODES_S
            message = told if lost else f"{type(error).__name__}: {told}"
            return [self._bury(worker, Status.CRASH, message, lost=True, outside=lost)]
        task = worker.task
        assert task is not None
        events: list[Reply | Death] = [
            Reply(worker, task.id, fields) for fields in answer.replies[:-1]
        ]
        if answer.library is not None:
            try:
                Path(worker.library).write_bytes(answer.library)
            except FileNotFoundError:
                pass  # nobody waits for it any more
            except OSError as error:
                worker.task = None
                return [Reply(worker, task.id, {"no_room": str(error)})]
        if answer.death is not None:
            status, message, outside = answer.death
            blamed = task.id if answer.guilty else 0
            return [*events, self._bury(worker, status, message, blamed, outside=outside)]
        worker.task = None
        if task.id == 0:
            worker.ready, self._failures = True, 0
            return events
        return [*events, *(Reply(worker, task.id, fields) for fields in answer.replies[-1:])]

    def _bury(
        self,
        worker: RayBuilder,
        status: Status,
        message: str,
        blamed: int = 0,
        *,
        lost: bool = False,
        outside: bool = False,
    ) -> Death:
        """Forgets a child that died of the request ``blamed``; ``lost``: its actor, too."""
        self._forget(worker, lost)
        if not worker.ready and not outside:
            self._failures += 1
            if self._failures >= self._config.policy.max_start_failures:
                raise ForetuneError(
                    f"{self._failures} builders in a row on --cluster {self._cluster.address} "
                    f"ended before they were ready; the last one, on {worker.place.node.host}: "
                    f"{message}. Check that `import tvm` works there"
                )
        worker.task = None
        return Death(worker, blamed or None, status, message, outside)

    def _forget(self, worker: RayBuilder, lost: bool) -> None:
        worker.alive, worker.place.worker = False, None
        self.workers.remove(worker)
        if lost:
            worker.place.actor = None

    def retire(self, workers: Iterable[Worker]) -> None:
        """See ``Transport.retire``."""
        ended = [worker for worker in workers if isinstance(worker, RayBuilder)]
        closing = [worker.place.actor.close.remote() for worker in ended]
        if closing:
            # One that is busy, or gone, is not waited for.
            ray().wait(closing, num_returns=len(closing), timeout=_CLOSE_S)
        for worker in ended:
            worker.kill()
            self._forget(worker, lost=True)

    def close(self) -> None:
        """See ``Transport.close``."""
        self.retire(list(self.workers))
        self._places.clear()
