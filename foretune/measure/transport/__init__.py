"""Transports carry requests to those that build and time programs: child processes of this machine.

``Worker`` and ``Transport`` say what a job may rely on, wherever the work is done. ``Processes``
keeps child processes, which may hold sessions on devices elsewhere; ``RayBuilders`` has builders on
a cluster; ``JoinedTransport`` makes two of them one.

``_base`` is the door, ``processes`` keeps children, ``ray`` builders, ``joined`` joins; ``serve``
serves a device, ``tracker`` asks for one.
"""

from foretune.measure.transport._base import Death, Reply, Task, Transport, Worker
from foretune.measure.transport.joined import JoinedTransport
from foretune.measure.transport.processes import Processes, ProcessWorker, Slot

__all__ = [
    "Death",
    "JoinedTransport",
    "ProcessWorker",
    "Processes",
    "Reply",
    "Slot",
    "Task",
    "Transport",
    "Worker",
]
