"""RNN, GRU and LSTM: layers of ``torch.nn``, whole as they are exported."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from foretune import _tvm
from foretune.operators import recurrent
from foretune.workload.importers.torch._node import Lowering, Node, NotLoweredError

_PLACES = {
    recurrent.RNN_TANH: (0,),
    recurrent.RNN_RELU: (0,),
    recurrent.GRU: (1, 0, 2),
    recurrent.LSTM: (0, 3, 1, 2),
}
"""Where PyTorch has each gate, gates being in the order of the steps of ``operators.recurrent``."""


def _layers(kind: str) -> Lowering:
    def lower(node: Node) -> list[Any]:
        op = _tvm.tvm.relax.op
        if node["train"] and node["dropout"]:
            raise NotLoweredError("dropout in training")
        has_cell = kind == recurrent.LSTM
        given = list(node["hx"]) if has_cell else [node["hx"]]
        data = node["input"]
        if node["batch_first"]:
            data = node.emit(op.permute_dims(data, [1, 0, 2]))
        cells = _cells(node, kind)
        directions = 2 if node["bidirectional"] else 1
        last: list[recurrent.States] = []
        for layer in range(int(node["num_layers"])):
            ways = []
            for way in range(directions):
                place = layer * directions + way
                hidden = _at(node, given[0], place)
                state = _at(node, given[1], place) if has_cell else None
                initial = hidden, state
                ways.append(recurrent.run(node.builder, data, cells[place], initial, bool(way)))
            last += ways
            every = [states.all for states in ways]
            data = node.emit(op.concat(every, 2)) if directions > 1 else every[0]
        if node["batch_first"]:
            data = node.emit(op.permute_dims(data, [1, 0, 2]))
        results = [data, _stacked(node, [states.hidden for states in last])]
        return [*results, _stacked(node, [s.cell for s in last])] if has_cell else results

    return lower


def _cells(node: Node, kind: str) -> list[recurrent.Cell]:
    """The weights of each layer and direction, in PyTorch's order."""
    weights = list(node["params"])
    directions = 2 if node["bidirectional"] else 1
    count = int(node["num_layers"]) * directions
    each, biases = len(weights) // count, bool(node["has_biases"])
    cells = []
    for begin in range(0, len(weights), each):
        weight, inner, *more = weights[begin : begin + each]
        bias, inner_bias = more[:2] if biases else (None, None)
        projection = more[2 * biases] if len(more) > 2 * biases else None
        cells.append(
            recurrent.Cell(kind, weight, inner, bias, inner_bias, _PLACES[kind], projection)
        )
    return cells


def _at(node: Node, value: Any, place: int) -> Any:
    op = _tvm.tvm.relax.op
    return node.emit(op.squeeze(op.strided_slice(value, [0], [place], [place + 1]), [0]))


def _stacked(node: Node, parts: Sequence[Any]) -> Any:
    op = _tvm.tvm.relax.op
    rows = [op.expand_dims(part, 0) for part in parts]
    return node.emit(op.concat(rows, 0) if len(rows) > 1 else rows[0])


@contextlib.contextmanager
def shapes_at_once() -> Iterator[None]:
    """Lets PyTorch know the results of a layer without a walk over its steps.

    It traces the layer's cell for each step otherwise, on fake tensors, in the export and each time
    that a program is taken apart: a second for 40 steps.
    """
    import torch
    from torch._decomp import decomposition_table as rules

    aten, keys = torch.ops.aten, torch._C.DispatchKey
    known = []
    for layer in (aten.rnn_tanh.input, aten.rnn_relu.input, aten.gru.input, aten.lstm.input):
        if layer not in rules:  # Another release of PyTorch, which is only slower.
            continue
        known.append((layer, dict(layer.py_kernels), rules[layer]))
        rule = _on_fakes(rules[layer])
        for key in (keys.CompositeImplicitAutograd, keys.Autograd):
            layer.py_kernels[key] = rule
        rules[layer] = rule
        layer._dispatch_cache.clear()
    try:
        yield
    finally:
        for layer, kernels, rule in known:
            layer.py_kernels.clear()
            layer.py_kernels.update(kernels)
            rules[layer] = rule
            layer._dispatch_cache.clear()


def _on_fakes(steps: Any) -> Any:
    """A rule that gives shapes, where nobody sees the steps that PyTorch's rule goes through."""
    from torch.fx.experimental.proxy_tensor import get_proxy_mode

    def rule(input: Any, hx: Any, *options: Any) -> Any:
        if get_proxy_mode() is not None:
            return steps(input, hx, *options)
        *_, bidirectional, batch_first = options
        states = [hx] if hasattr(hx, "shape") else hx
        first, second = input.shape[:2]
        if batch_first:
            first, second = second, first
        width = states[0].shape[2] * (2 if bidirectional else 1)
        every = input.new_empty((first, second, width))
        every = every.transpose(0, 1) if batch_first else every
        return (every, *(state.new_empty(state.shape) for state in states))

    return rule


RECURRENT: dict[str, Lowering] = {
    "rnn_tanh.input": _layers(recurrent.RNN_TANH),
    "rnn_relu.input": _layers(recurrent.RNN_RELU),
    "gru.input": _layers(recurrent.GRU),
    "lstm.input": _layers(recurrent.LSTM),
}
"""Operator to lowering."""
