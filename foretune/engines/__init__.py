"""Other ways to run a model, to compare an artifact with: PyTorch, ONNX Runtime, OpenVINO.

Every engine lives in a child process of its own, because the thread pools of several runtimes in
one process fight for the cores (OpenMP spins after its work is done). The children are timed one at
a time, in rounds A B C A B C, so that a slow episode of the machine meets all of them; those whose
turn it is not are stopped, so that each takes what it takes alone.

``ENGINES`` costs nothing to import; the rest loads on first use.

``_compare`` is the loop over rounds, ``_process`` the parent's side and ``_serve`` the child's,
``_original`` times the original here, ``_stateless`` readies modules for exporters, ``_names``
costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foretune.engines._names import ENGINES

if TYPE_CHECKING:
    from foretune.engines._compare import EngineResult, bootstrap_median, compare
    from foretune.engines._original import time_original

__all__ = ["ENGINES", "EngineResult", "bootstrap_median", "compare", "time_original"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'foretune.engines' has no attribute {name!r}")
    from foretune.engines import _compare, _original

    return getattr(_original if name == "time_original" else _compare, name)
