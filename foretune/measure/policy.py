"""How measuring is done: every number of the measurement room, with its unit."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from foretune.errors import BadInputError

MEASUREMENT_VERSION = 8
"""Raised whenever the same candidate would get another label: code generation, layout of memory,
canary, readings."""

_POSITIVE = (
    "build_timeout_s",
    "build_least_s",
    "run_timeout_s",
    "reference_timeout_s",
    "start_timeout_s",
    "reading_s",
    "budget_s",
    "compare_budget_s",
    "quiet_tolerance",
    "spread",
    "rough_spread",
)


@dataclass(frozen=True)
class MeasurePolicy:
    """Deadlines, budgets and tolerances of one measurer. Kept beside the records it gave.

    Attributes:
        workers: Child processes that build in parallel; None: one per core that may be used, but
            at most 16, and for a GPU at most one per 4 GiB of its memory, or four.
        window: Candidates that are built before the timing of any of them starts; None: eight per
            worker. Smaller streams results sooner, larger wastes less at the end of each build.
        build_timeout_s: Longest that applying and compiling one candidate may take.
        build_factor: Once three builds of a workload are known, another is given up as well when
            it takes this many times their median: some unrolled programs keep a compiler busy for
            minutes. Programs that were built before are spared.
        build_least_s: Never before it took so long, though.
        run_timeout_s: Longest that checking and timing one candidate may take, beyond four times
            what its reference took to compute, or what is cut short if that is less.
        reference_timeout_s: Longest that building and running the untuned program once may take,
            and, where that is more than the above, checking and timing it.
        start_timeout_s: Longest that a child process may take until it is ready.
        max_start_failures: Child processes in a row that may fail to start before giving up.
        memory_bytes: What a candidate may allocate beyond what its process had at the start;
            None: 4 GiB, or half of the memory that may be used divided by ``workers`` if less.
        recycle_builds: Builds after which a child process is replaced, between windows.
        budget_s: Seconds of readings spent on one candidate.
        reading_s: Shortest reading; a faster kernel is called several times per reading.
        min_readings: Fewest readings of a candidate that is faster than ``budget_s``; two or more,
            because the two lowest have to agree.
        spread: Reading stops once the two lowest differ by no more than this ratio.
        rough_factor: Beyond this many times the best so far a candidate's value need not be exact.
        rough_spread: What takes the place of ``spread`` there.
        cut_factor: A candidate slower than this many times the best so far gets one warm reading.
            One that was read before the best was known is not read again.
        quiet_tolerance: A reading is quiet when the canary before and after it took at most this
            ratio longer than the canary's quiet floor.
        max_rereads: How often a candidate whose readings were not quiet is read again.
        reread_share: Time spent on such further readings, at most, as a share of all run time.
        quiet_wait_s: Seconds to wait for quiet, at most, before such readings.
        compare_rounds: Readings of each candidate in ``compare``.
        compare_extra_rounds: Further rounds for candidates with fewer than three quiet readings.
        compare_budget_s: Seconds after which two readings of a candidate in ``compare`` suffice;
            they always do for one that is ``cut_factor`` times slower than the fastest.
        cold_weights: Give each call of a kernel that belongs to a network weights that lie as far
            away as they do there.
        workspace_bytes: Of intermediate results in the network whose kernels are timed: what a call
            computes from and writes is spread over as many. 0: it is where the last call left it.
        check_output: Compare each candidate's output with the untuned program's.
        passes_off: Names of passes that do not run before code is generated (``codegen.PASSES``).
    """

    workers: int | None = None
    window: int | None = None
    build_timeout_s: float = 15.0
    build_factor: float = 10.0
    build_least_s: float = 3.0
    run_timeout_s: float = 10.0
    reference_timeout_s: float = 180.0
    start_timeout_s: float = 60.0
    max_start_failures: int = 3
    memory_bytes: int | None = None
    recycle_builds: int = 500
    budget_s: float = 0.1
    reading_s: float = 0.005
    min_readings: int = 3
    spread: float = 0.01
    rough_factor: float = 1.3
    rough_spread: float = 0.03
    cut_factor: float = 3.0
    quiet_tolerance: float = 0.06
    max_rereads: int = 2
    reread_share: float = 0.5
    quiet_wait_s: float = 1.0
    compare_rounds: int = 5
    compare_extra_rounds: int = 5
    compare_budget_s: float = 1.0
    cold_weights: bool = True
    workspace_bytes: int = 0
    check_output: bool = True
    passes_off: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "passes_off", tuple(self.passes_off))  # JSON has lists
        for name in _POSITIVE:
            _require(getattr(self, name) > 0, f"{name} > 0", name, getattr(self, name))
        for name in ("workers", "window", "memory_bytes"):
            value = getattr(self, name)
            _require(value is None or value >= 1, f"{name} >= 1 or None", name, value)
        for name in ("max_start_failures", "recycle_builds", "compare_rounds"):
            _require(getattr(self, name) >= 1, f"{name} >= 1", name, getattr(self, name))
        _require(self.min_readings >= 2, "min_readings >= 2", "min_readings", self.min_readings)
        for name in (
            "max_rereads", "compare_extra_rounds", "reread_share", "quiet_wait_s",
            "workspace_bytes",
        ):  # fmt: skip
            _require(getattr(self, name) >= 0, f"{name} >= 0", name, getattr(self, name))
        for name in ("build_factor", "cut_factor", "rough_factor"):
            _require(getattr(self, name) > 1, f"{name} > 1", name, getattr(self, name))

    def to_json(self) -> dict[str, Any]:
        """A JSON object with every field, equal to what it is once it was written and read."""
        return {**asdict(self), "passes_off": list(self.passes_off)}


def _require(holds: bool, rule: str, name: str, value: object) -> None:
    if not holds:
        raise BadInputError(f"`{rule}` must hold, but got ({name}={value!r}): pass another {name}")
