"""The loop: many workloads, one budget, one strategy, one cost model, one measurer."""

from foretune.tune._api import prepare, tune
from foretune.tune.result import TaskResult, TuneResult
from foretune.tune.task import Task, Trial, resolve_names
from foretune.tune.tuner import Budget, Progress, Tuner

__all__ = [
    "Budget",
    "Progress",
    "Task",
    "TaskResult",
    "Trial",
    "TuneResult",
    "Tuner",
    "prepare",
    "resolve_names",
    "tune",
]
