"""Appends records for ever, or a number of them, and prints each index once it is on disk."""

from __future__ import annotations

import itertools
import sys

# Records do not need TVM; without torch a child starts at once.
sys.modules["torch"] = None  # type: ignore[assignment]

from foretune.records import Journal
from tests.records.support import record


def main(path: str, name: str, count: int) -> None:
    """Writes ``count`` records (0: until killed) of workload ``name``."""
    journal = Journal(path)
    print("ready", flush=True)
    for index in range(count) if count else itertools.count():
        journal.append(record(index, workload=name))
        print(index, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
