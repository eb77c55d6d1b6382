"""The loop: many workloads, one budget, one strategy, one cost model, one measurer."""

from foretune.tuning.api import prepare, tune
from foretune.tuning.result import TaskResult, TuneResult
from foretune.tuning.task import Task, Trial, resolve_names
from foretune.tuning.tuner import Budget, Progress, Tuner

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
