"""The loop: many workloads, one budget, one strategy, one cost model, one measurer."""

from foretune.records import Trial
from foretune.tuning.api import prepare, strategy_options, tune
from foretune.tuning.network import Network, Proof
from foretune.tuning.planned import PlanSearch
from foretune.tuning.result import TaskResult, TuneResult
from foretune.tuning.task import Task, resolve_names
from foretune.tuning.tuner import Budget, Progress, Tuner, check_batch, fitting_batch
from foretune.tuning.work_dir import JOURNAL, RESULT, TRANSCRIPT, default_work_dir

__all__ = [
    "JOURNAL",
    "RESULT",
    "TRANSCRIPT",
    "Budget",
    "Network",
    "PlanSearch",
    "Progress",
    "Proof",
    "Task",
    "TaskResult",
    "Trial",
    "TuneResult",
    "Tuner",
    "check_batch",
    "default_work_dir",
    "fitting_batch",
    "prepare",
    "resolve_names",
    "strategy_options",
    "tune",
]
