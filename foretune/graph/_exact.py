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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foretune.graph._tolerance import arithmetic_of
from foretune.workload import Model, OnnxSource, TorchSource
from foretune.workload.model import Array, is_float

PYTORCH, ONNX = "float64 (PyTorch)", "float64 (onnx.reference)"
PLAIN = "ONNX Runtime, operator by operator"
# Multiply-adds of an ONNX graph up to which its reference evaluator takes seconds.
_ONNX_LIMIT = 2e10


@dataclass(frozen=True)
class Exact:
    """What the original's program gives, rounded otherwise than by its own runtime.

    Attributes:
        outputs: In float64; of a network that rounds to bytes, in its own types, one operator after
            the other.
        own: In its own types, each operator's result rounded to them; None where the runtime does
            just that.
        by: Who computed them.
    """

    outputs: list[Array]
    own: list[Array] | None
    by: str


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


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Some operators of ONNX's evaluator print and warn."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _run_torch(model: Model, inputs: Sequence[Array]) -> list[Array]:
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
            return func(*args, **kwargs)

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


def _run_onnx(source: OnnxSource, inputs: Sequence[Array], widen: bool) -> list[Array]:
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
    return [np.asarray(output) for output in ReferenceEvaluator(proto).run(None, feed)]


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
