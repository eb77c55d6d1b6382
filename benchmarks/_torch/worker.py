"""One sample through import, compilation and a run; in a process that serves many of them."""

from __future__ import annotations

import os
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._torch.cases import SAMPLES, module_of, operators, samples

_RTOL, _ATOL = 1e-4, 1e-5
_SCALE = 1e-6
"""Of the numbers of an output, as ``foretune.graph.scale_of`` measures them: what rounding in
another order may add."""


def serve(connection: Any) -> None:
    """Answers names of tasks with their results until the other end closes."""
    os.environ.setdefault("TVM_NUM_THREADS", "1")
    import torch

    from foretune.hardware import probe

    torch.set_num_threads(1)
    hardware, infos = probe(threads=1), operators()
    connection.send({"ready": True})
    kept: tuple[str, list[Any]] = ("", [])
    while True:
        try:
            name = connection.recv()
        except EOFError:
            return
        began = time.perf_counter()
        operator, dtype, at = name.rsplit(":", 2)
        if kept[0] != operator:
            kept = (operator, exportable(infos[operator], dtype))
        result = outcome(kept[1], int(at), hardware)
        connection.send({"name": name, "seconds": time.perf_counter() - began, **result})


def exportable(info: Any, dtype: str) -> list[Any]:
    """The first modules with inputs that ``torch.export`` accepts."""
    import torch

    found: list[Any] = []
    try:
        for tried, sample in enumerate(samples(info, getattr(torch, dtype))):
            if len(found) == SAMPLES or tried == 5 * SAMPLES:
                break
            module, inputs = module_of(info, sample)
            if _exports(module, inputs):
                found.append((module, inputs))
    except Exception:  # PyTorch's own samples may fail on a build without a library
        return found
    return found


def _exports(module: Any, inputs: Any) -> bool:
    import logging

    import torch

    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            torch.export.export(module, inputs, strict=False)
    except Exception:  # torch.export raises anything the operator may raise
        return False
    finally:
        logging.disable(logging.NOTSET)
    return True


def outcome(found: list[Any], at: int, hardware: Any) -> dict[str, Any]:
    """``outcome`` (pass, refused, another result, broken, not exportable, absent), ``message``."""
    from foretune.errors import ForetuneError, UnsupportedOperatorsError

    if at >= len(found):
        return {"outcome": "absent" if found else "not exportable", "message": ""}
    module, inputs = found[at]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            message = _difference(module, inputs, hardware)
    except ForetuneError as error:
        # A refusal says which operator it is about, or which name.
        named = isinstance(error, UnsupportedOperatorsError) or str(error).count("'") > 2
        return {"outcome": "refused" if named else "broken", "message": str(error)[:300]}
    except Exception as error:  # what a benchmark of robustness counts
        last = traceback.extract_tb(error.__traceback__)[-1]
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        message = f"{type(error).__name__} {Path(last.filename).name}: {' '.join(lines)[-300:]}"
        return {"outcome": "broken", "message": message}
    return {"outcome": "another result" if message else "pass", "message": message}


def _difference(module: Any, inputs: Any, hardware: Any) -> str:
    from foretune.graph import compile_model
    from foretune.workload import from_object

    model = from_object((module, inputs), "sample")
    expected = model.reference(model.examples)
    outputs = compile_model(model, hardware, {}).run(list(model.examples))
    if len(outputs) != len(expected):
        return f"{len(outputs)} outputs instead of {len(expected)}"
    for at, (got, wanted) in enumerate(zip(outputs, expected, strict=True)):
        if (got.shape, got.dtype) != (wanted.shape, wanted.dtype):
            return f"output {at} is {got.dtype}{got.shape}, not {wanted.dtype}{wanted.shape}"
        if wanted.dtype.kind in "biu":
            if not np.array_equal(got, wanted):
                return f"output {at} differs in {int((got != wanted).sum())} of {got.size}"
            continue
        worst, scale = _worst(got.astype("float64"), wanted.astype("float64"))
        if worst:
            return f"output {at} differs by {worst:.3g} where numbers are like {scale:.3g}"
    return ""


def _worst(got: Any, wanted: Any) -> tuple[float, float]:
    """The largest difference if it is beyond the tolerance, else 0; how large numbers are there."""
    from foretune.graph import scale_of

    scale = scale_of(np.abs(wanted[np.isfinite(wanted)]))
    bound = _ATOL + _SCALE * scale
    if np.allclose(got, wanted, rtol=_RTOL, atol=bound, equal_nan=True):
        return 0.0, scale
    with np.errstate(invalid="ignore"):
        return float(np.nanmax(np.abs(got - wanted), initial=np.finfo("f8").tiny)), scale
