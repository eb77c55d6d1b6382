"""Behaviour of programs on a device of any kind."""

from __future__ import annotations

import importlib

from foretune.describe._behaviour import Behaviours
from foretune.describe._nests import Nests
from foretune.hardware import Device


def behaviours(nests: Nests, device: Device) -> Behaviours:
    """Scores, limits and numbers of n programs on a device, computed and not measured.

    Raises:
        BadInputError: The programs are not those of such a device.
    """
    room = importlib.import_module(f"foretune.describe.{device.kind}")
    scored: Behaviours = room.behaviours(nests, device)
    return scored
