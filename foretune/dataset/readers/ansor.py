"""Ansor's logs: one JSON record a line, as TVM's ``auto_scheduler`` wrote them up to version 0.6.

::

    {"i": [[workload_key, target, [cores, ...], ...], [[], [step, ...]]],
     "r": [[seconds, ...], error, seconds_in_all, timestamp], "v": "v0.6"}

A step is a code and its arguments, ``["SP", 3, 0, 128, [1, 8, 4, 1], 1]``, and becomes an action of
that kind with the arguments in one row: ``SP(3, 0, 128, 1, 8, 4, 1, 1)``.

A workload key is JSON: the operator's name, or a hash of its computation, and its shapes. The same
convolution is ``"SAME"`` in one log and ``0`` in the other, so padding is written as a number here
where it is one; otherwise it would stand on both sides of a split.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from foretune.dataset._group import Program
from foretune.dataset.readers import _streams
from foretune.dataset.readers._gathering import (
    DAMAGED,
    FOREIGN,
    UNKNOWN_STEP,
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
from foretune.dataset.readers._kinds import UNKNOWN, family_of_shapes, kind_of_names, kind_of_shapes
from foretune.space.actions import Action

STEPS = frozenset(
    ("AN", "FU", "PR", "RE", "SP", "FSP", "FFSP", "SA", "CA", "CI", "CR", "CHR", "CHW", "RF")
)
"""Codes of the steps: annotate, fuse, pragma, reorder, three splits, storage align, compute at,
compute inline, compute root, cache read, cache write, rfactor."""

_HASH = re.compile(r"[0-9a-f]{32}")


def recognises(record: Any) -> bool:
    """Whether the JSON value of a line is a record of an Ansor log, of whatever quality."""
    if not isinstance(record, dict) or "r" not in record:
        return False
    measured = record.get("i")
    return isinstance(measured, list) and bool(measured) and isinstance(measured[0], list)


def gather(path: Path, gathering: Gathering) -> None:
    """Reads a log, or all logs of a folder or an archive.

    Raises:
        RecordError: A file cannot be read to its end.
    """
    records = Records(gathering, path)
    for name, line in _streams.lines(path):
        gathering.take(records.add, line, name, None)


class Records:
    """Reads lines into a gathering.

    Args:
        gathering: Where the records go.
        path: What is read, for messages.
    """

    def __init__(self, gathering: Gathering, path: Path) -> None:
        self._gathering = gathering
        self._path = path
        self._actions = Actions()
        self._tasks: dict[tuple[Any, ...], Task] = {}

    def add(self, line: bytes, name: str, device: str | None) -> None:
        """Adds the record of one line.

        Args:
            line: The line.
            name: Of its file within what is read.
            device: The hardware, where the file's place says it; the target's otherwise.

        Raises:
            SkipLine: It gives no record.
        """
        record = json_of(line)
        if not recognises(record):
            raise SkipLine(FOREIGN)
        try:
            (key, target, *rest), (_, steps, *_) = record["i"]
            costs, error, *_ = record["r"]
            if type(error) is not int:
                raise SkipLine(DAMAGED)
            task = self._task(key, target, rest, name, device)
            seconds = mean_seconds(costs, failed=error != 0)
            actions = tuple(map(self._action, steps))
        except (TypeError, ValueError, KeyError, RecursionError) as failure:
            raise SkipLine(DAMAGED) from failure
        program = Program(actions=actions)
        self._gathering.add(task, identity(actions), program, seconds)

    def _task(self, key: Any, target: Any, rest: Any, name: str, device: str | None) -> Task:
        # Limits of the hardware follow the target; its number of cores is their first.
        cores = rest[0][0] if rest and isinstance(rest[0], list) and rest[0] else 0
        known = self._tasks.get((key, target, cores, device))
        if known is None:
            workload, title, kind, family = describe(key)
            source = f"{self._path}: {name}" if name else str(self._path)
            sheet = device_of(target, cores) if device is None else device
            known = Task(workload, title, kind, sheet, source, family, is_generic(target))
            self._tasks[key, target, cores, device] = known
        return known

    def _action(self, step: Any) -> Action:
        code, *given = step
        if code not in STEPS:
            raise SkipLine(UNKNOWN_STEP)
        args: list[Any] = []
        for argument in given:
            if type(argument) is list:
                args += argument
            else:
                args.append(argument)
        return self._actions.of(code, args)


def describe(key: Any) -> tuple[str, str, str, str]:
    """Workload key, readable name, operator kind and family of a key of Ansor's.

    Raises:
        SkipLine: It is no key.
    """
    if not isinstance(key, str) or not key:
        raise SkipLine(DAMAGED)
    try:
        parsed = json.loads(key)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, list) or not parsed or not isinstance(parsed[0], str):
        return key, key, UNKNOWN, ""
    operator, *sizes = parsed
    family = ""
    if _HASH.fullmatch(operator):
        shapes = [size for size in sizes if _is_shape(size)]
        kind = kind_of_shapes(shapes)
        family = family_of_shapes(kind, shapes)
        title = f"{kind} {operator[:8]}"
    else:
        sizes = _plain_padding(sizes)
        kind, title = kind_of_names([operator]), operator
    workload = json.dumps([operator, *sizes], separators=(",", ":"))
    return workload, f"{title}({', '.join(map(_readable, sizes))})", kind, family


def _is_shape(size: Any) -> bool:
    return isinstance(size, list) and all(type(extent) is int for extent in size)


def _readable(size: Any) -> str:
    return "x".join(map(str, size)) if isinstance(size, list) else str(size)


def _plain_padding(sizes: list[Any]) -> list[Any]:
    """Sizes of a convolution or pooling with its padding as a number, if it is one.

    ``[128, 64, 56, 56, 64, 3, 3, 1, "SAME"]`` → ``[128, 64, 56, 56, 64, 3, 3, 1, 1]``: batch,
    channels, height, width, ..., two extents of the kernel, stride, padding. ``"SAME"`` with a
    stride may pad the two ends of an axis differently and then stays as it is.
    """
    plain = [s for s in sizes if type(s) is int or s in ("SAME", "VALID")]
    if not plain:
        return sizes
    *numbers, padding = plain
    if padding not in ("SAME", "VALID") or padding != sizes[-1] or len(numbers) < 7:
        return sizes
    if padding == "VALID":
        return [*sizes[:-1], 0]
    height, width = numbers[2:4]
    rows, columns, stride = numbers[-3:]
    if stride < 1:
        return sizes
    both = {_same_padding(height, rows, stride), _same_padding(width, columns, stride)}
    alike = both.pop() if len(both) == 1 else 1
    return sizes if alike % 2 else [*sizes[:-1], alike // 2]


def _same_padding(extent: int, kernel: int, stride: int) -> int:
    """How much "SAME" adds to an axis, at both ends together."""
    return max((-(-extent // stride) - 1) * stride + kernel - extent, 0)
