"""Each lowering of an ONNX operator against ONNX Runtime, compiled with default schedules."""

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


def floats(*shape, dtype="float32"):
    return RNG.standard_normal(shape).astype(dtype)


def ints(*shape, low=0, high=8, dtype="int64"):
    return RNG.integers(low, high, shape).astype(dtype)


INFINITE = np.array([[-np.inf, -np.inf], [np.inf, 1.0], [np.nan, np.inf]], "float32")[:2]
POOL = floats(1, 2, 9, 7)
GRID = (RNG.random((2, 5, 4, 2)).astype("float32") * 2.6 - 1.3).astype("float32")
SEQUENCE = {"x": floats(2, 2, 3)}


def cell(gates, directions=1, hidden=4, bias=True):
    weights = {"w": floats(directions, gates * hidden, 3) / 2}
    weights["r"] = floats(directions, gates * hidden, hidden) / 2
    if bias:
        weights["b"] = floats(directions, 2 * gates * hidden) / 2
    return weights


CASES = {
    "max of one": ("Max", {"a": floats(3)}, {}, {}, 1),
    "min of three": ("Min", {"a": floats(3), "b": floats(2, 3), "c": floats(1)}, {}, {}, 1),
    "mean broadcasts": ("Mean", {"a": floats(3), "b": floats(2, 1)}, {}, {}, 1),
    "integer maximum": ("Max", {"a": ints(4), "b": ints(4)}, {}, {}, 1),
    "maximum of infinities": ("ReduceMax", {"a": INFINITE}, {"axes": np.array([1])}, {}, 1),
    "minimum without axes": ("ReduceMin", {"a": floats(2, 3)}, {}, {"keepdims": 0}, 1),
    "integer power": ("Pow", {"a": ints(5), "b": ints(5, high=4)}, {}, {}, 1),
    "float to integer power": ("Pow", {"a": floats(5), "b": ints(5, high=4)}, {}, {}, 1),
    "cumulated, reversed, exclusive": (
        "CumSum", {"a": floats(2, 5)}, {"axis": np.array(1)}, {"reverse": 1, "exclusive": 1}, 1),
    "slopes": ("PRelu", {"a": floats(2, 3, 4), "s": floats(3, 1)}, {}, {}, 1),
    "determinant": ("Det", {"a": floats(2, 3, 3)}, {}, {}, 1),
    "hardmax with ties": ("Hardmax", {"a": ints(3, 4).astype("float32")}, {}, {"axis": 0}, 1),
    "fmod": ("Mod", {"a": floats(7) * 9, "b": floats(7)}, {}, {"fmod": 1}, 1),
    "infinity of one sign": ("IsInf", {"a": INFINITE}, {}, {"detect_positive": 0}, 1),
    "dropout's mask": ("Dropout", {"a": floats(3)}, {}, {}, 2),
    "max pool, same lower": (
        "MaxPool", {"a": POOL}, {},
        {"kernel_shape": [3, 2], "strides": [2, 2], "auto_pad": "SAME_LOWER"}, 1),
    "max pool with places": (
        "MaxPool", {"a": POOL}, {},
        {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}, 2),
    "max pool, dilated, rounded up": (
        "MaxPool", {"a": POOL}, {},
        {"kernel_shape": [2, 2], "dilations": [2, 3], "strides": [3, 2], "ceil_mode": 1}, 1),
    "average pool, one axis, rounded up": (
        "AveragePool", {"a": floats(1, 2, 10)}, {},
        {"kernel_shape": [3], "strides": [2], "pads": [1, 0], "ceil_mode": 1}, 1),
    "average pool, dilated, same": (
        "AveragePool", {"a": POOL}, {},
        {"kernel_shape": [3, 3], "strides": [1, 2], "dilations": [2, 2],
         "auto_pad": "SAME_UPPER"}, 1),
    "average pool counts padding": (
        "AveragePool", {"a": POOL}, {},
        {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1,
         "strides": [2, 2], "ceil_mode": 1}, 1),
    "p-norm pool": (
        "LpPool", {"a": POOL}, {}, {"kernel_shape": [2, 3], "strides": [2, 2], "p": 3}, 1),
    "transposed convolution to a size": (
        "ConvTranspose", {"a": floats(1, 2, 5, 4)}, {"w": floats(2, 3, 3, 3)},
        {"strides": [2, 3], "output_shape": [10, 12], "auto_pad": "SAME_LOWER"}, 1),
    "one-hot, negative": (
        "OneHot", {"i": np.array([-1, 0, 3, 9])},
        {"d": np.array(5), "v": np.array([2, 7], "int32")}, {"axis": 0}, 1),
    "pad by reflection": (
        "Pad", {"a": floats(3, 4)}, {"p": np.array([1, 2, 2, 0])}, {"mode": "reflect"}, 1),
    "pad, wrapped, some axes": (
        "Pad", {"a": floats(3, 4)}, {"p": np.array([3, 2]), "": None, "x": np.array([-1])},
        {"mode": "wrap"}, 1),
    "pad cuts": (
        "Pad", {"a": floats(3, 4)}, {"p": np.array([-1, 2, 1, -2]), "v": np.float32(3)}, {}, 1),
    "columns to image": (
        "Col2Im", {"a": floats(1, 2 * 6, 12)},
        {"i": np.array([5, 5]), "k": np.array([2, 3])}, {}, 1),
    "sequences of own lengths": (
        "ReverseSequence", {"a": floats(4, 3), "n": np.array([1, 4, 2])}, {}, {}, 1),
    "softplus far from zero": (
        "Softplus", {"a": np.array([-60, -15, -1e-3, 0, 3, 90], "float32")}, {}, {}, 1),
    "space to depth": ("SpaceToDepth", {"a": floats(2, 3, 4, 6)}, {}, {"blocksize": 2}, 1),
    "triangle": ("Trilu", {"a": floats(3, 4)}, {"k": np.array(-1)}, {"upper": 0}, 1),
    "RNN, reversed": (
        "RNN", SEQUENCE, cell(1), {"hidden_size": 4, "direction": "reverse"}, 2),
    "GRU, both ways": (
        "GRU", SEQUENCE, cell(3, 2), {"hidden_size": 4, "direction": "bidirectional"}, 2),
    "GRU, reset behind": (
        "GRU", SEQUENCE, cell(3), {"hidden_size": 4, "linear_before_reset": 1}, 2),
    "LSTM": ("LSTM", SEQUENCE, cell(4), {"hidden_size": 4}, 3),
    "LSTM of own lengths": (
        "LSTM", SEQUENCE, {**cell(4), "n": np.array([1, 2], "int32")}, {"hidden_size": 4}, 3),
    "quantised product": (
        "QLinearMatMul", {"a": ints(3, 4, high=255, dtype="uint8")},
        {"as": np.float32(0.02), "az": np.uint8(120), "b": ints(4, 2, high=255, dtype="uint8"),
         "bs": np.float32(0.01), "bz": np.uint8(110), "ys": np.float32(0.05),
         "yz": np.uint8(128)}, {}, 1),
    "quantised convolution": (
        "QLinearConv", {"a": ints(1, 2, 5, 5, high=255, dtype="uint8")},
        {"as": np.float32(0.02), "az": np.uint8(120),
         "w": ints(3, 2, 3, 3, low=-90, high=90, dtype="int8"),
         "ws": np.array([0.01, 0.02, 0.03], "float32"), "wz": np.zeros(3, "int8"),
         "ys": np.float32(0.3), "yz": np.uint8(128), "b": ints(3, dtype="int32")}, {}, 1),
}  # fmt: skip
for method in ("nearest", "linear", "cubic"):
    for padding in ("zeros", "border", "reflection"):
        CASES[f"grid sample {method} {padding}"] = (
            "GridSample", {"a": floats(2, 3, 6, 5), "g": GRID}, {},
            {"mode": method, "padding_mode": padding, "align_corners": 0}, 1)  # fmt: skip
for method, coordinates, extra in [
    ("nearest", "half_pixel", {"nearest_mode": "ceil"}),
    ("nearest", "asymmetric", {"nearest_mode": "floor"}),
    ("linear", "half_pixel", {}),
    ("linear", "align_corners", {}),
    ("linear", "pytorch_half_pixel", {"antialias": 1}),
    ("cubic", "half_pixel", {"exclude_outside": 1}),
    ("cubic", "asymmetric", {"cubic_coeff_a": -0.5}),
]:
    for sizes in ([1, 2, 11, 13], [1, 2, 4, 3]):
        CASES[f"resize {method} {coordinates} to {sizes[2]}"] = (
            "Resize",
            {"a": POOL},
            {"": None, " ": None, "s": np.array(sizes)},
            {"mode": method, "coordinate_transformation_mode": coordinates, **extra},
            1,
        )


SLOW = {"GRU, both ways", "GRU, reset behind", "LSTM of own lengths", "RNN, reversed"}
# Each method and each padding is there once on every day.
SLOW |= {case for case in CASES if case.startswith("resize") and case.endswith("to 4")}
SLOW |= {
    f"grid sample {case}"
    for case in (
        "nearest zeros", "nearest reflection", "linear zeros", "linear border", "cubic border",
        "cubic reflection",
    )
}  # fmt: skip


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=[pytest.mark.slow] if c in SLOW else []) for c in CASES]
)
def test_a_lowering_computes_what_onnx_runtime_does(case, tmp_path):
    op, inputs, constants, attributes, outputs = CASES[case]
    if op in ("RNN", "GRU", "LSTM") and "n" in constants:
        names = ["x", "w", "r", "b", "n"]
    else:
        names = [name.strip() for name in (*inputs, *constants)]
    kind = helper.np_dtype_to_tensor_dtype
    graph = helper.make_graph(
        [helper.make_node(op, names, [f"y{at}" for at in range(outputs)], **attributes)],
        "one",
        [helper.make_tensor_value_info(n, kind(a.dtype), a.shape) for n, a in inputs.items()],
        [helper.make_empty_tensor_value_info(f"y{at}") for at in range(outputs)],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items() if n.strip()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    path = tmp_path / "one.onnx"
    onnx.save(onnx.shape_inference.infer_shapes(proto), str(path))
    model = load_input(str(path))
    given = list(inputs.values())
    expected = model.reference(given)
    found = compile_model(model, probe(threads=1), {}).run(given)
    assert [(a.shape, a.dtype) for a in found] == [(a.shape, a.dtype) for a in expected]
    for got, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize(
    ("op", "low", "high", "inner"),
    [("Elu", 1.3, 1.0, 1.0), ("Celu", 1.3, 1.0, 1.3), ("Selu", 1.3, 0.7, 1.0)],
)
def test_exponential_units_lose_nothing_near_zero(op, low, high, inner, dtype, tmp_path):
    rng = np.random.default_rng(0)
    data = np.concatenate([rng.normal(0, 2, 99), 1e-3 * rng.normal(0, 1, 99), [0, 300, -300]])
    data = data.astype(dtype)
    attributes = {"alpha": low} | ({"gamma": high} if op == "Selu" else {})
    kind = helper.np_dtype_to_tensor_dtype(data.dtype)
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], ["y"], **attributes)],
        "one",
        [helper.make_tensor_value_info("x", kind, data.shape)],
        [helper.make_tensor_value_info("y", kind, data.shape)],
    )
    latest = helper.make_opsetid("", onnx.defs.onnx_opset_version())  # Celu of every type
    proto = helper.make_model(graph, opset_imports=[latest])
    path = tmp_path / "one.onnx"
    onnx.save(proto, str(path))
    (found,) = compile_model(load_input(str(path)), probe(threads=1), {}).run([data])
    wide = data.astype("float64")
    wanted = high * np.where(wide > 0, wide, low * np.expm1(np.minimum(wide, 0) / inner))
    units = 4 * np.finfo(dtype).eps if dtype != "float64" else 1e-7  # attributes are float32
    assert found.dtype == data.dtype
    np.testing.assert_allclose(found, wanted, rtol=units, atol=1e-7)


def test_batch_norm_in_training_mode_uses_the_batch_and_moves_the_running_statistics(tmp_path):
    data, scale, bias = floats(4, 3, 5) * 2 + 1, floats(3), floats(3)
    mean, variance = floats(3), np.abs(floats(3)) + 0.5
    node = helper.make_node(
        "BatchNormalization", list("xsbmv"), ["y", "mean", "variance"],
        training_mode=1, momentum=0.7, epsilon=0.01,
    )  # fmt: skip
    named = {"s": scale, "b": bias, "m": mean, "v": variance}
    graph = helper.make_graph(
        [node],
        "norm",
        [helper.make_tensor_value_info("x", 1, data.shape)],
        [helper.make_tensor_value_info(n, 1, None) for n in ("y", "mean", "variance")],
        [numpy_helper.from_array(array, name) for name, array in named.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(onnx.shape_inference.infer_shapes(model), tmp_path / "norm.onnx")
    loaded = load_input(str(tmp_path / "norm.onnx"))
    y, new_mean, new_variance = compile_model(loaded, probe(), {}).run([data])

    own, spread = data.mean((0, 2)), data.var((0, 2))
    normal = (data - own[:, None]) / np.sqrt(spread[:, None] + 0.01)
    np.testing.assert_allclose(y, normal * scale[:, None] + bias[:, None], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(new_mean, 0.7 * mean + 0.3 * own, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(new_variance, 0.7 * variance + 0.3 * spread, rtol=1e-4)
