"""What becomes of one random network: exported, imported, compiled, run, compared with PyTorch."""

from __future__ import annotations

import os
import time
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from benchmarks._random.network import Network, draw
from benchmarks._suites import OUTCOMES
from foretune.errors import ForetuneError
from foretune.hardware import Hardware

PASS, REFUSED, DIFFERS, BROKEN, _ = OUTCOMES
NOT_EXPORTED = "not exportable"

TOLERANCES = {"float64": 1e-9, "float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}
"""Largest difference that counts as equal: absolute, or in parts of the magnitude as
``foretune.graph.compare_outputs`` counts it."""

Array = npt.NDArray[Any]


def serve(connection: Any) -> None:
    """Answers seeds with what became of their networks until the other end closes."""
    os.environ.setdefault("TVM_NUM_THREADS", "1")
    from foretune.hardware import probe

    torch.set_num_threads(1)
    hardware = probe(threads=1)
    connection.send({"ready": True})
    while True:
        try:
            name = connection.recv()
        except EOFError:
            return
        began = time.perf_counter()
        result = attempt(int(name), hardware)
        connection.send({"name": name, "seconds": time.perf_counter() - began, **result})


def attempt(seed: int, hardware: Hardware) -> dict[str, Any]:
    """Draws the network of a seed and sees whether it computes what PyTorch does.

    Returns:
        ``outcome`` (one of ``OUTCOMES`` or ``NOT_EXPORTED``), ``message`` (why it did not pass),
        ``operators`` and ``dtypes`` (what the network is made of), ``left_out`` (graph passes that
        failed on it).
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        network, inputs = draw(seed)
        dtypes = sorted({str(t.dtype).removeprefix("torch.") for t in inputs})
        left_out: list[str] = []
        try:
            with torch.no_grad():
                torch.export.export(network, inputs, strict=False)
        # Whatever PyTorch cannot export is no subject here.
        except Exception as error:
            outcome, message = NOT_EXPORTED, _line(error)
        else:
            outcome, message, left_out = _compiled(network, inputs, seed, hardware)
    return {
        "outcome": outcome,
        "message": message,
        "operators": network.operators,
        "dtypes": dtypes,
        "left_out": left_out,
    }


def _compiled(
    network: Network, inputs: tuple[torch.Tensor, ...], seed: int, hardware: Hardware
) -> tuple[str, str, list[str]]:
    from foretune.graph import compile_model, extract
    from foretune.workload import from_object

    try:
        model = from_object((network, inputs), f"random {seed}", "a benchmark")
        extraction = extract(model, hardware)
        artifact = compile_model(model, hardware, {}, extraction)
        runs = []
        for given in (inputs, _shuffled(inputs, seed)):
            with torch.no_grad():
                expected = network(*given)
            arrays = [_array(tensor) for tensor in given]
            runs.append(([_array(tensor) for tensor in expected], artifact.run(arrays)))
        # Compared at the end: the second run may not have written into what the first returned.
        for expected_arrays, actual in runs:
            fault = difference(expected_arrays, actual)
            if fault:
                return DIFFERS, fault, [r.name for r in extraction.passes if r.failed]
    except ForetuneError as error:
        return REFUSED, _line(error), []
    # Everything else is a fault of ours: it is what this counts.
    except Exception as error:
        return BROKEN, f"{type(error).__name__}: {_line(error)}", []
    return PASS, "", [r.name for r in extraction.passes if r.failed]


def difference(expected: list[Array], actual: list[Array]) -> str:
    """The first output that differs in number, shape, element type or values; empty if none."""
    from foretune.graph import compare_outputs

    if len(expected) != len(actual):
        return f"{len(actual)} outputs in place of {len(expected)}"
    tolerances = [TOLERANCES.get(str(array.dtype), 0.0) for array in expected]
    # What is allowed in any case is a step.
    found = compare_outputs(expected, actual, steps=tolerances)
    for output, tolerance in zip(found, tolerances, strict=True):
        if not output.within(tolerance):
            return output.describe(tolerance)
    return ""


def _shuffled(inputs: tuple[torch.Tensor, ...], seed: int) -> tuple[torch.Tensor, ...]:
    """Other inputs with the same elements: what is legal for one is for the other."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(
        t.flatten()[torch.randperm(t.numel(), generator=generator)].reshape(t.shape) for t in inputs
    )


def _array(tensor: torch.Tensor) -> Array:
    if tensor.dtype != torch.bfloat16:
        return np.ascontiguousarray(tensor.numpy()).reshape(tensor.shape)
    import ml_dtypes

    bits = np.ascontiguousarray(tensor.contiguous().view(torch.int16).numpy())
    return bits.view(ml_dtypes.bfloat16).reshape(tensor.shape)


def _line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:300] if lines else type(error).__name__
