"""Quantised ONNX operators against ONNX Runtime, each compiled with default schedules.

Weights have seven bits: ONNX Runtime's own kernels for AVX2 saturate sums of two products of
larger ones.
"""

from __future__ import annotations

import numpy as np
import pytest

from foretune.graph import compile_model
from foretune.hardware import probe
from foretune.workload import load_input

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import helper, numpy_helper  # noqa: E402

RNG = np.random.default_rng(0)


def octets(*shape, dtype="uint8"):
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max + 1, shape).astype(dtype)


def weights(*shape, dtype="int8"):
    low = -64 if dtype == "int8" else 64
    return RNG.integers(low, low + 128, shape).astype(dtype)


def floats(*shape):
    return RNG.standard_normal(shape).astype("float32")


def f(*values):
    return np.array(values if len(values) > 1 else values[0], "float32")


CONV = {"xs": f(0.02), "xz": np.uint8(120)}
OUT = {"ys": f(0.3), "yz": np.uint8(128)}
SIGNED = {"ys": f(0.3), "yz": np.int8(-7)}
MS = "com.microsoft"
CASES = {
    "convolution by channel": (
        "QLinearConv", {"x": octets(1, 2, 5, 5)},
        {**CONV, "w": weights(3, 2, 3, 3), "ws": f(0.01, 0.02, 0.03), "wz": np.zeros(3, "int8"),
         **OUT, "b": RNG.integers(-900, 900, 3).astype("int32")}, {"pads": [1, 0, 1, 2]}),
    "signed convolution in groups": (
        "QLinearConv", {"x": octets(2, 4, 6, 5, dtype="int8")},
        {"xs": f(0.02), "xz": np.int8(-30), "w": weights(6, 2, 3, 2), "ws": f(0.02),
         "wz": np.int8(0), **SIGNED}, {"group": 2, "strides": [2, 1], "dilations": [1, 2]}),
    "convolution, weights with a zero point": (
        "QLinearConv", {"x": octets(1, 3, 5, 5)},
        {**CONV, "w": weights(4, 3, 1, 1, dtype="uint8"), "ws": f(0.01), "wz": np.uint8(126),
         **OUT}, {"strides": [2, 2]}),
    "product": (
        "QLinearMatMul", {"a": octets(2, 3, 8)},
        {**CONV, "b": weights(8, 5), "bs": f(0.01), "bz": np.int8(3), **OUT}, {}),
    "product by column": (
        "QLinearMatMul", {"a": octets(3, 8, dtype="int8")},
        {"as": f(0.02), "az": np.int8(5), "b": weights(8, 2), "bs": f(0.01, 0.03),
         "bz": np.zeros(2, "int8"), **SIGNED}, {}),
    "product of two that are computed": (
        "QLinearMatMul", {"a": octets(3, 4), "as": f(0.02), "az": np.array(9, "uint8"),
                          "b": weights(4, 2, dtype="uint8")},
        {"bs": f(0.01), "bz": np.uint8(110), **OUT}, {}),
    "integer convolution": (
        "ConvInteger", {"x": octets(1, 2, 5, 5)},
        {"w": weights(3, 2, 3, 3), "xz": np.uint8(77), "wz": np.int8(0)}, {"pads": [1, 1, 0, 0]}),
    "integer product": (
        "MatMulInteger", {"a": octets(2, 3, 4), "b": weights(4, 5)},
        {"az": np.uint8(7), "bz": np.int8(-3)}, {}),
    "integer product by column": (
        "MatMulInteger", {"a": octets(3, 4, dtype="uint8")},
        {"b": weights(4, 2), "az": np.uint8(7), "bz": np.array([1, -5], "int8")}, {}),
    "integer product without zero points": (
        "MatMulInteger", {"a": octets(3, 4)}, {"b": weights(4, 2)}, {}),
    "dynamic": ("DynamicQuantizeLinear", {"x": floats(3, 40)}, {}, {}),
    "dynamic, positive": ("DynamicQuantizeLinear", {"x": np.abs(floats(3, 4)) + 1}, {}, {}),
    "dynamic, negative": ("DynamicQuantizeLinear", {"x": -np.abs(floats(3, 4)) - 1}, {}, {}),
    "dynamic, zeros": ("DynamicQuantizeLinear", {"x": np.zeros((3, 4), "float32")}, {}, {}),
    "quantise, ties": (
        "QuantizeLinear", {"x": np.arange(-300, 300, dtype="float32") / 4}, {"s": f(0.5),
         "z": np.uint8(10)}, {}),
    "quantise by axis": (
        "QuantizeLinear", {"x": floats(2, 3, 4) * 90},
        {"s": f(0.5, 1, 2), "z": np.array([0, 9, -9], "int8")}, {"axis": -2}),
    "quantise without zero point": ("QuantizeLinear", {"x": floats(5) * 90}, {"s": f(0.5)}, {}),
    "dequantise by axis": (
        "DequantizeLinear", {"x": octets(2, 3, 4)},
        {"s": f(0.5, 1, 2), "z": np.array([0, 9, 255], "uint8")}, {"axis": 1}),
    "dequantise words": (
        "DequantizeLinear", {"x": RNG.integers(-9999, 9999, (3, 4)).astype("int32")},
        {"s": f(0.001)}, {}),
    f"{MS}.QLinearAdd": (
        f"{MS}.QLinearAdd", {"a": octets(2, 3, 4)},
        {**CONV, "b": octets(3, 1), "bs": f(0.3), "bz": np.uint8(3), **OUT}, {}),
    f"{MS}.QLinearMul": (
        f"{MS}.QLinearMul", {"a": octets(2, 3, dtype="int8"), "as": f(0.13),
         "az": np.array(4, "int8"),
         "b": octets(2, 3, dtype="int8")}, {"bs": f(0.3), "bz": np.int8(3), **SIGNED}, {}),
    f"{MS}.QLinearSigmoid": (
        f"{MS}.QLinearSigmoid", {"x": octets(40)},
        {**CONV, "ys": f(1 / 256), "yz": np.uint8(0)}, {}),
    f"{MS}.QLinearLeakyRelu": (
        f"{MS}.QLinearLeakyRelu", {"x": octets(40)},
        {**CONV, "ys": f(0.02), "yz": np.uint8(60)}, {"alpha": 0.2}),
    f"{MS}.QLinearGlobalAveragePool": (
        f"{MS}.QLinearGlobalAveragePool", {"x": octets(1, 4, 5, 5)},
        {**CONV, "ys": f(0.02), "yz": np.uint8(110)}, {"channels_last": 0}),
    f"{MS}.QGemm": (
        f"{MS}.QGemm", {"a": octets(3, 8)},
        {**CONV, "b": weights(5, 8), "bs": f(0.01, 0.02, 0.03, 0.04, 0.05),
         "bz": np.zeros(5, "int8"), "c": RNG.integers(-900, 900, 5).astype("int32"), **OUT},
        {"transB": 1, "alpha": 0.5}),
    f"{MS}.DequantizeLinear": (
        f"{MS}.DequantizeLinear", {"x": octets(3, 4)}, {"s": f(0.3), "z": np.uint8(9)}, {}),
}  # fmt: skip
CASES[f"{MS}.QLinearConcat"] = (
    f"{MS}.QLinearConcat",
    {"x": octets(2, 3)},
    {**OUT, **CONV, "b": octets(2, 2), "bs": f(0.3), "bz": np.uint8(3)},
    {"axis": 1},
)
ORDER = {"QLinearConcat": ["ys", "yz", "x", "xs", "xz", "b", "bs", "bz"]}
RESULTS = {"DynamicQuantizeLinear": 3}


def load(folder, op, inputs, constants, attributes, outputs=1):
    domain, _, op = op.rpartition(".")
    kind = helper.np_dtype_to_tensor_dtype
    names = ORDER.get(op, [*inputs, *constants])
    graph = helper.make_graph(
        [helper.make_node(op, names, [f"y{at}" for at in range(outputs)], domain=domain,
                          **attributes)],
        "one",
        [helper.make_tensor_value_info(n, kind(a.dtype), a.shape) for n, a in inputs.items()],
        [
            helper.make_tensor_value_info(
                f"y{at}", kind(constants["yz"].dtype if "yz" in constants else np.dtype("float32")),
                [None] * next(iter(inputs.values())).ndim,
            )
            if domain
            else helper.make_empty_tensor_value_info(f"y{at}")
            for at in range(outputs)
        ],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()],
    )  # fmt: skip
    sets = [helper.make_opsetid("", 20), helper.make_opsetid(MS, 1)]
    proto = helper.make_model(graph, opset_imports=sets, ir_version=9)
    path = folder / "one.onnx"
    onnx.save(onnx.shape_inference.infer_shapes(proto), str(path))
    return load_input(str(path))


@pytest.mark.parametrize("case", CASES)
def test_a_quantised_operator_computes_what_onnx_runtime_does(case, tmp_path):
    op, inputs, constants, attributes = CASES[case]
    outputs = RESULTS.get(op, 1)
    model = load(tmp_path, op, inputs, constants, attributes, outputs)
    given = list(inputs.values())
    expected = model.reference(given)
    found = compile_model(model, probe(threads=1), {}).run(given)
    assert [(a.shape, a.dtype) for a in found] == [(a.shape, a.dtype) for a in expected]
    # Sums that are rounded again may fall to either side of a tie; what is only stored may not.
    step = 1 if op.rpartition(".")[2].startswith("QLinear") else 0
    for got, wanted in zip(found, expected, strict=True):
        if wanted.dtype.kind == "f":
            np.testing.assert_allclose(got, wanted, rtol=1e-6)
        else:
            np.testing.assert_allclose(got.astype(int), wanted.astype(int), rtol=0, atol=step)
            assert np.mean(got != wanted) < 0.1
