"""Symbolic programs: a sketch as a program whose sizes are expressions of its decisions."""

from foretune.space.symbolic._evaluate import Evaluator
from foretune.space.symbolic._index import Digit, Index, Opaque
from foretune.space.symbolic._limits import Limit, limits
from foretune.space.symbolic._nodes import (
    Bound,
    Buffer,
    Literal,
    Load,
    Operation,
    UnsupportedTraceError,
    walk,
)
from foretune.space.symbolic._program import (
    Allocation,
    Level,
    Store,
    Structure,
    SymbolicProgram,
    structure_of,
    symbolic_program,
)
from foretune.space.symbolic._scalar import Algebra, Scalar, Symbol

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
    "Structure",
    "Symbol",
    "SymbolicProgram",
    "UnsupportedTraceError",
    "limits",
    "structure_of",
    "symbolic_program",
    "walk",
]
