"""Measuring candidates safely, on this machine or on devices elsewhere."""

from foretune.measure._base import Measurement, Measurer, Status
from foretune.measure._windows import JobMeasurer
from foretune.measure.devices import DeviceAddress, parse_devices, place_of
from foretune.measure.local import LocalMeasurer, require_device
from foretune.measure.policy import LabelPolicy, MeasurePolicy
from foretune.measure.remote import RemoteMeasurer, check_devices

__all__ = [
    "DeviceAddress",
    "JobMeasurer",
    "LabelPolicy",
    "LocalMeasurer",
    "MeasurePolicy",
    "Measurement",
    "Measurer",
    "RemoteMeasurer",
    "Status",
    "check_devices",
    "parse_devices",
    "place_of",
    "require_device",
]
