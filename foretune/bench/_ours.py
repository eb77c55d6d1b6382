"""Runs foretune's tuner once on one workload: executed as a script in a fresh process.

Reads a JSON request (path in ``argv[1]``) and writes the JSON answer to the request's ``answer``.
The journal in the request's ``work_dir`` holds the trials.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from foretune.bench._sides import asks_llm
from foretune.hardware import Hardware
from foretune.llm import open_session
from foretune.tuning import tune
from foretune.workload import Workload


def _run(request: dict[str, Any], environment: Mapping[str, str]) -> None:
    hardware = Hardware.from_json(request["hardware"])
    llm = None
    if asks_llm(request["strategy"], request["cost_model"]):
        # A request is a file, which must not hold a key: the process inherits it.
        llm = open_session(request["llm"], environment=environment)
        if request["transcript"]:
            llm.record_in(Path(request["transcript"]))
    workload = Workload(**request["workload"])
    result = tune(
        workload,
        target=hardware,
        strategy=request["strategy"],
        cost_model=request["cost_model"],
        trials=request["trials"],
        batch=request["batch"],
        # Sides are compared at equal numbers of trials: no run may stop early.
        patience=request["trials"],
        seed=request["seed"],
        work_dir=request["work_dir"],
        llm=llm,
    )
    best = result.tasks[0].best
    answer = {
        "result": result.to_json(),
        "best": None if best is None else best.to_json(),
    }
    Path(request["answer"]).write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    _run(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), os.environ)
