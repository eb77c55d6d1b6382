"""Element types by TVM's names."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np


def element_type(name: str) -> np.dtype[Any]:
    """NumPy's dtype of an element type by TVM's name; ``ml_dtypes`` has those that NumPy lacks."""
    return np.dtype(getattr(ml_dtypes, name, name))


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether an element type is a floating-point number, bfloat16 and its like included."""
    return dtype.kind == "f" or (dtype.kind == "V" and "float" in dtype.name)
