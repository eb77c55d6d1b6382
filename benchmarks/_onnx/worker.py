"""One test through import, compilation and a run; in a process that serves many of them."""

from __future__ import annotations

import os
import re
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks._onnx.cases import data_of, load_cases, model_of

_OPERATORS = {schema.name for schema in onnx.defs.get_all_schemas()}
_BFLOAT16_RTOL = 2.0**-6
_FAR = 100.0
_SIZES = ("scales", "roi", "depth", "start", "limit", "delta")
"""Names of inputs that decide sizes although they are floats."""


def serve(connection: Any) -> None:
    """Answers names of tests with their results until the other end closes."""
    os.environ.setdefault("TVM_NUM_THREADS", "1")
    cases = load_cases()
    from foretune.hardware import probe

    hardware = probe(threads=1)
    connection.send({"ready": True})
    while True:
        try:
            name = connection.recv()
        except EOFError:
            return
        began = time.perf_counter()
        result = outcome(cases[name], hardware)
        connection.send({"name": name, "seconds": time.perf_counter() - began, **result})


def outcome(case: Any, hardware: Any) -> dict[str, Any]:
    """``outcome`` (pass, refused, another result, broken), ``message``, ``bound``, ``close``.

    A test passes too where it is beyond its own tolerance by no more than the last place of the
    largest expected number; ``close`` says so.

    A test whose inputs decide sizes or axes is refused; it is tried once more with the values of
    those inputs known at import: integers and truth values of rank 0 or 1, and a few
    floats (``_SIZES``).
    """
    result = _attempt(case, hardware, bind=False)
    if result["outcome"] == "refused":
        again = _attempt(case, hardware, bind=True)
        if again["bound"]:
            return again
    return result


def _attempt(case: Any, hardware: Any, bind: bool) -> dict[str, Any]:
    from foretune.errors import ForetuneError

    bound: list[str] = []
    close = False
    try:
        model = model_of(case)
        for inputs, expected in data_of(case, model):
            outputs = _run(case, model, inputs, hardware, bound, bind)
            if not difference(outputs, expected, case.rtol, case.atol):
                continue
            close = True
            message = difference(outputs, expected, case.rtol, case.atol, last_place=True)
            if message:
                return {"outcome": "another result", "message": message, "bound": bound}
    except ForetuneError as error:
        text = str(error).split(".onnx", maxsplit=1)[-1]
        named = "'" in text or not _OPERATORS.isdisjoint(re.findall(r"\w+", text))
        outcome = "refused" if named else "broken"  # a refusal says what it is about
        return {"outcome": outcome, "message": text[:300], "bound": bound}
    except Exception as error:  # what a benchmark of robustness counts
        last = traceback.extract_tb(error.__traceback__)[-1]
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        message = f"{type(error).__name__} {Path(last.filename).name}: {' '.join(lines)[-300:]}"
        return {"outcome": "broken", "message": message, "bound": bound}
    return {"outcome": "pass", "message": "", "bound": bound, "close": close}


def _run(
    case: Any, model: Any, inputs: Any, hardware: Any, bound: list[str], bind: bool
) -> list[Any]:
    from foretune.graph import compile_model
    from foretune.workload import load_input

    held = {tensor.name for tensor in model.graph.initializer}
    names = [v.name for v in model.graph.input if v.name not in held]
    given = dict(zip(names, inputs, strict=False))
    tensors = {n: a for n, a in given.items() if isinstance(a, np.ndarray)}
    constants = {n: a for n, a in tensors.items() if bind and _decides_sizes(n, a)}
    bound[:] = sorted(constants)
    shapes = {n: a.shape for n, a in tensors.items() if n not in constants}
    with tempfile.TemporaryDirectory(prefix="foretune-onnx-") as folder:
        path = Path(folder, f"{case.name}.onnx")
        onnx.save(model, str(path))
        loaded = load_input(str(path), shapes=shapes, constants=constants)
    artifact = compile_model(loaded, hardware, {})
    return artifact.run([tensors[spec.name] for spec in loaded.inputs])


def _decides_sizes(name: str, array: Any) -> bool:
    return array.ndim <= 1 and (array.dtype.kind in "iub" or name in _SIZES)


def _unit(wanted: Any) -> float:
    """The last place of the largest expected number, which rounding alone decides.

    Numbers far above the others, such as those that a mask leaves, are not counted.
    """
    from foretune.graph import scale_of

    if wanted.dtype.kind != "f" or not wanted.size:
        return 0.0
    finite = np.abs(wanted[np.isfinite(wanted)].astype("float64"))
    if not finite.size:
        return 0.0
    largest = min(float(finite.max()), _FAR * scale_of(finite))
    return float(np.finfo(wanted.dtype).eps) * largest


def difference(
    actual: Any, expected: Any, rtol: float, atol: float, last_place: bool = False
) -> str:
    """What differs beyond the tolerance of the test, or also ``_unit``; empty if nothing does."""
    if len(actual) != len(expected):
        return f"{len(actual)} outputs instead of {len(expected)}"
    for at, (got, wanted) in enumerate(zip(actual, expected, strict=True)):
        if got.shape != wanted.shape:
            return f"output {at} has shape {got.shape} instead of {wanted.shape}"
        if got.dtype != wanted.dtype:
            return f"output {at} has type {got.dtype} instead of {wanted.dtype}"
        half = got.dtype.name == "bfloat16"
        pair = (got.astype("float32"), wanted.astype("float32")) if half else (got, wanted)
        relative = max(rtol, _BFLOAT16_RTOL) if half else rtol
        allowed = _unit(pair[1]) if last_place else 0.0
        try:
            np.testing.assert_allclose(*pair, rtol=relative, atol=max(atol, allowed))
        except AssertionError as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            return f"output {at}: {' '.join(lines[1:5])[:200]}"
    return ""
