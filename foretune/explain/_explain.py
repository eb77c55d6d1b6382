"""One kernel from its candidate to its explanation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from foretune.describe import behaviours, nests_of, nests_of_program
from foretune.describe.text import program_text
from foretune.errors import BadInputError, ForetuneError
from foretune.explain._advice import advised
from foretune.explain._explanation import Explanation, explanation

if TYPE_CHECKING:
    from foretune.describe import Nests
    from foretune.hardware import Device
    from foretune.space import Candidate


@dataclass(frozen=True)
class Kernel:
    """A schedule of a workload.

    Attributes:
        candidate: The schedule.
        seconds: Measured, per call; None where it was not.
    """

    candidate: Candidate
    seconds: float | None = None

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


def explain(kernel: Kernel, device: Device, advice: bool = True) -> Explanation:
    """What bounds a kernel on a device, and what to try.

    Args:
        kernel: The kernel.
        device: Its factors decide; another one than the kernel was measured on is fine, but then
            ``seconds`` says nothing of it.
        advice: Whether to look for changes that pay: a second or so for a large space.

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
    )
    # A candidate of a fixed trace has no decisions that could be changed.
    changeable = candidate if advice and candidate.sketch.variables else None
    return advised(explained, device, changeable)


def explain_each(
    kernels: Sequence[Kernel], device: Device, advice: bool = True
) -> tuple[list[Explanation], dict[str, str]]:
    """Explanations, and of the kernels that have none, their names and why."""
    found, left_out = [], {}
    for kernel in kernels:
        try:
            found.append(explain(kernel, device, advice))
        except ForetuneError as error:
            left_out[kernel.name] = str(error)
    return found, left_out


def _nests(candidate: Candidate) -> Nests:
    for _, nests in nests_of([candidate]):
        return nests
    sketch = candidate.sketch
    nests = nests_of_program(candidate.apply(), sketch.hardware.target)
    if not nests.statements:
        raise BadInputError(f"{sketch.workload.name!r} has no loops that could be described")
    return nests
