"""Records per second that several tuners write at once, into one journal and into PostgreSQL.

``--url`` names an empty database, which the tables are made in and left in; without it the journal
alone is measured. Writers are processes. Each opens the store, waits for the others, and writes its
records, one by one or as many a call as a round of a tuner measures. A record counts when its call
has returned: then it is on disk.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import pages
from benchmarks.pages import Section
from benchmarks.results import conditions, table
from foretune.measure import Measurement, MeasurePolicy, Status
from foretune.records import Record, open_store

BATCHES = (1, 16)


def _record(writer: str, index: int) -> Record:
    """As large as a record of ``foretune tune``."""
    seconds = 1e-3 * (1 + index / 997)
    return Record(
        workload=f"{writer:0>16}",
        hardware="0123456789abcdef",
        candidate_key=f"{index:016x}",
        decisions={"sketch": "0123456789abcdef", "decisions": [[index, 4, 8, 16]] * 4 + [3, 2]},
        measurement=Measurement(Status.OK, (seconds,) * 5, (True,) * 5, 0.21, 0.13, max_error=1e-7),
        origin="evolutionary",
        time=1.8e9 + index,
        environment={
            "tvm": "0.27.0", "tvm_ffi": "0.1.14", "llvm": "19", "python": "3.11.7",
            "cpu": "a processor", "threads": 2, "policy": MeasurePolicy().to_json(),
            "measurement_version": 8, "fixed_addresses": True, "elapsed_s": index / 3,
        },
    )  # fmt: skip


def _write(place: str, writer: str, count: int, batch: int) -> None:
    """What a process does."""
    records = [_record(writer, index) for index in range(count)]
    with open_store(place) as store:
        print("ready", flush=True)
        sys.stdin.readline()
        for begin in range(0, count, batch):
            store.extend(records[begin : begin + batch])
        print("done", flush=True)


def _measured(place: str, writers: int, count: int, batch: int) -> dict[str, Any]:
    """Seconds that all writers took together, and how many records are there afterwards."""
    each = count // writers
    before = _held(place)
    children = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.stores", "--writer", place, f"{batch}{n}",
             str(each), str(batch)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for n in range(writers)
    ]  # fmt: skip
    for child in children:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
    began = time.perf_counter()
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    for child in children:
        assert child.stdout is not None and child.stdout.readline() == "done\n"
    seconds = time.perf_counter() - began
    for child in children:
        child.communicate()
    return {"batch": batch, "written": each * writers, "seconds": seconds,
            "there": _held(place) - before}  # fmt: skip


def _held(place: str) -> int:
    """How many different records a store holds."""
    with open_store(place) as store:
        return len({record.identity for record in store.records()})


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", help="of an empty database in PostgreSQL")
    parser.add_argument("--folder", type=Path, help="where the journal is; default: a new one")
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--writer", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.writer is not None:
        place, writer, count, batch = options.writer
        _write(place, writer, int(count), int(batch))
        return
    where = conditions("stores", [])
    rows = []
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        places = {"journal file": f"{folder}/journal.jsonl"}
        places |= {} if options.url is None else {"PostgreSQL": options.url}
        for name, place in places.items():
            for batch in BATCHES:
                found = _measured(place, options.writers, options.records, batch)
                rows.append({"store": name, **found})
    data = {"rows": rows, "writers": options.writers}
    pages.publish("stores", section, data, where.end(), options.write)


def section(data: Mapping[str, Any]) -> Section:
    """How many records a second, and whether all were there."""
    rows, writers = data["rows"], data["writers"]
    lost = sum(row["written"] - row["there"] for row in rows)
    each = ", ".join(
        f"{row['written'] / row['seconds']:,.0f} ({row['store']}, {row['batch']} a call)"
        for row in rows
    )
    cells = [
        [row["store"], str(row["batch"]), f"{row['written']:,}", f"{row['there']:,}",
         f"{row['seconds']:.1f}", f"{row['written'] / row['seconds']:,.0f}"]
        for row in rows
    ]  # fmt: skip
    return Section(
        f"How many records do {writers} tuners write into one store?",
        f"{each} a second; {f'{lost:,} were not' if lost else 'all were'} there afterwards.",
        table(["store", "records a call", "acknowledged", "there", "seconds", "records/s"], cells),
        "All processes write at once, on the machine of the server if there is one. A call returns "
        "when its records are on disk (fsync; PostgreSQL: synchronous commit).",
    )


if __name__ == "__main__":
    main()
