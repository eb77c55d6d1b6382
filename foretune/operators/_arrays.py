"""The type of arrays."""

from typing import Any

import numpy.typing as npt

Array = npt.NDArray[Any]
