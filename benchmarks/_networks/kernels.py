"""The kernels of a tuned network and the time that each takes alone.

Times are those of the tuning run, with weights and activations as far away as in the network.
Kernels that are not tuned, because a pass schedules them itself, are timed here in the same way.
What bounds a kernel is told by ``foretune explain``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.results import say

if TYPE_CHECKING:
    from foretune.hardware import Hardware
    from foretune.workload import Workload


def of_network(name: str, tune: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All kernels of a network that was tuned.

    Args:
        name: Of the network, in the catalog.
        tune: The result of its tuning, ``foretune.tune/1``.

    Returns:
        Of each kernel, with the default schedule where that ships: ``name``, ``count`` of calls,
        and ``seconds`` of one, None where it was not measured.
    """
    which = "best_s" if tune["network"]["shipped"] == "tuned" else "default_s"
    tasks = [(task["name"], task["weight"], task[which]) for task in tune["tasks"]]
    names = ("name", "count", "seconds")
    return [dict(zip(names, each, strict=True)) for each in (*tasks, *_scheduled(name, tune))]


def _scheduled(name: str, tune: Mapping[str, Any]) -> Iterator[tuple[str, int, float | None]]:
    """Kernels that a pass schedules, and which are therefore no task."""
    from foretune import _tvm
    from foretune.graph import extract
    from foretune.graph.extract import as_workload
    from foretune.hardware import Hardware
    from foretune.space import is_scheduled
    from foretune.workload import Model, load_input

    hardware = Hardware.from_json(tune["hardware"])
    model = load_input(name)
    assert isinstance(model, Model)
    program = extract(
        model, hardware, without=tune["passes_off"], plan=tune["network"]["plan"]
    ).program
    calls = called(program)
    found: dict[str, Workload] = {}
    for variable, function in program.functions.items():
        own = str(variable.name_hint)
        if own not in calls or not isinstance(function, _tvm.PrimFunc):
            continue
        if is_scheduled(function) and not _is_view(function):
            workload = as_workload(function, own, calls[own])
            known = found.get(workload.key)
            weight = workload.weight + (known.weight if known else 0)
            found[workload.key] = workload.with_weight(weight)
    seconds = _time(list(found.values()), hardware, tune["environment"]["policy"])
    for key, each in found.items():
        yield each.name, each.weight, seconds.get(key)


def called(program: Any) -> dict[str, int]:
    """How often each function of a lowered network is called."""
    from foretune import _tvm

    counts: dict[str, int] = {}

    def visit(expression: Any) -> None:
        if isinstance(expression, _tvm.tvm.relax.Call) and _is_program(expression):
            callee = str(expression.args[0].name_hint)
            counts[callee] = counts.get(callee, 0) + 1

    _tvm.tvm.relax.analysis.post_order_visit(program["main"], visit)
    return counts


def _is_program(call: Any) -> bool:
    return str(getattr(call.op, "name", "")) in ("relax.call_tir", "relax.call_tir_inplace")


def _is_view(function: Any) -> bool:
    from foretune import _tvm

    return bool(_tvm.tvm.relax.analysis.has_reshape_pattern(function))


def _time(workloads: Sequence[Workload], hardware: Hardware, policy: Mapping[str, Any]
          ) -> dict[str, float]:  # fmt: skip
    """Seconds by key, with the measurer and the policy of a tuning run."""
    from foretune.measure import LocalMeasurer, MeasurePolicy
    from foretune.space import Space

    if not workloads:
        return {}
    say(f"timing {len(workloads)} kernels that are not tuned")
    with LocalMeasurer(hardware, MeasurePolicy(**policy)) as measurer:
        candidates = [Space(each, hardware, ()).untuned for each in workloads]
        measured = dict(measurer.measure(candidates))
    found = {
        candidate.sketch.workload.key: measurement.best_s
        for candidate, measurement in measured.items()
    }
    return {key: seconds for key, seconds in found.items() if seconds is not None}
