"""Measuring candidates safely."""

from foretune.measure._base import Measurement, Measurer, Status

__all__ = ["Measurement", "Measurer", "Status"]
