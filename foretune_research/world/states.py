"""The states of trajectories: the text of each distinct program, once.

SQLite rather than Parquet, because states come one by one over many minutes: a row is looked up and
added without reading or writing the rest, a process that is killed leaves what it committed, and
two processes can fill one file.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from foretune.errors import BadInputError, RecordError
from foretune.world.text import TEXT_VERSION
from foretune_research.world._program import ProgramWriter

_TABLES = """
CREATE TABLE IF NOT EXISTS states (key TEXT PRIMARY KEY, text TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS paths (
    candidate TEXT, terminal TEXT, states TEXT NOT NULL, PRIMARY KEY (candidate, terminal)
);
"""
_COMMIT_EVERY = 200
"""Paths; a process that is killed loses at most as many."""
_WAIT_S = 120.0
"""For another process that fills the same file."""


class StateStore:
    """Texts of programs by key, and the keys of the states that candidates lead through.

    The key of a program is its structural hash, 16 hex digits, equal in every process. Use the
    store in a ``with`` statement, or ``close`` it: what was added since the last ``commit`` is
    lost otherwise, 200 paths at most.

    Args:
        folder: Where it is kept, in a file named by the version of the texts, so that another
            version never meets old ones; None: in memory.

    Raises:
        RecordError: The file cannot be opened, or is damaged. So do all methods if it cannot be
            read or written.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._file = ":memory:"
        self._writer = ProgramWriter()
        self._uncommitted = 0
        with self._guarded():
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
                self._file = str(folder / f"states-{TEXT_VERSION}.sqlite")
            self._rows = sqlite3.connect(self._file, timeout=_WAIT_S)
            self._rows.executescript(_TABLES)

    def __len__(self) -> int:
        """Number of distinct states."""
        return int(self._one("SELECT count(*) FROM states")[0])

    def __contains__(self, key: str) -> bool:
        return self._one("SELECT 1 FROM states WHERE key = ?", key) is not None

    def add(self, module: Any) -> str:
        """Takes in a program if it is new; its key either way."""
        from foretune import _tvm

        key = f"{_tvm.structural_hash(module):016x}"
        if key not in self:
            text = self._writer.text(module)
            with self._guarded():
                self._rows.execute("INSERT OR IGNORE INTO states VALUES (?, ?)", (key, text))
        return key

    def texts(self, keys: Sequence[str]) -> list[str]:
        """The texts of states, in the order of the keys.

        Raises:
            BadInputError: One is not in the store.
        """
        wanted = json.dumps(sorted(set(keys)))
        with self._guarded():
            found: dict[str, str] = dict(
                self._rows.execute(
                    "SELECT key, text FROM states WHERE key IN (SELECT value FROM json_each(?))",
                    (wanted,),
                )
            )
        missing = [key for key in keys if key not in found]
        if missing:
            raise BadInputError(
                f"a state has to be in the store, but {missing[0]!r} is not ({len(missing)} of "
                f"{len(keys)} are missing): make the trajectories first"
            )
        return [found[key] for key in keys]

    def path(self, candidate_key: str, terminal: str) -> tuple[str, ...] | None:
        """Keys of the states that a candidate leads through; None if it was not added."""
        row = self._one(
            "SELECT states FROM paths WHERE candidate = ? AND terminal = ?", candidate_key, terminal
        )
        return None if row is None else tuple(row[0].split())

    def add_path(self, candidate_key: str, terminal: str, states: Sequence[str]) -> None:
        """Notes the states that a candidate leads through, all of which have been added."""
        with self._guarded():
            self._rows.execute(
                "INSERT OR REPLACE INTO paths VALUES (?, ?, ?)",
                (candidate_key, terminal, " ".join(states)),
            )
        self._uncommitted += 1
        if self._uncommitted >= _COMMIT_EVERY:
            self.commit()

    def commit(self) -> None:
        """Writes to disk what was added."""
        with self._guarded():
            self._rows.commit()
        self._uncommitted = 0

    def close(self) -> None:
        """Commits and closes the file."""
        self.commit()
        self._rows.close()

    def __enter__(self) -> StateStore:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _one(self, query: str, *values: str) -> Any:
        with self._guarded():
            return self._rows.execute(query, values).fetchone()

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            raise RecordError(
                f"states cannot be kept in {self._file} ({error}): remove the file if it is "
                "damaged, or choose another folder"
            ) from error
