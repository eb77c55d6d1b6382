"""What a result stands on, in a few digits: the data as it was read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foretune.dataset import Group


def fingerprint(groups: Iterable[Group]) -> str:
    """Changes with whatever a model can see of groups, and with the order of all of it."""
    digest = hashlib.blake2b(digest_size=8)
    for group in groups:
        machine = None if group.machine is None else group.machine.to_json()
        named = [group.key, group.kind, group.weight, len(group), sorted(group.networks), machine]
        digest.update(json.dumps(named, sort_keys=True).encode())
        digest.update(group.seconds.tobytes())
        digest.update(group.quiet.tobytes())
        for program in group.programs:
            digest.update(f"{program.key}\n".encode())
    return digest.hexdigest()
