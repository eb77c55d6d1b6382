"""From the journal of a collection to a data set that can be committed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from foretune.collect.collector import Store
from foretune.dataset import (
    AUDIT,
    Dataset,
    StoredWorkload,
    is_dataset,
    is_valid,
    read_dataset,
    write_dataset,
)
from foretune.errors import BadInputError, IllegalCandidateError
from foretune.hardware import Hardware
from foretune.records import Record, Trial
from foretune.space import Candidate, Sketch
from foretune.workload.training import operator_kind


@dataclass(frozen=True)
class Packed:
    """What a data set holds after packing.

    Attributes:
        records: Measurements, audits included.
        valid: Records that give a label, audits not counted.
        groups: Workloads × hardware with a record.
        workloads: Distinct workloads.
        kinds: Distinct operator kinds.
        skipped: Records of the journal whose candidate could not be made.
        bytes: Size of the directory.
    """

    records: int
    valid: int
    groups: int
    workloads: int
    kinds: int
    skipped: int
    bytes: int

    def __str__(self) -> str:
        return (
            f"{self.records:,} records ({self.valid:,} valid) in {self.groups} groups of "
            f"{self.workloads} workloads of {self.kinds} operator kinds, "
            f"{self.bytes / 1e6:.1f} MB; {self.skipped} skipped"
        )


def pack(store: Store, output: str | Path, known: Dataset | None = None) -> Packed:
    """Writes what was collected, with an earlier data set, as a data set directory.

    Args:
        store: The collection.
        output: The directory. A data set that is there is replaced, its records kept.
        known: Records to keep beside those collected, which win where both have a candidate; what
            is in ``output`` if None.

    Raises:
        BadInputError: ``output`` holds records that ``known`` does not, or nothing was collected.
    """
    output = Path(output)
    if is_dataset(output):
        there = read_dataset(output)
        known = there if known is None else known
        _refuse_losses(there, known, output)
    fresh, sketches, skipped = _collected(store)
    if not fresh:
        raise BadInputError(f"{store.path} holds no records: run `foretune collect` first")
    kinds = store.kinds()
    workloads = {
        key: StoredWorkload(workload, kinds.get(key) or operator_kind(workload))
        for key, workload in store.journal.workloads().items()
    }
    hardware = store.journal.hardware()
    records = fresh
    if known is not None:
        workloads = {**known.workloads, **workloads}
        hardware = {**hardware, **known.hardware}
        sketches = {**known.sketches, **sketches}
        seen = {_identity(record) for record in fresh}
        records = [*(r for r in known.records if _identity(r) not in seen), *fresh]
    used = {(r.workload, r.hardware) for r in records}
    needed = {(r.hardware, str(r.decisions["sketch"])) for r in records}
    kept = _of(workloads, (w for w, _ in used))
    write_dataset(
        output,
        kept,
        _of(hardware, (h for _, h in used)),
        _of(sketches, needed),
        records,
    )
    return Packed(
        records=len(records),
        valid=sum(is_valid(r.measurement) for r in records if r.origin != AUDIT),
        groups=len(used),
        workloads=len(kept),
        kinds=len({stored.kind for stored in kept}),
        skipped=skipped,
        bytes=sum(file.stat().st_size for file in output.iterdir() if file.is_file()),
    )


def _refuse_losses(there: Dataset, kept: Dataset, output: Path) -> None:
    lost = {_identity(r) for r in there.records} - {_identity(r) for r in kept.records}
    if lost:
        raise BadInputError(
            f"{output} holds {len(lost):,} records that the known data set does not, and they "
            "would be lost: pack without `--known`, or name another directory"
        )


def _of(table: dict, keys: Iterable) -> list:  # type: ignore[type-arg]
    """The entries of some keys, sorted by key, each once."""
    return [table[key] for key in sorted(set(keys))]


def _identity(record: Record) -> tuple[object, ...]:
    return (record.workload, record.hardware, record.candidate_key, record.origin == AUDIT)


def _collected(
    store: Store,
) -> tuple[list[Trial[Candidate]], dict[tuple[str, str], Sketch], int]:
    """What was measured, the sketches it refers to, and how many records had none."""
    journal = store.journal
    workloads, hardware = journal.workloads(), journal.hardware()
    sketches: dict[tuple[str, str], Sketch] = {}
    asked: set[tuple[str, str]] = set()
    trials, skipped = [], 0
    for record in store.records():
        pair = (record.workload, record.hardware)
        if pair not in asked and record.workload in workloads and record.hardware in hardware:
            asked.add(pair)
            sketches.update(_sketches(store, *pair, hardware))
        sketch = sketches.get((record.hardware, str(record.decisions.get("sketch"))))
        try:
            if sketch is None:
                raise IllegalCandidateError(f"no sketch of {record.candidate_key} is kept")
            candidate = Candidate(sketch, _decisions(record))
        except IllegalCandidateError:
            skipped += 1
            continue
        trials.append(Trial.again(record, candidate))
    return trials, sketches, skipped


def _sketches(
    store: Store, workload: str, hardware: str, machines: dict[str, Hardware]
) -> dict[tuple[str, str], Sketch]:
    program, machine = store.journal.workloads()[workload], machines[hardware]
    return {
        (hardware, sketch.key): replace(sketch, workload=program, hardware=machine)
        for sketch in store.sketches(program, machine)
    }


def _decisions(record: Record) -> tuple[object, ...]:
    """As a candidate has them; JSON made lists of the tiles."""
    return tuple(tuple(d) if isinstance(d, list) else d for d in record.decisions["decisions"])
