"""What every benchmark's result carries: machine, date, versions, command, and what else ran."""

from __future__ import annotations

import importlib.metadata
import json
import lzma
import os
import platform
import re
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from foretune._files import json_text, write_bytes
from foretune._store_url import without_password
from foretune.hardware import Hardware, probe

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results"
READINGS = ".json.xz"
_PACKAGES = ("foretune", "apache-tvm", "apache-tvm-ffi", "torch", "xgboost-cpu", "numpy",
             "onnxruntime", "openvino", "transformers")  # fmt: skip
_BUSY_PERCENT = 5.0


def busy_processes(seconds: float = 1.0) -> list[str]:
    """Names of other processes, with their share of one core in percent, over a short while."""
    own = {process.pid for process in psutil.Process().children(recursive=True)} | {os.getpid()}
    watched = []
    for process in psutil.process_iter():
        try:
            process.cpu_percent()
            watched.append(process)
        except psutil.Error:
            continue
    time.sleep(seconds)
    busy = []
    for process in watched:
        try:
            percent = process.cpu_percent()
            if percent >= _BUSY_PERCENT and process.pid not in own:
                busy.append(f"{process.name()} {percent:.0f} %")
        except psutil.Error:
            continue
    return sorted(busy)


@dataclass
class Conditions:
    """Under what conditions a benchmark ran; ``end`` completes them.

    Attributes:
        hardware: What was tuned for.
        command: The command that makes this result.
        seeds: Random seeds used.
        began: Local date and time.
        busy_before: Other processes that used the processor just before.
        load_before: Load average of the last minute, before.
    """

    hardware: Hardware
    command: str
    seeds: Sequence[int]
    began: str = field(default_factory=lambda: time.strftime("%Y-%m-%d %H:%M:%S %z"))
    busy_before: list[str] = field(default_factory=busy_processes)
    load_before: float = field(default_factory=lambda: os.getloadavg()[0])

    def end(self) -> dict[str, Any]:
        """The conditions as a JSON object, with what ran at the end."""
        return {
            **asdict(self),
            "hardware": self.hardware.to_json(),
            "seeds": list(self.seeds),
            "ended": time.strftime("%Y-%m-%d %H:%M:%S %z"),
            "busy_after": busy_processes(),
            "load_after": os.getloadavg()[0],
            "machine": machine(),
            "versions": versions(),
        }


def conditions(module: str, seeds: Sequence[int], hardware: Hardware | None = None) -> Conditions:
    """The conditions of a benchmark that starts now, ``python -m benchmarks <module>``.

    The machine's peaks are measured, as ``foretune tune`` does: cost models take them as input.
    """
    # Its name is an argument of the chooser, and none of the module itself.
    given = sys.argv[2:] if sys.argv[1:2] == [module] else sys.argv[1:]
    command = shlex.join(["python", "-m", "benchmarks", module, *map(without_password, given)])
    # What else runs is looked at before the peaks are measured, which is work, too.
    began = Conditions(hardware or probe(), command, seeds)
    return began if hardware else replace(began, hardware=probe(measure=True))


def machine() -> dict[str, Any]:
    """The machine in words and numbers."""
    return {
        "system": platform.platform(),
        "cores_usable": len(os.sched_getaffinity(0)),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "python": platform.python_version(),
    }


def versions() -> dict[str, str]:
    """Versions of the packages that matter, those that are installed."""
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns line up in plain text too."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in (header, *rows)
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def figure(value: Mapping[str, float], sign: str = "") -> str:
    """``mean (low to high)`` of an interval, with three digits."""
    mean, low, high = (f"{value[name]:{sign}.3f}" for name in ("mean", "low", "high"))
    return f"{mean} ({low} to {high})"


_GONE = "999b7fb"
"""The last commit that had every benchmark whose readings are kept."""
_NAMED = re.compile(r"-m benchmarks[ .](\w+)")
_OPTIONS_GONE = {"limits": "--name"}


def quoted(command: str) -> str:
    """A command as pages show it; one that runs no longer with the commit at which it did."""
    named = _NAMED.search(command)
    name = named[1] if named else ""
    gone = bool(name) and not (ROOT / "benchmarks" / f"{name}.py").is_file()
    gone = gone or _OPTIONS_GONE.get(name, "\n") in command.split()
    return f"`{command}`" + (f" (at commit `{_GONE}`)" if gone else "")


def told(where: Mapping[str, Any]) -> str:
    """What ``Conditions.end`` gave, as a Markdown list."""
    hardware = where["hardware"]
    busy = sorted({*where["busy_before"], *where["busy_after"]})
    versions = ", ".join(f"{name} {version}" for name, version in where["versions"].items())
    return "\n".join(
        [
            f"- Command: {quoted(where['command'])}",
            f"- Machine: {hardware['name']}, {hardware['threads']} threads, "
            f"{where['machine']['memory_gib']} GiB, {where['machine']['system']}; "
            f"target `{hardware['target']}`",
            f"- When: {where['began']} to {where['ended']}; seeds {where['seeds']}",
            f"- Versions: {versions}, Python {where['machine']['python']}",
            f"- What else ran: {', '.join(busy) or 'nothing above 5 % of a core'}; load average "
            f"{where['load_before']:.2f} before, {where['load_after']:.2f} after",
        ]
    )


def write_readings(name: str, data: Mapping[str, Any]) -> None:
    """Writes the figures behind a page, compressed: most of them are readings that repeat."""
    write_bytes(RESULTS / f"{name}{READINGS}", lzma.compress(json_text(data).encode()))


def readings_of(name: str) -> dict[str, Any] | None:
    """The figures behind a page; None where there is no page."""
    file = RESULTS / f"{name}{READINGS}"
    if not file.exists():
        return None
    found = read_json(file)
    assert isinstance(found, dict)
    return found


def read_json(path: Path) -> Any:
    """Reads a JSON file, also one that is compressed by xz."""
    data = path.read_bytes()
    return json.loads(lzma.decompress(data) if path.suffix == ".xz" else data)


def say(text: str) -> None:
    """Prints one line of progress with the time of day."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)
