"""A store in PostgreSQL, which a team shares.

How nothing gets lost and nothing counts twice:

1. ``write`` is one transaction, and returns once the server has committed it to its disk.
2. Every record has an identity that is unique in the table, so that writing again what may have
   been written changes nothing. A connection that breaks in the middle is therefore made anew, and
   the transaction repeated, until ``patience_s`` are over: a server may be restarted meanwhile.
3. What the server refuses for good (a full disk, missing rights) is an error at once.

The password comes from libpq: ``PGPASSWORD``, ``~/.pgpass``, a service file, or the URL. No message
and no result has it: ``name`` is the URL without it, and the server's words are searched for it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

from foretune._store_url import StoreURL
from foretune.errors import MissingDependencyError, RecordError, VersionMismatchError
from foretune.hardware import Hardware
from foretune.records._record import Record
from foretune.records.migrations import VERSION_TABLE
from foretune.records.store import Entry, SkippedLine, Store
from foretune.workload import Workload

if TYPE_CHECKING:
    import psycopg

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

_CONNECT_TIMEOUT_S = 10
_SILENCE_MS = 30_000
"""A server that acknowledges nothing for so long is taken to be gone."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0
_ONE_AT_A_TIME = 0x666F7265
"""Key of the server's advisory lock under which the schema is changed."""
_AGAIN = ("08", "57P", "40001", "40P01", "53300")
"""States, or the begin of them, after which the same may work: connection lost, server stops or
starts, two transactions in each other's way, too many connections."""
_REMEDIES = {
    "password": "set PGPASSWORD, or write the password into ~/.pgpass",
    "no pg_hba.conf entry": "ask who runs the server to let this machine in",
    "does not exist": "make that first, or correct the URL",
    "resolve host": "check the host in the URL",
    "translate host name": "check the host in the URL",
    "refused": "check host and port in the URL, and that the server runs",
    "No space left": "free some space on the server's disk",
    "disk full": "free some space on the server's disk",
    "permission denied": "ask who runs the server for the right to",
    "read-only": "write to the primary server",
}
"""Words of the server, or of libpq, to what to do."""
_INSERT = """
INSERT INTO foretune_records (identity, workload, hardware, status, data)
SELECT identity, workload, hardware, status, data
FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::text[])
WITH ORDINALITY AS given (identity, workload, hardware, status, data, place)
ORDER BY place
ON CONFLICT (identity) DO NOTHING
"""


class PostgresStore(Store):
    """Workloads, hardware and records in a PostgreSQL database, see the module.

    Every query asks the server. Safe to use from several threads; a child process opens its own.
    The tables are made, and brought to the schema of this version, when a store is opened to be
    written.

    Args:
        url: ``postgresql://[user[:password]@][host][:port][/database][?parameters]``, or what else
            libpq takes in a URL.
        read_only: Only to be queried; the tables must be there.
        patience_s: How long to try again once a connection that worked is lost.

    Raises:
        BadInputError: The URL cannot be read.
        MissingDependencyError: psycopg or Alembic is not installed.
        RecordError: The server cannot be reached, or refuses.
        VersionMismatchError: The schema is that of a newer version.
    """

    def __init__(self, url: str, *, read_only: bool = False, patience_s: float = 30.0) -> None:
        self._psycopg = _driver()
        self._url = StoreURL.read(url)
        self.name = self._url.name
        self.skipped: list[SkippedLine] = []
        self.read_only = read_only
        self._patience_s = 0.0
        self._mutex = threading.RLock()
        self._connection: psycopg.Connection[Any] | None = None
        self._closed = False
        try:
            self._do("open", self._check if read_only else self._migrate)
        except BaseException:
            self.close()
            raise
        self._patience_s = patience_s

    def write(self, entries: Iterable[Entry]) -> None:
        """See ``Store.write``: one transaction. A record that is there is not written again."""
        given = list(entries)
        records = [entry for entry in given if isinstance(entry, Record)]
        rows = [_row(record) for record in records]
        # In one order, so that no two transactions wait for each other.
        workloads = sorted((w.key, _text(asdict(w))) for w in given if isinstance(w, Workload))
        hardware = sorted((h.key, _text(h.to_json())) for h in given if isinstance(h, Hardware))
        if not given:
            return
        if self.read_only:
            raise RecordError(f"store {self.name!r} was opened read-only: open it to be written")

        def insert(cursor: psycopg.Cursor[Any]) -> None:
            for key, data in dict(workloads).items():
                cursor.execute(
                    "INSERT INTO foretune_workloads VALUES (%s, %s) ON CONFLICT DO NOTHING",
                    (key, data),
                )
            for key, data in hardware:
                cursor.execute(
                    "INSERT INTO foretune_hardware AS known VALUES (%s, %s) ON CONFLICT (key) "
                    "DO UPDATE SET data = excluded.data WHERE known.data <> excluded.data",
                    (key, data),
                )
            if rows:
                cursor.execute(_INSERT, [list(column) for column in zip(*rows, strict=True)])

        # One statement is a transaction by itself, and one way to the server instead of three.
        self._do("write", insert, several=bool(workloads or hardware))

    def records(
        self, workload: str | None = None, hardware: str | None = None, ok_only: bool = False
    ) -> list[Record]:
        """See ``Store.records``."""
        wanted = {"workload": workload, "hardware": hardware, "status": "ok" if ok_only else None}
        given = {name: value for name, value in wanted.items() if value is not None}
        where = " AND ".join(f"{name} = %({name})s" for name in given) or "true"
        query = f"SELECT id, data FROM foretune_records WHERE {where} ORDER BY id"
        return self._read(query, given, Record.from_json)

    def workloads(self, keys: Sequence[str] | None = None) -> dict[str, Workload]:
        """See ``Store.workloads``."""
        query = "SELECT 0, data FROM foretune_workloads"
        query += "" if keys is None else " WHERE key = ANY(%(keys)s)"
        known = self._read(query, {"keys": list(keys or ())}, lambda data: Workload(**data))
        return {workload.key: workload for workload in known}

    def hardware(self) -> dict[str, Hardware]:
        """See ``Store.hardware``."""
        known = self._read("SELECT 0, data FROM foretune_hardware", {}, Hardware.from_json)
        return {hardware.key: hardware for hardware in known}

    def close(self) -> None:
        """Ends the connection. May be called twice."""
        with self._mutex:
            self._closed = True
            self._disconnect()

    def _read(
        self,
        query: str,
        values: Mapping[str, Any],
        entry: Callable[[Mapping[str, Any]], Result],
    ) -> list[Result]:
        """The entries of rows of a number and JSON; those that cannot be read are skipped."""

        def fetch(cursor: psycopg.Cursor[Any]) -> list[Any]:
            return cursor.execute(query, values).fetchall()

        entries = []
        for number, text in self._do("read", fetch):
            try:
                entries.append(entry(json.loads(text)))
            except (KeyError, TypeError, ValueError) as error:
                skipped = SkippedLine(number, f"fields do not fit: {error!r}")
                self.skipped += [] if skipped in self.skipped else [skipped]
        return entries

    # The connection

    def _do(
        self, verb: str, work: Callable[[psycopg.Cursor[Any]], Result], several: bool = False
    ) -> Result:
        """What ``work`` returns, done as often as it takes.

        Args:
            verb: What it does, for messages.
            work: Given a cursor.
            several: Whether it has several statements, which are one transaction then.
        """
        deadline = time.monotonic() + self._patience_s
        pause = _FIRST_PAUSE_S
        with self._mutex:
            if self._closed:
                raise RecordError(f"store {self.name!r} is closed: open it again")
            while True:
                try:
                    connection = self._connected()
                    whole = connection.transaction() if several else contextlib.nullcontext()
                    with whole, connection.cursor() as cursor:
                        return work(cursor)
                except self._psycopg.Error as error:
                    self._disconnect()
                    if not _may_pass(error) or time.monotonic() + pause > deadline:
                        raise self._failure(verb, error) from None
                    logger.info("%s: trying again to %s: %s", self.name, verb, self._told(error))
                except BaseException:
                    # Ctrl-C may have come in the middle of an answer.
                    self._disconnect()
                    raise
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            self._connection = self._connect()
            self._connection.autocommit = True
        return self._connection

    def _connect(self) -> psycopg.Connection[Any]:
        given = {
            "connect_timeout": _CONNECT_TIMEOUT_S,
            "tcp_user_timeout": _SILENCE_MS,
            "application_name": "foretune",
            **self._url.parameters,
        }
        connection: psycopg.Connection[Any] = self._psycopg.connect(**given)
        return connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _failure(self, verb: str, error: psycopg.Error) -> RecordError:
        told = self._told(error)
        remedy = next(
            (remedy for words, remedy in _REMEDIES.items() if words in told),
            "check the server and its log, then run the same command again",
        )
        return RecordError(f"cannot {verb} store {self.name!r}: {told}: {remedy}")

    def _told(self, error: psycopg.Error) -> str:
        """The server's words in one line, without what must not be told."""
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return self._url.without_secrets(lines[0] if lines else type(error).__name__)

    # The schema

    def _check(self, cursor: psycopg.Cursor[Any]) -> None:
        """Refuses a schema that this version does not know, and no schema at all."""
        there = self._version(cursor)
        if there is None:
            raise RecordError(
                f"{self.name!r} holds no store of foretune: give the URL of one, or write to it "
                "first, for example with `foretune db merge URL WORK_DIR`"
            )
        if there not in _versions():
            raise VersionMismatchError(
                f"store {self.name!r} must have a schema of at most {_versions()[-1]}, but has "
                f"{there}: read it with the newer foretune that made it"
            )

    def _version(self, cursor: psycopg.Cursor[Any]) -> str | None:
        (table,) = cursor.execute("SELECT to_regclass(%s)", (VERSION_TABLE,)).fetchone() or (None,)
        if table is None:
            return None
        row = cursor.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()
        return None if row is None else str(row[0])

    def _migrate(self, cursor: psycopg.Cursor[Any]) -> None:
        """Brings the tables to the schema of this version, one process at a time."""
        there = self._version(cursor)
        if there is not None:
            self._check(cursor)
        if there == _versions()[-1]:
            return
        _upgrade(self._connect)


def _row(record: Record) -> tuple[str, ...]:
    """The columns of a record."""
    measured = record.measurement
    digest = hashlib.blake2b(_text(record.identity).encode(), digest_size=16).hexdigest()
    text = _text(record.to_json())
    return digest, record.workload, record.hardware, measured.status.value, text


def _text(data: Any) -> str:
    return json.dumps(data, separators=(",", ":"))


def _may_pass(error: psycopg.Error) -> bool:
    """Whether the same may work in a moment: see the module."""
    import psycopg

    if not isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)):
        return False
    return error.sqlstate is None or error.sqlstate.startswith(_AGAIN)


def _driver() -> Any:
    try:
        import alembic  # noqa: F401
        import psycopg
    except ImportError as error:
        raise MissingDependencyError(
            f"a store in PostgreSQL needs {error.name}: pip install 'foretune[store]'"
        ) from error
    return psycopg


def _config() -> Any:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "foretune.records:migrations")
    return config


def _versions() -> list[str]:
    """The versions of the schema that are known, the oldest first."""
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory.from_config(_config())
    return [script.revision for script in scripts.walk_revisions()][::-1]


def _upgrade(connect: Callable[[], psycopg.Connection[Any]]) -> None:
    """Runs Alembic's migrations in one transaction, one process at a time.

    Raises:
        psycopg.Error: What the server refuses, as the driver says it.
    """
    import alembic.command
    import sqlalchemy

    engine = sqlalchemy.create_engine(
        "postgresql+psycopg://", creator=connect, poolclass=sqlalchemy.pool.NullPool
    )
    config = _config()
    try:
        with engine.begin() as opened:
            opened.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ONE_AT_A_TIME})")
            config.attributes["connection"] = opened
            alembic.command.upgrade(config, "head")
    except sqlalchemy.exc.DBAPIError as error:
        raise error.orig or error from None
