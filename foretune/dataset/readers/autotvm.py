"""AutoTVM's logs: one JSON record a line, or the same in columns of a Parquet file.

::

    {"input": [target, task, args, kwargs],
     "config": {"index": 7, "code_hash": null, "entity": [["tile_x", "sp", [-1, 16]], ...]},
     "result": [[seconds, ...], error, seconds_in_all, timestamp], "version": 0.2}

Each knob becomes one action: its type (``sp`` split, ``re`` reorder, ``an`` annotate, ``ot`` other)
is the kind, its name and values the arguments: ``sp(tile_x, -1, 16)``.

A Parquet file has the columns ``workload`` (JSON of ``[task, args]``), ``config`` (JSON of the
entity), ``seconds`` (mean of all readings, empty for a failure) and ``error`` (0 is good). It names
no target: its device is called like the file, and code for CPUs was compiled for none in particular
(a bare ``llvm``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from foretune.dataset._group import Program
from foretune.dataset.readers import _parquet, _streams
from foretune.dataset.readers._gathering import (
    DAMAGED,
    FOREIGN,
    OTHER_FILE,
    Actions,
    Gathering,
    SkipLine,
    Task,
    device_of,
    identity,
    is_generic,
    json_of,
    mean_seconds,
)
from foretune.dataset.readers._kinds import kind_of_names
from foretune.space.actions import Action

COLUMNS = ("workload", "config", "seconds", "error")
_CPU_TEMPLATES = ("x86", "arm_cpu")
"""What the names of templates for CPUs end with."""


def recognises(record: Any) -> bool:
    """Whether the JSON value of a line is a record of an AutoTVM log, of whatever quality."""
    return isinstance(record, dict) and {"input", "config", "result"} <= record.keys()


def recognises_file(path: Path) -> bool:
    """Whether a file is a log in columns.

    Raises:
        RecordError: It starts like Parquet and is damaged.
    """
    return _parquet.has_columns(path, COLUMNS)


def gather(path: Path, gathering: Gathering) -> None:
    """Reads a log, or all logs of a folder or an archive.

    Raises:
        RecordError: A file cannot be read to its end.
    """
    records = _Records(gathering, path)
    for name, file in _streams.files(path):
        if recognises_file(file):
            device = file.name.partition(".")[0]
            for row in _parquet.rows(file, COLUMNS):
                gathering.take(records.add_row, row, device, name)
        elif _parquet.is_parquet(file):
            gathering.pass_over(OTHER_FILE)
        else:
            for member, line in _streams.lines(file):
                where = "/".join(part for part in (name, member) if part)
                gathering.take(records.add, line, where)


class _Records:
    """Reads lines into a gathering."""

    def __init__(self, gathering: Gathering, path: Path) -> None:
        self._gathering = gathering
        self._path = path
        self._actions = Actions()
        self._tasks: dict[tuple[Any, str], Task] = {}

    def add(self, line: bytes, name: str) -> None:
        """Adds the record of one line, or SkipLine."""
        record = json_of(line)
        if not recognises(record):
            raise SkipLine(FOREIGN)
        try:
            target, function, args, *_ = record["input"]
            costs, error, *_ = record["result"]
            knobs = record["config"]["entity"]
            if type(error) is not int or not isinstance(function, str):
                raise SkipLine(DAMAGED)
            task = _task(target, function, args, self._source(name))
            seconds = mean_seconds(costs, failed=error != 0)
            actions = tuple(self._action(*knob) for knob in knobs)
        except (TypeError, ValueError, KeyError, RecursionError) as failure:
            raise SkipLine(DAMAGED) from failure
        self._gathering.add(task, identity(actions), Program(actions=actions), seconds)

    def add_row(self, row: tuple[Any, ...], device: str, name: str) -> None:
        """Adds the record of one row of ``COLUMNS``, or SkipLine."""
        workload, config, seconds, error = row
        if type(error) is not int:
            raise SkipLine(DAMAGED)
        try:
            task = self._tasks.get((workload, device))
            if task is None:
                function, args = json_of(workload)
                kind = "llvm" if function.rpartition(".")[2] in _CPU_TEMPLATES else "cuda"
                target = {"kind": kind, "model": device}
                task = _task(target, function, args, self._source(name))
                self._tasks[workload, device] = task
            mean = mean_seconds([seconds], failed=error != 0)
            actions = tuple(self._action(*knob) for knob in json_of(config))
        except (TypeError, ValueError, KeyError, AttributeError) as failure:
            raise SkipLine(DAMAGED) from failure
        self._gathering.add(task, identity(actions), Program(actions=actions), mean)

    def _source(self, name: str) -> str:
        return f"{self._path}: {name}" if name else str(self._path)

    def _action(self, name: Any, kind: Any, value: Any) -> Action:
        if not isinstance(name, (str, list)) or not isinstance(kind, str):
            raise SkipLine(DAMAGED)
        return self._actions.of(kind, _flat([name, value]))


def _task(target: Any, function: str, args: Any, source: str) -> Task:
    if not isinstance(args, list):
        raise SkipLine(DAMAGED)
    return Task(
        workload=json.dumps([function, args], separators=(",", ":")),
        name=f"{function}({', '.join(map(_readable, args))})",
        kind=kind_of_names([function]),
        device=device_of(target),
        source=source,
        generic=is_generic(target),
    )


def _readable(argument: Any) -> str:
    """``["TENSOR", [1, 64, 56, 56], "float32"]`` → ``1x64x56x56``; others as JSON has them."""
    if isinstance(argument, list) and len(argument) == 3 and argument[0] == "TENSOR":
        return "x".join(map(str, argument[1]))
    return json.dumps(argument)


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for part in value:
            yield from _flat(part)
    else:
        yield value
