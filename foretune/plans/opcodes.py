"""Operators of Relax as operations of XLA, whose numbers TpuGraphs uses.

An operator without an equivalent is ``custom-call`` where it is a kernel of ours, ``fusion`` where
XLA would have several operations (a softmax, a GELU), and 0 where it is not listed here.

The numbers are those of ``foretune.tgraph.opcodes``, which reads TpuGraphs' own files.
"""

from __future__ import annotations

from foretune.tgraph.opcodes import OPCODES

_OPERATORS = {
    "abs": "abs",
    "add": "add",
    "and": "bitwise_and logical_and",
    "batch-norm-inference": "batch_norm",
    "broadcast": "broadcast_to full full_like ones ones_like repeat tile zeros zeros_like",
    "ceil": "ceil",
    "clamp": "clip",
    "compare": "equal greater greater_equal less less_equal not_equal",
    "concatenate": "concat stack",
    "convert": "astype",
    "convolution": ("conv1d conv2d conv3d conv1d_transpose conv2d_transpose conv3d_transpose"),
    "cosine": "cos",
    "divide": "divide floor_divide",
    "dot": "einsum matmul",
    "dynamic-slice": "dynamic_strided_slice",
    "exponential": "exp",
    "floor": "floor trunc",
    "fusion": (
        "attention attention_var_len batch_flatten dropout gelu gelu_tanh group_norm instance_norm "
        "layer_norm leakyrelu log_softmax prelu rms_norm selu silu softmax softplus std variance"
    ),
    "gather": "gather_elements gather_nd index_tensor take",
    "iota": "arange",
    "is-finite": "isfinite isinf isnan",
    "log": "log",
    "logistic": "sigmoid",
    "maximum": "maximum relu",
    "minimum": "minimum",
    "multiply": "multiply square",
    "negate": "bitwise_not negative",
    "not": "logical_not",
    "or": "bitwise_or logical_or",
    "pad": "pad",
    "power": "power",
    "reduce": "argmax argmin max mean min prod sum",
    "reduce-window": (
        "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d avg_pool1d avg_pool2d "
        "avg_pool3d cumprod cumsum max_pool1d max_pool2d max_pool3d"
    ),
    "remainder": "floor_mod mod",
    "reshape": "expand_dims flatten reshape squeeze",
    "reverse": "flip",
    "round-nearest-even": "round",
    "rsqrt": "rsqrt",
    "scatter": "index_put scatter_elements scatter_nd slice_scatter",
    "select": "where",
    "sign": "sign",
    "sine": "sin",
    "slice": "split strided_slice",
    "sort": "argsort sort topk",
    "sqrt": "sqrt",
    "subtract": "subtract",
    "tan": "tan",
    "tanh": "tanh",
    "transpose": "permute_dims",
    "xor": "bitwise_xor logical_xor",
}

OPERATIONS = {
    operator: operation for operation, names in _OPERATORS.items() for operator in names.split()
}
"""Name of an operator of Relax, without where it is from, to the operation of XLA."""


def number_of(operator: str, program: bool) -> int:
    """The number of an operator.

    Args:
        operator: Its name; of a tensor program the name of that.
        program: Whether it is a call of one of our tensor programs.
    """
    operation = OPERATIONS.get(operator)
    if operation is not None:
        return OPCODES[operation]
    return OPCODES["custom-call"] if program else 0
