"""What bounds the kernels of a run: goes with its result and its artifact, for ``explain``."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from foretune.errors import last_line

if TYPE_CHECKING:
    from foretune.hardware import Hardware
    from foretune.tuning.task import Task

logger = logging.getLogger(__name__)

MOST = 16
"""Kernels that are explained, the heaviest."""


def explained_kernels(
    tasks: Sequence[Task], hardware: Hardware, default: bool = False
) -> list[dict[str, Any]]:
    """The heaviest kernels of a run, as ``kernels`` of ``foretune.explain/1``.

    Without looking for changes that pay, which ``foretune explain`` does on the work directory:
    milliseconds a kernel.

    Args:
        tasks: Of the run.
        hardware: What they were tuned for.
        default: Whether the default schedules are meant instead of the best.
    """
    from foretune.explain import Kernel, explain_each
    from foretune.hardware import device_of

    kernels = []
    for task in tasks:
        candidate = task.space.default if default else task.best
        seconds = task.default_s if default else task.best_s
        if candidate is not None:
            kernels.append(Kernel(candidate, seconds))
    kernels.sort(key=lambda kernel: -(kernel.seconds or 0.0) * kernel.weight)
    try:
        device = device_of(hardware)
        explained, left_out = explain_each(kernels[:MOST], lambda _kernel: device, advice=False)
    except Exception as error:
        # A result is worth more than what is said about it.
        logger.warning("kernels are not explained: %s", last_line(error))
        return []
    for name, reason in left_out.items():
        logger.info("%s is not explained: %s", name, reason)
    return [one.to_json() for one in explained]
