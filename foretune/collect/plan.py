"""What to collect: workloads × hardware variants × programs, and in which order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from foretune import cost
from foretune.dataset import StoredWorkload
from foretune.errors import BadInputError
from foretune.hardware import Hardware, probe, usable_cores, why_not_here

if TYPE_CHECKING:
    from foretune.workload import Workload

UNIFORM = "uniform"
"""Origin of candidates drawn uniformly."""
PREDICTED = "predicted"
"""Origin of candidates that the default search proposes; none is moved from other programs."""
EVOLVED = "evolved"
"""Origin of candidates evolved towards fast ones."""
SCRATCH = "gbdt:scratch"
"""The cost model that knows nothing but the group at hand."""
_X86_LEVELS = ("x86-64-v2", "x86-64-v3")
_GPU = "cuda"
_VISIT = 4


@dataclass(frozen=True)
class Plan:
    """Which groups to measure, and how many programs of each.

    Attributes:
        workloads: With their operator kinds; distinct.
        hardware: Variants of this machine; distinct.
        programs: Programs per workload and hardware.
        uniform: How many of those are drawn uniformly.
        predicted: How many are what the default search proposes, which learns from what was
            measured; the others evolve from what was measured.
        rounds: In how many batches either is done.
        seed: Seeds everything random.
        cost_model: Says where to evolve to. With ``SCRATCH``, what a model learns from the data
            never depends on an earlier version of it. With the model that searches use, the data
            holds the very programs that it was wrong about.
    """

    workloads: tuple[StoredWorkload, ...]
    hardware: tuple[Hardware, ...]
    programs: int = 92
    uniform: int = 48
    predicted: int = 0
    rounds: int = 2
    seed: int = 0
    cost_model: str = SCRATCH

    def __post_init__(self) -> None:
        if not 2 <= self.uniform <= self.programs or self.rounds < 1 or self.seed < 0:
            raise BadInputError(
                "2 <= uniform <= programs, rounds >= 1 and seed >= 0 must hold, but got "
                f"uniform={self.uniform}, programs={self.programs}, rounds={self.rounds}, "
                f"seed={self.seed}"
            )
        if not 0 <= self.predicted <= self.programs - self.uniform:
            raise BadInputError(
                "0 <= predicted <= programs - uniform must hold, but got "
                f"predicted={self.predicted}, programs={self.programs}, uniform={self.uniform}: "
                "ask for fewer"
            )
        cost.check_name(self.cost_model)
        keys = [stored.workload.key for stored in self.workloads]
        if not keys or len(set(keys)) < len(keys):
            raise BadInputError("a plan has workloads, all different: name at least one, once each")
        if not self.hardware or len({h.key for h in self.hardware}) < len(self.hardware):
            raise BadInputError("a plan has hardware, all different: name at least one, once each")

    @property
    def evolved(self) -> int:
        """How many programs of a group evolve from what was measured."""
        return self.programs - self.uniform - self.predicted

    @property
    def groups(self) -> int:
        """Number of groups."""
        return len(self.workloads) * len(self.hardware)

    def visits(self) -> Iterator[tuple[Hardware, tuple[StoredWorkload, ...]]]:
        """A few workloads of one hardware at a time, so that builds of one fill another's pauses.

        Workloads come in their own order and go through all hardware before the next ones, so that
        a run that is stopped early has whole workloads.
        """
        for start in range(0, len(self.workloads), _VISIT):
            for hardware in self.hardware:
                yield hardware, self.workloads[start : start + _VISIT]

    def rng(self, workload: Workload, hardware: Hardware) -> np.random.Generator:
        """The generator of one group, the same whenever it is visited."""
        return np.random.default_rng([self.seed, int(workload.key, 16), int(hardware.key, 16)])


def plan(
    workloads: Sequence[StoredWorkload],
    targets: Sequence[str] = (),
    threads: Sequence[int] = (),
    cost_model: str = SCRATCH,
    **options: int,
) -> Plan:
    """A plan for this machine.

    Args:
        workloads: What to measure.
        targets: Targets as ``--target`` takes them; none: ``host_variants``.
        threads: Numbers of threads for CPU targets; none: 1 and all cores.
        cost_model, options: Further fields of ``Plan``.

    Raises:
        BadInputError: A target is unknown or cannot run here, or a field makes no sense.
    """
    counts = list(dict.fromkeys(threads or (1, usable_cores())))
    chosen = [
        (target, n) for target in targets or host_variants() for n in _thread_counts(target, counts)
    ]
    # Whatever is wrong with the plan is said before peaks are measured, which takes seconds each.
    variants = tuple(probe(t, threads=n) for t, n in chosen)
    first = Plan(tuple(workloads), variants, cost_model=cost_model, **options)
    for hardware in first.hardware:
        reason = why_not_here(hardware)
        if reason is not None:
            raise BadInputError(f"target {hardware.name!r} cannot be measured here: {reason}")
    measured = tuple(probe(target, threads=n, measure=True) for target, n in chosen)
    return replace(first, hardware=measured)


def host_variants() -> tuple[str, ...]:
    """Targets that are real on this machine.

    The x86-64 levels its processor runs, the processor itself, and a GPU where TVM sees one.
    """
    levels = tuple(level for level in _X86_LEVELS if why_not_here(probe(_cpu(level))) is None)
    return (*(_cpu(level) for level in levels), *_gpu(), "host")


def _gpu() -> tuple[str, ...]:
    try:
        return (_GPU,) if why_not_here(probe(_GPU)) is None else ()
    except BadInputError:
        return ()


def _cpu(level: str) -> str:
    return f"llvm -mcpu={level}"


def _thread_counts(target: str, counts: Sequence[int]) -> Sequence[int | None]:
    return counts if probe(target).has_cores else (None,)
