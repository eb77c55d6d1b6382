"""The correctness gate: a candidate computes what the untuned program computes, or it is wrong.

Inputs are sparse small integers, so that sums are exact in whatever order a schedule takes them
and the tolerance can be next to nothing (an idea of tinygrad's validation). Where small integers
make no sense (a logarithm of zero), positive uniform numbers take their place; integers that end
up as an index stay within what they index. Outputs are poisoned before each checked run, so that
an element that a candidate forgets to write cannot pass for one left over from the run before;
inputs are compared with their snapshot afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._arrays import Array
from foretune.errors import BadInputError
from foretune.workload import index_limits, parameter_roles, walk

if TYPE_CHECKING:
    from foretune._tvm import IRModule
    from foretune.workload import Workload

Tolerance = tuple[float, float]
"""Relative and absolute."""

_REDUCTION_AXIS = 2  # tvm.tirx.IterVar.CommReduce
_DENSITY = 0.3
# How many units of rounding, times the square root of the reduction's size, a legal reordering
# may move a result; a random walk of half-unit steps stays well below.
_ROUNDING_UNITS = 4.0
_LOWEST_TOLERANCE = {"float16": 4e-3, "float32": 2e-5, "float64": 1e-10}


@dataclass(frozen=True)
class Parameter:
    """One buffer of a workload's function.

    Attributes:
        name: As in the function.
        shape: Elements per dimension.
        dtype: NumPy's name of the element type.
        role: ``"input"``, ``"output"`` (written before it is read) or ``"inout"``.
        index_below: For integers that end up as an index: the length of the shortest dimension
            that they may index.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    role: str
    index_below: int | None = None


@dataclass(frozen=True)
class Signature:
    """What the gate has to know about a workload.

    Attributes:
        parameters: In the order of the call.
        reduction: Elements summed into one output element, over all reductions in a chain.
        divides: Whether integers are divided by something that is no constant: the inputs have no
            zeros then, which would end the process.
        cold: Positions of the parameters that a call in a network reads from far away.
        between_bytes: What the network reads of them all from one call to the next.
    """

    parameters: tuple[Parameter, ...]
    reduction: int
    divides: bool = False
    cold: tuple[int, ...] = ()
    between_bytes: int = 0

    def to_json(self) -> dict[str, Any]:
        """A JSON object; ``from_json`` reverses it."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Signature:
        """Reads what ``to_json`` wrote."""
        parameters = tuple(
            Parameter(**{**entry, "shape": tuple(entry["shape"])}) for entry in data["parameters"]
        )
        return cls(
            parameters,
            int(data["reduction"]),
            bool(data.get("divides")),
            tuple(data.get("cold", ())),
            int(data.get("between_bytes", 0)),
        )

    @classmethod
    def of(cls, workload: Workload) -> Signature:
        """Reads the program of a workload.

        Raises:
            BadInputError: A parameter is not a buffer of fixed shape, or of a type NumPy lacks.
        """
        signature = _signature(workload.module, workload.name)
        cold = workload.cold
        if cold is None:
            return signature
        return replace(signature, cold=cold.parameters, between_bytes=cold.between_bytes)


def _signature(module: IRModule, name: str) -> Signature:
    function = module["main"]
    limits = index_limits(function)
    reduction = 1 + sum(
        _reduction_of(node) for node in walk(function.body) if type(node).__name__ == "SBlock"
    )
    named = zip(function.params, parameter_roles(function), strict=True)
    return Signature(
        tuple(_parameter(var, role, limits.get(at), name) for at, (var, role) in enumerate(named)),
        reduction,
        any(_divides_integers(node) for node in walk(function.body)),
    )


def _divides_integers(node: Any) -> bool:
    if type(node).__name__ not in ("Div", "Mod", "FloorDiv", "FloorMod"):
        return False
    return str(node.ty.dtype).startswith(("int", "uint")) and not hasattr(node.b, "value")


def _reduction_of(block: Any) -> int:
    """Elements that one block sums into one; 0 if it sums nothing."""
    extents = [
        int(axis.dom.extent)
        for axis in block.iter_vars
        if axis.iter_type == _REDUCTION_AXIS and hasattr(axis.dom.extent, "value")
    ]
    return math.prod(extents) if extents else 0


def _parameter(var: Any, role: str, index_below: int | None, workload: str) -> Parameter:
    kind = var.ty
    shape = getattr(kind, "shape", None)
    if shape is None or not all(hasattr(extent, "value") for extent in shape):
        raise BadInputError(
            "every parameter of a workload must be a buffer of fixed shape, but "
            f"{str(var.name)!r} of {workload!r} is not: specialise the function first"
        )
    dtype = str(kind.dtype)
    try:
        known = np.dtype(dtype).kind in "fiub"
    except TypeError:
        known = False
    if not known:
        raise BadInputError(
            "the correctness gate works on NumPy's own number types, but parameter "
            f"{str(var.name)!r} of {workload!r} is {dtype}: convert the program to another type"
        )
    limit = index_below if np.dtype(dtype).kind in "iu" else None
    return Parameter(str(var.name), tuple(int(e) for e in shape), dtype, role, limit)


def make_inputs(signature: Signature, key: str, positive: bool = False) -> list[Array]:
    """One array per parameter, the same in every process; outputs hold poison.

    Args:
        signature: The parameters.
        key: The workload's key, hexadecimal: the seed.
        positive: Uniform in [0.5, 1.5) in place of sparse small integers, for floats.
    """
    generator = np.random.default_rng(int(key, 16))
    return [
        poison(np.empty(parameter.shape, parameter.dtype))
        if parameter.role == "output"
        else _draw(parameter, generator, positive, signature.divides)
        for parameter in signature.parameters
    ]


def _draw(parameter: Parameter, rng: np.random.Generator, positive: bool, no_zeros: bool) -> Array:
    dtype, shape = np.dtype(parameter.dtype), parameter.shape
    if parameter.index_below is not None and dtype.kind in "iu":
        top = min(parameter.index_below, np.iinfo(dtype).max)
        return rng.integers(0, max(1, top), shape).astype(dtype)
    if dtype.kind == "b":
        return rng.random(shape, dtype=np.float32) < 0.5
    if dtype.kind == "f" and positive:
        return (rng.random(shape, dtype=np.float32) + 0.5).astype(dtype)
    if dtype.kind == "u":
        return rng.integers(int(no_zeros), 3, shape).astype(dtype)
    values = rng.integers(-2, 3, shape, dtype=np.int8)
    if dtype.kind == "f":
        values *= rng.random(shape, dtype=np.float32) < _DENSITY
    elif no_zeros:
        values[values == 0] = 1
    return values.astype(dtype)


def poison(array: Array, reference: Array | None = None) -> Array:
    """Fills an array in place with what a program would not write; returns it.

    NaN for floats. Other types have no such value: the inverse of the right answer takes its place
    where the right answer is known.
    """
    if array.dtype.kind == "f":
        array.fill(np.nan)
    elif reference is None:
        array.fill(False if array.dtype.kind == "b" else 0x5A)
    else:
        np.copyto(array, ~reference)
    return array


@dataclass(frozen=True)
class Verdict:
    """What comparing one run's buffers with the reference gave.

    Attributes:
        message: Empty if right.
        max_error: Largest absolute difference over all outputs.
    """

    message: str
    max_error: float

    @property
    def right(self) -> bool:
        """Whether every output is within its tolerance and every input untouched."""
        return not self.message


def judge(
    signature: Signature,
    actual: Sequence[Array],
    expected: Sequence[Array],
    allowed: Sequence[Tolerance] | None = None,
) -> Verdict:
    """Compares every buffer after a run with what it should hold.

    Args:
        signature: The parameters.
        actual: One array per parameter, after the candidate's run.
        expected: Likewise after the untuned program's run; inputs as they were before.
        allowed: What ``tolerances`` says of ``expected``, for those who judge often.
    """
    worst = 0.0
    allowed = tolerances(signature, expected) if allowed is None else allowed
    for parameter, got, want, limits in zip(
        signature.parameters, actual, expected, allowed, strict=True
    ):
        if parameter.role == "input":
            # Bytes, because an input may hold NaN.
            if not np.array_equal(_bytes(got), _bytes(want)):
                return Verdict(f"input {parameter.name} was overwritten", math.inf)
            continue
        if np.array_equal(got, want):
            continue
        message, error = _difference(parameter, got, want, limits)
        worst = max(worst, error)
        if message:
            return Verdict(message, worst)
    return Verdict("", worst)


def _bytes(array: Array) -> Array:
    view: Array = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return view


def tolerance(reference: Array, reduction: int) -> Tolerance:
    """Relative and absolute tolerance for results of a program with that reduction size.

    Integral results of integral inputs are exact in any order, as long as they are small enough
    for the type's mantissa; anything else may move by rounding.
    """
    if reference.dtype.kind != "f":
        return 0.0, 0.0
    info = np.finfo(reference.dtype)
    values = np.abs(reference[np.isfinite(reference)].astype(np.float64))
    largest = float(values.max(initial=0.0))
    if largest < 2.0 ** (info.nmant - 2) and np.array_equal(values, np.rint(values)):
        return 0.0, min(0.01, 64.0 * float(info.eps) * max(1.0, largest))
    units = _ROUNDING_UNITS * math.sqrt(reduction) * float(info.eps)
    relative = min(max(units, _LOWEST_TOLERANCE.get(reference.dtype.name, 1e-2)), 0.1)
    return relative, relative * largest


def tolerances(signature: Signature, expected: Sequence[Array]) -> list[Tolerance]:
    """Relative and absolute tolerance of each parameter; none of an input."""
    return [
        (0.0, 0.0) if parameter.role == "input" else tolerance(array, signature.reduction)
        for parameter, array in zip(signature.parameters, expected, strict=True)
    ]


def _difference(
    parameter: Parameter, got: Array, want: Array, allowed: Tolerance
) -> tuple[str, float]:
    if want.dtype.kind != "f":
        # Not at the top: most judgements end before, and a child that measures starts sooner.
        from foretune.graph import integer_distance

        error = integer_distance(want, got)
        return _describe(parameter, error, error > 0, got, want)
    relative, absolute = allowed
    with np.errstate(invalid="ignore", over="ignore"):
        largest = float(np.abs(got - want).max(initial=0.0))
    # The usual case, for a fraction of the price; what is not finite is never below a limit.
    if largest <= absolute:
        return "", largest
    finite = np.isfinite(want)
    same_kind = np.where(finite, np.isfinite(got), (got == want) | (np.isnan(got) & np.isnan(want)))
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(got.astype(np.float64) - want.astype(np.float64))
        most = absolute + relative * np.abs(want.astype(np.float64))
        wrong = ~same_kind | (finite & (error > most))
    return _describe(parameter, np.where(finite, error, 0.0), wrong, got, want)


def _describe(
    parameter: Parameter, error: Array, wrong: Array, got: Array, want: Array
) -> tuple[str, float]:
    largest = float(np.nan_to_num(error, nan=math.inf, posinf=math.inf).max(initial=0.0))
    count = int(np.count_nonzero(wrong))
    if not count:
        return "", largest
    where = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    at = ", ".join(str(int(index)) for index in where)
    return (
        f"{count} of {wrong.size} elements of {parameter.name} are wrong: "
        f"[{at}] is {got[where]}, the untuned program gives {want[where]}",
        largest,
    )
