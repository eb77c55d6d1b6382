"""Predict, then measure: makes tensor programs fast on the hardware at hand.

The public names load on first use, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretune.cost import CostModel, Prediction
    from foretune.errors import BadInputError, ForetuneError, IllegalCandidateError
    from foretune.graph import Artifact
    from foretune.hardware import Hardware, probe
    from foretune.measure import (
        LocalMeasurer,
        Measurement,
        MeasurePolicy,
        Measurer,
        Status,
    )
    from foretune.records import Journal, Record, ReplayMeasurer
    from foretune.search import Strategy
    from foretune.space import Candidate, Space
    from foretune.tuning import Task, TuneResult, tune
    from foretune.workload import Model, Workload, load_input

__version__ = "0.1.0"

__all__ = [
    "Artifact",
    "BadInputError",
    "Candidate",
    "CostModel",
    "ForetuneError",
    "Hardware",
    "IllegalCandidateError",
    "Journal",
    "LocalMeasurer",
    "MeasurePolicy",
    "Measurement",
    "Measurer",
    "Model",
    "Prediction",
    "Record",
    "ReplayMeasurer",
    "Space",
    "Status",
    "Strategy",
    "Task",
    "TuneResult",
    "Workload",
    "__version__",
    "load_input",
    "probe",
    "tune",
]

_EXPORTS = {
    "Artifact": "foretune.graph",
    "BadInputError": "foretune.errors",
    "Candidate": "foretune.space",
    "CostModel": "foretune.cost",
    "ForetuneError": "foretune.errors",
    "Hardware": "foretune.hardware",
    "IllegalCandidateError": "foretune.errors",
    "Journal": "foretune.records",
    "LocalMeasurer": "foretune.measure",
    "MeasurePolicy": "foretune.measure",
    "Measurement": "foretune.measure",
    "Measurer": "foretune.measure",
    "Model": "foretune.workload",
    "Prediction": "foretune.cost",
    "Record": "foretune.records",
    "ReplayMeasurer": "foretune.records",
    "Space": "foretune.space",
    "Status": "foretune.measure",
    "Strategy": "foretune.search",
    "Task": "foretune.tuning",
    "TuneResult": "foretune.tuning",
    "Workload": "foretune.workload",
    "load_input": "foretune.workload",
    "probe": "foretune.hardware",
    "tune": "foretune.tuning",
}


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'foretune' has no attribute {name!r}")
    return getattr(importlib.import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
