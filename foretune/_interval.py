"""The interval that is printed beside a figure."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def interval(resampled: npt.NDArray[np.float64]) -> tuple[float, float]:
    """The 95 % percentile interval of a figure.

    Args:
        resampled: The figure of each bootstrap resample, shape (r,).

    Returns:
        Low, high.
    """
    low, high = np.percentile(resampled, [2.5, 97.5])
    return float(low), float(high)
