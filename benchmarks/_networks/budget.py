"""How long a call takes before anything is tuned: ``python -m benchmarks._networks.budget NAME``.

In a process of its own, whose threads and memory are gone when something else is timed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np

SHORT_S = 0.02
"""Networks below get less time: their trials are short."""

_CALLS = 20


def first_look(name: str) -> dict[str, float | None]:
    """Seconds of a call: ``eager``, and ``default`` with default schedules where that is longer.

    The second is compiled only where the first does not say already that calls are short.
    """
    command = [sys.executable, "-m", "benchmarks._networks.budget", name]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float | None] = json.loads(done.stdout.splitlines()[-1])
    return found


def is_short(found: dict[str, float | None]) -> bool:
    """Whether either of the two calls is."""
    return any(seconds is not None and seconds < SHORT_S for seconds in found.values())


def _look(name: str) -> dict[str, float | None]:
    from foretune.engines import time_original
    from foretune.hardware import probe
    from foretune.workload import Model, load_input

    hardware, model = probe(), load_input(name)
    assert isinstance(model, Model)
    found: dict[str, float | None] = {"eager": time_original(model, hardware.threads)[1]}
    if not is_short(found):
        found["default"] = _default(model, hardware)
    return found


def _default(model: Any, hardware: Any) -> float:
    from foretune.graph import extract
    from foretune.tuning.compiled import compile_default

    artifact = compile_default(model, hardware, extract(model, hardware))
    artifact.link()
    return float(np.median(artifact.time(model.examples, _CALLS)))


if __name__ == "__main__":
    print(json.dumps(_look(sys.argv[1])))
