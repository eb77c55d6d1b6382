"""Serving a device: TVM's RPC server, and a tracker if wanted, kept alive.

TVM's server runs each session in a process of its own, and stops listening for good when such a
process dies, as it does of a bad program; and a session whose program hangs keeps the device when
its client is long gone. So it is made to listen again whenever it stops, a watch beside it ends
sessions that nobody listens to any more, and a keeper starts the process again should it end.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from foretune._child import OWN_PATHS, die_with_parent, environment, kill_group, start
from foretune.errors import BadInputError
from foretune.measure.transport.tracker import Tracker, TrackerError

FACTS = "foretune.device.facts"
"""The function by which a server says what its device is: JSON of a few hundred bytes."""
SIZE = "foretune.device.size"
"""The function by which a session says how large a file is that was uploaded, in bytes."""
_COMMAND = (
    f"{OWN_PATHS}sys.modules['torch'] = None; "
    "from foretune.measure.transport.serve import run_{}; run_{}({!r})"
)
_AGAIN_S = 0.2
_WATCH_S = 0.5
LOOPBACK = ("127.", "::1", "localhost")
"""What the addresses begin with that only this machine reaches."""


@dataclass(frozen=True)
class ServePlan:
    """What is served, and where.

    Attributes:
        host: Address that server and tracker listen at.
        port: The server's port.
        key: What kind of device this is; asked for at the tracker.
        tracker: Host and port of the tracker that the server is announced to; None for none.
        own_tracker: Whether that tracker is started, too.
        announce: The server's address for others; None: as the tracker sees it.
        threads: Threads that kernels run on.
    """

    host: str
    port: int
    key: str
    tracker: tuple[str, int] | None
    own_tracker: bool
    announce: str | None
    threads: int

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return self.host.startswith(LOOPBACK)


def serve(plan: ServePlan, say: Callable[[str], None]) -> None:
    """Serves until it is interrupted.

    Args:
        plan: What and where.
        say: Told a line when something begins to listen, or had to be started again.

    Raises:
        BadInputError: A port cannot be listened at.
    """
    _require_free(plan.host, plan.port, "--port")
    kept: list[_Kept] = []
    try:
        if plan.own_tracker:
            assert plan.tracker is not None
            _require_free(plan.host, plan.tracker[1], "--start-tracker")
            kept.append(_Kept("tracker", plan, plan.tracker[1]))
            say(f"tracker at {plan.host}:{plan.tracker[1]}")
        kept.append(_Kept("server", plan, plan.port))
        if plan.tracker is not None and not _announced(plan.tracker, plan.key):
            say(f"the tracker {plan.tracker[0]}:{plan.tracker[1]} does not know this device yet")
        named = f"{plan.key!r} " if plan.key else ""
        say(f"device {named}at {plan.host}:{plan.port}, kernels on {plan.threads} threads")
        while True:
            time.sleep(_AGAIN_S)
            for each in kept:
                if each.revive():
                    say(f"the {each.what} ended and was started again")
    finally:
        for each in kept:
            each.end()


def _announced(tracker: tuple[str, int], key: str, seconds: float = 5.0) -> bool:
    """Waits until a tracker knows a device of a key; False where that takes long."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with contextlib.suppress(TrackerError), Tracker(*tracker, timeout_s=1.0) as asked:
            if key in asked.devices():
                return True
        time.sleep(0.05)
    return False


class _Kept:
    """A child process that is started again when it ends."""

    def __init__(self, what: str, plan: ServePlan, port: int) -> None:
        self.what = what
        self._plan = plan
        self._port = port
        self._process = self._started()
        self._await_listening()

    def _started(self) -> subprocess.Popen[bytes]:
        told = json.dumps({**asdict(self._plan), "parent": os.getpid()})
        # What a session's program prints is not ours to show.
        code = _COMMAND.format(self.what, self.what, told)
        return start([sys.executable, "-c", code], environment(self._plan.threads))

    def _await_listening(self, seconds: float = 60.0) -> None:
        until = time.monotonic() + seconds
        while _is_free(self._plan.host, self._port):
            if self._process.poll() is not None or time.monotonic() > until:
                raise BadInputError(
                    f"the {self.what} must listen at {self._plan.host}:{self._port}, but it ended: "
                    f"check that `import tvm` works in {sys.executable}, or choose another port"
                )
            time.sleep(0.05)

    def revive(self) -> bool:
        """Starts it again if it has ended; whether it had."""
        if self._process.poll() is None:
            return False
        # Sessions of the old one hold its socket.
        kill_group(self._process)
        self._process = self._started()
        return True

    def end(self) -> None:
        """Ends it, and all its sessions."""
        kill_group(self._process)


def _is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def _require_free(host: str, port: int, option: str) -> None:
    if not 0 < port < 1 << 16:
        raise BadInputError(f"`0 < port < 65536` must hold, but got {option} {port}")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        raise BadInputError(
            f"{host}:{port} must be free to listen at, but {error.strerror or error}: choose "
            f"another {option} or --host"
        ) from None


def facts(threads: int) -> str:
    """What the device is, for those who ask over RPC, as JSON."""
    from foretune import _tvm
    from foretune.hardware import probe, usable_cores

    told: Mapping[str, Any] = {
        "machine": platform.machine(),
        "tvm": _tvm.versions()["tvm"],
        "cpu": probe().name[:100],
        "cores": usable_cores(),
        "threads": threads,
    }
    return json.dumps(told)


def run_server(text: str) -> None:
    """The process of a server. ``text`` is its plan."""
    from foretune import _tvm

    plan = json.loads(text)
    die_with_parent(plan["parent"])
    own = os.getpid()
    # Sessions, which TVM forks, would outlive a server that is killed, and keep its port.
    os.register_at_fork(after_in_child=lambda: die_with_parent(own))
    told = facts(plan["threads"])
    _tvm.register_function(FACTS, lambda: told)
    _tvm.register_function(SIZE, _size)
    tracker, home = plan["tracker"], os.getcwd()
    threading.Thread(target=_watch_sessions, daemon=True).start()
    while True:
        state = _tvm.rpc().server.PopenRPCServerState(
            plan["host"],
            plan["port"],
            plan["port"] + 1,
            tracker_addr=None if tracker is None else tuple(tracker),
            key=plan["key"],
            custom_addr=plan["announce"],
            silent=True,
        )
        # It ends with a session that ended badly.
        state.thread.join()
        state.sock.close()
        _end_sessions()
        # TVM leaves the process in the folder of that session, which is gone.
        os.chdir(home)


def _size(name: str) -> int:
    from foretune import _tvm

    path = _tvm.tvm.get_global_func("tvm.rpc.server.workpath")(name)
    return os.path.getsize(path)


def run_tracker(text: str) -> None:
    """The process of a tracker. ``text`` is its plan."""
    from foretune import _tvm

    plan = json.loads(text)
    die_with_parent(plan["parent"])
    port = plan["tracker"][1]
    state = _tvm.rpc_tracker().PopenTrackerServerState(plan["host"], port, port + 1, silent=True)
    state.thread.join()
    os._exit(1)


def _end_sessions() -> None:
    """Ends what is left of sessions: it holds the socket that is to be listened at again."""
    import psutil

    children = psutil.Process().children(recursive=True)
    for child in children:
        with contextlib.suppress(psutil.Error):
            child.kill()
    psutil.wait_procs(children, timeout=5)


def _watch_sessions() -> None:
    """Ends sessions whose client has closed the connection while their program goes on."""
    import psutil

    own = psutil.Process()
    suspects: set[int] = set()
    while True:
        time.sleep(_WATCH_S)
        left: set[int] = set()
        for child in own.children():
            with contextlib.suppress(psutil.Error):
                states = {each.status for each in child.net_connections(kind="tcp")}
                if psutil.CONN_CLOSE_WAIT in states:
                    left.add(child.pid)
                    # One that ends by itself is given until the next look.
                    if child.pid in suspects:
                        child.send_signal(signal.SIGKILL)
        suspects = left
