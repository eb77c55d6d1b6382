"""Families of devices that others measured, most of them on the same programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.results import ROOT
from foretune.dataset import Group
from foretune.evaluate import keep_judgeable, read_data
from foretune.evaluate.floors import COMMON_PROGRAMS, common_programs

SHARED = ROOT.parent / "shared" / "data"
_X86 = ("cpu-ryzen-3700x", "cpu-i5-1035g1", "cpu-i7-3770")
_CARDS = ("A100", "A4000", "A6000", "W7800")


@dataclass(frozen=True)
class Family:
    """Devices that are compared with each other.

    Attributes:
        name: Of the table.
        files: Below ``../shared/data``.
        least: Programs that a workload needs on all devices.
        picks: The number of first choices by which it is judged, beside the first and five.
        by_workload: Whether workloads are left out instead of devices, because there is one device.
    """

    name: str
    files: tuple[str, ...]
    least: int = COMMON_PROGRAMS
    picks: int = 1
    by_workload: bool = False

    def groups(self) -> list[Group]:
        """What was measured, on all devices."""
        paths: list[str | Path] = [SHARED / file for file in self.files]
        return keep_judgeable(read_data(paths).groups)[0]


def _logs(*devices: str) -> tuple[str, ...]:
    return tuple(f"devices/{device}.jsonl.gz" for device in devices)


FAMILIES: Mapping[str, Family] = {
    family.name: family
    for family in (
        Family("cpus", _logs("cpu-cortex-a7", *_X86)),
        Family("x86", _logs(*_X86)),
        Family("gtx1650, by workload", _logs("gpu-gtx1650"), by_workload=True),
        Family("convolution", tuple(f"kernel-tuner/{c}.json.gz" for c in _CARDS), picks=10),
        Family(
            "dedispersion",
            tuple(f"kernel-tuner/dedispersion/{c}.json.gz" for c in _CARDS),
            picks=10,
        ),
        Family("k80, mi50", ("ansor/k80.tar.gz", "ansor/mi50.tar.gz"), least=5),
        Family(
            "gfx900, gfx906",
            ("devices/miopen/gfx900.parquet", "devices/miopen/gfx906.parquet"),
            least=2,
        ),
        Family(
            "gfx908, gfx90a",
            ("devices/miopen/gfx908.parquet", "devices/miopen/gfx90a.parquet"),
            least=2,
        ),
    )
}
"""Tables by name. Least numbers of common programs are those of the floors' own page, but for K80
and MI50, whose searches went different ways and met seldom."""


def common(groups: list[Group], family: Family) -> dict[str, npt.NDArray[np.intp]]:
    """Rows that are judged, by the key of the group."""
    return common_programs(groups, family.least)
