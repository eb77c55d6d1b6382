"""Measuring candidates safely."""

from foretune.measure._base import Measurement, Measurer, Status
from foretune.measure.local import LocalMeasurer
from foretune.measure.policy import MeasurePolicy
from foretune.measure.replay import ReplayMeasurer

__all__ = [
    "LocalMeasurer",
    "MeasurePolicy",
    "Measurement",
    "Measurer",
    "ReplayMeasurer",
    "Status",
]
