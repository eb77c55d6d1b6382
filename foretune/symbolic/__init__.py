"""Symbolic programs: a sketch as a program whose sizes are expressions of its decisions.

An optional room, loaded when formulas, behaviour or gradients are asked for. To be read in this
order:

- ``_scalar``: numbers that depend on decisions; ``_index``: sums of digits of loops.
- ``_nodes``, ``_tree``, ``_regions``: a program's loops and blocks, and what they touch of buffers.
- ``_interpret`` with ``_blocks``: does to them what a trace says; ``_postprocess``: what TVM's
  post-processors do; ``_limits``: what they refuse.
- ``_program``: the program that remains. ``_evaluate``: its numbers, exact, with NumPy.
- ``formulas``: TVM's features of it, with PyTorch.
"""

from foretune.symbolic._evaluate import Evaluator
from foretune.symbolic._index import Digit, Index, Opaque
from foretune.symbolic._limits import Limit, limits
from foretune.symbolic._nodes import (
    Bound,
    Buffer,
    Literal,
    Load,
    Operation,
    UnsupportedTraceError,
    walk,
)
from foretune.symbolic._program import (
    Allocation,
    Level,
    Store,
    SymbolicProgram,
    symbolic_program,
)
from foretune.symbolic._scalar import Algebra, Scalar, Symbol

__all__ = [
    "Algebra",
    "Allocation",
    "Bound",
    "Buffer",
    "Digit",
    "Evaluator",
    "Index",
    "Level",
    "Limit",
    "Literal",
    "Load",
    "Opaque",
    "Operation",
    "Scalar",
    "Store",
    "Symbol",
    "SymbolicProgram",
    "UnsupportedTraceError",
    "limits",
    "symbolic_program",
    "walk",
]
