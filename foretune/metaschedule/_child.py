"""Runs TVM's own tuner once, as a user runs it. Executed as a script in a fresh process.

Reads one JSON request (path in ``argv[1]``) and appends one JSON line per measured candidate, in
the order in which TVM learned of them, to the request's ``log``. Everything about the tuning is
TVM's own: builder, runner, database, cost model, search, task scheduler. This file only listens.

A request has one program (``module``), or a model (``model``, an INPUT), which is taken apart here
by foretune, so that all tuners have the same tasks and each pays for them. Nothing else of foretune
is imported unless the request asks to remove the import trap, or for our space: start-up is part of
what the peer costs.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any


def _plain(value: Any) -> Any:
    """TVM's numbers inside lists as Python's."""
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    number = getattr(value, "value", None)
    return value if number is None else number


def _listener(log_path: str) -> Any:
    from tvm.ir.utils import derived_object
    from tvm.s_tir import meta_schedule as ms

    @derived_object  # type: ignore[untyped-decorator, unused-ignore]
    class Listener(ms.measure_callback.PyMeasureCallback):  # type: ignore[misc, unused-ignore]
        """Writes down every candidate when its result arrives; a batch arrives at once."""

        def apply(
            self,
            task_scheduler: Any,
            task_id: int,
            measure_candidates: Any,
            builder_results: Any,
            runner_results: Any,
        ) -> None:
            """Appends the batch to the log."""
            now = time.monotonic()
            with open(log_path, "a", encoding="utf-8") as log:
                results = zip(measure_candidates, builder_results, runner_results, strict=True)
                for candidate, built, ran in results:
                    seconds = None if ran.run_secs is None else [float(s) for s in ran.run_secs]
                    line = {
                        "monotonic": now,
                        "task": int(task_id),
                        "seconds": seconds,
                        "build_error": built.error_msg and str(built.error_msg)[-500:],
                        "run_error": ran.error_msg and str(ran.error_msg)[-500:],
                        "trace": _plain(candidate.sch.trace.as_json(remove_postproc=True)),
                    }
                    log.write(json.dumps(line) + "\n")

    return Listener()


def _quick_builder(request: dict[str, Any]) -> Any:
    """TVM's own builder, whose workers load only the intrinsics of this target.

    TVM's builder imports all intrinsics in every worker it starts, for every batch anew, and the
    time counts against the first candidate's build timeout.
    """
    from tvm.s_tir import meta_schedule as ms
    from tvm.s_tir.meta_schedule.utils import cpu_count

    target, hardware, ours = request["target"], request["hardware"], request["our_space"]

    def load() -> None:
        from foretune import _tvm

        _tvm.load_intrinsics(_tvm.Target(target))
        if ours:
            from foretune.hardware import Hardware
            from foretune.metaschedule import _our_space

            _our_space.register_build(Hardware.from_json(hardware))

    load()
    return ms.builder.LocalBuilder(
        max_workers=cpu_count(logical=False),
        initializer=load,
        f_build="foretune.metaschedule.build" if ours else None,
    )


def _tune(request: dict[str, Any]) -> None:
    import numpy as np
    import tvm
    from tvm.s_tir import meta_schedule as ms

    # The warm-up scores of TVM's cost model come from numpy's global generator.
    np.random.seed(request["seed"])
    target = tvm.target.Target(request["target"])
    # A model is taken apart first, as TVM's own extraction comes before its tuning.
    parts = _workloads(request) if "model" in request else []
    options: dict[str, Any] = {}
    if request["remove_import_trap"]:
        options["builder"] = _quick_builder(request)
    if request["our_space"]:
        from foretune.hardware import Hardware
        from foretune.metaschedule import _our_space

        hardware = Hardware.from_json(request["hardware"])
        options["space"] = _our_space.space_generator(hardware)
    if request["num_trials_per_iter"] is not None:
        options["num_trials_per_iter"] = request["num_trials_per_iter"]
    if request["num_warmup_samples"] is not None:
        options["cost_model"] = ms.cost_model.XGBModel(
            num_warmup_samples=request["num_warmup_samples"], tree_method="auto"
        )
    callbacks = list(ms.measure_callback.MeasureCallback.create("default"))
    options |= {
        "work_dir": request["work_dir"],
        "max_trials_global": request["trials"],
        "measure_callbacks": [_listener(request["log"]), *callbacks],
    }
    if "model" not in request:
        module = tvm.ir.load_json(request["module"])
        ms.tune_tir(mod=module, target=target, seed=request["seed"], **options)
        return
    extracted = [
        ms.ExtractedTask(name, module, target, [module], weight) for name, module, weight in parts
    ]
    tasks, weights = ms.relax_integration.extracted_tasks_to_tune_contexts(
        extracted, request["work_dir"], seed=request["seed"]
    )
    ms.tune_tasks(tasks=tasks, task_weights=weights, **options)


def _workloads(request: dict[str, Any]) -> list[tuple[str, Any, int]]:
    """Name, module and weight of a model's tasks, whose keys go to ``tasks`` in the same order."""
    from foretune._files import write_json
    from foretune.hardware import Hardware
    from foretune.tuning import prepare

    workloads = prepare(request["model"], Hardware.from_json(request["hardware"])).workloads
    # Whole or not there: the child may be killed at any time.
    write_json(Path(request["tasks"]), [w.key for w in workloads])
    return [(w.name, w.module, w.weight) for w in workloads]


if __name__ == "__main__":
    _tune(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
