"""Where kernels come from: a work directory, an artifact, or a model that was not tuned yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from foretune.errors import BadInputError, ForetuneError, listed
from foretune.explain._explain import Kernel, called_on
from foretune.explain._explanation import Explanation
from foretune.graph import extract, read_manifest
from foretune.records import Journal
from foretune.space import Space, is_scheduled
from foretune.workload import Workload

if TYPE_CHECKING:
    from foretune.graph.extract import Extraction
    from foretune.hardware import Hardware
    from foretune.space import Candidate
    from foretune.workload import Model


def of_journal(
    path: Path, task: str | None = None, top: int | None = None
) -> tuple[list[Kernel], list[str]]:
    """The best kernel of each workload of a journal on each hardware, the heaviest first.

    Args:
        path: The journal.
        task: Name or key of a workload; all if None.
        top: How many of the heaviest, all if None; spaces are generated of these alone.

    Returns:
        The kernels, and names of workloads of which nothing could be measured, with the hardware
        where there are several.

    Raises:
        BadInputError: There is no such task, or no record; the message lists the names.
        RecordError: The journal cannot be read.
    """
    with Journal(path, read_only=True) as journal:
        workloads, hardware = journal.workloads(), journal.hardware()
        pairs = dict.fromkeys((r.workload, r.hardware) for r in journal.records())
        chosen = [pair for pair in pairs if pair[0] in workloads and pair[1] in hardware]
        wanted = _chosen([workloads[key] for key, _ in chosen], task)
        bests, unmeasured = [], []
        for key, machine in chosen:
            if key not in wanted:
                continue
            best = journal.best(key, machine)
            if best is None:
                name = workloads[key].name
                several = sum(other == key for other, _ in chosen) > 1
                unmeasured.append(called_on(name, hardware[machine]) if several else name)
                continue
            bests.append((workloads[key], hardware[machine], best))
    if not bests:
        raise BadInputError(f"{path} holds no kernel that was measured: tune first")
    bests.sort(key=lambda one: -(one[2].measurement.best_s or 0.0) * one[0].weight)
    kernels = [
        Kernel(_candidate(workload, machine, best.decisions), best.measurement.best_s)
        for workload, machine, best in bests[:top]
    ]
    return kernels, unmeasured


def _candidate(
    workload: Workload, hardware: Hardware, decisions: Mapping[str, object]
) -> Candidate:
    """The candidate of a record; untuned programs and default schedules have no space."""
    space = Space.generate(workload, hardware)
    for fixed in (space.untuned, space.default):
        if fixed is not None and fixed.sketch.key == decisions["sketch"]:
            return fixed
    return space.candidate(decisions)


def of_artifact(library: Path, task: str | None = None) -> list[Explanation]:
    """What was said of an artifact's kernels when it was made.

    Raises:
        BadInputError: It is no artifact, holds no explanations, or none of this task.
    """
    manifest = read_manifest(library)
    entries = manifest.get("kernels")
    if not entries:
        raise BadInputError(
            f"{library} says nothing of its kernels: explain the work directory of its run, or "
            "make it anew with `foretune tune -o`"
        )
    try:
        explanations = [Explanation.from_json(entry) for entry in entries]
    except (KeyError, TypeError) as error:
        raise BadInputError(
            f"{library.with_suffix('.json')}: 'kernels' cannot be read ({error!r}): compile the "
            "artifact again"
        ) from error
    wanted = _named({one.key: one.name for one in explanations}, task)
    return [one for one in explanations if one.key in wanted]


def of_source(
    source: Model | Workload, hardware: Hardware, task: str | None = None
) -> tuple[list[Kernel], dict[str, str]]:
    """The kernels of a model as they are without tuning, by the default schedule.

    Returns:
        The kernels, in the order of the model, and what is none, or has no schedules, with the
        reason.

    Raises:
        BadInputError: There is no such task.
    """
    left_out: dict[str, str] = {}
    if isinstance(source, Workload):
        workloads: Sequence[Workload] = (source,)
    else:
        extraction = extract(source, hardware)
        workloads, left_out = extraction.workloads, _outside(extraction)
    if task in left_out:
        return [], {task: left_out[task]}
    if task is not None:
        left_out = {}
    wanted = _chosen(workloads, task)
    kernels = []
    for workload in workloads:
        if workload.key not in wanted:
            continue
        try:
            space = Space.generate(workload, hardware)
            start = space.default or next(iter(space.starts), None) or space.untuned
            kernels.append(Kernel(start, space=space))
        except ForetuneError as error:
            left_out[workload.name] = str(error)
    return kernels, left_out


def _outside(extraction: Extraction) -> dict[str, str]:
    """What of a model is no workload, by name, and why."""
    from foretune import _tvm

    left_out = dict.fromkeys(
        extraction.untunable,
        "it is no tensor program but a call of a library or the runtime: it has no loops to tune",
    )
    for variable, function in extraction.program.functions.items():
        name = str(variable.name_hint)
        known = name in extraction.functions or not isinstance(function, _tvm.PrimFunc)
        if not known and is_scheduled(function):
            left_out[name] = "its schedule is fixed: there is nothing to choose"
    return left_out


def _chosen(workloads: Sequence[Workload], task: str | None) -> set[str]:
    return _named({workload.key: workload.name for workload in workloads}, task)


def _named(names: Mapping[str, str], task: str | None) -> set[str]:
    """Keys of what goes by a name; of everything where there is none."""
    if task is None:
        return set(names)
    chosen = {key for key, name in names.items() if task in (key, name)}
    if not chosen and not names:
        raise BadInputError(f"there is no task {task!r}, nor any other: leave --task out")
    if not chosen:
        raise BadInputError(
            f"there is no task {task!r}: choose from {listed(sorted(set(names.values())))}"
        )
    return chosen
