"""One kernel from its candidate to its explanation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from foretune.describe import behaviours, nests_of, nests_of_program
from foretune.describe.text import program_text
from foretune.errors import BadInputError, ForetuneError
from foretune.explain._advice import advised
from foretune.explain._assumed import assumed
from foretune.explain._explanation import Explanation, explanation

if TYPE_CHECKING:
    from foretune.describe import Nests
    from foretune.hardware import Device, Hardware
    from foretune.space import Candidate, Space


@dataclass(frozen=True)
class Kernel:
    """A schedule of a workload.

    Attributes:
        candidate: The schedule.
        seconds: Measured, per call; None where it was not.
        space: Where there are others, if it was generated already.
    """

    candidate: Candidate
    seconds: float | None = None
    space: Space | None = field(default=None, compare=False, repr=False)

    @property
    def name(self) -> str:
        """Of the workload."""
        return self.candidate.sketch.workload.name

    @property
    def key(self) -> str:
        """Of the workload."""
        return self.candidate.sketch.workload.key

    @property
    def weight(self) -> int:
        """How often the workload occurs in the network."""
        return self.candidate.sketch.workload.weight

    @property
    def hardware(self) -> Hardware:
        """What the schedule was made for."""
        return self.candidate.sketch.hardware

    @property
    def kind(self) -> str:
        """``"cpu"`` or ``"gpu"``, as devices have it."""
        return self.hardware.device_kind


def explain(kernel: Kernel, device: Device, advice: bool = True) -> Explanation:
    """What bounds a kernel on a device, and what to try.

    Args:
        kernel: The kernel.
        device: Its factors decide. For another one than the kernel was measured on, give a kernel
            without ``seconds``, which say nothing of it.
        advice: Whether to look for changes that pay, or for better schedules of the space where
            this one has no decisions: a second or so for a large space.

    Raises:
        BadInputError: Its program has no loops that could be described.
    """
    candidate = kernel.candidate
    nests = _nests(candidate)
    explained = explanation(
        behaviours(nests, device),
        0,
        name=kernel.name,
        key=kernel.key,
        weight=kernel.weight,
        seconds=kernel.seconds,
        loops=program_text(nests, 0),
        approximate=bool(nests.approximate[0]),
        hardware=kernel.hardware.key,
        assumed=assumed(device, kernel.hardware),
    )
    return advised(explained, device, candidate if advice else None, kernel.space)


def explain_each(
    kernels: Sequence[Kernel], device_for: Callable[[Kernel], Device], advice: bool = True
) -> tuple[list[Explanation], dict[str, str]]:
    """Explanations, and of the kernels that have none, their names and why.

    Args:
        kernels: May have been made for several hardware.
        device_for: What a kernel is judged for.
        advice: As for ``explain``.
    """
    explanations, left_out = [], {}
    named = Counter(kernel.name for kernel in kernels)
    for kernel in kernels:
        try:
            explanations.append(explain(kernel, device_for(kernel), advice))
        except ForetuneError as error:
            several = named[kernel.name] > 1
            left_out[called_on(kernel.name, kernel.hardware) if several else kernel.name] = str(
                error
            )
    return explanations, left_out


def called_on(name: str, hardware: Hardware) -> str:
    """What a kernel is called where another hardware has it, too."""
    return f"{name} on {hardware_called(hardware)}"


def hardware_called(hardware: Hardware) -> str:
    """``AMD Ryzen 7 3700X (8 threads)``."""
    if not hardware.has_cores:
        return hardware.name
    threads = hardware.threads
    return f"{hardware.name} ({threads} {'thread' if threads == 1 else 'threads'})"


def _nests(candidate: Candidate) -> Nests:
    for _, nests in nests_of([candidate]):
        return nests
    sketch = candidate.sketch
    nests = nests_of_program(candidate.apply(), sketch.hardware.target)
    if not nests.statements:
        raise BadInputError(f"{sketch.workload.name!r} has no loops that could be described")
    return nests
