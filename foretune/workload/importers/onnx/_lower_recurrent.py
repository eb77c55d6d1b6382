"""RNN, GRU and LSTM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from foretune import _tvm
from foretune.operators import recurrent
from foretune.workload.importers.onnx._node import Lowering, Node, NotLoweredError


def _rnn(node: Node) -> Any:
    names = _names(node, ["Tanh"])
    kinds = {"tanh": recurrent.RNN_TANH, "relu": recurrent.RNN_RELU}
    kind = kinds.get(names[0]) if len(set(names)) == 1 else None
    return _layer(node, 1, names, kind or "", lambda _direction: recurrent.rnn_step)


def _gru(node: Node) -> Any:
    behind = bool(node.attribute("linear_before_reset", 0))
    names = _names(node, ["Sigmoid", "Tanh"])
    usual = behind and names == ["sigmoid", "tanh"] * (len(names) // 2)
    step = recurrent.gru_step if behind else recurrent.gru_step_before
    return _layer(node, 3, names, recurrent.GRU if usual else "", lambda _direction: step)


def _lstm(node: Node) -> Any:
    op = _tvm.tvm.relax.op
    hidden = int(node.attribute("hidden_size"))
    clip, peepholes = node.attribute("clip"), node.get(7)
    coupled = bool(node.attribute("input_forget", 0))
    names = _names(node, ["Sigmoid", "Tanh", "Tanh"])
    usual = names == ["sigmoid", "tanh", "tanh"] * (len(names) // 3)
    usual = usual and clip is None and peepholes is None and not coupled

    def step_of(direction: int) -> recurrent.Step:
        weights = None
        if peepholes is not None:
            row = op.reshape(_direction(peepholes, direction), (3, hidden))
            weights = [op.reshape(_row(row, at), (hidden,)) for at in range(3)]
        return recurrent.lstm_step(weights, None if clip is None else float(clip), coupled)

    return _layer(node, 4, names, recurrent.LSTM if usual else "", step_of)


def _names(node: Node, default: Sequence[str]) -> list[str]:
    """Activations of all directions, in lower case."""
    given = node.attribute("activations", list(default) * _directions(node))
    return [str(name).lower() for name in given]


def _directions(node: Node) -> int:
    return 2 if str(node.attribute("direction", "forward")) == "bidirectional" else 1


def _layer(
    node: Node,
    gates: int,
    names: Sequence[str],
    kind: str,
    step_of: Callable[[int], recurrent.Step],
) -> list[Any]:
    """All directions of a layer, and its outputs in ONNX's layout."""
    op = _tvm.tvm.relax.op
    emit = node.emit
    batch_first = bool(node.attribute("layout", 0))
    data = emit(op.permute_dims(node[0], [1, 0, 2])) if batch_first else node[0]
    steps, batch, _inputs = (int(extent) for extent in data.ty.shape)
    directions, lengths = _directions(node), node.get(4)
    if steps > recurrent.LONGEST and (not kind or lengths is not None):
        raise NotLoweredError(f"more than {recurrent.LONGEST} steps of a cell of this kind")
    hidden = int(node.attribute("hidden_size"))
    ways = []
    for at in range(directions):
        each = len(names) // directions
        own = [_activation(name, node) for name in names[at * each : (at + 1) * each]]
        cell = _cell(node, emit, at, gates, hidden, kind, own)
        initial = [
            _initial(node, emit, at, source, batch, hidden, batch_first) for source in (5, 6)
        ]
        reverse = at == 1 or str(node.attribute("direction", "forward")) == "reverse"
        if gates != 4:
            initial[1] = None
        ways.append(
            recurrent.run(
                node.builder,
                data,
                cell,
                (initial[0], initial[1]),
                reverse,
                lengths,
                None if kind else step_of(at),
            )
        )
    return _outputs(emit, ways, batch_first)


def _cell(
    node: Node,
    emit: Any,
    at: int,
    gates: int,
    hidden: int,
    kind: str,
    activations: Sequence[recurrent.Activation],
) -> recurrent.Cell:
    op = _tvm.tvm.relax.op
    bias, inner = None, None
    if node.get(3) is not None:
        both = _direction(node[3], at)
        size = gates * hidden
        bias = emit(op.strided_slice(both, [0], [0], [size]))
        inner = emit(op.strided_slice(both, [0], [size], [2 * size]))
    return recurrent.Cell(
        kind,
        emit(_direction(node[1], at)),
        emit(_direction(node[2], at)),
        bias,
        inner,
        tuple(range(gates)),
        activations=activations,
    )


def _initial(
    node: Node, emit: Any, at: int, source: int, batch: int, hidden: int, batch_first: bool
) -> Any:
    op = _tvm.tvm.relax.op
    given = node.get(source) if source < len(node.inputs) else None
    if given is None:
        return emit(op.zeros((batch, hidden), node.value(0).dtype))
    if batch_first:
        given = op.permute_dims(given, [1, 0, 2])
    return emit(_direction(given, at))


def _outputs(emit: Any, ways: Sequence[recurrent.States], batch_first: bool) -> list[Any]:
    op = _tvm.tvm.relax.op

    def stacked(parts: Sequence[Any], axis: int) -> Any:
        rows = [op.expand_dims(part, axis) for part in parts]
        return op.concat(rows, axis) if len(rows) > 1 else rows[0]

    every = emit(stacked([states.all for states in ways], 1))
    last = emit(stacked([states.hidden for states in ways], 0))
    results = [every, last]
    if ways[0].cell is not None:
        results.append(emit(stacked([states.cell for states in ways], 0)))
    if batch_first:
        results[0] = op.permute_dims(results[0], [2, 0, 1, 3])
        results[1:] = [op.permute_dims(state, [1, 0, 2]) for state in results[1:]]
    return results


def _direction(value: Any, at: int) -> Any:
    op = _tvm.tvm.relax.op
    return op.squeeze(op.strided_slice(value, [0], [at], [at + 1]), [0])


def _row(value: Any, at: int) -> Any:
    return _tvm.tvm.relax.op.strided_slice(value, [0], [at], [at + 1])


def _activation(name: str, node: Node) -> recurrent.Activation:
    relax, op = _tvm.tvm.relax, _tvm.tvm.relax.op
    if node.attribute("activation_alpha") or node.attribute("activation_beta"):
        raise NotLoweredError("activations with parameters")
    if node.attribute("clip") is not None and node.proto.op_type != "LSTM":
        raise NotLoweredError("a bound on gates")
    dtype = node.value(0).dtype
    known: dict[str, recurrent.Activation] = {
        "sigmoid": op.sigmoid,
        "tanh": op.tanh,
        "relu": op.nn.relu,
        "softsign": lambda x: op.divide(x, op.add(relax.const(1, dtype), op.abs(x))),
    }
    if name not in known:
        raise NotLoweredError(f"activation {name}")
    return known[name]


TABLE: dict[str, Lowering] = {"GRU": _gru, "LSTM": _lstm, "RNN": _rnn}
"""Operator to lowering."""
