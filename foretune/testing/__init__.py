"""What the author of a strategy, a cost model, a ranker, a measurer or a store tests it with.

Each suite is a module of plain functions that take a factory and raise AssertionError with what
was promised and what happened. ``CHECKS`` of a module lists them for parametrised tests;
``check_strategy``, ``check_cost_model``, ``check_ranker``, ``check_measurer`` and ``check_store``
run a whole suite.
``SyntheticSpace`` stands in for a real space: no compiler, known optimum, microseconds per trial.

``strategies``, ``cost_models``, ``rankers``, ``measurers`` and ``stores`` are suites, ``synthetic``
is the space.
"""

from foretune.testing.cost_models import check_cost_model
from foretune.testing.measurers import check_measurer
from foretune.testing.rankers import check_ranker
from foretune.testing.stores import check_store
from foretune.testing.strategies import check_strategy
from foretune.testing.synthetic import (
    SyntheticCandidate,
    SyntheticMeasurer,
    SyntheticSketch,
    SyntheticSpace,
    synthetic_features,
    synthetic_trial,
)

__all__ = [
    "SyntheticCandidate",
    "SyntheticMeasurer",
    "SyntheticSketch",
    "SyntheticSpace",
    "check_cost_model",
    "check_measurer",
    "check_ranker",
    "check_store",
    "check_strategy",
    "synthetic_features",
    "synthetic_trial",
]
