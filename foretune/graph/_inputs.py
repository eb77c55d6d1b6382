"""What callers give an artifact, as the arrays it takes: in order, checked, contiguous."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from foretune._arrays import Array
from foretune.errors import BadInputError
from foretune.workload import TensorSpec


def bind_inputs(
    given: Sequence[Any] | Mapping[str, Any], specs: Sequence[TensorSpec], states: Sequence[str]
) -> list[Array | None]:
    """One array per input; None for a state that was left out.

    Args:
        given: Arrays in order, or by name. Any byte order, any strides.
        specs: Of the artifact's inputs; the states are the last ones.
        states: Their names.

    Raises:
        BadInputError: A wrong number, name, shape or dtype.
    """
    if isinstance(given, Mapping):
        arrays = _by_name(given, specs, states)
    else:
        arrays = list(given)
        if states and len(arrays) == len(specs) - len(states):
            arrays += [None] * len(states)
        if len(arrays) != len(specs):
            raise BadInputError(_count(len(given), specs, states))
    return [
        None if value is None and spec.name in states else _array(value, spec)
        for value, spec in zip(arrays, specs, strict=True)
    ]


def wanted(specs: Sequence[TensorSpec], states: Sequence[str] = ()) -> str:
    """The inputs in words, for messages."""
    return ", ".join(
        f"{spec.name} ({spec.dtype} of shape {spec.shape}"
        f"{', may be left out' if spec.name in states else ''})"
        for spec in specs
    )


def _count(given: int, specs: Sequence[TensorSpec], states: Sequence[str]) -> str:
    ordinary = len(specs) - len(states)
    number = (
        f"{ordinary} inputs, or {len(specs)} with its states" if states else f"{ordinary} inputs"
    )
    return f"the artifact takes {number}, but got {given}: {wanted(specs, states)}"


def _by_name(
    given: Mapping[str, Any], specs: Sequence[TensorSpec], states: Sequence[str]
) -> list[Any]:
    names = [spec.name for spec in specs]
    unknown = sorted(name for name in given if name not in names)
    missing = [name for name in names if name not in given and name not in states]
    if unknown or missing:
        faults = [f"no {', '.join(map(repr, missing))}"] if missing else []
        faults += [f"an unknown {', '.join(map(repr, unknown))}"] if unknown else []
        raise BadInputError(
            f"the artifact takes {wanted(specs, states)}, but got {' and '.join(faults)}"
        )
    return [given.get(name) for name in names]


def _array(value: Any, spec: TensorSpec) -> Array:
    array = np.asarray(value)
    if array.dtype.name != spec.dtype or array.shape != spec.shape:
        raise BadInputError(
            f"input {spec.name!r} must be {spec.dtype} of shape {spec.shape}, "
            f"but got {array.dtype.name} of shape {array.shape}"
        )
    # Not ascontiguousarray, which makes rank 0 rank 1.
    return np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")
