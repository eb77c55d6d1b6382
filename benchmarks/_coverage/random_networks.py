"""Networks drawn from seeds: branches, layouts, ranks 0 to 6, nine element types, odd sizes.

Each is run on two inputs and compared with eager PyTorch; the first run's outputs are looked at
after the second run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from benchmarks._coverage.suite import (
    NOT_EXPORTABLE,
    TOLERANCES,
    Result,
    Suite,
    array_of,
    difference,
    export_error,
    outcome_of,
)
from foretune.hardware import Hardware
from tests.graph.random_networks import Network, draw

COUNT = 500


class RandomNetworks(Suite):
    title = "networks drawn at random"

    def names(self) -> tuple[list[str], Mapping[str, str]]:
        return [str(seed) for seed in range(COUNT)], {}

    def attempt(self, name: str, hardware: Hardware) -> Result:
        return attempt(int(name), hardware)

    def about(self, results: Sequence[Mapping[str, Any]]) -> str:
        operators = Counter(each for result in results for each in result["operators"])
        dtypes = Counter(each for result in results for each in result["dtypes"])
        left_out = Counter(each for result in results for each in result["left_out"])
        return (
            f"{operators.total()} operators, {len(operators)} different ones; element types of "
            f"inputs: {_told(dtypes)}. Passes that failed and were left out: {_told(left_out)}. "
            "Equal means: the same shapes and element types, whole numbers and flags the same, NaN "
            "and infinities at the same places, and no float further away than "
            + ", ".join(f"{value:g} ({dtype})" for dtype, value in TOLERANCES.items())
            + ", absolute or as an artifact is judged."
        )


def _told(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.most_common()) or "none"


def attempt(seed: int, hardware: Hardware) -> Result:
    """Draws the network of a seed and sees whether it computes what PyTorch does.

    Returns:
        Also ``operators`` and ``dtypes``, what the network is made of, and ``left_out``, graph
        passes that failed on it.
    """
    network, inputs = draw(seed)
    left_out: list[str] = []
    error = export_error(network, inputs)
    if error:
        found: Result = {"outcome": NOT_EXPORTABLE, "message": error}
    else:
        name = f"random {seed}"
        found = outcome_of(lambda: _compared(network, inputs, seed, hardware, left_out), name)
    dtypes = sorted({str(t.dtype).removeprefix("torch.") for t in inputs})
    return {**found, "operators": network.operators, "dtypes": dtypes, "left_out": left_out}


def _compared(
    network: Network,
    inputs: tuple[torch.Tensor, ...],
    seed: int,
    hardware: Hardware,
    left_out: list[str],
) -> str:
    from foretune.graph import compile_model, extract
    from foretune.workload import from_object

    model = from_object((network, inputs), f"random {seed}", "a benchmark")
    extraction = extract(model, hardware)
    left_out += [report.name for report in extraction.passes if report.failed]
    artifact = compile_model(model, hardware, {}, extraction)
    runs = []
    for given in (inputs, _shuffled(inputs, seed)):
        with torch.no_grad():
            expected = [array_of(tensor) for tensor in network(*given)]
        runs.append((expected, artifact.run([array_of(tensor) for tensor in given])))
    # Compared at the end: the second run may not have written into what the first returned.
    return next((fault for run in runs if (fault := difference(*run))), "")


def _shuffled(inputs: tuple[torch.Tensor, ...], seed: int) -> tuple[torch.Tensor, ...]:
    """Other inputs with the same elements: what is legal for one is for the other."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(
        t.flatten()[torch.randperm(t.numel(), generator=generator)].reshape(t.shape) for t in inputs
    )
