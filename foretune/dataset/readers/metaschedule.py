"""MetaSchedule's JSON databases, of this TVM and of older ones whose programs no longer load.

``database_workload.json`` holds one ``[hash, base64 of the module]`` a line;
``database_tuning_record.json`` one ``[line of the workload, [trace, seconds, target, arguments]]``,
where a trace is ``[instructions, decisions]``.

A program is not rebuilt: its actions are what ``foretune.space`` makes of the trace, so that they
read like those of our own candidates. The module's JSON tells the names of blocks and loops; where
not even that can be read, loops are numbered. What post-processors appended follows from the rest
and is left out, as in our own traces.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretune.dataset._group import Program
from foretune.dataset.readers import _streams
from foretune.dataset.readers._gathering import (
    DAMAGED,
    FOREIGN,
    NEVER_MEASURED,
    UNKNOWN_WORKLOAD,
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
from foretune.dataset.readers._kinds import family_of_shapes, kind_of_names
from foretune.errors import BadInputError
from foretune.records.metaschedule_import import RECORDS, WORKLOADS, module_json
from foretune.space import Action
from foretune.space.actions import Names
from foretune.space.trace import Trace

_MALFORMED = (TypeError, ValueError, KeyError, IndexError, AttributeError, RecursionError)
"""What JSON that is not what it should be runs into."""
_RECORD_FILE = re.compile(r"(.*)tuning_record(\.json(?:\.gz)?)")
_WORKLOAD_FILE = re.compile(r"(.*)workload(\.json(?:\.gz)?)")


def recognises(record: Any) -> bool:
    """Whether the JSON value of a line is a tuning record, of whatever quality."""
    if not isinstance(record, list) or len(record) != 2 or type(record[0]) is not int:
        return False
    return isinstance(record[1], list) and len(record[1]) >= 4 and isinstance(record[1][0], list)


def find(path: Path) -> tuple[Path, Path] | None:
    """The two files of a database, workloads first.

    Args:
        path: The folder that holds them, or one of them; what stands before ``tuning_record`` in a
            name also stands before ``workload``.
    """
    if path.is_dir():
        workloads, records = path / WORKLOADS, path / RECORDS
    elif match := _RECORD_FILE.fullmatch(path.name):
        workloads, records = path.with_name(f"{match[1]}workload.json"), path
    elif match := _WORKLOAD_FILE.fullmatch(path.name):
        workloads, records = path, path.with_name(f"{match[1]}tuning_record.json")
    else:
        return None
    first, second = _existing(workloads), _existing(records)
    return None if first is None or second is None else (first, second)


def _existing(path: Path) -> Path | None:
    stem = path.name.removesuffix(".gz")
    return next((p for n in (stem, f"{stem}.gz") if (p := path.with_name(n)).is_file()), None)


def gather(path: Path, gathering: Gathering) -> None:
    """Reads a database.

    Raises:
        BadInputError: There are no two files.
        RecordError: One of them cannot be read to its end.
    """
    pair = find(path)
    if pair is None:
        raise BadInputError(
            f"a MetaSchedule database is the two files {WORKLOADS} and {RECORDS} (or both with "
            f".gz), but at {path} at least one is missing: name the folder that holds both"
        )
    programs = [_program(line) for _, line in _streams.lines(pair[0])]
    records = _Records(gathering, str(pair[1]), programs)
    for _, line in _streams.lines(pair[1]):
        gathering.take(records.add, line)


@dataclass(frozen=True)
class _Description:
    """What is known of a program.

    Attributes:
        hash: TVM's structural hash, of whatever version.
        axes: Block to the names of the loops around it, in the order of the program; empty where
            the module cannot be read.
    """

    hash: str
    axes: dict[str, tuple[str, ...]]


class _Records:
    """Reads lines into a gathering.

    Args:
        gathering: Where the records go.
        source: What is read, for messages.
        programs: What is known of the workload of each line; None where that is nothing.
    """

    def __init__(
        self, gathering: Gathering, source: str, programs: Sequence[_Description | None]
    ) -> None:
        self._gathering = gathering
        self._source = source
        self._programs = programs
        self._actions = Actions()
        self._tasks: dict[tuple[int, str], Task] = {}
        self._hashes: dict[str, str] = {}

    def add(self, line: bytes) -> None:
        """Adds the record of one line, or SkipLine."""
        record = json_of(line)
        if not recognises(record):
            raise SkipLine(FOREIGN)
        at, (trace, costs, target, arguments, *_) = record
        program = self._programs[at] if 0 <= at < len(self._programs) else None
        if program is None:
            raise SkipLine(UNKNOWN_WORKLOAD)
        if not costs:
            raise SkipLine(NEVER_MEASURED)
        try:
            device = device_of(target)
            task = self._tasks.get((at, device))
            if task is None:
                task = self._tasks[at, device] = self._task(
                    program, trace, arguments, device, is_generic(target)
                )
            seconds = mean_seconds(costs, failed=False)
            actions = tuple(self._follow(program, trace))
        except (BadInputError, *_MALFORMED) as failure:
            raise SkipLine(DAMAGED) from failure
        self._gathering.add(task, identity(actions), Program(actions=actions), seconds)

    def _task(
        self, program: _Description, trace: Any, arguments: Any, device: str, generic: bool
    ) -> Task:
        shapes = [_shape(argument) for argument in arguments]
        blocks = list(program.axes) or [f"program {program.hash}"]
        workload = json.dumps(["+".join(blocks), *shapes], separators=(",", ":"))
        if self._hashes.setdefault(workload, program.hash) != program.hash:
            # The same operators on the same shapes, but for example with another stride.
            workload += f"#{program.hash}"
        named = list(program.axes) or _blocks_of(trace)
        return Task(
            workload=workload,
            name=f"{'+'.join(blocks)}({', '.join(shapes)})",
            kind=kind_of_names(named),
            device=device,
            source=self._source,
            family=family_of_shapes(kind_of_names(named), shapes),
            generic=generic,
        )

    def _follow(self, program: _Description, written: Any) -> Iterator[Action]:
        trace = Trace.from_json(written)
        names = Names(program.axes)
        for at, instruction in enumerate(trace.instructions):
            action = names.step(instruction, trace.decisions.get(at))
            if action is not None:
                yield self._actions.of(action.kind, action.args)


def _shape(argument: Any) -> str:
    """``["TENSOR", "float32", [1, 64]]`` → ``float32[1,64]``."""
    _, dtype, shape = argument
    return f"{dtype}[{','.join(map(str, shape))}]"


def _blocks_of(written: Any) -> list[str]:
    trace = Trace.from_json(written, whole=True)
    return [str(each.attrs[0]) for each in trace.instructions if each.kind == "GetSBlock"]


def _program(line: bytes) -> _Description | None:
    """What a line of the workload file says; None if not even the hash can be read."""
    try:
        key, encoded = json.loads(line)
    except (ValueError, TypeError, RecursionError):
        return None
    try:
        graph = json.loads(module_json(encoded))
        axes = dict(_Graph(graph["nodes"]).blocks())
    except _MALFORMED:
        axes = {}
    return _Description(str(key), axes)


class _Graph:
    """The nodes of a module's JSON, each named by its index.

    Older TVMs write ``{"type_key": "tir.For", "attrs": {"body": "35", ...}}`` with indices as text
    and strings as ``repr_str``, newer ones ``{"type": "tirx.For", "data": {"body": 35, ...}}``.
    """

    def __init__(self, nodes: Any) -> None:
        self._nodes = nodes
        self._seen: set[int] = set()

    def blocks(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Name of each block but the root, with the loops around it, outermost first."""
        for node in self._nodes:
            if _type(node) == "PrimFunc":
                yield from self._walk(int(_fields(node)["body"]), (), outer=True)

    def _walk(
        self, at: int, loops: tuple[str, ...], outer: bool
    ) -> Iterator[tuple[str, tuple[str, ...]]]:
        if at in self._seen:  # A damaged file may run in circles.
            return
        self._seen.add(at)
        node = self._nodes[at]
        fields = _fields(node)
        kind = _type(node)
        if kind == "SeqStmt":
            for part in self._nodes[int(fields["seq"])]["data"]:
                yield from self._walk(int(part), loops, outer)
        elif kind in ("BlockRealize", "SBlockRealize"):
            block = _fields(self._nodes[int(fields["block"])])
            name = self._text(block["name_hint"])
            if not (outer and name in ("root", "")):
                yield name, loops
            yield from self._walk(int(block["body"]), (), outer=False)
        elif kind == "For":
            variable = _fields(self._nodes[int(fields["loop_var"])])
            inner = (*loops, self._text(variable["name"]))
            yield from self._walk(int(fields["body"]), inner, outer)
        elif "body" in fields:
            yield from self._walk(int(fields["body"]), loops, outer)

    def _text(self, at: Any) -> str:
        node = self._nodes[int(at)]
        return str(node["repr_str"] if "repr_str" in node else node["data"])


def _type(node: Any) -> str:
    return str(node.get("type_key") or node.get("type") or "").rpartition(".")[2]


def _fields(node: Any) -> dict[str, Any]:
    fields = node.get("attrs") if "type_key" in node else node.get("data")
    return fields if isinstance(fields, dict) else {}
