"""Recurrent layers, unrolled over their sequence.

Symbols: ``S`` steps, ``B`` batch, ``I`` inputs, ``H`` hidden units, ``G`` gates of a cell. The
product of all inputs with their weights is one matrix product ahead of the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from foretune import _tvm

Activation = Callable[[Any], Any]


@dataclass(frozen=True)
class Cell:
    """Weights of one direction.

    Attributes:
        weight: ``[G * H, I]``.
        recurrent: ``[G * H, H]``.
        bias: ``[G * H]`` of the inputs, or None.
        recurrent_bias: ``[G * H]`` of the state, or None.
        activations: Of the cell's gates, in the operator's order.
        hidden: ``H``.
    """

    weight: Any
    recurrent: Any
    bias: Any | None
    recurrent_bias: Any | None
    activations: Sequence[Activation]
    hidden: int


@dataclass(frozen=True)
class States:
    """What a direction returns: all hidden states ``[S, B, H]``, the last hidden and cell state."""

    all: Any
    hidden: Any
    cell: Any | None = None


Step = Callable[[Any, Any, Any], tuple[Any, Any]]


def run(
    builder: Any,
    data: Any,
    steps: Sequence[int],
    cell: Cell,
    initial: tuple[Any, Any | None],
    step: Callable[[Any, Cell, Any, Any, Any], tuple[Any, Any]],
    lengths: Any | None = None,
) -> States:
    """Unrolls one direction.

    Args:
        builder: Relax block builder.
        data: ``[S, B, I]``.
        steps: Order of the steps: descending for the reverse direction.
        cell: Weights.
        initial: Hidden state ``[B, H]`` and cell state, or None.
        step: One of ``rnn_step``, ``gru_step``, ``gru_step_before``, ``lstm_step``.
        lengths: Steps ``[B]`` of each element of the batch; behind them the state stays and the
            output is zero.
    """
    relax, op = _tvm.tvm.relax, _tvm.tvm.relax.op

    def emit(expression: Any) -> Any:
        return builder.emit(builder.normalize(expression))

    dtype = str(data.ty.dtype)
    gates = emit(op.matmul(data, op.permute_dims(cell.weight)))
    if cell.bias is not None:
        gates = emit(op.add(gates, cell.bias))
    hidden, state = initial
    outputs: dict[int, Any] = {}
    for at in steps:
        own = emit(op.squeeze(op.strided_slice(gates, [0], [at], [at + 1]), [0]))
        new_hidden, new_state = step(emit, cell, own, hidden, state)
        if lengths is None:
            hidden, state, outputs[at] = new_hidden, new_state, new_hidden
            continue
        within = op.expand_dims(op.less(relax.const(at, str(lengths.ty.dtype)), lengths), 1)
        within = emit(within)
        hidden = emit(op.where(within, new_hidden, hidden))
        if state is not None:
            state = emit(op.where(within, new_state, state))
        outputs[at] = emit(op.where(within, new_hidden, relax.const(0, dtype)))
    rows = [emit(op.expand_dims(outputs[at], 0)) for at in sorted(outputs)]
    return States(emit(op.concat(rows, 0)), hidden, state)


def rnn_step(emit: Any, cell: Cell, gates: Any, hidden: Any, state: Any) -> tuple[Any, Any]:
    """``H' = f(X W + H R)``."""
    op = _tvm.tvm.relax.op
    new = cell.activations[0](op.add(gates, _recurrent(cell, hidden)))
    return emit(new), state


def gru_step(emit: Any, cell: Cell, gates: Any, hidden: Any, state: Any) -> tuple[Any, Any]:
    """Gates ``z, r, h``; the reset gate is applied behind the product (``linear_before_reset``)."""
    op = _tvm.tvm.relax.op
    product = emit(_recurrent(cell, hidden))
    update = emit(cell.activations[0](op.add(_gate(cell, gates, 0), _gate(cell, product, 0))))
    reset = emit(cell.activations[0](op.add(_gate(cell, gates, 1), _gate(cell, product, 1))))
    inner = op.add(_gate(cell, gates, 2), op.multiply(reset, _gate(cell, product, 2)))
    return _updated(emit, cell, update, emit(cell.activations[1](inner)), hidden), state


def gru_step_before(emit: Any, cell: Cell, gates: Any, hidden: Any, state: Any) -> tuple[Any, Any]:
    """Gates ``z, r, h``; the reset gate is applied to the state ahead of the product."""
    op = _tvm.tvm.relax.op
    product = emit(_recurrent(cell, hidden))
    update = emit(cell.activations[0](op.add(_gate(cell, gates, 0), _gate(cell, product, 0))))
    reset = emit(cell.activations[0](op.add(_gate(cell, gates, 1), _gate(cell, product, 1))))
    product = emit(_recurrent(cell, op.multiply(reset, hidden)))
    inner = op.add(_gate(cell, gates, 2), _gate(cell, product, 2))
    return _updated(emit, cell, update, emit(cell.activations[1](inner)), hidden), state


def lstm_step(
    peepholes: Sequence[Any] | None, clip: float | None, coupled: bool
) -> Callable[[Any, Cell, Any, Any, Any], tuple[Any, Any]]:
    """Gates ``i, o, f, c``.

    Args:
        peepholes: Weights ``[H]`` of the cell state in ``i, o, f``, or None.
        clip: Bound on what goes into the activations, or None.
        coupled: The forget gate is one minus the input gate.
    """

    def step(emit: Any, cell: Cell, gates: Any, hidden: Any, state: Any) -> tuple[Any, Any]:
        relax, op = _tvm.tvm.relax, _tvm.tvm.relax.op
        total = emit(op.add(gates, _recurrent(cell, hidden)))
        first, second, third = cell.activations

        def gate(at: int, seen: Any = None) -> Any:
            value = _gate(cell, total, at)
            if peepholes is not None and seen is not None:
                value = op.add(value, op.multiply(peepholes[at], seen))
            return value if clip is None else op.clip(value, -clip, clip)

        enter = emit(first(gate(0, state)))
        one = relax.const(1, str(gates.ty.dtype))
        forget = emit(op.subtract(one, enter) if coupled else first(gate(2, state)))
        new = emit(op.add(op.multiply(forget, state), op.multiply(enter, second(gate(3)))))
        leave = emit(first(gate(1, new)))
        return emit(op.multiply(leave, third(new))), new

    return step


def _recurrent(cell: Cell, hidden: Any) -> Any:
    op = _tvm.tvm.relax.op
    product = op.matmul(hidden, op.permute_dims(cell.recurrent))
    return product if cell.recurrent_bias is None else op.add(product, cell.recurrent_bias)


def _gate(cell: Cell, gates: Any, at: int) -> Any:
    begin = at * cell.hidden
    return _tvm.tvm.relax.op.strided_slice(gates, [1], [begin], [begin + cell.hidden])


def _updated(emit: Any, cell: Cell, update: Any, inner: Any, hidden: Any) -> Any:
    relax, op = _tvm.tvm.relax, _tvm.tvm.relax.op
    one = relax.const(1, str(hidden.ty.dtype))
    kept = op.multiply(update, hidden)
    return emit(op.add(op.multiply(op.subtract(one, update), inner), kept))
