"""TVM's per-store features as formulas of the decisions, for batches of points.

``features.stores`` reads the features of a program that was built for one candidate. Here a sketch
is interpreted once (``foretune.symbolic``); what the extractor measures becomes expressions of tile
factors and choices, evaluated with torch for many points at once. In exact mode the columns are
TVM's. In smooth mode they are differentiable in the numbers of the point, and tend to the exact
ones at whole numbers, and where splits divide their loops, as the temperature goes to zero (see
``_operators``).

A batch belongs to one structure: compute locations, and whether the parallel and vector limits are
on, decide which loops there are.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from foretune._per_store import OPERATIONS
from foretune.space import Structure
from foretune.symbolic import SymbolicProgram, UnsupportedTraceError, limits, symbolic_program
from foretune.symbolic.formulas._arranged import Arranged
from foretune.symbolic.formulas._assemble import assemble
from foretune.symbolic.formulas._operators import Operators
from foretune.symbolic.formulas._quantities import StoreQuantities, quantities
from foretune.symbolic.formulas._tape import Tape

if TYPE_CHECKING:
    import torch

    from foretune.space import Sketch
    from foretune.symbolic._scalar import Scalar

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
        stores = quantities(program)
        self._arranged = Arranged(program, stores)
        self.stores = len(self._arranged.chosen)
        self._tape = Tape(program.algebra, program.variables, self._arranged.outputs)
        certain = program.algebra.all_of([program.certain, *map(_has_loops, stores)])
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

        The sum over limits (``foretune.symbolic.limits``) of the squared natural logarithm of
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
        """TVM's columns at each point.

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
    compiled = _compiled(sketch, structure)
    if isinstance(compiled, UnsupportedTraceError):
        raise compiled
    return compiled


def _has_loops(store: StoreQuantities) -> Scalar:
    """Whether a store that runs once has loops, if it ever has some: TVM takes bytes from these."""
    algebra = store.counts[OPERATIONS[0]].algebra
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
