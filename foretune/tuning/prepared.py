"""An INPUT is taken apart into the workloads that are tuned, one task each."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from foretune.errors import BadInputError
from foretune.hardware import Hardware
from foretune.measure.gate import Signature
from foretune.space import Space
from foretune.tuning.task import Task
from foretune.workload import Model, Workload, from_object, load_input

if TYPE_CHECKING:
    from foretune.graph import Extraction, Plan

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Prepared:
    """A model or workload with the workloads it consists of.

    Attributes:
        source: What was given, loaded.
        workloads: The distinct tunable programs, with weights.
        untunable: Names of operators outside the tuner's reach.
        extraction: How a model was taken apart, which compiling it needs again.
    """

    source: Model | Workload
    workloads: tuple[Workload, ...]
    untunable: tuple[str, ...] = ()
    extraction: Extraction | None = None


def prepare(
    what: str | Model | Workload | Any,
    hardware: Hardware,
    without: Collection[str] = (),
    plan: Plan | None = None,
) -> Prepared:
    """Loads an INPUT and takes it apart into workloads.

    Args:
        what: An INPUT of the command line (catalog name, file, ``file.py:function``), a ``Model``,
            a ``Workload``, a TVM ``PrimFunc`` or ``IRModule``, or a pair of a torch module and its
            example inputs.
        hardware: Decides the layouts a model's operators are given.
        without: Names of passes over the graph that do not run.
        plan: What is chosen for some operators of a model: ``network.plan`` of another result.

    Raises:
        BadInputError: Missing or unreadable file, unknown name, unsupported model, or a plan that
            does not fit.
    """
    source = loaded(what)
    if isinstance(source, Workload):
        if plan:
            raise BadInputError(
                f"a plan is for a network, but {source.name!r} is one tensor program: leave it out"
            )
        return Prepared(source, (source,))
    from foretune import graph

    extracted = graph.extract(source, hardware, without, plan)
    return Prepared(source, tuple(extracted.workloads), tuple(extracted.untunable), extracted)


def loaded(what: str | Model | Workload | Any) -> Model | Workload:
    """What an INPUT is, before it is taken apart; see ``prepare``."""
    return load_input(what) if isinstance(what, str) else from_object(what)


def tasks_of(
    prepared: Prepared, hardware: Hardware, **options: Any
) -> tuple[list[Task], tuple[str, ...]]:
    """One task per workload, and the names of operators without one.

    A single workload without a space is the caller's error; one operator of a model is not: the
    others are tuned and it is named.
    """
    tasks: list[Task] = []
    untunable = list(prepared.untunable)
    for workload in prepared.workloads:
        try:
            Signature.of(workload)  # what candidates cannot be checked on is not tuned
            space = Space.generate(workload, hardware)
        except BadInputError as error:
            if isinstance(prepared.source, Workload):
                raise
            logger.warning("operator %s stays untuned: %s", workload.name, error)
            untunable.append(workload.name)
        else:
            tasks.append(Task(workload, hardware, space=space, **options))
    return tasks, tuple(untunable)
