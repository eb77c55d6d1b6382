"""Writing a data set directory."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretune._files import write_json
from foretune.dataset._dataset import AUDIT, StoredWorkload, is_valid
from foretune.dataset._place import put_back, staging_of, swap
from foretune.dataset._schema import (
    INDEX,
    RECORDS,
    SCHEMA,
    SKETCHES,
    UNITS,
    VERSION,
    WORKLOADS,
    flatten,
    load_pyarrow,
    record_schema,
    sketch_schema,
    workload_schema,
)
from foretune.errors import BadInputError, RecordError

if TYPE_CHECKING:
    import pyarrow as pa

    from foretune.hardware import Hardware
    from foretune.records import Record
    from foretune.space import Sketch

_ROWS_PER_FILE = 20_000
_OWN_FILES = r"dataset\.json|(workloads|sketches|records-\d+)\.parquet"


def write_dataset(
    path: str | Path,
    workloads: Iterable[StoredWorkload],
    hardware: Iterable[Hardware],
    sketches: Iterable[Sketch],
    records: Sequence[Record],
) -> None:
    """Writes a data set directory; one in its place is replaced once the new one is complete.

    Args:
        path: The directory, made if missing.
        workloads: Those that records refer to.
        hardware: Those that records refer to.
        sketches: Those that candidates refer to.
        records: With their ``candidate``.

    Raises:
        BadInputError: There are other files in the directory, which would be lost.
        RecordError: The directory cannot be written; an older data set is as it was.
    """
    path = Path(path).resolve()
    staging = staging_of(path)
    try:
        put_back(path)
        _refuse_other_files(path)
        staging.mkdir(parents=True)
        _write_files(staging, workloads, list(hardware), sketches, records)
        swap(staging, path)
    except OSError as error:
        raise RecordError(
            f"data set {str(path)!r} cannot be written ({error.strerror or error}): make room or "
            "choose another place"
        ) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _refuse_other_files(path: Path) -> None:
    if not path.exists():
        return
    names = {file.name for file in path.iterdir()} if path.is_dir() else {path.name}
    other = {n for n in names if not re.fullmatch(_OWN_FILES, n)}
    if other:
        raise BadInputError(
            f"a data set has its directory to itself, but {str(path)!r} holds {sorted(other)[0]!r}:"
            " name another directory"
        )


def _write_files(
    path: Path,
    workloads: Iterable[StoredWorkload],
    hardware: Sequence[Hardware],
    sketches: Iterable[Sketch],
    records: Sequence[Record],
) -> None:
    pa = load_pyarrow()
    environments: dict[str, int] = {}
    numbers = [_number(environments, r.environment) for r in records]
    programs = [_workload_row(stored) for stored in workloads]
    _write(path / WORKLOADS, pa.Table.from_pylist(programs, schema=workload_schema()))
    rows = sorted(map(_sketch_row, sketches), key=lambda row: (row["workload"], row["key"]))
    _write(path / SKETCHES, pa.Table.from_pylist(rows, schema=sketch_schema()))
    starts = range(0, max(len(records), 1), _ROWS_PER_FILE)
    for file, start in enumerate(starts):
        rows_of_file = slice(start, start + _ROWS_PER_FILE)
        _write(
            path / RECORDS.format(file),
            _record_table(records[rows_of_file], numbers[rows_of_file]),
        )
    write_json(
        path / INDEX,
        {
            "schema": SCHEMA,
            "units": UNITS,
            "records": len(records),
            "files": len(starts),
            "valid": sum(is_valid(r.measurement) for r in records if r.origin != AUDIT),
            "hardware": [h.to_json() for h in hardware],
            "environments": [json.loads(text) for text in environments],
        },
    )


def _number(environments: dict[str, int], environment: Mapping[str, Any]) -> int:
    """Equal environments are kept once; when a run began says nothing about a measurement."""
    kept = {k: v for k, v in environment.items() if k != "elapsed_s"}
    return environments.setdefault(json.dumps(kept, sort_keys=True), len(environments))


def _write(path: Path, table: pa.Table) -> None:
    import pyarrow.parquet as pq

    table = table.replace_schema_metadata({VERSION: SCHEMA})
    pq.write_table(table, path, compression="zstd", compression_level=15, write_page_checksum=True)


def _workload_row(stored: StoredWorkload) -> dict[str, Any]:
    workload = stored.workload
    return {
        "key": workload.key,
        "name": workload.name,
        "kind": stored.kind,
        "flops": workload.flops,
        "weight": workload.weight,
        "module": workload.module_json,
    }


def _sketch_row(sketch: Sketch) -> dict[str, str]:
    data = sketch.to_json()
    del data["workload"], data["hardware"]
    text = json.dumps(data, separators=(",", ":"))
    return {
        "key": sketch.key,
        "workload": sketch.workload.key,
        "hardware": sketch.hardware.key,
        "sketch": text,
    }


def _record_table(records: Sequence[Record], environments: Sequence[int]) -> pa.Table:
    rows = [
        {
            "workload": r.workload,
            "hardware": r.hardware,
            "sketch": r.decisions["sketch"],
            "decisions": flatten(r.decisions["decisions"]),
            "status": r.measurement.status.value,
            "seconds": list(r.measurement.seconds),
            "quiet": list(r.measurement.quiet),
            "build_s": r.measurement.build_s,
            "run_s": r.measurement.run_s,
            "max_error": r.measurement.max_error,
            "message": r.measurement.message[:200],
            "origin": r.origin,
            "time": round(r.time, 1),
            "environment": number,
        }
        for r, number in zip(records, environments, strict=True)
    ]
    return load_pyarrow().Table.from_pylist(rows, schema=record_schema())
