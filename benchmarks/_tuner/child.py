"""Runs foretune's tuner once on a whole network: executed as a module in a fresh process.

Reads a JSON request (path in ``argv[1]``) and writes the JSON answer to the request's ``answer``.
The journal in the request's ``work_dir`` holds the trials. What the process spent before it came
here, imports above all, is taken off its budget.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from foretune.hardware import Hardware
from foretune.tuning import tune

# The whole time is used, however long a task has not gained.
_NEVER_STOPS = 10**9


def _run(request: dict[str, Any]) -> None:
    result = tune(
        request["network"],
        target=Hardware.from_json(request["hardware"]),
        strategy=request["strategy"],
        cost_model=request["cost_model"],
        batch=request["batch"],
        time_s=request["epoch"] + request["seconds"] - time.time(),
        patience=_NEVER_STOPS,
        seed=request["seed"],
        work_dir=request["work_dir"],
    )
    bests = {
        task.workload.key: {"candidate": task.best.to_json(), "seconds": task.best_s}
        for task in result.tasks
        if task.best is not None
    }
    answer = {"elapsed_s": time.time() - request["epoch"], "bests": bests}
    Path(request["answer"]).write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    _run(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
