"""Which devices a model was shown in training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from foretune.hardware import Device


class Identities:
    """Devices of training."""

    def __init__(self) -> None:
        self.devices: dict[str, Device] = {}
        """Those that were shown in training, by key."""

    def learn(self, devices: Sequence[Device]) -> None:
        """Forgets everything and keeps the devices of training groups."""
        self.devices = {device.key: device for device in sorted(devices, key=lambda d: d.key)}
        shown = [self.shown(device) for device in self.devices.values()]
        self.devices |= {device.key: device for device in shown}

    def shown(self, device: Device) -> Device:
        """The device that stands for this one: itself."""
        return device

    def to_json(self) -> dict[str, Any]:
        """Everything, for a file."""
        return {"devices": {key: device.to_json() for key, device in self.devices.items()}}

    def restore(self, data: Mapping[str, Any]) -> None:
        """Takes in what ``to_json`` gave."""
        for key, entry in data["devices"].items():
            self.devices[key] = Device.from_json(key, entry)
