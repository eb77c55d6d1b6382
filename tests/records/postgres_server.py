"""A PostgreSQL server of its own for a test, from Debian's package.

Where the package is not installed the tests are skipped by its name; where the environment variable
``FORETUNE_REQUIRE`` has ``postgresql``, as in continuous integration, they fail.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

USER, PASSWORD = "tuner", "s3cret/@:%word"


def programs() -> Path | None:
    """The folder of ``initdb`` and ``pg_ctl``; Debian keeps it out of the PATH."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).parent
    versions = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    return max((path.parent for path in versions), default=None)


def missing() -> str:
    """What is missing for these tests; empty where nothing is."""
    for package in ("psycopg", "alembic"):
        try:
            __import__(package)
        except ImportError:
            return f"{package} (pip install 'foretune[store]')"
    return "" if programs() is not None else "Debian's package postgresql"


def require_server() -> None:
    """Skips a test, or fails it where it must not be skipped."""
    lacking = missing()
    if lacking and "postgresql" in os.environ.get("FORETUNE_REQUIRE", ""):
        pytest.fail(f"{lacking} is not installed, but FORETUNE_REQUIRE asks for it")
    if lacking:
        pytest.skip(f"{lacking} is not installed")


class Server:
    """A server that listens on a free port of this machine and asks for a password."""

    def __init__(self, folder: Path) -> None:
        found = programs()
        assert found is not None
        self._programs, self._data, self._log = found, folder / "data", folder / "log"
        # The server refuses to run as root.
        self._as = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}
        if self._as:
            shutil.chown(folder, "postgres")
        password = folder / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        self._run(
            "initdb", "--pgdata", str(self._data), "--username", USER, "--auth", "scram-sha-256",
            "--pwfile", str(password), "--no-sync", "--encoding", "UTF8", "--locale", "C",
        )  # fmt: skip
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]

    def start(self) -> None:
        """Starts it and waits until it answers."""
        options = f"-c listen_addresses=127.0.0.1 -c port={self.port} -c unix_socket_directories="
        options += " -c fsync=off -c max_connections=40 -c shared_buffers=16MB"
        self._control("start", "--wait", "--log", str(self._log), "--options", options)

    def stop(self, mode: str = "fast") -> None:
        """Stops it; ``immediate`` is as if it were killed."""
        self._control("stop", "--wait", "--mode", mode)

    def url(self, database: str = "postgres", user: str = USER) -> str:
        """Without a password: that is in ``PGPASSWORD``, see ``served``."""
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def execute(self, command: str) -> list[Any]:
        """What the server answers to its owner."""
        import psycopg

        with psycopg.connect(self.url(), password=PASSWORD, autocommit=True) as connection:
            cursor = connection.execute(command)
            return cursor.fetchall() if cursor.description else []

    def cut(self) -> int:
        """Ends all other connections; returns how many."""
        return len(
            self.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'foretune'"
            )
        )

    def new_database(self) -> str:
        """The URL of an empty database."""
        number = self.execute("SELECT count(*) FROM pg_database")[0][0]
        self.execute(f"CREATE DATABASE store{number}")
        return self.url(f"store{number}")

    def _control(self, action: str, *options: str) -> None:
        self._run("pg_ctl", action, "--pgdata", str(self._data), "--silent", *options)

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self._programs / program), *arguments],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # a server that inherits a pipe keeps it open
            stderr=subprocess.DEVNULL,
            check=False,
            timeout=120,
            **self._as,  # type: ignore[call-overload]
        )
        if done.returncode:
            log = self._log.read_text() if self._log.is_file() else ""
            raise RuntimeError(f"{program} {arguments[0]} failed: {log}")


@contextmanager
def served() -> Iterator[Server]:
    """A server that runs, and its password where libpq looks for it."""
    require_server()
    with tempfile.TemporaryDirectory(prefix="foretune-postgres-") as folder:
        server = Server(Path(folder))
        server.start()
        before = os.environ.get("PGPASSWORD")
        os.environ["PGPASSWORD"] = PASSWORD
        try:
            yield server
        finally:
            if before is None:
                del os.environ["PGPASSWORD"]
            else:
                os.environ["PGPASSWORD"] = before
            server.stop("immediate")
