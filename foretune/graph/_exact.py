"""What the original computes in float64: the measure of how exact others are.

It is the original's own program that is widened, not what was imported from it: against an import
that computes something else the artifact would look exact, and the original wrong. PyTorch runs
each operator on widened tensors; an ONNX graph is run by ONNX's reference evaluator with every
tensor and every cast widened.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from foretune._arrays import Array
from foretune.graph._tolerance import arithmetic_of
from foretune.workload import Model, OnnxSource, TorchSource
from foretune.workload.element_types import is_float

PYTORCH, ONNX = "float64 (PyTorch)", "float64 (onnx.reference)"
PLAIN = "ONNX Runtime, operator by operator"
# Multiply-adds of an ONNX graph up to which its reference evaluator takes seconds.
_ONNX_LIMIT = 2e10
_UNIT = 2.0**-24
_RUNS = 3

_Move = Callable[[Any], Any]


@dataclass(frozen=True)
class Exact:
    """What the original's program gives, rounded otherwise than by its own runtime.

    Attributes:
        outputs: In float64; of a network that rounds to bytes, in its own types, one operator after
            the other.
        own: In its own types, each operator's result rounded to them; None where the runtime does
            just that.
        by: Who computed them.
        spread: How far the numbers of ``outputs`` move where each operator's result moves within
            its rounding unit in float32; None where nobody asked, or nobody can tell.
    """

    outputs: list[Array]
    own: list[Array] | None
    by: str
    spread: list[Array] | None = None


def exact_outputs(model: Model, inputs: Sequence[Array]) -> Exact | None:
    """Outputs of the original computed in float64.

    Returns:
        None where nobody can: a program without an original, one that needs its own types or
        changes its state, or an ONNX graph that would take minutes.
    """
    # Foreign programs that were not written for float64 raise whatever they like.
    with contextlib.suppress(Exception), np.errstate(all="ignore"), _silence():
        if isinstance(model.source, TorchSource):
            return Exact(_run_torch(model, inputs), None, PYTORCH)
        arithmetic = arithmetic_of(model)
        if isinstance(model.source, OnnxSource) and arithmetic.rounds_to_bytes:
            # In float64 other bytes come out than in either runtime; what says how far rounding
            # goes is the same graph, rounded where its operators say so and nowhere else.
            return Exact(model.source.prepare(rewrites=False)(inputs), None, PLAIN)
        if isinstance(model.source, OnnxSource) and arithmetic.work <= _ONNX_LIMIT:
            own = _run_onnx(model.source, inputs, widen=False) if arithmetic.halves else None
            return Exact(_run_onnx(model.source, inputs, widen=True), own, ONNX)
    return None


def with_spread(exact: Exact, model: Model, inputs: Sequence[Array]) -> Exact:
    """``exact`` with its ``spread``, that of three runs with other seeds.

    The original's own error is one sample of what rounding does, and may be small by luck. Here the
    program in float64 is run with a relative error in every result of an operator that float32
    cannot hold, drawn at random within half of the last place: Monte Carlo arithmetic (Parker,
    1997), with the rounding of results alone.
    """
    runs = []
    with contextlib.suppress(Exception), np.errstate(all="ignore"), _silence():
        for seed in range(_RUNS):
            moved = _moving(seed)
            if exact.by == PYTORCH:
                runs.append(_run_torch(model, inputs, moved))
            elif exact.by == ONNX and isinstance(model.source, OnnxSource):
                runs.append(_run_onnx(model.source, inputs, widen=True, moved=moved))
    if len(runs) < _RUNS or any(len(run) != len(exact.outputs) for run in runs):
        return exact
    each = [
        np.max([_apart(run[at], wanted) for run in runs], axis=0)
        for at, wanted in enumerate(exact.outputs)
    ]
    return replace(exact, spread=each)


def _moving(seed: int) -> _Move:
    """Moves the float64 numbers of an array or a tensor that float32 would round."""
    rng = np.random.default_rng(seed)

    def moved(value: Any) -> Any:
        if str(value.dtype).rpartition(".")[2] != "float64":
            return value
        numbers = np.asarray(value)
        factors = 1.0 + _UNIT * rng.uniform(-1.0, 1.0, numbers.shape)
        scaled = np.where(numbers.astype("float32") == numbers, numbers, numbers * factors)
        return value.new_tensor(scaled) if hasattr(value, "new_tensor") else scaled

    return moved


def _apart(moved: Array, wanted: Array) -> Array:
    """How far numbers moved; infinitely where only one is a number, or the shape is another."""
    if moved.shape != wanted.shape:
        return np.full(wanted.shape, np.inf)
    if not is_float(wanted.dtype):
        return np.asarray(moved != wanted, "float64")
    same = (moved == wanted) | (np.isnan(moved) & np.isnan(wanted))
    return np.where(same, 0.0, np.nan_to_num(np.abs(moved - wanted), nan=np.inf))


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Some operators of ONNX's evaluator print and warn."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _run_torch(model: Model, inputs: Sequence[Array], moved: _Move | None = None) -> list[Array]:
    import torch
    from torch.overrides import TorchFunctionMode
    from torch.utils import _pytree as pytree
    from torch.utils._python_dispatch import TorchDispatchMode

    narrow = (torch.float16, torch.bfloat16, torch.float32)

    def widened(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.dtype in narrow:
            return value.double()
        return torch.float64 if isinstance(value, torch.dtype) and value in narrow else value

    class Widening(TorchDispatchMode):  # type: ignore[misc, no-untyped-call]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            leaves = pytree.tree_leaves((args, kwargs or {}))
            low = any(isinstance(v, torch.Tensor) and v.dtype in narrow for v in leaves)
            if "view.dtype" in str(func) or (low and func._schema.is_mutable):
                raise TypeError(f"{func} depends on the width of its argument")
            args, kwargs = pytree.tree_map(widened, (tuple(args), dict(kwargs or {})))
            result = func(*args, **kwargs)
            # A view, or a tensor that was written to, has to stay the one it is.
            if moved is None or any(each.alias_info for each in func._schema.returns):
                return result
            return pytree.tree_map_only(torch.Tensor, moved, result)

    class Early(TorchFunctionMode):  # type: ignore[misc]
        """Some functions compare the types of their arguments before they come to operators."""

        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = dict(kwargs or {})
            # What changes a tensor, or asks for a property of it, must get that tensor.
            if not str(getattr(func, "__name__", "_")).endswith("_"):
                args, kwargs = pytree.tree_map(widened, (tuple(args), kwargs))
            return func(*args, **kwargs)

    with Widening(), Early():  # type: ignore[no-untyped-call]
        return model.reference(inputs)


def _run_onnx(
    source: OnnxSource, inputs: Sequence[Array], widen: bool, moved: _Move | None = None
) -> list[Array]:
    from onnx.reference import ReferenceEvaluator

    proto = source.proto()
    held = {tensor.name for tensor in proto.graph.initializer}
    names = [value.name for value in proto.graph.input if value.name not in held]
    free = [name for name in names if name not in source.constants]
    feed = dict(zip(free, inputs, strict=True))
    feed |= {name: array for name, array in source.constants.items() if name in names}
    if widen:
        _widen_graph(proto.graph)
        for function in proto.functions:
            _widen_nodes(function.node)
        feed = {n: a.astype("float64") if is_float(a.dtype) else a for n, a in feed.items()}
    evaluator = ReferenceEvaluator(proto)
    if moved is not None:
        for node in evaluator.rt_nodes_:
            node.run = _then_moved(node.run, moved)
    return [np.asarray(output) for output in evaluator.run(None, feed)]


def _then_moved(run: Callable[..., Any], moved: _Move) -> Callable[..., Any]:
    """A node of ONNX's evaluator whose results move."""

    def run_and_move(*args: Any, **kwargs: Any) -> Any:
        results = run(*args, **kwargs)
        return tuple(moved(each) if isinstance(each, np.ndarray) else each for each in results)

    return run_and_move


def _narrow() -> set[int]:
    import onnx

    kinds = onnx.TensorProto
    return {kinds.FLOAT, kinds.FLOAT16, kinds.BFLOAT16}


def _widen_graph(graph: Any) -> None:
    import onnx

    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type in _narrow():
            value.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    _widen_nodes(graph.node)


def _widen_nodes(nodes: Any) -> None:
    """Widens constants, the types that nodes cast to or create, and graphs inside of nodes."""
    import onnx

    for node in nodes:
        if node.op_type == "BitCast":
            raise TypeError("BitCast depends on the width of its argument")
        for attribute in node.attribute:
            if attribute.HasField("t"):
                _widen_tensor(attribute.t)
            if attribute.HasField("g"):
                _widen_graph(attribute.g)
            if attribute.name in ("to", "dtype", "stash_type") and attribute.i in _narrow():
                attribute.i = onnx.TensorProto.DOUBLE
        numbers = [a for a in node.attribute if a.name in ("value_float", "value_floats")]
        if node.op_type == "Constant" and numbers:
            number, single = numbers[0], numbers[0].name == "value_float"
            array = np.array(number.f if single else list(number.floats), "float64")
            del node.attribute[:]
            tensor = onnx.numpy_helper.from_array(array)
            node.attribute.append(onnx.helper.make_attribute("value", tensor))


def _widen_tensor(tensor: Any) -> None:
    import onnx

    if tensor.data_type in _narrow():
        array = onnx.numpy_helper.to_array(tensor).astype("float64")
        tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
