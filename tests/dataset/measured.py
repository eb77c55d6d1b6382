"""Real candidates with made-up seconds, for tests that need no machine."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from foretune.dataset import StoredWorkload, write_dataset
from foretune.measure import Measurement, Status
from foretune.records import Trial
from foretune.space import Candidate, Space

ENVIRONMENT = {"tvm": "0.27", "policy": {"min_readings": 2}}


def seconds_of(candidate: Candidate) -> float:
    """A positive figure that depends on the decisions only."""
    flat = [f for d in candidate.decisions for f in (d if isinstance(d, tuple) else (d,))]
    return 1e-4 * (1 + sum(math.log2(1 + abs(f)) / (i + 1) for i, f in enumerate(flat)))


def record(
    candidate: Candidate,
    measurement: Measurement | None = None,
    origin: str = "uniform",
    time: float = 1e9,
) -> Trial[Candidate]:
    """The record of a candidate; of a good measurement if none is given."""
    good = Measurement(
        Status.OK, (1.5 * seconds_of(candidate), seconds_of(candidate)), (False, True), 0.25, 0.125
    )
    environment = {**ENVIRONMENT, "elapsed_s": time}
    return Trial.of(candidate, measurement or good, origin, environment, ended=time)


def records(of: Space, n: int, seed: int = 0) -> list[Trial[Candidate]]:
    """Records of ``n`` candidates drawn at random."""
    return [record(c) for c in of.sample(np.random.default_rng(seed), n)]


def write(path: object, of: Sequence[Space], all_records: Sequence[Trial[Candidate]]) -> None:
    """Writes a data set of some spaces."""
    write_dataset(
        str(path),
        [StoredWorkload(s.workload, "dense") for s in of],
        {s.hardware.key: s.hardware for s in of}.values(),
        [sketch for s in of for sketch in s.sketches],
        all_records,
    )
