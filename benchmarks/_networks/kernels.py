"""The kernels of a tuned network: time alone, work, and the memory that they move.

Times are those of the tuning run, with weights and activations as far away as in the network.
Kernels that are not tuned, because a pass schedules them itself, are timed here in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.results import say

if TYPE_CHECKING:
    from foretune.hardware import Hardware
    from foretune.workload import Workload


def of_network(name: str, tune: Mapping[str, Any], work_dir: Path) -> list[dict[str, Any]]:
    """All kernels of a network that was tuned, the heaviest first.

    Args:
        name: Of the network, in the catalog.
        tune: The result of its tuning, ``foretune.tune/1``.
        work_dir: That of the tuning, with the journal.

    Returns:
        Of each kernel, with the default schedule where that ships: ``name``, ``shapes``, ``count``
        of calls, ``seconds`` of one (None where it was not measured), ``flops`` and ``bytes`` of
        one, and whether it was ``tuned``.
    """
    from foretune.hardware import Hardware
    from foretune.records.journal import Journal
    from foretune.tuning import JOURNAL

    with Journal(work_dir / JOURNAL) as journal:
        workloads = journal.workloads()
    tuned = tune["network"]["shipped"] == "tuned"
    which = "best_s" if tuned else "default_s"
    kernels = [
        _kernel(workloads[task["key"]], task["name"], task["weight"], task[which], tuned)
        for task in tune["tasks"]
    ]
    hardware = Hardware.from_json(tune["hardware"])
    kernels += _scheduled(name, tune, hardware)
    return sorted(kernels, key=lambda each: -(each["seconds"] or math.inf) * each["count"])


def _kernel(workload: Workload, name: str, count: int, seconds: float | None, tuned: bool
            ) -> dict[str, Any]:  # fmt: skip
    return {
        "name": name,
        "shapes": shapes(workload),
        "count": count,
        "seconds": seconds,
        "flops": workload.flops,
        "bytes": bytes_moved(workload),
        "tuned": tuned,
    }


def shapes(workload: Workload) -> str:
    """Shapes of a program's parameters. Before → after: ``1x8, 8x4 → 1x4``, the output last."""
    each = ["x".join(map(str, _extents(p))) or "1" for p in workload.module["main"].params]
    return f"{', '.join(each[:-1])} → {each[-1]}"


def bytes_moved(workload: Workload) -> int:
    """Bytes of parameters that one call reads and writes, each counted once.

    A table of which a few rows are looked up counts with those: no more elements than the blocks
    that use a parameter have iterations.
    """
    from foretune.workload import walk

    main = workload.module["main"]
    used = [0] * len(main.params)
    for node in walk(main.body):
        if type(node).__name__ != "SBlock" or not len(node.iter_vars):
            continue
        iterations = math.prod(_extent(axis.dom.extent) for axis in node.iter_vars)
        for region in (*node.reads, *node.writes):
            for at, parameter in enumerate(main.params):
                if region.source.same_as(parameter):
                    used[at] += iterations * _inner(node, region)
    return sum(
        min(math.prod(_extents(parameter)), touched) * _width(parameter)
        for parameter, touched in zip(main.params, used, strict=True)
    )


def _inner(block: Any, region: Any) -> int:
    """Elements of a buffer in one iteration: more than one where a block has loops of its own."""
    from foretune.workload import walk

    if not any(type(each).__name__ == "For" for each in walk(block.body)):
        return 1
    return math.prod(_extent(each.extent) for each in region.region)


def _extents(parameter: Any) -> list[int]:
    return [_extent(extent) for extent in parameter.ty.shape]


def _extent(extent: Any) -> int:
    return int(extent) if isinstance(extent, int) or hasattr(extent, "value") else 1


def _width(parameter: Any) -> int:
    from foretune.workload.element_types import element_type

    return int(element_type(str(parameter.ty.dtype)).itemsize)


def _scheduled(name: str, tune: Mapping[str, Any], hardware: Hardware) -> list[dict[str, Any]]:
    """Kernels that a pass schedules, and which are therefore no task."""
    from foretune import _tvm
    from foretune.graph import extract
    from foretune.graph.extract import as_workload
    from foretune.space import is_scheduled
    from foretune.workload import Model, load_input

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
    return [
        _kernel(each, each.name, each.weight, seconds.get(key), False)
        for key, each in found.items()
    ]


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
