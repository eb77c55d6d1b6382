"""Kernel Tuner's caches: one JSON object with every configuration of a kernel that was tried.

::

    {"device_name": "NVIDIA A100", "kernel_name": "convolution", "problem_size": [4096, 4096],
     "tune_params_keys": ["block_size_x", ...],
     "cache": {"16,1,...": {"block_size_x": 16, ..., "time": 3.87, ...},
               "64,8,...": {"block_size_x": 64, ..., "time": "RuntimeFailedConfig", ...}}}

``time`` is the mean of the readings in milliseconds; text in its place is the kind of a failure. A
run that was cut short has not closed the last two braces, or even its last entry.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from foretune.dataset._group import Program
from foretune.dataset.readers import _streams
from foretune.dataset.readers._gathering import (
    DAMAGED,
    NOT_JSON,
    OTHER_FILE,
    Gathering,
    SkipLine,
    Task,
    mean_seconds,
)
from foretune.dataset.readers._kinds import kind_of_names
from foretune.errors import BadInputError

_HEAD_BYTES = 1 << 16
_MS = 1e-3
_CACHE = re.compile(r'"cache"\s*:\s*\{')
_GAP = re.compile(r"[\s,}]*")
_KEY = re.compile(r'"(?:[^"\\]|\\.)*"\s*:\s*')
_REQUIRED = ("device_name", "kernel_name", "problem_size", "tune_params_keys", "cache")


def recognises_file(path: Path) -> bool:
    """Whether a file starts like a cache.

    Raises:
        RecordError: It cannot be read.
    """
    head = _streams.content(path, _HEAD_BYTES).decode(errors="replace").lstrip()
    if not head.startswith("{"):
        return False
    return '"tune_params_keys"' in head or re.match(r'\{\s*"cache"\s*:\s*\{', head) is not None


def gather(path: Path, gathering: Gathering) -> None:
    """Reads a cache, or all caches of a folder.

    Raises:
        BadInputError: A file is no cache; in a folder, one that starts like a cache.
        RecordError: A file cannot be read to its end.
    """
    for _, file in _streams.files(path):
        if path.is_dir() and not recognises_file(file):
            gathering.pass_over(OTHER_FILE)
        else:
            _gather_cache(file, gathering)


def _gather_cache(path: Path, gathering: Gathering) -> None:
    text = _streams.content(path).decode(errors="replace")
    header, entries = _parts(path, text)
    parameters = header["tune_params_keys"]
    if not isinstance(parameters, list) or not all(isinstance(p, str) for p in parameters):
        raise _no_cache(path, "tune_params_keys is no list of names")
    task = _task(path, header)
    for entry in entries:
        gathering.take(_add, gathering, task, parameters, entry)


def _add(gathering: Gathering, task: Task, parameters: list[str], entry: Any) -> None:
    if entry is None:
        raise SkipLine(NOT_JSON)
    if not isinstance(entry, dict) or not {*parameters, "time"} <= entry.keys():
        raise SkipLine(DAMAGED)
    time = entry["time"]
    seconds = mean_seconds([time], failed=isinstance(time, str), unit_s=_MS)
    configuration = {name: entry[name] for name in parameters}
    gathering.add(task, repr(configuration), Program(configuration=configuration), seconds)


def _task(path: Path, header: dict[str, Any]) -> Task:
    name, size = str(header["kernel_name"]), header["problem_size"]
    sizes = size if isinstance(size, list) else [size]
    return Task(
        workload=json.dumps([name, size], separators=(",", ":")),
        name=f"{name}({', '.join(map(str, sizes))})",
        kind=kind_of_names([name]),
        device=str(header["device_name"]),
        source=str(path),
    )


def _parts(path: Path, text: str) -> tuple[dict[str, Any], Iterator[Any]]:
    """What stands before the entries, and the entries; None in place of one that is torn."""
    try:
        whole: Any = json.loads(text)
    except (ValueError, RecursionError):
        header, entries = _unfinished(path, text)
    else:
        header, entries = whole, iter(())
        if isinstance(whole, dict) and isinstance(whole.get("cache"), dict):
            # null is not a torn entry, but no entry either.
            entries = iter([{} if e is None else e for e in whole["cache"].values()])
    missing = [n for n in _REQUIRED if not isinstance(header, dict) or n not in header]
    if missing or not isinstance(header["cache"], dict):
        raise _no_cache(path, f"{', '.join(missing) or 'a cache of entries'} is missing")
    return header, entries


def _unfinished(path: Path, text: str) -> tuple[Any, Iterator[Any]]:
    start = _CACHE.search(text)
    if start is None:
        raise _no_cache(path, "it is not JSON")
    try:
        header = json.loads(text[: start.end()] + "}}")
    except (ValueError, RecursionError) as error:
        raise _no_cache(path, f"what stands before its entries is not JSON ({error})") from error
    return header, _entries(text, start.end())


def _entries(text: str, at: int) -> Iterator[Any]:
    """Entries of an object that may end anywhere.

    One that is torn is None; reading goes on with the next line.
    """
    decoder = json.JSONDecoder()
    while (at := _after_gap(text, at)) < len(text):
        key = _KEY.match(text, at)
        try:
            if key is None:
                raise ValueError("no key")
            entry, at = decoder.raw_decode(text, key.end())
            # null is not a torn entry, but no entry either.
            yield {} if entry is None else entry
        except (ValueError, RecursionError):
            yield None
            at = text.find("\n", at if key is None else key.end())
            if at < 0:
                return


def _after_gap(text: str, at: int) -> int:
    gap = _GAP.match(text, at)
    return at if gap is None else gap.end()


def _no_cache(path: Path, why: str) -> BadInputError:
    return BadInputError(
        f"a Kernel Tuner cache holds {', '.join(_REQUIRED)}, but {path} is none: {why}: check the "
        "file and its format"
    )
