"""Operators of Relax as operations of XLA, whose numbers TpuGraphs uses.

An operator without an equivalent is ``custom-call`` where it is a kernel of ours, ``fusion`` where
XLA would have several operations (a softmax, a GELU), and 0 where it is not listed here.

Source: ``tpu_graphs/process_data/xla/hlo_opcode.h`` of google-research-datasets/tpu_graphs; a test
compares the numbers with those that ``foretune.tgraph`` reads.
"""

from __future__ import annotations

NUMBERS = {
    "abs": 1,
    "add": 2,
    "and": 52,
    "batch-norm-inference": 9,
    "broadcast": 13,
    "ceil": 15,
    "clamp": 17,
    "compare": 20,
    "concatenate": 22,
    "constant": 24,
    "convert": 25,
    "convolution": 26,
    "cosine": 30,
    "custom-call": 31,
    "divide": 32,
    "dot": 34,
    "dynamic-slice": 35,
    "exponential": 37,
    "floor": 40,
    "fusion": 41,
    "gather": 42,
    "get-tuple-element": 45,
    "iota": 48,
    "is-finite": 49,
    "log": 50,
    "logistic": 107,
    "maximum": 57,
    "minimum": 58,
    "multiply": 59,
    "negate": 60,
    "not": 53,
    "or": 54,
    "pad": 62,
    "parameter": 63,
    "power": 66,
    "reduce": 70,
    "reduce-window": 72,
    "remainder": 73,
    "reshape": 75,
    "reverse": 76,
    "round-nearest-even": 118,
    "rsqrt": 81,
    "scatter": 82,
    "select": 83,
    "sign": 90,
    "sine": 91,
    "slice": 92,
    "sort": 93,
    "sqrt": 94,
    "subtract": 95,
    "tan": 120,
    "tanh": 96,
    "transpose": 98,
    "tuple": 100,
    "xor": 55,
}
"""Operation of XLA to its number."""

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
        return NUMBERS[operation]
    return NUMBERS["custom-call"] if program else 0
