"""Writes records one by one into a store: ``PLACE NAME COUNT``, 0 for until it is killed.

Prints the index of each record once it was acknowledged.
"""

from __future__ import annotations

import itertools
import os
import sys


def main() -> None:
    """Writes until the count is reached."""
    sys.modules["torch"] = None  # type: ignore[assignment]  # records need none
    from foretune.records import open_store
    from tests.records.support import record

    place, name, count = sys.argv[1:]
    with open_store(place) as store:
        for index in range(int(count)) if int(count) else itertools.count():
            store.append(record(index, workload=name))
            os.write(1, f"{index}\n".encode())


if __name__ == "__main__":
    main()
