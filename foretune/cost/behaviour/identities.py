"""Which device is shown to a model for which: itself, or another where that is the question.

If a model ranks as well for a device that is taken for another, it was not the data sheet that it
ranked by. So a control takes every device for another one, or all for the same, in training and
later, scores included.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from foretune import hardware
from foretune.errors import BadInputError
from foretune.hardware import Device

SHUFFLED = "shuffled"
_TEXTS = ("name", "kind", "source", "note")


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
        self._typical: str | None = None

    def learn(self, devices: Sequence[Device | None]) -> None:
        """Forgets everything and keeps the devices of training groups."""
        known = [device for device in devices if device is not None]
        self._typical = None
        self.devices = {device.key: device for device in sorted(known, key=lambda d: d.key)}
        if known:
            counts = Counter(device.key for device in known)
            self._typical = max(sorted(counts), key=counts.__getitem__)
        shown = [self.shown(device) for device in self.devices.values()]
        self.devices |= {device.key: device for device in shown}

    def shown(self, device: Device | None) -> Device:
        """The device that stands for this one; for an unknown one, the commonest of training.

        Raises:
            BadInputError: It is not known, and none of training is.
        """
        if device is None:
            if self._typical is None:
                raise BadInputError(
                    "behaviour is that of a program on a device, but nothing is known of the "
                    "device: describe it in a file and give it with --devices FILE.json"
                )
            device = self.devices[self._typical]
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
        return {
            "typical": self._typical,
            "devices": {key: device.to_json() for key, device in self.devices.items()},
        }

    @classmethod
    def of_json(cls, data: Mapping[str, Any], factors: bool | str, seed: int) -> Identities:
        """What ``to_json`` gave."""
        made = cls(factors, seed)
        made._typical = data["typical"]
        for key, entry in data["devices"].items():
            texts = {name: str(entry.get(name, "")) for name in _TEXTS}
            own = {name: value for name, value in entry.items() if name not in _TEXTS}
            made.devices[key] = Device(key=key, factors=own, **texts)
        return made
