"""Several transports as one: builders on a cluster beside children that hold devices."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Sequence

from foretune.measure.transport._base import TICK_S, Death, Reply, Transport, Worker

_LOOK_S = 0.005
"""How long each is waited for before the others are asked again."""


class JoinedTransport(Transport):
    """The workers of several transports, and the news of all of them.

    Args:
        parts: Each closed with this one.
    """

    def __init__(self, parts: Sequence[Transport]) -> None:
        self._parts = tuple(parts)
        self.shares_files = all(part.shares_files for part in parts)

    @property
    def workers(self) -> list[Worker]:  # type: ignore[override]
        """See ``Transport.workers``; a list of its own at each call."""
        return list(itertools.chain.from_iterable(part.workers for part in self._parts))

    def refill(self) -> None:
        """See ``Transport.refill``."""
        for part in self._parts:
            part.refill()

    def wait(self, seconds: float = TICK_S) -> Sequence[Reply | Death]:
        """See ``Transport.wait``."""
        until = time.monotonic() + seconds
        events = [event for part in self._parts for event in part.wait(0.0)]
        while not events and time.monotonic() < until:
            events = [event for part in self._parts for event in part.wait(_LOOK_S)]
        return events

    def retire(self, workers: Iterable[Worker]) -> None:
        """See ``Transport.retire``."""
        wanted = list(workers)
        for part in self._parts:
            part.retire([worker for worker in wanted if worker in part.workers])

    def close(self) -> None:
        """See ``Transport.close``."""
        for part in self._parts:
            part.close()
