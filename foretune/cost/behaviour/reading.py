"""Groups as what models of behaviour read: nests of loops, and the device by its data sheet.

Candidates are described as they are; programs that others logged are rebuilt from the workload's
key, by what the template of their kernel does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from foretune._arrays import IndexArray
from foretune.errors import BadInputError

if TYPE_CHECKING:
    from foretune.dataset import Group, Program
    from foretune.describe import Nests
    from foretune.hardware import Device, Hardware
    from foretune.space import Candidate

Batches = list[tuple[IndexArray, "Nests"]]
"""Row numbers among the programs, and these as nests; what cannot be described is in none."""


def batches_of(group: Group, read: Callable[[Sequence[Any]], Batches] | None = None) -> Batches:
    """All programs of a group as nests; empty where nothing can rebuild them.

    Args:
        group: Of candidates, or of programs that others logged.
        read: Instead of ``foretune.describe.nests_of``, for candidates.
    """
    if read is not None and all(program.candidate is not None for program in group.programs):
        return read([program.candidate for program in group.programs])
    from foretune.describe.logged import nests_of_group

    return nests_of_group(group)


def batches_of_candidates(
    programs: Sequence[Program], read: Callable[[Sequence[Any]], Batches] | None = None
) -> Batches:
    """Programs of this TVM's spaces as nests.

    Raises:
        BadInputError: One has no candidate.
    """
    candidates = require_candidates(programs)
    if read is not None:
        return read(candidates)
    from foretune.describe import nests_of

    return nests_of(candidates)


def require_candidates(programs: Sequence[Program]) -> list[Candidate]:
    """The candidates of programs, all of which have one.

    Raises:
        BadInputError: One has none.
    """
    candidates = [program.candidate for program in programs if program.candidate is not None]
    if len(candidates) < len(programs):
        raise BadInputError(
            "programs are described from candidates, or from their workload's key where others "
            "logged them, but got one with neither: score its group with score_group"
        )
    return candidates


def device_of(group: Group) -> Device | None:
    """The device of a group; None where nothing is known of it."""
    return group.device if group.device is not None else device_of_machine(group.machine)


def known(device: Device | None, name: str = "", source: str = "") -> Device:
    """The device, where something is known of it.

    Args:
        device: None where nothing is.
        name: What the log calls it.
        source: Where its programs were read.

    Raises:
        BadInputError: Nothing is known of it.
    """
    if device is not None:
        return device
    entry = json.dumps({name or "its name": {"same_as": "i7-3770"}})
    raise BadInputError(
        "behaviour is that of a program on a device, but nothing is known of the device"
        f"{f' {name!r}' if name else ''}{f' ({source})' if source else ''}: describe it in a file "
        f"and give it with --devices FILE.json, or say there which one it is: {entry}"
    )


def device_of_machine(machine: Hardware | None) -> Device | None:
    """The device that code for this hardware runs on; None where nothing is known of it."""
    if machine is None:
        return None
    from foretune import hardware

    return hardware.device_of(machine)
