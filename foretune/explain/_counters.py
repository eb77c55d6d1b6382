"""Hardware counters of a kernel, by Linux' ``perf``, where the machine has them.

The kernel is compiled and called in a child process, twice with different numbers of calls; the
difference of the counts is that of the calls alone, without starting Python and loading TVM.
Virtual machines mostly hide the counters; then the reason is told.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from foretune.errors import ForetuneError
from foretune.graph import compile_workload, require_compiler

if TYPE_CHECKING:
    from foretune.explain._explain import Kernel

EVENTS: Mapping[str, str] = {
    "instructions": "instructions",
    "cycles": "cycles",
    "L1-dcache-loads": "l1_loads",
    "L1-dcache-load-misses": "l1_load_misses",
    "LLC-loads": "last_cache_loads",
    "LLC-load-misses": "last_cache_load_misses",
}
"""Names of perf's events and ours."""
_LEAST_S, _FEW, _MANY = 0.5, 3, 5000
_TIMEOUT_S = 120.0


class NoCountersError(ForetuneError):
    """There are no counters here, or perf may not read them; the message says why."""


def require_perf() -> str:
    """The path of perf.

    Raises:
        NoCountersError: It is not installed.
    """
    path = shutil.which("perf")
    if path is None:
        raise NoCountersError("perf is not installed: install linux-perf (linux-tools)")
    return path


def parse(text: str) -> dict[str, float]:
    """Counts by our names, of what ``perf stat -x,`` printed.

    Raises:
        NoCountersError: Not one event was counted.
    """
    counts, refused = {}, []
    for line in text.splitlines():
        fields = line.split(",")
        if len(fields) < 3:
            continue
        name = EVENTS.get(fields[2].split(":")[0])
        if name is None:
            continue
        try:
            counts[name] = float(fields[0])
        except ValueError:  # "<not supported>", "<not counted>"
            refused.append(f"{fields[2]} {fields[0]}")
    if not counts:
        reason = ", ".join(refused) or _last_line(text) or "perf printed nothing"
        raise NoCountersError(f"this machine shows no hardware counters ({reason})")
    return counts


def counted(kernel: Kernel) -> dict[str, float]:
    """Counts of one call of a kernel, by the names of ``EVENTS``.

    Raises:
        NoCountersError: They cannot be read; the message says why.
    """
    perf = require_perf()
    require_compiler()
    sketch = kernel.candidate.sketch
    with tempfile.TemporaryDirectory(prefix="foretune-") as folder:
        library = Path(folder) / "kernel.so"
        compile_workload(sketch.workload, sketch.hardware, kernel.candidate).save(library)
        expected_s = kernel.seconds or 1e-3
        many = _FEW + min(max(10, int(_LEAST_S / expected_s)), _MANY)
        few, more = (_counts(perf, library, calls) for calls in (_FEW, many))
    return {
        name: max(0.0, (more[name] - few[name]) / (many - _FEW)) for name in few if name in more
    }


def _counts(perf: str, library: Path, calls: int) -> dict[str, float]:
    child = [sys.executable, "-m", "foretune.explain._calls", str(library), str(calls)]
    command = [perf, "stat", "-x,", "-e", ",".join(EVENTS), "--", *child]
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoCountersError(f"perf could not be run ({error})") from error
    if ended.returncode != 0:
        raise NoCountersError(f"perf failed: {_last_line(ended.stderr)}")
    return parse(ended.stderr)


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else ""
