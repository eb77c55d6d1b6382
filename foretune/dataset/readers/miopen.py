"""MIOpen's find database as Parquet files: the milliseconds of each solver of a convolution.

======== =========================================================================================
problem  ``C-H-W-KHxKW-K-OH-OW-N-pad-stride-dilation-bias-layout-type-direction``; ``_g32`` at the
         end is the number of groups; direction F forward, B backward data, W backward weights
solver   for example ``ConvWinograd3x3MultipassWrW<3-3>``
ms       milliseconds of the solver
======== =========================================================================================

A problem is a workload, a solver a configuration: which kernels a solver launches is not said, so
that nothing can be told of their behaviour. A solver that is not listed was not necessarily slow.
The device has the name of the file.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from foretune.dataset._group import Program
from foretune.dataset.readers import _parquet, _streams
from foretune.dataset.readers._gathering import (
    DAMAGED,
    OTHER_FILE,
    Gathering,
    SkipLine,
    Task,
    mean_seconds,
)

COLUMNS = ("problem", "solver", "ms")
_PROBLEM = re.compile(
    r"(?P<channels>\d+)-(?P<size>\d+-\d+)-(?P<kernel>\d+x\d+)-(?P<filters>\d+)-\d+-\d+-"
    r"(?P<batch>\d+)-(?P<padding>\d+x\d+)-(?P<stride>\d+x\d+)-(?P<dilation>\d+x\d+)-\d+-"
    r"(?P<layout>\w+)-(?P<type>\w+)-(?P<direction>[FBW])(?:_g(?P<groups>\d+))?"
)
_DIRECTIONS = {"F": "forward", "B": "backward data", "W": "backward weights"}
_MS = 1e-3


def recognises_file(path: Path) -> bool:
    """Whether a file is such a table.

    Raises:
        RecordError: It starts like Parquet and is damaged.
    """
    return _parquet.has_columns(path, COLUMNS)


def gather(path: Path, gathering: Gathering) -> None:
    """Reads a table, or all tables of a folder.

    Raises:
        RecordError: A file is damaged.
    """
    for name, file in _streams.files(path):
        if not recognises_file(file):
            gathering.pass_over(OTHER_FILE)
            continue
        tasks: dict[Any, Task] = {}
        source = f"{path}: {name}" if name else str(path)
        for row in _parquet.rows(file, COLUMNS):
            gathering.take(_add, gathering, tasks, file.name.partition(".")[0], source, *row)


def _add(
    gathering: Gathering,
    tasks: dict[Any, Task],
    device: str,
    source: str,
    problem: Any,
    solver: Any,
    ms: Any,
) -> None:
    if not isinstance(solver, str) or not solver:
        raise SkipLine(DAMAGED)
    task = tasks.get(problem)
    if task is None:
        task = tasks[problem] = _task(problem, device, source)
    seconds = mean_seconds([ms], failed=False, unit_s=_MS)
    gathering.add(task, solver, Program(configuration={"solver": solver}), seconds)


def _task(problem: Any, device: str, source: str) -> Task:
    """
    Raises:
        SkipLine: It is no problem of a convolution of two dimensions.
    """
    parts = _PROBLEM.fullmatch(problem) if isinstance(problem, str) else None
    if parts is None:
        raise SkipLine(DAMAGED)
    channels, groups = int(parts["channels"]), int(parts["groups"] or 1)
    kind = "depthwise" if groups == channels > 1 else "group_conv2d" if groups > 1 else "conv2d"
    data = f"{parts['batch']}x{channels}x{parts['size'].replace('-', 'x')}"
    weights = f"{parts['filters']}x{channels // groups}x{parts['kernel']}"
    details = f"stride {parts['stride']}, padding {parts['padding']}"
    return Task(
        workload=f"miopen {problem}",
        name=f"{kind} {_DIRECTIONS[parts['direction']]}({data}, {weights}, {details})",
        kind=kind,
        device=device,
        source=source,
    )
