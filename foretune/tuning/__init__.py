"""The loop: many workloads, one budget, one strategy, one cost model, one measurer.

``api`` is ``tune``: ``asked`` is checked, ``run`` carries it out. At its begin ``prepared`` and
``proving`` take the input apart and prove it (``proof``, ``network``, ``compiled``),
``plan_search`` searches a plan, ``experience`` learns from earlier runs, ``measurers`` and
``work_dir`` are readied. ``tuner`` is the loop over tasks (``task``, ``baselines``); its parts
share a ``workbench``: ``keeping`` and ``reuse`` (records and stores), ``budget``, ``beaten``,
``allocate``, ``rounds``, ``confirm``; ``events`` tell of it. At the end ``conclude`` ships the
network, ``contenders`` are tried in it, ``explained`` says what bounds kernels, ``result`` is what
the caller gets.
"""

from foretune.records import CountedTrial
from foretune.tuning.api import tune
from foretune.tuning.asked import strategy_options
from foretune.tuning.budget import Budget, check_batch, fitting_batch
from foretune.tuning.events import Progress
from foretune.tuning.network import Network
from foretune.tuning.plan_search import PlanSearch
from foretune.tuning.prepared import prepare
from foretune.tuning.proof import Proof
from foretune.tuning.result import TaskResult, TuneResult
from foretune.tuning.task import Task, resolve_names
from foretune.tuning.tuner import Tuner
from foretune.tuning.work_dir import JOURNAL, RESULT, TRANSCRIPT, default_work_dir

__all__ = [
    "JOURNAL",
    "RESULT",
    "TRANSCRIPT",
    "Budget",
    "CountedTrial",
    "Network",
    "PlanSearch",
    "Progress",
    "Proof",
    "Task",
    "TaskResult",
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
