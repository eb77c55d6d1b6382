"""Reading a data set directory, nothing of it unchecked."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretune.dataset._dataset import Dataset, StoredWorkload, is_valid
from foretune.dataset._place import place_of
from foretune.dataset._schema import (
    INDEX,
    RECORDS,
    SCHEMA,
    SKETCHES,
    VERSION,
    WORKLOADS,
    contents,
    load_pyarrow,
    record_schema,
    sketch_schema,
    unflatten,
    workload_schema,
)
from foretune.errors import (
    BadInputError,
    IllegalCandidateError,
    RecordError,
    VersionMismatchError,
)
from foretune.hardware import Hardware
from foretune.measure import Measurement, Status
from foretune.records import Trial
from foretune.space import Candidate, Sketch
from foretune.workload import Workload

if TYPE_CHECKING:
    import pyarrow as pa

    from foretune.dataset._group import Group
    from foretune.hardware import Devices

_log = logging.getLogger(__name__)


def load(path: str | Path, devices: Devices | None = None) -> list[Group]:
    """The groups of a data set directory, see ``Dataset.groups``.

    Raises:
        RecordError: A file is missing, truncated or not Parquet.
        VersionMismatchError: Another schema version.
    """
    return read_dataset(path).groups(devices)


def is_dataset(path: str | Path) -> bool:
    """Whether ``path`` is a directory that ``write_dataset`` wrote."""
    return (place_of(Path(path)) / INDEX).is_file()


def read_dataset(path: str | Path) -> Dataset:
    """Reads a data set directory.

    A row whose workload, hardware or sketch is not in the data set, or whose decisions are outside
    their domains, is left out and counted. A data set whose replacement was killed half-way is read
    as it was before.

    Raises:
        BadInputError: ``path`` is not a data set.
        RecordError: A file is missing, truncated or not Parquet, or a column holds something else.
        VersionMismatchError: Another schema version.
    """
    given, path = Path(path), place_of(Path(path))
    if path != given:
        _log.warning("%s was being replaced by what was killed: it is read from %s", given, path)
    index = _read_index(path)
    hardware = {h.key: h for h in index.hardware}
    workloads = {row["key"]: _stored(row) for row in _rows(path / WORKLOADS, workload_schema())}
    sketches = {}
    for row in _rows(path / SKETCHES, sketch_schema()):
        if row["workload"] in workloads and row["hardware"] in hardware:
            sketch = _sketch(row, workloads[row["workload"]].workload, hardware[row["hardware"]])
            sketches[row["hardware"], sketch.key] = sketch
    skipped: Counter[str] = Counter()
    reader = _RecordReader(sketches, index.environments, skipped)
    records = [
        record
        for number in range(index.files)
        for record in reader.read(path / RECORDS.format(number))
    ]
    count = len(records) + sum(skipped.values())
    if count != index.records:
        raise RecordError(
            f"data set {str(path)!r} must hold {index.records} records, as its {INDEX} says, "
            f"but holds {count}: copy it again"
        )
    return Dataset(workloads, hardware, sketches, records, index.environments, skipped)


@dataclass(frozen=True)
class _Index:
    """What ``dataset.json`` says."""

    hardware: list[Hardware]
    environments: list[dict[str, Any]]
    files: int
    records: int


def _read_index(path: Path) -> _Index:
    file = path / INDEX
    if not file.is_file():
        raise BadInputError(
            f"{str(path)!r} is no data set, as it has no {INDEX}: make one with "
            "`foretune collect --pack`"
        )
    try:
        index = json.loads(file.read_text(encoding="utf-8"))
        schema = index["schema"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{file} cannot be read ({error!r}): copy the data set again") from error
    _check_version(file, schema)
    try:
        return _Index(
            [Hardware.from_json(each) for each in index["hardware"]],
            [dict(each) for each in index["environments"]],
            int(index["files"]),
            int(index["records"]),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RecordError(f"{file} is damaged ({error!r}): copy the data set again") from error


def _rows(path: Path, schema: pa.Schema) -> Iterator[dict[str, Any]]:
    """The rows of a file that must have these columns."""
    table = _table(path)
    try:
        _check_columns(path, table.schema, schema)
        rows = table.to_pylist()
    except UnicodeDecodeError as error:
        raise RecordError(f"{path} is damaged ({error}): copy the data set again") from error
    yield from rows


def _check_columns(path: Path, there: pa.Schema, wanted: pa.Schema) -> None:
    """Refuses a file that lacks a column or has something else in it."""
    held = {field.name: contents(field.type) for field in there}
    lacking = set(wanted.names) - held.keys()
    if lacking:
        raise RecordError(f"{path} lacks the columns {sorted(lacking)}: copy the data set again")
    for field in wanted:
        right, here = contents(field.type), held[field.name]
        # Integers are numbers, too.
        if right not in (here, here.replace("integers", "numbers")):
            raise RecordError(
                f"{path}: column {field.name!r} must hold {right}, but holds {here}: copy the data "
                "set again, or write it with this foretune"
            )


def _table(path: Path) -> pa.Table:
    pa = load_pyarrow()
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path, page_checksum_verification=True)
    except (OSError, pa.ArrowException) as error:
        raise RecordError(
            f"{path} is missing, truncated or no Parquet file ({_first_line(error)}): copy the "
            "data set again"
        ) from error
    version = (table.schema.metadata or {}).get(VERSION, SCHEMA.encode())
    _check_version(path, version.decode(errors="replace"))
    return table


def _check_version(file: Path, schema: object) -> None:
    if schema != SCHEMA:
        raise VersionMismatchError(
            f"{file}: schema must be {SCHEMA!r}, but is {schema!r}: use the foretune that wrote it"
        )


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _stored(row: Mapping[str, Any]) -> StoredWorkload:
    lacking = [name for name in workload_schema().names if row[name] is None]
    if lacking:
        raise RecordError(
            f"a workload of the data set has no {lacking[0]}: copy the data set again"
        )
    workload = Workload(row["name"], row["key"], row["module"], row["flops"], row["weight"])
    return StoredWorkload(workload, row["kind"])


def _sketch(row: Mapping[str, Any], workload: Workload, hardware: Hardware) -> Sketch:
    fields = {
        "name": workload.name,
        "key": workload.key,
        "module_json": workload.module_json,
        "flops": workload.flops,
        "weight": workload.weight,
    }
    described = {k: v for k, v in hardware.to_json().items() if k != "key"}
    try:
        data = {**json.loads(row["sketch"]), "workload": fields, "hardware": described}
        sketch = Sketch.from_json(data)
    except (TypeError, ValueError, BadInputError) as error:
        raise RecordError(
            f"sketch {row['key']} is damaged ({error}): copy the data set again"
        ) from error
    # One object for all of them: the workload holds its parsed module.
    return replace(sketch, workload=workload, hardware=hardware)


class _RecordReader:
    """Turns rows into records with candidates.

    Args:
        sketches: By hardware key and sketch key.
        environments: What rows refer to by number.
        skipped: Counts what is left out.
    """

    def __init__(
        self,
        sketches: Mapping[tuple[str, str], Sketch],
        environments: Sequence[Mapping[str, Any]],
        skipped: Counter[str],
    ) -> None:
        self._sketches = sketches
        self._environments = environments
        self._skipped = skipped

    def read(self, path: Path) -> Iterator[Trial[Candidate]]:
        """The records of one file."""
        for row in _rows(path, record_schema()):
            record = self._record(row)
            if record is not None:
                yield record

    def _record(self, row: Mapping[str, Any]) -> Trial[Candidate] | None:
        sketch = self._sketches.get((row["hardware"], row["sketch"]))
        if sketch is None or sketch.workload.key != row["workload"]:
            return self._skip("unknown sketch")
        try:
            measurement = Measurement(
                Status(row["status"]),
                tuple(float(s) for s in row["seconds"]),
                tuple(row["quiet"]),
                row["build_s"],
                row["run_s"],
                row["message"],
                row["max_error"],
            )
            candidate = Candidate(sketch, unflatten(sketch, row["decisions"]))
            environment = self._environment(row["environment"])
        except IllegalCandidateError:
            return self._skip("illegal decisions")
        except (ValueError, TypeError, IndexError):
            return self._skip("malformed row")
        if len(measurement.seconds) != len(measurement.quiet):
            return self._skip("malformed row")
        if measurement.ran and not is_valid(measurement):
            return self._skip("seconds not positive")
        return Trial(
            workload=row["workload"],
            hardware=row["hardware"],
            candidate_key=candidate.key,
            decisions=candidate.to_json(),
            measurement=measurement,
            origin=row["origin"],
            time=row["time"],
            environment=environment,
            candidate=candidate,
        )

    def _environment(self, number: int) -> Mapping[str, Any]:
        if number < 0:  # would count from the end
            raise IndexError(number)
        return self._environments[number]

    def _skip(self, reason: str) -> Trial[Candidate] | None:
        self._skipped[reason] += 1
        return None
