"""Recurrent layers.

Symbols: ``S`` steps, ``B`` batch, ``I`` inputs, ``H`` hidden units, ``G`` gates of a cell, ``P``
numbers of a hidden state: ``H``, or fewer where it is projected. The product of all inputs with
their weights is one matrix product ahead of the steps.

The steps of an ordinary layer are one call, a ``Recurrence``, until the target is known: then it
becomes one kernel (``recurrent_kernel``), or is unrolled as all others are at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from foretune import _tvm

Activation = Callable[[Any], Any]

RNN_TANH, RNN_RELU, GRU, LSTM = "rnn_tanh", "rnn_relu", "gru", "lstm"
GATES = {RNN_TANH: 1, RNN_RELU: 1, GRU: 3, LSTM: 4}
"""Kinds of ordinary layers, and how many gates their cells have."""
LONGEST = 512
"""Steps up to which a layer is unrolled."""

_MARK = "foretune.recurrence"


@dataclass(frozen=True)
class Cell:
    """Weights of one direction.

    Attributes:
        kind: One of ``GATES``; empty where step or activations are others, which are given then.
        weight: ``[G * H, I]``.
        recurrent: ``[G * H, P]``.
        bias: ``[G * H]`` of the inputs, or None.
        recurrent_bias: ``[G * H]`` of the state, or None.
        places: Where each gate stands among the weights; the steps say the order of gates.
        projection: ``[P, H]`` that each hidden state is multiplied by, or None.
        activations: Of the gates, in the same order.
    """

    kind: str
    weight: Any
    recurrent: Any
    bias: Any | None
    recurrent_bias: Any | None
    places: tuple[int, ...]
    projection: Any | None = None
    activations: Sequence[Activation] = ()

    @property
    def hidden(self) -> int:
        """``H``."""
        return int(self.recurrent.ty.shape[0]) // len(self.places)


@dataclass(frozen=True)
class States:
    """What a direction returns: all hidden states ``[S, B, P]``, the last hidden and cell state."""

    all: Any
    hidden: Any
    cell: Any | None = None


@dataclass(frozen=True)
class Recurrence:
    """The steps of one direction of an ordinary layer.

    Attributes:
        kind: One of ``GATES``.
        steps: ``S``.
        batch: ``B``.
        hidden: ``H``.
        width: ``P``.
        places: Where each gate stands among the weights.
        reverse: From the last step to the first.
        biased: Whether a bias of the state is added apart from that of the inputs.
        projected: Whether hidden states are multiplied by a matrix.
    """

    kind: str
    steps: int
    batch: int
    hidden: int
    width: int
    places: tuple[int, ...]
    reverse: bool
    biased: bool
    projected: bool

    @property
    def gates(self) -> int:
        """``G``."""
        return len(self.places)

    @property
    def multiplications(self) -> int:
        """Of all steps, in products."""
        of_state = self.gates * self.hidden * self.width
        projection = self.hidden * self.width if self.projected else 0
        return self.steps * self.batch * (of_state + projection)


Step = Callable[[Any, Cell, Any, Any, Any], tuple[Any, Any]]
"""From a binder of expressions, the cell, gates of the inputs, hidden state and cell state to the
new states."""


def run(
    builder: Any,
    data: Any,
    cell: Cell,
    initial: tuple[Any, Any | None],
    reverse: bool = False,
    lengths: Any | None = None,
    step: Step | None = None,
) -> States:
    """One direction of a layer.

    Args:
        builder: Relax block builder.
        data: ``[S, B, I]``.
        cell: Weights.
        initial: Hidden state ``[B, P]`` and cell state ``[B, H]``, or None.
        reverse: From the last step to the first.
        lengths: Steps ``[B]`` of each element of the batch; behind them the state stays and the
            output is zero.
        step: Of a cell without a kind: ``rnn_step``, ``gru_step``, ``gru_step_before`` or
            ``lstm_step``.
    """
    op = _tvm.tvm.relax.op

    def emit(expression: Any) -> Any:
        return builder.emit(builder.normalize(expression))

    gates = emit(op.matmul(data, op.permute_dims(cell.weight)))
    bias = cell.bias
    if cell.kind != GRU and step is None and cell.recurrent_bias is not None:
        both = cell.recurrent_bias
        bias = both if bias is None else emit(op.add(bias, both))
        cell = replace(cell, recurrent_bias=None)
    if bias is not None:
        gates = emit(op.add(gates, bias))
    if step is None and lengths is None:
        return _marked(emit, gates, cell, initial, reverse)
    return _unrolled(emit, gates, cell, initial, reverse, lengths, step)


def _marked(
    emit: Any, gates: Any, cell: Cell, initial: tuple[Any, Any | None], reverse: bool
) -> States:
    relax = _tvm.tvm.relax
    steps, batch, _ = (int(extent) for extent in gates.ty.shape)
    biased, projected = cell.recurrent_bias is not None, cell.projection is not None
    width = int(cell.recurrent.ty.shape[1])
    what = Recurrence(
        cell.kind, steps, batch, cell.hidden, width, cell.places, reverse, biased, projected
    )
    operands = [gates, cell.recurrent, cell.recurrent_bias, *initial, cell.projection]
    given = [operand for operand in operands if operand is not None]
    dtype = str(gates.ty.dtype)
    types = [relax.TensorType(shape, dtype) for shape in result_shapes(what)]
    function, words = relax.ExternFunc(_MARK), _tvm.tvm.ir.StringImm(json.dumps(asdict(what)))
    type_ = relax.TupleType(types)
    results = emit(relax.op.call_pure_packed(function, words, *given, ty_args=[type_]))
    return States(*(emit(relax.TupleGetItem(results, at)) for at in range(len(types))))


def result_shapes(what: Recurrence) -> list[list[int]]:
    """Of all hidden states, the last hidden state, and the last cell state where there is one."""
    last = [what.batch, what.width]
    shapes = [[what.steps, *last], last]
    return [*shapes, [what.batch, what.hidden]] if what.kind == LSTM else shapes


def recurrence_of(call: Any) -> tuple[Recurrence, dict[str, Any]] | None:
    """What a call of Relax marks, and its operands by name; None where it marks nothing.

    Names are ``gates``, ``weight``, ``bias`` (of the state), ``hidden``, ``cell``, ``projection``.
    """
    args = getattr(call, "args", ())
    if not args or str(getattr(args[0], "global_symbol", "")) != _MARK:
        return None
    fields = json.loads(str(args[1].value))
    what = Recurrence(**{**fields, "places": tuple(fields["places"])})
    names = ["gates", "weight", *(["bias"] if what.biased else []), "hidden"]
    names += (["cell"] if what.kind == LSTM else []) + (["projection"] if what.projected else [])
    return what, dict(zip(names, args[2:], strict=True))


def unroll(emit: Any, what: Recurrence, operands: dict[str, Any]) -> Any:
    """The steps of a recurrence one after the other, as a tuple of its results."""
    relax = _tvm.tvm.relax
    cell = Cell(
        what.kind,
        None,
        operands["weight"],
        None,
        operands.get("bias"),
        what.places,
        operands.get("projection"),
    )
    initial = operands["hidden"], operands.get("cell")
    states = _unrolled(emit, operands["gates"], cell, initial, what.reverse)
    results = [states.all, states.hidden, states.cell]
    return relax.Tuple([result for result in results if result is not None])


def _unrolled(
    emit: Any,
    gates: Any,
    cell: Cell,
    initial: tuple[Any, Any | None],
    reverse: bool,
    lengths: Any | None = None,
    step: Step | None = None,
) -> States:
    relax, op = _tvm.tvm.relax, _tvm.tvm.relax.op
    dtype = str(gates.ty.dtype)
    if not cell.activations:
        cell = replace(cell, activations=_activations(cell.kind))
    step = step or _STEPS[cell.kind]
    hidden, state = initial
    outputs: dict[int, Any] = {}
    steps = range(int(gates.ty.shape[0]))
    for at in reversed(steps) if reverse else steps:
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


def lstm_step(peepholes: Sequence[Any] | None, clip: float | None, coupled: bool) -> Step:
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
        shown = emit(op.multiply(leave, third(new)))
        if cell.projection is not None:
            shown = emit(op.matmul(shown, op.permute_dims(cell.projection)))
        return shown, new

    return step


def _activations(kind: str) -> list[Activation]:
    op = _tvm.tvm.relax.op
    return {
        RNN_TANH: [op.tanh],
        RNN_RELU: [op.nn.relu],
        GRU: [op.sigmoid, op.tanh],
        LSTM: [op.sigmoid, op.tanh, op.tanh],
    }[kind]


_STEPS: dict[str, Step] = {
    RNN_TANH: rnn_step,
    RNN_RELU: rnn_step,
    GRU: gru_step,
    LSTM: lstm_step(None, None, coupled=False),
}


def _recurrent(cell: Cell, hidden: Any) -> Any:
    op = _tvm.tvm.relax.op
    product = op.matmul(hidden, op.permute_dims(cell.recurrent))
    return product if cell.recurrent_bias is None else op.add(product, cell.recurrent_bias)


def _gate(cell: Cell, gates: Any, at: int) -> Any:
    begin = cell.places[at] * cell.hidden
    return _tvm.tvm.relax.op.strided_slice(gates, [1], [begin], [begin + cell.hidden])


def _updated(emit: Any, cell: Cell, update: Any, inner: Any, hidden: Any) -> Any:
    relax, op = _tvm.tvm.relax, _tvm.tvm.relax.op
    one = relax.const(1, str(hidden.ty.dtype))
    kept = op.multiply(update, hidden)
    return emit(op.add(op.multiply(op.subtract(one, update), inner), kept))
