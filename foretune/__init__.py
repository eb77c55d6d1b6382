"""Predict, then measure: makes tensor programs fast on the hardware at hand.

The public names load on first use, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretune.errors import BadInputError, ForetuneError
    from foretune.hardware import Hardware
    from foretune.workload import Workload

__version__ = "0.1.0"

_EXPORTS = {
    "BadInputError": "foretune.errors",
    "ForetuneError": "foretune.errors",
    "Hardware": "foretune.hardware",
    "Workload": "foretune.workload",
}

__all__ = ["BadInputError", "ForetuneError", "Hardware", "Workload", "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'foretune' has no attribute {name!r}")
    return getattr(importlib.import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
