"""The one interface of all training data: programs of one workload on one hardware, with seconds.

Own measurements and those that others published come as the same thing, a ``Group``. Splits,
metrics and rankers know nothing else, so that every model is judged in the same way on all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._arrays import Array, BoolArray, FloatArray
from foretune.errors import BadInputError

if TYPE_CHECKING:
    from foretune.hardware import Device, Hardware
    from foretune.space import Action, Candidate


def judgeable(seconds: FloatArray) -> bool:
    """Whether there is an order to find: at least two programs ran, with different seconds.

    Args:
        seconds: Shape (n,); NaN for a failure.
    """
    return len(np.unique(seconds[~np.isnan(seconds)])) >= 2


class Program:
    """One schedule of a workload: what a ranker scores.

    A program of this TVM's spaces has its ``candidate``, from which everything else follows. One
    that others measured has its actions only: it cannot be rebuilt.

    Args:
        candidate: The candidate, where there is one.
        actions: Scheduling actions; read from the candidate if not given.
        configuration: Parameter values of a kernel tuner, which has neither.
    """

    __slots__ = ("_actions", "candidate", "configuration")

    def __init__(
        self,
        candidate: Candidate | None = None,
        actions: Sequence[Action] | None = None,
        configuration: Mapping[str, Any] | None = None,
    ) -> None:
        self.candidate = candidate
        self.configuration = configuration
        self._actions = None if actions is None else tuple(actions)

    @property
    def actions(self) -> tuple[Action, ...]:
        """Scheduling actions in the order in which they are applied; empty where unknown."""
        if self._actions is None:
            # Not kept: a data set has tens of thousands of programs.
            return () if self.candidate is None else tuple(self.candidate.actions())
        return self._actions

    @property
    def key(self) -> str:
        """Text that is equal exactly when the programs of one group are."""
        if self.candidate is not None:
            return self.candidate.key
        if self.configuration is not None:
            return repr(sorted(self.configuration.items()))
        return ";".join(str(action) for action in self.actions)


@dataclass(frozen=True)
class Group:
    """Measured programs of one workload on one hardware: the unit that splits never cut.

    Attributes:
        workload: Key of the workload; groups of one workload on several hardware share it.
        name: What people call it.
        kind: Operator kind, for example ``"conv2d"``.
        hardware: Key of the hardware, or what others called the device.
        programs: The programs, ``n`` of them.
        seconds: float64 of shape (n,): seconds per call, NaN where it failed.
        machine: Target and factors of the hardware; None where nothing is known.
        device: Data sheet of the hardware, where it or the log's name for it is known.
        weight: How often the workload occurs in its networks.
        networks: The networks it occurs in, where known.
        origins: Of each program, who proposed it; empty where unknown.
        quiet: bool of shape (n,): whether a reading was free of disturbance; all True if unknown.
        source: Where it was read, for messages.
        family: What groups of one computation share that differ in what is fused behind, where no
            candidate tells; empty where unknown.
    """

    workload: str
    name: str
    kind: str
    hardware: str
    programs: Sequence[Program]
    seconds: FloatArray
    machine: Hardware | None = None
    device: Device | None = None
    weight: float = 1.0
    networks: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    quiet: BoolArray = field(default_factory=lambda: np.zeros(0, bool))
    source: str = ""
    family: str = ""

    def __post_init__(self) -> None:
        n = len(self.programs)
        if not len(self.quiet):
            object.__setattr__(self, "quiet", np.ones(n, bool))
        if self.seconds.shape != (n,) or self.quiet.shape != (n,):
            raise BadInputError(
                f"group {self.key}: seconds and quiet have one entry per program, but there are "
                f"{n} programs, {self.seconds.shape} seconds and {self.quiet.shape} flags"
            )
        timed = self.seconds[~np.isnan(self.seconds)]
        if not (np.isfinite(timed) & (timed > 0)).all():
            raise BadInputError(
                f"group {self.key}: seconds are positive, or NaN for a failure, but the lowest is "
                f"{timed.min()}: leave such records out and count them"
            )

    @property
    def key(self) -> str:
        """``workload@hardware``."""
        return f"{self.workload}@{self.hardware}"

    def __len__(self) -> int:
        return len(self.programs)

    @property
    def valid(self) -> BoolArray:
        """bool of shape (n,): which programs ran."""
        return ~np.isnan(self.seconds)

    @property
    def best_s(self) -> float | None:
        """Seconds of the fastest program, None if all failed."""
        valid = self.valid
        return float(self.seconds[valid].min()) if valid.any() else None

    @property
    def labels(self) -> FloatArray:
        """float64 of shape (n,): fastest / seconds, in (0, 1]; 0 for a failure (TenSet's label)."""
        best = self.best_s
        if best is None:
            return np.zeros(len(self))
        return np.nan_to_num(best / self.seconds, nan=0.0)

    def subset(self, indices: Sequence[int] | Array) -> Group:
        """The same group with some of its programs, in the order given."""
        at = np.asarray(indices)
        at = np.flatnonzero(at) if at.dtype == bool else at.astype(np.intp)
        return replace(
            self,
            programs=[self.programs[i] for i in at.tolist()],
            seconds=self.seconds[at],
            origins=tuple(self.origins[i] for i in at.tolist()) if self.origins else (),
            quiet=self.quiet[at],
        )
