"""Comparing an artifact's outputs with the original model's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from foretune.graph.artifact import Artifact
    from foretune.workload import Model
    from foretune.workload.model import Array

_FLOOR = 1e-4


@dataclass(frozen=True)
class Verification:
    """How far an artifact's outputs are from the original's.

    Attributes:
        ok: Whether every output stays within the tolerance and is finite where the original is.
        max_abs_error: Largest absolute difference over all outputs and seeds; NaN if the artifact
            returned NaN where the original did not.
        max_relative_error: The same, relative to the largest magnitude of that output.
        tolerance: Bound on ``max_relative_error`` that was applied.
        seeds: Seeds of the inputs that were compared.
    """

    ok: bool
    max_abs_error: float
    max_relative_error: float
    tolerance: float
    seeds: tuple[int, ...]


def verify(
    artifact: Artifact,
    model: Model,
    seeds: Sequence[int] = (0, 1, 2),
    tolerance: float | None = None,
) -> Verification:
    """Compares an artifact with the original on random inputs.

    The tolerance grows with the square root of the additions behind one output element, as the
    rounding error of a sum in another order does, and is never below 1e-4 of the largest output.

    Args:
        artifact: The compiled model.
        model: What it was compiled from.
        seeds: One set of inputs is drawn per seed; the examples are compared too.
        tolerance: Overrides the computed one.
    """
    if tolerance is None:
        tolerance = default_tolerance(model)
    absolute = relative = 0.0
    for inputs in (model.examples, *(model.draw_inputs(seed) for seed in seeds)):
        difference = compare_outputs(model.reference(inputs), artifact.run(inputs))
        # max() of Python drops NaN depending on its place; NumPy's keeps it.
        absolute = float(np.maximum(absolute, difference[0]))
        relative = float(np.maximum(relative, difference[1]))
    return Verification(relative <= tolerance, absolute, relative, tolerance, tuple(seeds))


def compare_outputs(expected: Sequence[Array], actual: Sequence[Array]) -> tuple[float, float]:
    """Largest difference over all outputs: absolute, and relative to the largest of its output.

    Another number of outputs, another shape, or a NaN in only one of two elements gives NaN.
    """
    if len(expected) != len(actual):
        return np.nan, np.nan
    absolute = relative = 0.0
    for wanted, got in zip(expected, actual, strict=True):
        difference, scale = _compare(wanted, got)
        absolute = float(np.maximum(absolute, difference))
        relative = float(np.maximum(relative, difference / scale))
    return absolute, relative


def _compare(expected: Array, actual: Array) -> tuple[float, float]:
    """Largest absolute difference, and the largest magnitude of ``expected`` (at least 1e-6)."""
    if expected.shape != actual.shape:
        return np.nan, 1.0
    wanted, got = expected.astype("float64"), actual.astype("float64")
    same = (wanted == got) | (np.isnan(wanted) & np.isnan(got))
    difference = np.where(same, 0.0, np.abs(np.where(same, 0.0, wanted) - np.where(same, 0.0, got)))
    finite = np.abs(wanted[np.isfinite(wanted)])
    scale = float(finite.max()) if finite.size else 1.0
    return float(difference.max()) if difference.size else 0.0, max(scale, 1e-6)


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
