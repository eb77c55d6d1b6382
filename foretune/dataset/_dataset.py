"""What a data set directory holds, and the groups that are made of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune.dataset._group import Group, Program
from foretune.errors import BadInputError
from foretune.hardware import device_of
from foretune.measure import Measurement

if TYPE_CHECKING:
    from foretune.hardware import Device, Devices, Hardware
    from foretune.records import Trial
    from foretune.space import Candidate, Sketch
    from foretune.workload import Workload

AUDIT = "audit"
"""Origin of records that measure again what was measured before; ``load`` leaves them out."""

_ONE_RECORD, _NONE_VALID = "group with one record", "group without a valid record"
_NO_RECORD = "workload without a record"
"""Why a group, or all groups of a workload, are left out."""


@dataclass(frozen=True)
class StoredWorkload:
    """A workload of a data set.

    Attributes:
        workload: The program.
        kind: Its operator kind.
    """

    workload: Workload
    kind: str


@dataclass(frozen=True)
class Dataset:
    """Everything a directory holds, records with their candidates.

    Attributes:
        workloads: By key.
        hardware: By key.
        sketches: By ``(hardware key, sketch key)``.
        records: In the order of the files; those of ``AUDIT`` included.
        environments: What records refer to by number.
        skipped: Reason to the number of rows, groups or workloads that were left out.
    """

    workloads: Mapping[str, StoredWorkload]
    hardware: Mapping[str, Hardware]
    sketches: Mapping[tuple[str, str], Sketch]
    records: Sequence[Trial[Candidate]]
    environments: Sequence[Mapping[str, Any]]
    skipped: Counter[str]

    def groups(self, devices: Devices | None = None) -> list[Group]:
        """The training data: one group per workload and hardware, first measured first.

        Audits are left out. A candidate that was measured twice counts with the later record; a
        group without a valid program, or with one record, is left out and counted in ``skipped``,
        and so is a workload without any group.

        Args:
            devices: Devices that come before those of foretune's table.
        """
        cells: dict[tuple[str, str], dict[str, Trial[Candidate]]] = {}
        for record in self.records:
            if record.origin != AUDIT:
                cell = cells.setdefault((record.workload, record.hardware), {})
                cell[record.candidate_key] = record
        for reason in (_ONE_RECORD, _NONE_VALID, _NO_RECORD):
            self.skipped.pop(reason, None)
        unmeasured = self.workloads.keys() - {workload for workload, _ in cells}
        if unmeasured:
            self.skipped[_NO_RECORD] = len(unmeasured)
        groups = []
        sheets = {key: _device(hardware, devices) for key, hardware in self.hardware.items()}
        for (workload, hardware), cell in cells.items():
            group = self._group(workload, hardware, list(cell.values()), sheets[hardware])
            if group is not None:
                groups.append(group)
        return groups

    def _group(
        self, workload: str, hardware: str, records: list[Trial[Candidate]], device: Device | None
    ) -> Group | None:
        seconds = np.array([_label_seconds(r.measurement) for r in records], dtype=np.float64)
        reason = ""
        if len(records) == 1:
            reason = _ONE_RECORD
        elif np.isnan(seconds).all():
            reason = _NONE_VALID
        if reason:
            self.skipped[reason] += 1
            return None
        stored = self.workloads[workload]
        return Group(
            workload=workload,
            name=stored.workload.name,
            kind=stored.kind,
            hardware=hardware,
            programs=[Program(r.candidate) for r in records],
            seconds=seconds,
            machine=self.hardware[hardware],
            device=device,
            weight=stored.workload.weight,
            origins=tuple(r.origin for r in records),
            quiet=np.array([any(r.measurement.quiet) for r in records], dtype=bool),
            source="foretune",
        )


def _device(hardware: Hardware, devices: Devices | None) -> Device | None:
    try:
        return device_of(hardware, devices)
    except BadInputError:
        # Only a model that looks at devices needs it, and refuses what has none.
        return None


def is_valid(measurement: Measurement) -> bool:
    """Whether a measurement gives a label: it ran correctly, and its seconds are a number."""
    return bool(_label_seconds(measurement) > 0)


def _label_seconds(measurement: Measurement) -> float:
    """The lowest reading; NaN for a failure, and where any reading is no time."""
    seconds = measurement.seconds
    good = bool(seconds) and all(math.isfinite(s) and s > 0 for s in seconds)
    return min(seconds) if measurement.ran and good else math.nan
