"""The entry of a child process: which of the workers it is, and what it is held to."""

from __future__ import annotations

import pickle
import sys

from foretune._child import die_with_parent, leave_no_core, limit_memory
from foretune.measure._layout import give_large_allocations_own_pages
from foretune.measure._protocol import WorkerConfig, read_frame
from foretune.measure._worker import WorkerLoop


def main(request_fd: int, reply_fd: int) -> None:
    """Runs a child until its request pipe closes.

    Args:
        request_fd: Where framed pickles arrive; the first is a ``WorkerConfig``.
        reply_fd: Where framed JSON objects go.
    """
    # TVM imports torch if it can, which costs seconds and which measuring never needs.
    sys.modules["torch"] = None  # type: ignore[assignment]
    data = read_frame(request_fd)
    if data is None:
        return
    config: WorkerConfig = pickle.loads(data)
    die_with_parent(config.parent)
    give_large_allocations_own_pages()
    leave_no_core()
    worker = _made(config, reply_fd)
    worker.prepare()
    if config.address_space_bytes is not None:
        limit_memory(config.address_space_bytes)
    worker.hello()
    worker.serve(request_fd)


def _made(config: WorkerConfig, reply_fd: int) -> WorkerLoop:
    if config.linker:
        from foretune.measure._device_worker import device_worker

        return device_worker(config, reply_fd)
    from foretune.measure.timing import Stopwatch

    return WorkerLoop(config, reply_fd, Stopwatch(config.hardware, config.policy))
