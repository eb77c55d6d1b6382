"""Which device is shown to a model for which: itself, or another where that is the question.

If a model ranks as well for a device that is taken for another, it was not the data sheet that it
ranked by. So a control takes every device for another one, or all for the same, in training and
later, scores included.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from foretune import hardware
from foretune.errors import BadInputError
from foretune.hardware import Device

SHUFFLED = "shuffled"


class Identities:
    """Devices of training, and what stands for whom.

    Args:
        factors: True: every device for itself; False: one of training for all of its kind;
            ``"shuffled"``: for every device another of its kind, always the same.
        seed: Which other.

    Raises:
        BadInputError: ``factors`` is something else.
    """

    def __init__(self, factors: bool | str = True, seed: int = 0) -> None:
        if not isinstance(factors, bool) and factors != SHUFFLED:
            raise BadInputError(
                f"behaviour: factors is true, false or {SHUFFLED!r}, but got {factors!r}"
            )
        self.factors, self.seed = factors, seed
        self.devices: dict[str, Device] = {}
        """Those that were shown in training, by key."""

    def learn(self, devices: Sequence[Device]) -> None:
        """Forgets everything and keeps the devices of training groups."""
        self.devices = {device.key: device for device in sorted(devices, key=lambda d: d.key)}
        shown = [self.shown(device) for device in self.devices.values()]
        self.devices |= {device.key: device for device in shown}

    def shown(self, device: Device) -> Device:
        """The device that stands for this one.

        One that nobody knows has no data sheet to show; ``reading.known`` refuses it, for controls,
        too: they are to judge what the model judges.
        """
        if self.factors is True:
            return device
        if self.factors is False:
            alike = [each for each in self.devices.values() if each.kind == device.kind]
            return alike[0] if alike else device
        others = [
            each
            for _, each in sorted(hardware.known_devices().items())
            if each.kind == device.kind and each.key != device.key
        ]
        text = f"{self.seed}/{device.key}".encode()
        at = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") % len(others)
        return others[at]

    def to_json(self) -> dict[str, Any]:
        """Everything, for a file."""
        return {"devices": {key: device.to_json() for key, device in self.devices.items()}}

    @classmethod
    def of_json(cls, data: Mapping[str, Any], factors: bool | str, seed: int) -> Identities:
        """What ``to_json`` gave."""
        made = cls(factors, seed)
        for key, entry in data["devices"].items():
            made.devices[key] = Device.from_json(key, entry)
        return made
