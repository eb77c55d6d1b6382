"""Measuring candidates safely, on this machine or on devices elsewhere.

``_base`` is the door; ``local`` and ``remote`` are measurers, ``policy`` their numbers. Both have a
desk (``_desk``, ``_jobs``, ``_windows``), and children on this machine (``_children``) or for
devices (``_devices``, ``_device``, ``devices``), which ``transport`` starts. In a child:
``_child_main``, ``_protocol``, ``_worker`` or ``_device_worker`` with its ``_session``; ``timing``
and ``_canary`` read, ``_buffers``, ``_turns`` and ``_layout`` see to memory. ``gate``,
``_reference`` and ``_locality`` say whether outputs are right; ``_memory`` and ``waiting`` what
other processes leave.
"""

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
