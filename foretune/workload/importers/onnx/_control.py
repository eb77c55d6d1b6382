"""Control operators whose way is known at import, or can be had without one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np

from foretune import _tvm
from foretune.workload.importers.onnx._types import attributes_of
from foretune.workload.importers.onnx._values import MISSING, Missing, Slot, Value

_LONGEST = 64
"""Iterations up to which a loop is unrolled: each is compiled anew."""

Scope = MutableMapping[str, Slot]


class UnknownControlError(Exception):
    """How often, or where, it goes is known at run time only."""


def _if(
    walk: Any, node: Any, inputs: list[Value | None], scope: Scope, opsets: Mapping[str, int]
) -> Sequence[Slot]:
    """The branch that is known to be taken; else both, and a choice of each pair of results."""
    attributes, condition = attributes_of(node), inputs[0]
    assert condition is not None
    branches = attributes["then_branch"], attributes["else_branch"]
    if condition.array is not None:
        taken = branches[0] if bool(condition.array.reshape(-1)[0]) else branches[1]
        return list(walk.subgraph(taken, [], scope, opsets))
    both = [walk.subgraph(branch, [], scope, opsets) for branch in branches]
    relax = _tvm.tvm.relax
    scalar = walk.emit(relax.op.reshape(condition.expression, ()))
    results: list[Slot] = []
    for first, second in zip(*both, strict=True):
        if isinstance(first, Missing) or isinstance(second, Missing):
            results.append(MISSING)
            continue
        if (
            not isinstance(first, Value)
            or not isinstance(second, Value)
            or (first.shape, first.dtype) != (second.shape, second.dtype)
        ):
            raise UnknownControlError("its branches give tensors of different types")
        chosen = relax.op.where(scalar.expression, first.expression, second.expression)
        results.append(walk.emit(chosen))
    return results


def _loop(
    walk: Any, node: Any, inputs: list[Value | None], scope: Scope, opsets: Mapping[str, int]
) -> Sequence[Slot]:
    """A loop unrolled, as long as its condition is known."""
    body = attributes_of(node)["body"]
    most, condition, *carried = inputs
    if most is not None and most.array is None:
        raise UnknownControlError("how often it runs depends on values")
    limit = _LONGEST + 1 if most is None or most.array is None else int(most.array.reshape(-1)[0])
    state: list[Slot] = list(carried)
    going: Slot = condition if condition is not None else Value.constant(np.array(True))
    rows: list[list[Slot]] = []
    step = 0
    while step < limit and _is_true(going):
        if step == _LONGEST:
            raise UnknownControlError(f"it runs more than {_LONGEST} times")
        outputs = walk.subgraph(
            body, [Value.constant(np.array(step, "int64")), going, *state], scope, opsets
        )
        going, state = outputs[0], outputs[1 : 1 + len(state)]
        rows.append(outputs[1 + len(state) :])
        step += 1
    scanned = len(body.output) - 1 - len(state)
    if scanned and not rows:
        raise UnknownControlError("it never runs")
    return [*state, *(_stacked(walk, [row[at] for row in rows], 0) for at in range(scanned))]


def _scan(
    walk: Any, node: Any, inputs: list[Value | None], scope: Scope, opsets: Mapping[str, int]
) -> Sequence[Slot]:
    """A scan unrolled: its length is a size, which is known."""
    attributes = attributes_of(node)
    if opsets.get("", 0) < 9:
        raise UnknownControlError("its form before operator set 9")
    body, count = attributes["body"], int(attributes["num_scan_inputs"])
    states = len(inputs) - count
    state: list[Slot] = list(inputs[:states])
    sequences = [value for value in inputs[states:] if value is not None]
    axes = attributes.get("scan_input_axes", [0] * count)
    backward = attributes.get("scan_input_directions", [0] * count)
    length = sequences[0].shape[axes[0]]
    if not 0 < length <= _LONGEST:
        raise UnknownControlError(f"it runs {length} times, and 1 to {_LONGEST} are unrolled")
    turns: list[list[Slot]] = []
    for step in range(length):
        slices = [
            _slice(walk, value, axis, length - 1 - step if reverse else step)
            for value, axis, reverse in zip(sequences, axes, backward, strict=True)
        ]
        outputs = walk.subgraph(body, [*state, *slices], scope, opsets)
        state = outputs[:states]
        turns.append(outputs[states:])
    scanned = len(turns[0])
    along = attributes.get("scan_output_axes", [0] * scanned)
    reverse = attributes.get("scan_output_directions", [0] * scanned)
    columns = [[turn[at] for turn in turns] for at in range(scanned)]
    ordered = [
        column[::-1] if back else column for column, back in zip(columns, reverse, strict=True)
    ]
    stacked = [_stacked(walk, rows, axis) for rows, axis in zip(ordered, along, strict=True)]
    return [*state, *stacked]


def _is_true(condition: Slot) -> bool:
    if not isinstance(condition, Value) or condition.array is None:
        raise UnknownControlError("whether it goes on depends on values")
    return bool(condition.array.reshape(-1)[0])


def _slice(walk: Any, value: Value, axis: int, at: int) -> Value:
    if value.array is not None:
        return Value.constant(np.take(value.array, at, axis=axis))
    relax = _tvm.tvm.relax
    cut = relax.op.strided_slice(value.expression, [axis], [at], [at + 1])
    squeezed: Value = walk.emit(relax.op.squeeze(cut, [axis]))
    return squeezed


def _stacked(walk: Any, column: list[Slot], axis: int) -> Slot:
    values = [value for value in column if isinstance(value, Value)]
    if len(values) < len(column):
        return MISSING
    if len({value.shape for value in values}) > 1:
        raise UnknownControlError("its rounds give tensors of different sizes")
    if all(value.array is not None for value in values):
        arrays = [value.array for value in values if value.array is not None]
        return Value.constant(np.stack(arrays, axis))
    relax = _tvm.tvm.relax
    rows = [walk.emit(relax.op.expand_dims(value.expression, axis)) for value in values]
    whole: Value = walk.emit(relax.op.concat([row.expression for row in rows], axis))
    return whole


CONTROL: dict[str, Callable[..., Sequence[Slot]]] = {"If": _if, "Loop": _loop, "Scan": _scan}
"""Operators that hold graphs."""
