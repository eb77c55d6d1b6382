"""The interval that is printed beside a figure."""

from __future__ import annotations

import numpy as np

from foretune._arrays import FloatArray


def interval(resampled: FloatArray) -> tuple[float, float]:
    """The 95 % percentile interval of a figure.

    Args:
        resampled: The figure of each bootstrap resample, shape (r,).

    Returns:
        Low, high.
    """
    low, high = np.percentile(resampled, [2.5, 97.5])
    return float(low), float(high)
