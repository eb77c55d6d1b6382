"""Types of arrays, by the type of their numbers; docstrings say shapes and units."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float64]
Float32Array = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
Int8Array = npt.NDArray[np.int8]
IndexArray = npt.NDArray[np.intp]
BoolArray = npt.NDArray[np.bool_]
