"""Devices that are taken for others: controls of what data sheets are worth.

If a model ranks as well for a device that is taken for another, it was not the data sheet that it
ranked by. So a control takes every device for another one, or all for the same, in training and
later, scores included.
"""

from __future__ import annotations

import hashlib

from foretune import hardware
from foretune.cost.behaviour.identities import Identities
from foretune.errors import BadInputError
from foretune.hardware import Device

SHUFFLED = "shuffled"


class Disguised(Identities):
    """Devices of training, and what stands for whom.

    Args:
        factors: True: every device for itself; False: one of training for all of its kind;
            ``"shuffled"``: for every device another of its kind, always the same.
        seed: Which other.

    Raises:
        BadInputError: ``factors`` is something else.
    """

    def __init__(self, factors: bool | str = True, seed: int = 0) -> None:
        super().__init__()
        if not isinstance(factors, bool) and factors != SHUFFLED:
            raise BadInputError(
                f"behaviour: factors is true, false or {SHUFFLED!r}, but got {factors!r}"
            )
        self.factors, self.seed = factors, seed

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
