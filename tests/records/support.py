"""Records for tests that need no space and no machine."""

from __future__ import annotations

from foretune.measure import Measurement, Status
from foretune.records import Record


def record(
    index: int = 0,
    *,
    workload: str = "w",
    hardware: str = "h",
    candidate: str | None = None,
    best_s: float | None = 1e-3,
    status: Status = Status.OK,
    origin: str = "random",
    message: str = "",
) -> Record:
    """A record; ``best_s`` None for one without a reading."""
    seconds = () if best_s is None else (2 * best_s, best_s)
    return Record(
        workload=workload,
        hardware=hardware,
        candidate_key=f"c{index}" if candidate is None else candidate,
        decisions={"sketch": "s", "decisions": [[1, 2, 4], index]},
        measurement=Measurement(
            status, seconds, (True,) * len(seconds), build_s=0.5, run_s=0.25, message=message
        ),
        origin=origin,
        time=1e9 + index,
        environment={"tvm": "0.27", "elapsed_s": float(index)},
    )
