"""Comparing an artifact's outputs with the original model's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from foretune.graph._compare import OutputDifference, compare_outputs, largest_difference
from foretune.graph._input_sets import InputSet, verification_inputs

if TYPE_CHECKING:
    from foretune.graph.artifact import Artifact
    from foretune.workload import Model

_FLOOR = 1e-4


@dataclass(frozen=True)
class Verification:
    """How far an artifact's outputs are from the original's.

    Attributes:
        ok: Whether every output has the original's type and shape, the same integers, and floats
            within the tolerance that are finite where the original's are.
        max_abs_error: Largest absolute difference over all outputs and inputs; NaN where there is
            no number for it.
        max_relative_error: The same, relative to the largest magnitude of that output.
        tolerance: Bound on ``max_relative_error`` that was applied.
        inputs: Names of the sets of inputs that were compared.
        message: What differs first, and how far, in one line; empty if ``ok``.
        left_out: Names of the sets that could not be compared, and why.
    """

    ok: bool
    max_abs_error: float
    max_relative_error: float
    tolerance: float
    inputs: tuple[str, ...]
    message: str = ""
    left_out: Mapping[str, str] = field(default_factory=dict)


def verify(
    artifact: Artifact,
    model: Model,
    seeds: Sequence[int] = (0, 1, 2),
    tolerance: float | None = None,
    *,
    inputs: Sequence[InputSet] | None = None,
    steps: Sequence[float] = (),
) -> Verification:
    """Compares an artifact with the original: on the examples, random inputs and border cases.

    Args:
        artifact: The compiled model.
        model: What it was compiled from.
        seeds: One set of random inputs is drawn per seed.
        tolerance: Overrides ``default_tolerance``.
        inputs: Some of what ``verification_inputs`` returned, in place of all of it: so that a
            network can be proven on the first two and verified on the others later. They keep the
            original's outputs.
        steps: Per output, the step it is quantised with, in its own units: it may differ by one.
    """
    if tolerance is None:
        tolerance = default_tolerance(model)
    names = [spec.name for spec in model.outputs]
    found: list[OutputDifference] = []
    compared, left_out, message = [], {}, ""
    for given in verification_inputs(model, seeds) if inputs is None else inputs:
        expected = given.expected()
        if expected is None:
            left_out[given.name] = given.refusal
            continue
        compared.append(given.name)
        actual = artifact.run(given.arrays)
        if len(expected) != len(actual):
            message = f"{len(actual)} outputs where the original has {len(expected)}"
            return Verification(False, np.nan, np.nan, tolerance, tuple(compared), message)
        differences = compare_outputs(expected, actual, names, steps)
        found += differences
        wrong = [d for d in differences if not d.within(tolerance)]
        if wrong and not message:
            message = f"{wrong[0].describe(tolerance)} (inputs: {given.name})"
    absolute, relative = largest_difference(found)
    return Verification(
        not message, absolute, relative, tolerance, tuple(compared), message, left_out
    )


def default_tolerance(model: Model) -> float:
    """Relative tolerance for a model: machine epsilon times the depth of its reductions."""
    dtypes = {spec.dtype for spec in (*model.inputs, *model.outputs)}
    epsilon = max(
        (float(np.finfo(d).eps) for d in dtypes if d in ("float16", "float32", "float64")),
        default=float(np.finfo("float32").eps),
    )
    return max(_FLOOR, epsilon * _depth(model))


def _depth(model: Model) -> float:
    """Sum over contractions of the square root of the additions per output element."""
    from foretune import _tvm

    total = 0.0
    relax = _tvm.tvm.relax

    def visit(node: object) -> None:
        nonlocal total
        name = str(getattr(getattr(node, "op", None), "name", ""))
        if not isinstance(node, relax.Call):
            return
        if name.startswith("relax.nn.conv"):
            extents = [int(extent) for extent in node.args[1].ty.shape]
            total += float(np.sqrt(np.prod(extents) / max(extents[0], 1)))
        elif name == "relax.matmul":
            total += float(np.sqrt(int(node.args[0].ty.shape[-1])))

    relax.analysis.post_order_visit(model.module["main"], visit)
    return total
