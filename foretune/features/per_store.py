"""TVM's per-store features: one row for each buffer a program stores to."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from foretune.errors import IllegalCandidateError

if TYPE_CHECKING:
    from foretune.space import Candidate

FloatArray = npt.NDArray[np.float64]

FEATURE_VERSION = 1
PER_STORE = 164
_THREADS = 2


def extract_per_store(
    candidates: Sequence[Candidate], threads: int = _THREADS
) -> list[FloatArray | None]:
    """Per-store features of candidates.

    Args:
        candidates: May belong to several workloads of one hardware.
        threads: Candidates worked on at once; TVM releases the interpreter lock.

    Returns:
        For each candidate an array of shape (stores, 164), or None if it is illegal.
    """
    if threads < 2 or len(candidates) < 2:
        return [_extract(c) for c in candidates]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(_extract, candidates))


def _extract(candidate: Candidate) -> FloatArray | None:
    from foretune import _tvm

    try:
        module = candidate.apply()
    except IllegalCandidateError:
        return None
    extractor = _tvm.meta_schedule.feature_extractor.PerStoreFeature()
    context: Any = _tvm.make_context(module, candidate.hardware.tvm_target())
    measured = _tvm.meta_schedule.MeasureCandidate(_schedule(module), [])
    return np.asarray(extractor.extract_from(context, [measured])[0].numpy(), dtype=np.float64)


def _schedule(module: Any) -> Any:
    from foretune import _tvm

    return _tvm.Schedule(module, seed=1, debug_mask="none", error_render_level="none")
