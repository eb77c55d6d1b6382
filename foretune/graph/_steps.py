"""By how much outputs of a quantised network may differ without being another result.

A network that rounds to bytes inside decides between two neighbours wherever a sum lies between
them, and the last bit of that sum depends on the order of additions. So an output that is quantised
may be one step away. And what one layer rounds otherwise, the next layers amplify: there the
original is set beside itself, run operator by operator (``_exact``, ``_judge``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from foretune.graph.passes.rewrites import is_constant

if TYPE_CHECKING:
    from foretune.workload import Model

_KEEPING = frozenset(
    {
        *("relax.reshape", "relax.permute_dims", "relax.expand_dims", "relax.squeeze"),
        *("relax.strided_slice", "relax.nn.relu", "relax.nn.max_pool2d"),
    }
)
"""Operators whose result is among the numbers they are given."""
_ROUNDING = 1 + 1e-5
"""A step is a float32: so is the difference of two multiples of it."""


def output_steps(model: Model) -> list[float]:
    """Per output the step that it is quantised with, in its own units; 0 where it is not."""
    from foretune import _tvm

    relax, function = _tvm.tvm.relax, model.module["main"]
    values = relax.analysis.get_var2val(function)
    body = function.body
    result = body.body if isinstance(body, relax.SeqExpr) else body
    while isinstance(result, relax.Var) and result in values:
        result = values[result]
    single = len(model.outputs) == 1 and not isinstance(result, relax.Tuple)
    return [_step(part, values) for part in ([result] if single else result.fields)]


def _step(expression: Any, values: Any) -> float:
    from foretune import _tvm

    while True:
        call = expression
        while isinstance(call, _tvm.tvm.relax.Var) and call in values:
            call = values[call]
        name = str(getattr(getattr(call, "op", None), "name", ""))
        if name == "relax.quantize":
            return 1.0
        if name == "relax.dequantize":
            scale = call.args[1]
            known = is_constant(scale)
            return float(np.abs(scale.value.numpy()).max()) * _ROUNDING if known else 0.0
        if name == "relax.astype" and str(call.ty.dtype) in ("int8", "uint8"):
            return 1.0 if str(call.args[0].ty.dtype).startswith("float") else 0.0
        if name not in _KEEPING:
            return 0.0
        expression = call.args[0]
