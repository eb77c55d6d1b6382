"""What all readers do alike: seconds, repeated programs, groups, and counting what is left out.

A reader turns each line into a task, a program and seconds. Whatever it cannot use it refuses with
``SkipLine``; the reasons are counted, so that the lines kept and those left out add up to all.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from foretune._arrays import FloatArray
from foretune.dataset._group import Group, Program
from foretune.hardware import Device, Devices, compiled_generic, find_device, hardware_of
from foretune.space.actions import Action, Argument

NOT_JSON = "not JSON"
FOREIGN = "not a record of this format"
OTHER_FILE = "file of another format"
DAMAGED = "damaged record"
UNKNOWN_STEP = "unknown step"
UNKNOWN_WORKLOAD = "workload cannot be read"
NOT_POSITIVE = "seconds not positive and finite"
NEVER_MEASURED = "never measured"
DUPLICATE = "duplicate"
OVER_LIMIT = "beyond the limit per group"
EMPTY_GROUP = "empty group"
LONE_RECORD = "group with one record"

_FAILED_S = 1e9
"""TVM's tools write 1e10 seconds for a failure, old Kernel Tuners 1e20."""


class SkipLine(Exception):
    """A line gives no record; the message is the reason, the same for lines of the same kind."""


def json_of(line: bytes | str) -> Any:
    """The JSON value of a line.

    Raises:
        SkipLine: It holds something else.
    """
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise SkipLine(NOT_JSON) from error


def mean_seconds(costs: Any, failed: bool, unit_s: float = 1.0) -> float:
    """Seconds of one program: the mean of its readings, NaN if it failed.

    The mean is what Ansor and TenSet label by. Kernel Tuner and MetaSchedule take it, too.

    Args:
        costs: The readings; not looked at where it failed.
        failed: Whether the record says so.
        unit_s: Seconds per unit of the readings.

    Raises:
        SkipLine: The readings are no numbers, or one is not positive and finite.
    """
    if failed:
        return math.nan
    if not isinstance(costs, list) or not costs:
        raise SkipLine(DAMAGED)
    if not all(type(cost) in (int, float) for cost in costs):
        raise SkipLine(DAMAGED)
    try:
        seconds = [float(cost) * unit_s for cost in costs]
    except OverflowError as error:
        raise SkipLine(NOT_POSITIVE) from error
    if not all(math.isfinite(s) and s > 0 for s in seconds):
        raise SkipLine(NOT_POSITIVE)
    return math.nan if max(seconds) >= _FAILED_S else sum(seconds) / len(seconds)


class Actions:
    """Makes each distinct action once: logs repeat them thousands of times."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], Action] = {}

    def of(self, kind: str, args: Iterable[Any]) -> Action:
        """The action of a kind with arguments as JSON has them; null becomes ``"auto"``.

        Raises:
            SkipLine: An argument is neither a number nor text.
        """
        key = (kind, *args)
        try:
            action = self._known.get(key)
        except TypeError as error:  # A list or an object cannot be looked up.
            raise SkipLine(DAMAGED) from error
        if action is None:
            action = self._known[key] = Action(kind, tuple(map(_argument, key[1:])))
        return action


def _argument(value: Any) -> Argument:
    if value is None:
        return "auto"
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, (str, int, float)):
        return value
    raise SkipLine(DAMAGED)


def identity(actions: Sequence[Action]) -> Hashable:
    """What is equal for equal sequences of actions from one ``Actions``; cheap to hash."""
    return tuple(map(id, actions))


@dataclass(frozen=True)
class Task:
    """What a record measured, before the hardware has its name.

    Attributes:
        workload: Key of the workload.
        name: What people call it.
        kind: Operator kind.
        device: What the record says of the hardware.
        source: Where its first record was read.
        family: See ``Group``.
        generic: Whether it was compiled for no processor in particular.
    """

    workload: str
    name: str
    kind: str
    device: str
    source: str
    family: str = ""
    generic: bool = False


@dataclass
class _Rows:
    """Records of one task so far, in the order of appearance.

    Attributes:
        task: The task.
        programs: By what tells them apart.
        seconds: The lowest of each program, by the same.
        drawn: Where there is a limit, a heap of minus the draw of each program kept, and its key.
    """

    task: Task
    programs: dict[Hashable, Program] = field(default_factory=dict)
    seconds: dict[Hashable, float] = field(default_factory=dict)
    drawn: list[tuple[int, Hashable]] = field(default_factory=list)


class Gathering:
    """Collects records by task and counts everything.

    A log has the random start of a search first, and the best of it last. So of a task with more
    programs than the limit, those with the lowest draws are kept, where a draw is a hash of the
    program and the seed: uniform over programs, in one pass, and the same for a program that is
    measured again, kept or not.

    Args:
        limit: Programs kept per task; all if None.
        seed: Of the draws.

    Attributes:
        lines: Lines (of a Kernel Tuner cache: entries) looked at, empty ones not counted.
        skipped: Reason to number of lines that gave no record of a group.
    """

    def __init__(self, limit: int | None = None, seed: int = 0) -> None:
        self.lines = 0
        self.skipped: Counter[str] = Counter()
        self._limit = limit
        self._seed = seed
        self._rows: dict[tuple[str, str], _Rows] = {}

    def take(self, parse: Callable[..., None], *args: Any) -> None:
        """Counts one line, which ``parse(*args)`` adds or refuses with ``SkipLine``."""
        self.lines += 1
        try:
            parse(*args)
        except SkipLine as reason:
            self.skipped[str(reason)] += 1

    def pass_over(self, reason: str) -> None:
        """Counts what is not looked into, a whole file for example, as one line."""
        self.lines += 1
        self.skipped[reason] += 1

    def add(self, task: Task, key: Hashable, program: Program, seconds: float) -> None:
        """Adds a record; of a program measured twice the lowest seconds count.

        Args:
            task: What was measured.
            key: Equal exactly for equal programs of the task.
            program: The program.
            seconds: NaN if it failed.

        Raises:
            SkipLine: The program is there already, or was not drawn.
        """
        rows = self._rows.setdefault((task.workload, task.device), _Rows(task))
        known = rows.seconds.get(key)
        if known is not None:
            if math.isnan(known) or seconds < known:
                rows.seconds[key] = seconds
            raise SkipLine(DUPLICATE)
        if self._limit is not None:
            self._make_room(rows, key, program, self._limit)
        rows.programs[key] = program
        rows.seconds[key] = seconds

    def _make_room(self, rows: _Rows, key: Hashable, program: Program, limit: int) -> None:
        """Draws for a program; of one more than the limit, the one drawn last has to go.

        Raises:
            SkipLine: It is the program itself.
        """
        text = f"{self._seed} {program.key}"
        draw = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "big")
        if len(rows.drawn) < limit:
            heapq.heappush(rows.drawn, (-draw, key))
            return
        _, last = heapq.heappushpop(rows.drawn, (-draw, key))
        if last == key:
            raise SkipLine(OVER_LIMIT)
        del rows.programs[last], rows.seconds[last]
        self.skipped[OVER_LIMIT] += 1

    @property
    def devices(self) -> tuple[str, ...]:
        """What the records say of their hardware, in the order of appearance."""
        return tuple(dict.fromkeys(device for _, device in self._rows))

    def groups(
        self, hardware: Mapping[str, str], sheets: Mapping[str, Device] | None = None
    ) -> list[Group]:
        """The groups from which something can be learned; the records of others are counted.

        Args:
            hardware: Device to name of the hardware.
            sheets: Device to data sheet, of those that are known.
        """
        groups = []
        for rows in self._rows.values():
            seconds = np.array(list(rows.seconds.values()))
            if len(seconds) == 1:
                self.skipped[LONE_RECORD] += 1
            elif np.isnan(seconds).all():
                self.skipped[EMPTY_GROUP] += len(seconds)
            else:
                device = rows.task.device
                sheet = (sheets or {}).get(device)
                groups.append(_group(rows, seconds, hardware[device], sheet))
        return groups


def _group(rows: _Rows, seconds: FloatArray, hardware: str, sheet: Device | None) -> Group:
    task = rows.task
    if sheet is not None and task.generic:
        sheet = compiled_generic(sheet)
    return Group(
        workload=task.workload,
        name=task.name,
        kind=task.kind,
        hardware=hardware,
        programs=tuple(rows.programs.values()),
        seconds=seconds,
        machine=None if sheet is None else hardware_of(sheet),
        device=sheet,
        source=task.source,
        family=task.family,
    )


def device_of(target: Any, cores: Any = 0) -> str:
    """What a target says of its hardware, for example ``"cuda-sm_80"`` or ``"llvm-8"``.

    Args:
        target: TVM's target, as text of either form or as a JSON object.
        cores: Number of cores where that is not part of the target.

    Raises:
        SkipLine: It is no target.
    """
    target = _target(target)
    cores = target.get("num-cores", cores)
    names = (target.get(name) for name in ("model", "mcpu", "arch"))
    model = next((str(name) for name in names if name and name != "unknown"), None)
    # "-1" and "0" stand for cores that are not known.
    count = str(cores) if str(cores).isdigit() and int(cores) > 0 else None
    parts = [str(target["kind"]), model, count]
    return "-".join(part for part in parts if part)


def is_generic(target: Any) -> bool:
    """Whether a target of a CPU names no processor, so that code for any of them is made.

    Raises:
        SkipLine: It is no target.
    """
    target = _target(target)
    return target["kind"] == "llvm" and not (target.get("mcpu") or target.get("mattr"))


def _target(target: Any) -> dict[str, Any]:
    if isinstance(target, str):
        json_text = target.lstrip().startswith("{")
        target = json_of(target) if json_text else _attributes(target)
    if not isinstance(target, dict) or not target.get("kind"):
        raise SkipLine(DAMAGED)
    return target


def _attributes(target: str) -> dict[str, Any]:
    """``"cuda -keys=gpu -arch=sm_80"`` → ``{"kind": "cuda", "keys": "gpu", "arch": "sm_80"}``."""
    kind, *options = target.split() or [""]
    pairs = (option.lstrip("-").partition("=") for option in options)
    return {**{name: value for name, _, value in pairs}, "kind": kind}


def hardware_names(
    devices: Collection[str], stem: str, given: str | None, exact: bool
) -> dict[str, str]:
    """Names of the hardware of all devices in one file, so that two devices never mix.

    Args:
        devices: What the records say.
        stem: The file's name without what says its format.
        given: What the caller calls it, if anything.
        exact: Whether what the records say names the device; a target does not: its text is the
            same for a K80 and a V100.
    """
    if exact and not given:
        return {device: device for device in devices}
    base = given or stem
    if len(devices) <= 1:
        return dict.fromkeys(devices, base)
    return {device: f"{base}/{device}" for device in devices}


def sheets_of(
    hardware: Mapping[str, str], given: str | None, exact: bool, devices: Devices | None
) -> dict[str, Device]:
    """Data sheets of the devices whose names are known.

    What the caller calls the hardware comes first, then what the records say, then the name of the
    file, and that only where all its records are of one device.

    Args:
        hardware: Device to name of the hardware, of ``hardware_names``.
        given: What the caller calls it, if anything.
        exact: Whether what the records say names the device.
        devices: Devices that come before those of foretune's table.
    """
    found = {}
    for device, name in hardware.items():
        said = [device] if exact else [device, *_processors(device)]
        names = [name, *said] if given else [*said, name]
        if not given and not exact:
            names.append(name.rpartition("/")[2])
        kind = "" if exact else device.partition("-")[0]
        sheets = (find_device(each, devices) for each in names)
        sheet = next((s for s in sheets if s is not None and _runs(kind, s)), None)
        if sheet is not None:
            found[device] = sheet
    return found


def _processors(device: str) -> list[str]:
    """``"llvm-epyc-7452-8"`` → ``["epyc-7452-8", "epyc-7452"]``, what ``device_of`` put in front
    and behind taken away."""
    _kind, _, model = device.partition("-")
    shorter, _, cores = model.rpartition("-")
    names = [model, shorter] if cores.isdigit() else [model]
    return [name for name in names if name and not name.isdigit()]


def _runs(kind: str, sheet: Device) -> bool:
    """Whether code of a target's kind runs on the device; any kind that is not known does."""
    return not kind or (kind == "llvm") == sheet.has_cores
