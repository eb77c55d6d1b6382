"""TVM's per-store features, read from programs that are made for it."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._arrays import FloatArray
from foretune._per_store import BUFFERS, CACHE_LINE_BYTES, CURVE_POINTS
from foretune.errors import IllegalCandidateError

if TYPE_CHECKING:
    from foretune.space import Candidate
    from foretune.workload import Workload


def extract_per_store(candidates: Sequence[Candidate], threads: int = 0) -> list[FloatArray | None]:
    """Per-store features of candidates, 1 to 3 ms each beside replaying them.

    Args:
        candidates: May belong to several workloads and hardware.
        threads: Candidates worked on at once (TVM releases the interpreter lock); 0: one per
            core of the affinity mask, at most 8.

    Returns:
        For each candidate a float64 array of shape (stores, 164), or None if it is illegal.
    """
    threads = threads or min(8, len(os.sched_getaffinity(0)))
    contexts = {t: _context(t) for t in {c.hardware.target for c in candidates}}

    def extract(candidate: Candidate) -> FloatArray | None:
        return _extract(candidate, contexts[candidate.hardware.target])

    if threads == 1 or len(candidates) == 1:
        return [extract(c) for c in candidates]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(extract, candidates))


@functools.lru_cache(maxsize=16)
def _context(target: str) -> Any:
    # TVM reads nothing but the target from it.
    from foretune import _tvm

    return _tvm.make_context(None, _tvm.Target(json.loads(target)))


def _extract(candidate: Candidate, context: Any) -> FloatArray | None:
    try:
        module = candidate.apply()
    except IllegalCandidateError:
        return None
    return _rows_of(module, context)


def extract_untransformed(workload: Workload) -> FloatArray:
    """Per-store features of a workload's own program, as those of a CPU; shape (stores, 164)."""
    return _rows_of(workload.module, _context('{"kind": "llvm"}'))


def _rows_of(module: Any, context: Any) -> FloatArray:
    from foretune import _tvm

    schedule = _tvm.Schedule(module, seed=1, debug_mask="none", error_render_level="none")
    measured = _tvm.meta_schedule.MeasureCandidate(schedule, [])
    extracted = _extractor().extract_from(context, [measured])
    return np.asarray(extracted[0].numpy(), dtype=np.float64)


def _extractor() -> Any:
    from foretune import _tvm

    return _tvm.meta_schedule.feature_extractor.PerStoreFeature(
        BUFFERS, CURVE_POINTS, CACHE_LINE_BYTES, False
    )
