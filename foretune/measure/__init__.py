"""Measuring candidates safely."""

from foretune.measure._base import Measurement, Measurer, Status
from foretune.measure.local import LocalMeasurer
from foretune.measure.policy import MeasurePolicy

__all__ = [
    "LocalMeasurer",
    "MeasurePolicy",
    "Measurement",
    "Measurer",
    "Status",
]
