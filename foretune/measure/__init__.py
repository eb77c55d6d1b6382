"""Measuring candidates safely."""

from foretune.measure._base import Measurement, Measurer, Status
from foretune.measure.local import LocalMeasurer, require_device
from foretune.measure.policy import MeasurePolicy

__all__ = [
    "LocalMeasurer",
    "MeasurePolicy",
    "Measurement",
    "Measurer",
    "Status",
    "require_device",
]
