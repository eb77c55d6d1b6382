"""What the regressor learns: the time of a program within its workload and device, in [0, 1].

Seconds of different workloads and devices say more about their sizes than about programs, so that
every group is normalised by itself: 0 is its fastest program.

- ``"linear"`` (LLMTuner): ``(t - fastest) / (slowest - fastest)``. One very slow program moves all
  others together.
- ``"log"``: the same of log t.
- ``"octaves"``: ``log2(t / fastest) / 4``, at most 1: what a number means does not depend on how
  slow the slowest program happens to be.

Failures are 1.

Most programs of a group are slow, or most are good; so that neither decides alone, targets are cut
into bins of equal width and programs of rare bins are seen more often (LLMTuner, section 3.3). A
bin of one program is not to be seen a thousand times: repetition is limited.
"""

from __future__ import annotations

import numpy as np

from foretune._arrays import FloatArray, IndexArray
from foretune.errors import unknown_name

TARGETS = ("octaves", "log", "linear")
OCTAVES = 4.0
"""Slow-down, in log2, that is 1."""


def normalised(seconds: FloatArray, target: str = "octaves") -> FloatArray:
    """Times of one group in [0, 1], shape (n,).

    Args:
        seconds: Shape (n,), NaN for a failure; one of them a number.
        target: One of ``TARGETS``.

    Raises:
        BadInputError: There is no such target.
    """
    if target not in TARGETS:
        raise unknown_name("target of the regressor", target, TARGETS)
    value = seconds if target == "linear" else np.log2(seconds)
    above = value - np.nanmin(value)
    width = OCTAVES if target == "octaves" else float(np.nanmax(above))
    scaled = above / width if width > 0 else np.where(np.isnan(above), np.nan, 0.0)
    times: FloatArray = np.nan_to_num(np.minimum(scaled, 1.0), nan=1.0)
    return times


def bin_weights(times: FloatArray, bins: int, repetition: float) -> FloatArray:
    """How often each program is to be seen, at least once, shape (n,).

    As often as makes its bin as large as the largest, but not more than ``repetition`` times. Empty
    bins are none.

    Args:
        times: In [0, 1], shape (n,).
        bins: Of equal width.
        repetition: At most.
    """
    at = bins_of(times, bins)
    sizes = np.bincount(at, minlength=bins)
    weights: FloatArray = np.minimum(sizes.max(initial=0) / np.maximum(sizes, 1), repetition)[at]
    return weights


def bins_of(times: FloatArray, bins: int) -> IndexArray:
    """Number of the bin of each time."""
    return np.minimum((times * bins).astype(np.intp), bins - 1)
