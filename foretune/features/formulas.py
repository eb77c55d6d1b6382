"""TVM's per-store features as formulas of the decisions, for batches of points.

``per_store`` reads the features of a program that was built for one candidate. Here a sketch is
interpreted once (``foretune.space.symbolic``); what the extractor measures becomes expressions of
tile factors and choices, evaluated with torch for many points at once. In exact mode the columns
are TVM's. In smooth mode they are differentiable in the numbers of the point, and tend to the exact
ones at whole numbers, and where splits divide their loops, as the temperature goes to zero (see
``_operators``).

A batch belongs to one structure: compute locations, and whether the parallel and vector limits are
on, decide which loops there are. ``extract_batch`` groups candidates by it.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune.features._arranged import Arranged
from foretune.features._assemble import assemble
from foretune.features._operators import Operators
from foretune.features._quantities import KINDS, StoreQuantities, quantities
from foretune.features._tape import Tape
from foretune.features.per_store import PER_STORE, FloatArray, extract_per_store
from foretune.space.symbolic import (
    Structure,
    SymbolicProgram,
    UnsupportedTraceError,
    limits,
    structure_of,
    symbolic_program,
)

if TYPE_CHECKING:
    import torch

    from foretune.space import Candidate, Sketch
    from foretune.space.symbolic._scalar import Scalar

_log = logging.getLogger(__name__)

_CACHED = 128
"""Compiled formulas kept per process, some 1 MB each. One softmax has 313 structures."""

_PASS = 1024
"""Points at once, unless gradients are wanted: fewer waste calls, more leave the caches. Measured
for 128 to 2048 on a matrix product, a convolution and a softmax."""


class Formulas:
    """The columns of one symbolic program.

    Args:
        program: A sketch with its structure fixed.

    Attributes:
        program: The program.
        stores: Number of rows per point.
    """

    def __init__(self, program: SymbolicProgram) -> None:
        self.program = program
        found = quantities(program)
        self._arranged = Arranged(program, found)
        self.stores = len(self._arranged.chosen)
        self._tape = Tape(program.algebra, program.variables, self._arranged.outputs)
        certain = program.algebra.all_of([program.certain, *map(_has_loops, found)])
        self._certain = Tape(program.algebra, program.variables, [certain])
        self._limits = limits(program)
        self._limited = Tape(
            program.algebra, program.variables, [limit.value for limit in self._limits]
        )

    def certain(self, points: torch.Tensor) -> torch.Tensor:
        """At which points the exact columns are TVM's, shape (n,), bool.

        Elsewhere they are close: a split does not divide the loops that were fused before, say.
        With reductions across threads there may be a row more than in TVM's.
        """
        import torch

        return self._certain(points, Operators()).squeeze(0).to(torch.bool)

    def excess(self, points: torch.Tensor, temperature: float = 0.0) -> torch.Tensor:
        """How far points are beyond the limits of the target, shape (n,); 0: not at all.

        The sum over limits (``foretune.space.symbolic.limits``) of the squared natural logarithm of
        what is too much or too little.

        Args:
            points: As ``__call__`` takes them.
            temperature: 0 for exact sizes.
        """
        if not self._limits:
            return points.new_zeros(len(points))
        operators = Operators(temperature)
        low = points.new_tensor([[limit.low] for limit in self._limits]).log().view(-1, 1)
        high = points.new_tensor([[limit.high] for limit in self._limits]).log().view(-1, 1)
        sizes = operators.log(self._limited(points, operators))
        beyond: torch.Tensor = (sizes - high).clamp(min=0)
        return (beyond.square() + (low - sizes).clamp(min=0).square()).sum(0)

    def __len__(self) -> int:
        """Number of distinct operations per point before the columns are put together."""
        return len(self._tape)

    def points(self, decisions: Sequence[Sequence[Any]]) -> torch.Tensor:
        """Candidates' decisions as numbers, shape (n, variables), float64."""
        import torch

        rows = [self.program.point(each) for each in decisions]
        return torch.tensor(rows, dtype=torch.float64).reshape(len(rows), -1)

    def __call__(self, points: torch.Tensor, temperature: float = 0.0) -> torch.Tensor:
        """The columns of ``per_store`` at each point.

        Args:
            points: Tile factors and values of choices, shape (n, variables): whole numbers, or
                positive real ones of which those of a tile have its extent as their product. To
                search over exponents, pass their powers: gradients go through.
            temperature: 0 for exact features, otherwise the width of the smooth operators in units
                of a natural logarithm.

        Returns:
            Shape (n, stores, 164), float64.
        """
        import torch

        operators = Operators(temperature)
        if len(points) <= _PASS or (torch.is_grad_enabled() and points.requires_grad):
            return assemble(self._arranged, self._tape(points, operators), operators)
        starts = range(0, len(points), _PASS)
        return torch.cat([self(points[at : at + _PASS], temperature) for at in starts])


def formulas(sketch: Sketch, structure: Structure) -> Formulas:
    """The formulas of a sketch with its structure fixed, compiled once per process.

    Raises:
        UnsupportedTraceError: The sketch's trace has something that the interpreter does not know.
    """
    found = _compiled(sketch, structure)
    if isinstance(found, UnsupportedTraceError):
        raise found
    return found


def _has_loops(store: StoreQuantities) -> Scalar:
    """Whether a store that runs once has loops, if it ever has some: TVM takes bytes from these."""
    algebra = store.counts[KINDS[0]].algebra
    if not store.levels or algebra.product([each.extent for each in store.levels]).constant != 1:
        return algebra.number(1)
    return algebra.any_of([each.kept for each in store.levels])


@functools.lru_cache(maxsize=_CACHED)
def _compiled(sketch: Sketch, structure: Structure) -> Formulas | UnsupportedTraceError:
    # What cannot be interpreted is not tried again with every batch.
    try:
        return Formulas(symbolic_program(sketch, structure))
    except UnsupportedTraceError as error:
        return error.with_traceback(None)
    except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as error:
        # A program that nobody thought of: tuning goes on without formulas of it, and says so.
        return UnsupportedTraceError("this program", f"is beyond them ({error!r})")


@functools.lru_cache(maxsize=_CACHED)
def _warn(workload: str, message: str) -> None:
    """Says what of a workload is read from programs, once per process."""
    _log.warning("%s: %s", workload, message)


def extract_batch(
    candidates: Sequence[Candidate], approximate: bool = False
) -> list[FloatArray | None]:
    """Per-store features of candidates from formulas, without making their programs.

    Candidates of sketches that cannot be interpreted are extracted from their programs, with one
    warning that names what is not known, and so are those at points where formulas are not certain.
    Only these can come back as None: a formula does not know whether post-processors accept a
    candidate.

    Args:
        candidates: May belong to several workloads and hardware.
        approximate: Whether formulas are taken where they are not certain, too.

    Returns:
        For each candidate a float64 array of shape (stores, 164), or None if it is illegal.
    """
    found: list[FloatArray | None] = [None] * len(candidates)
    groups: dict[tuple[Sketch, Structure], list[int]] = {}
    for at, candidate in enumerate(candidates):
        structure = structure_of(candidate.sketch, candidate.decisions)
        groups.setdefault((candidate.sketch, structure), []).append(at)
    for (sketch, structure), members in groups.items():
        try:
            compiled = formulas(sketch, structure)
        except UnsupportedTraceError as error:
            _warn(sketch.workload.name, str(error))
            rows = extract_per_store([candidates[at] for at in members])
        else:
            points = compiled.points([candidates[at].decisions for at in members])
            rows = list(_exact(compiled, points))
            if not approximate:
                unsure = np.flatnonzero(~np.asarray(compiled.certain(points))).tolist()
                read = extract_per_store([candidates[members[at]] for at in unsure])
                for place, row in zip(unsure, read, strict=True):
                    rows[place] = row
        for at, row in zip(members, rows, strict=True):
            found[at] = row
    return found


def _exact(compiled: Formulas, points: torch.Tensor) -> FloatArray:
    import torch

    with torch.inference_mode():
        return np.asarray(compiled(points), dtype=np.float64)


__all__ = ["PER_STORE", "Formulas", "extract_batch", "formulas"]
