"""How measuring is done: every number of the measurement room, with its unit."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar

from foretune._options import Bounds, Count, Positive, constants, require_options

MEASUREMENT_VERSION = 8
"""Raised whenever the same candidate would get another label: code generation, layout of memory,
canary, readings."""


@dataclass(frozen=True)
class MeasurePolicy:
    """Deadlines, budgets and tolerances of one measurer. Kept beside the records it gave.

    Attributes:
        workers: Child processes that build in parallel; None: one per core that may be used, but
            at most 16, and for a GPU at most one per 4 GiB of its memory, or four.
        build_timeout_s: Longest that applying and compiling one candidate may take.
        run_timeout_s: Longest that checking and timing one candidate may take, beyond four times
            what its reference took to compute, or what is cut short if that is less.
        memory_bytes: What a candidate may allocate beyond what its process had at the start;
            None: 4 GiB, or half of the memory that may be used divided by ``workers`` if less.
        budget_s: Seconds of readings spent on one candidate.
        cut_factor: A candidate slower than this many times the best so far gets one warm reading.
            One that was read before the best was known is not read again.
        max_rereads: How often a candidate whose readings were not quiet is read again.
        workspace_bytes: Of intermediate results in the network whose kernels are timed: what a call
            computes from and writes is spread over as many. 0: it is where the last call left it.
            None: so are weights that belong to a network, which else lie as far away as they do
            there.
        check_output: Compare each candidate's output with the untuned program's.
        passes_off: Names of passes that do not run before code is generated (``codegen.PASSES``).
        window: Candidates that are built before the timing of any of them starts; None: eight per
            worker. Smaller streams results sooner, larger wastes less at the end of each build.
        build_factor: Once three builds of a workload are known, another is given up as well when
            it takes this many times their median: some unrolled programs keep a compiler busy for
            minutes. Programs that were built before are spared.
        build_least_s: Never before it took so long, though.
        reference_timeout_s: Longest that building and running the untuned program once may take,
            and, where that is more than the above, checking and timing it.
        start_timeout_s: Longest that a child process may take until it is ready.
        max_start_failures: Child processes in a row that may fail to start before giving up.
        recycle_builds: Builds after which a child process is replaced, between windows.
        reading_s: Shortest reading; a faster kernel is called several times per reading.
        min_readings: Fewest readings of a candidate that is faster than ``budget_s``; two or more,
            because the two lowest have to agree.
        spread: Reading stops once the two lowest differ by no more than this ratio.
        rough_factor: Beyond this many times the best so far a candidate's value need not be exact.
        rough_spread: What takes the place of ``spread`` there.
        quiet_tolerance: A reading is quiet when the canary before and after it took at most this
            ratio longer than the canary's quiet floor.
        reread_share: Time spent on reading again, at most, as a share of all run time.
        quiet_wait_s: Seconds to wait for quiet, at most, before such readings.
        compare_rounds: Readings of each candidate in ``compare``.
        compare_extra_rounds: Further rounds for candidates with fewer than three quiet readings.
        compare_budget_s: Seconds after which two readings of a candidate in ``compare`` suffice;
            they always do for one that is ``cut_factor`` times slower than the fastest.
    """

    workers: Count | None = None
    build_timeout_s: Positive = 15.0
    run_timeout_s: Positive = 10.0
    memory_bytes: Count | None = None
    budget_s: Positive = 0.1
    cut_factor: Annotated[float, Bounds(gt=1)] = 3.0
    max_rereads: Annotated[int, Bounds(ge=0)] = 2
    workspace_bytes: Annotated[int | None, Bounds(ge=0)] = 0
    check_output: bool = True
    passes_off: tuple[str, ...] = ()

    window: ClassVar[int | None] = None
    build_factor: ClassVar[float] = 10.0
    build_least_s: ClassVar[float] = 3.0
    reference_timeout_s: ClassVar[float] = 180.0
    start_timeout_s: ClassVar[float] = 60.0
    max_start_failures: ClassVar[int] = 3
    recycle_builds: ClassVar[int] = 500
    reading_s: ClassVar[float] = 0.005
    min_readings: ClassVar[int] = 3
    spread: ClassVar[float] = 0.01
    rough_factor: ClassVar[float] = 1.3
    rough_spread: ClassVar[float] = 0.03
    quiet_tolerance: ClassVar[float] = 0.06
    reread_share: ClassVar[float] = 0.5
    quiet_wait_s: ClassVar[float] = 1.0
    compare_rounds: ClassVar[int] = 5
    compare_extra_rounds: ClassVar[int] = 5
    compare_budget_s: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "passes_off", tuple(self.passes_off))  # JSON has lists
        require_options("measuring", self)

    @property
    def cold_weights(self) -> bool:
        """Whether weights that belong to a network lie as far away as they do there."""
        return self.workspace_bytes is not None

    def to_json(self) -> dict[str, Any]:
        """A JSON object with options and constants, equal to what it is once written and read.

        It says how far away memory is in ``workspace_bytes``, a number, and ``cold_weights``.
        """
        return {
            **asdict(self),
            **constants(type(self)),
            "passes_off": list(self.passes_off),
            "workspace_bytes": self.workspace_bytes or 0,
            "cold_weights": self.cold_weights,
        }


@dataclass(frozen=True)
class LabelPolicy(MeasurePolicy):
    """How training data are measured, where labels of slow programs count, too.

    Readings agree more closely, fewer are cut short, and fewer builds are given up. What something
    disturbed is read again more often than in a search: building takes five times as long as
    reading, and a wrong label stays.
    """

    cut_factor: float = 6.0
    max_rereads: int = 6

    window: ClassVar[int | None] = 32
    build_factor: ClassVar[float] = 20.0
    min_readings: ClassVar[int] = 2
    rough_spread: ClassVar[float] = 0.015
    reread_share: ClassVar[float] = 2.0
