"""Devices on this machine's loopback: real servers and trackers, each a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from foretune._child import environment


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(port: int, seconds: float = 60.0) -> None:
    """Waits until something listens at a port."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 1.0).close()
            return
        time.sleep(0.05)
    raise AssertionError(f"nothing listens at {port}")


_SERVE = """
import sys
from foretune._child import die_with_parent
from foretune.cli import entry
die_with_parent(int(sys.argv.pop(1)))
sys.argv[0] = "foretune"
sys.exit(entry())
"""
"""``foretune``, but it does not outlive the tests, however these end."""


class Serving:
    """``foretune device serve`` as a process.

    Args:
        key: Of the device; empty without a tracker.
        tracker: Port of a tracker that runs.
        own_tracker: Port at which it starts one.
        port: Its own; a free one if None.
    """

    def __init__(
        self,
        key: str = "",
        tracker: int | None = None,
        own_tracker: int | None = None,
        port: int | None = None,
    ) -> None:
        self.port = port or free_port()
        options = ["--port", str(self.port), "--threads", "1"]
        options += ["--key", key] if key else []
        options += ["--tracker", f"127.0.0.1:{tracker}"] if tracker else []
        options += ["--start-tracker", str(own_tracker)] if own_tracker else []
        self.process = subprocess.Popen(
            [sys.executable, "-c", _SERVE, str(os.getpid()), "device", "serve", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(1),
            start_new_session=True,
        )
        self.lines: list[str] = []
        self._await("device ")

    def _await(self, begin: str, seconds: float = 90.0) -> None:
        assert self.process.stdout is not None
        until = time.monotonic() + seconds
        while not any(line.startswith(begin) for line in self.lines):
            ready, _, _ = select.select([self.process.stdout], [], [], until - time.monotonic())
            line = self.process.stdout.readline() if ready else ""
            assert line, (self.lines, self.process.poll())
            self.lines.append(line)

    def end(self, number: int = signal.SIGKILL) -> str:
        """Ends it by a signal; returns what it said on standard error."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, number)
        _, errors = self.process.communicate(timeout=30)
        return errors


_OTHER = """
import json, os, resource, sys
from foretune.measure.transport import serve
told, limit, plan = json.loads(sys.argv[1])
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
serve.facts = lambda threads: json.dumps(told)
serve.run_server(json.dumps({**plan, "parent": os.getppid()}))
"""


@contextlib.contextmanager
def strange_server(facts: Any, most_bytes: int = 0) -> Iterator[int]:
    """A server that says something else of itself, or can write only short files; its port."""
    port = free_port()
    plan = {"host": "127.0.0.1", "port": port, "key": "", "tracker": None, "announce": None}
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            _OTHER,
            json.dumps([facts, most_bytes, {**plan, "threads": 1}]),
        ],
        env=environment(1),
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(port)
        yield port
    finally:
        process.kill()
        process.wait()
