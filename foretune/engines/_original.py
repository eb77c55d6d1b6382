"""The original's latency, in this very process: a first figure, at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune.engines._names import SPINNING_S

if TYPE_CHECKING:
    from foretune.workload import Model

_CALLS = 5
_MOST_S = 2.0


def time_original(model: Model, threads: int) -> tuple[str, float | None]:
    """Times what a model was made from, on its examples.

    Args:
        model: The network.
        threads: Threads that the original is given.

    Returns:
        The engine's name and the median seconds of a call; no name and None where the model was
        written in Relax and has no original, or where no runtime has all of its operators: ONNX's
        reference, which runs it then, is not made to be fast.
    """
    from foretune.workload import OnnxSource, TorchSource

    source, inputs = model.source, list(model.examples)
    if isinstance(source, TorchSource):
        from foretune._torch import limited_threads

        with limited_threads(threads), source.prepare(inputs) as call:
            return "eager", _median(call)
    run = source.load(threads) if isinstance(source, OnnxSource) else None
    return ("", None) if run is None else ("onnxruntime", _median(lambda: run(inputs)))


def _median(call: Callable[[], Any]) -> float:
    call()
    seconds: list[float] = []
    while len(seconds) < _CALLS and sum(seconds) < _MOST_S:
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    time.sleep(SPINNING_S)
    return float(np.median(seconds))
