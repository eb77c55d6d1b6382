"""Quantised networks in integers: against ONNX Runtime, and the instructions in their code.

Weights have seven bits: ONNX Runtime's own kernels for AVX2 saturate sums of two products of
larger ones.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune import _tvm
from foretune.graph import compile_model, compile_workload, extract, verify
from foretune.graph._default import default_schedule
from foretune.hardware import integer_product, preset, probe
from foretune.space import Space
from foretune.workload import load_input

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import helper, numpy_helper  # noqa: E402


@dataclass(frozen=True)
class Layer:
    """A quantised convolution or product between quantised tensors, as QDQ or QLinear."""

    channels: int = 6
    outputs: int = 5
    size: tuple[int, int] = (7, 6)
    kernel: tuple[int, int] = (3, 2)
    strides: tuple[int, int] = (1, 2)
    pads: tuple[int, int, int, int] = (1, 0, 2, 1)
    dilations: tuple[int, int] = (1, 1)
    groups: int = 1
    data: str = "uint8"
    zero: int = 120
    by_channel: bool = True
    bias: bool = True
    activation: bool = True
    seed: int = 0

    @property
    def rng(self) -> np.random.Generator:
        return np.random.default_rng(self.seed)


def _constants(layer: Layer, shape: tuple[int, ...], axis: int) -> dict[str, np.ndarray]:
    rng, outputs = layer.rng, shape[axis]
    count = outputs if layer.by_channel else 1
    scale = rng.uniform(0.002, 0.02, count).astype("float32")
    return {
        "xs": np.float32(0.03),
        "xz": np.array(layer.zero, layer.data),
        "w": rng.integers(-64, 64, shape).astype("int8"),
        "ws": scale if layer.by_channel else scale[0],
        "wz": np.zeros(count if layer.by_channel else (), "int8"),
        "ys": np.float32(0.04),
        "yz": np.array(9, layer.data),
        "b": rng.integers(-2000, 2000, outputs).astype("int32"),
        "one": np.float32(scale[0]),
        "bs": (np.float32(0.03) * scale) if layer.by_channel else np.float32(0.03) * scale[0],
    }


def _saved(folder: Path, nodes: list, layer: Layer, data: tuple[int, ...], constants: dict) -> str:
    graph = helper.make_graph(
        nodes,
        "layer",
        [helper.make_tensor_value_info("x", 1, data)],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / "layer.onnx"
    onnx.save(onnx.shape_inference.infer_shapes(proto), str(path))
    return str(path)


def convolution(folder: Path, layer: Layer, form: str = "qdq") -> str:
    weight = (layer.outputs, layer.channels // layer.groups, *layer.kernel)
    constants, node = _constants(layer, weight, 0), helper.make_node
    attributes = {
        "strides": layer.strides, "pads": layer.pads, "dilations": layer.dilations,
        "group": layer.groups,
    }  # fmt: skip
    nodes = [node("QuantizeLinear", ["x", "xs", "xz"], ["xq"])]
    if form == "qlinear":
        names = ["xq", "xs", "xz", "w", "ws", "wz", "ys", "yz", *["b"] * layer.bias]
        nodes.append(node("QLinearConv", names, ["yq"], **attributes))
    else:
        nodes += [
            node("DequantizeLinear", ["xq", "xs", "xz"], ["xr"]),
            node("DequantizeLinear", ["w", "ws", "wz"], ["wr"], axis=0),
            node("DequantizeLinear", ["b", "bs"], ["br"], axis=0),
            node("Conv", ["xr", "wr", *["br"] * layer.bias], ["c"], **attributes),
            node("Relu" if layer.activation else "Identity", ["c"], ["r"]),
            node("QuantizeLinear", ["r", "ys", "yz"], ["yq"]),
        ]
    nodes.append(node("DequantizeLinear", ["yq", "ys", "yz"], ["y"]))
    return _saved(folder, nodes, layer, (2, layer.channels, *layer.size), constants)


def product(folder: Path, layer: Layer, turned: bool = False) -> str:
    node, shape = helper.make_node, (layer.channels, layer.outputs)
    constants = _constants(layer, shape[::-1] if turned else shape, 0 if turned else 1)
    nodes = [
        node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        node("DequantizeLinear", ["xq", "xs", "xz"], ["xr"]),
        node("DequantizeLinear", ["w", "ws", "wz"], ["wr"], axis=0 if turned else 1),
        node("DequantizeLinear", ["b", "bs"], ["br"], axis=0),
        node("Gemm", ["xr", "wr", "br"], ["r"], transB=1)
        if turned
        else node("MatMul", ["xr", "wr"], ["r"]),
        node("QuantizeLinear", ["r", "ys", "yz"], ["yq"]),
        node("DequantizeLinear", ["yq", "ys", "yz"], ["y"]),
    ]
    data = (layer.size[0], layer.channels) if turned else (*layer.size, layer.channels)
    return _saved(folder, nodes, layer, data, constants)


def dynamic(folder: Path, layer: Layer) -> str:
    """A product whose data is quantised while the network runs, with rows of its own rank."""
    node, shape = helper.make_node, (layer.channels, layer.outputs)
    constants = _constants(layer, shape, 1)
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["xq", "s", "z"]),
        node("MatMulInteger", ["xq", "w", "z", "wz"], ["t"]),
        node("Cast", ["t"], ["f"], to=1),
        node("Mul", ["s", "one"], ["scaled"]),
        node("Mul", ["scaled", "ws"], ["both"]),
        node("Mul", ["f", "both"], ["y"]),
    ]
    return _saved(folder, nodes, layer, (*layer.size, layer.channels), constants)


def kernels(file: str, hardware) -> list[str]:
    return [w.name for w in extract(load_input(file), hardware).workloads]


def check(file: str, seed: int, hardware=None) -> None:
    """Compiled with default schedules it is within a step of ONNX Runtime, and mostly equal."""
    model = load_input(file)
    shape = model.inputs[0].shape
    data = np.random.default_rng(seed).standard_normal(shape).astype("float32") * 2
    (expected,) = model.reference([data])
    (found,) = compile_model(model, hardware or probe(threads=1), {}).run([data])
    assert found.shape == expected.shape
    steps = np.abs(found - expected) / np.float32(0.04)
    assert steps.max() < 1.01
    assert np.count_nonzero(steps > 0.5) <= max(1, steps.size // 100)


SIZES = st.integers(1, 9)
LAYERS = st.builds(
    Layer,
    channels=SIZES,
    outputs=st.integers(1, 20),
    size=st.tuples(st.integers(4, 9), st.integers(4, 9)),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    strides=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    pads=st.tuples(*[st.integers(0, 2)] * 4),
    dilations=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    data=st.just("uint8"),
    zero=st.integers(0, 255),
    by_channel=st.booleans(),
    bias=st.booleans(),
    activation=st.booleans(),
    seed=st.integers(0, 99),
)
SIGNED = st.builds(
    lambda layer, zero: replace(layer, data="int8", zero=zero), LAYERS, st.integers(-128, 127)
)
FORMS = st.sampled_from(["qdq", "qlinear"])


def check_convolution(layer: Layer, form: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check(convolution(Path(folder), layer, form), layer.seed)


def check_product(layer: Layer, turned: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check(product(Path(folder), layer, turned), layer.seed)


@settings(max_examples=5, deadline=None, derandomize=True)
@given(layer=LAYERS | SIGNED, form=FORMS)
def test_a_convolution_computes_what_onnx_runtime_does(layer: Layer, form: str) -> None:
    check_convolution(layer, form)


@settings(max_examples=4, deadline=None, derandomize=True)
@given(layer=LAYERS | SIGNED, turned=st.booleans())
def test_a_product_computes_what_onnx_runtime_does(layer: Layer, turned: bool) -> None:
    check_product(layer, turned)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, derandomize=True)
@given(layer=LAYERS | SIGNED, form=FORMS, turned=st.booleans())
def test_many_layers_compute_what_onnx_runtime_does(layer: Layer, form: str, turned: bool) -> None:
    check_convolution(layer, form)
    check_product(layer, turned)


@pytest.mark.parametrize("unsigned", [False, True])
def test_products_of_data_that_is_quantised_at_run_time_are_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unsigned: bool
) -> None:
    if unsigned:
        _with_unsigned_carriers(monkeypatch)
    file = dynamic(tmp_path, Layer())
    model, hardware = load_input(file), probe(threads=1)
    found = [w.name for w in extract(model, hardware).workloads]
    assert any("integer_matmul" in name for name in found) or integer_product(hardware) is None
    data = Layer().rng.standard_normal(model.inputs[0].shape).astype("float32") + 1
    (expected,) = model.reference([data])
    (got,) = compile_model(model, hardware, {}).run([data])
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_layers_that_differ_in_scales_alone_are_one_workload(tmp_path: Path) -> None:
    """In QDQ form, and with scales that are computed at run time."""
    for make in (convolution, dynamic):
        keys = set()
        for seed in (1, 2):
            # Other scales and weights, everything else alike.
            file = make(tmp_path, replace(Layer(), seed=seed))
            keys.add(tuple(sorted(extract(load_input(file), preset("zen3", 1)).functions.values())))
        assert len(keys) == 1


@pytest.mark.parametrize(
    "name", ["zen4", "zen3", pytest.param("skylake-avx512", marks=pytest.mark.slow)]
)
def test_convolutions_and_products_are_integer_kernels(tmp_path: Path, name: str) -> None:
    layer = Layer()
    for file in (convolution(tmp_path, layer), convolution(tmp_path, layer, "qlinear")):
        assert any("integer_conv2d" in kernel for kernel in kernels(file, preset(name)))
    for turned in (False, True):
        found = kernels(product(tmp_path, layer, turned), preset(name))
        assert any("integer_matmul" in kernel for kernel in found)


@pytest.mark.parametrize(
    "change",
    [
        {"groups": 2, "outputs": 6},
        pytest.param({"groups": 6, "outputs": 6}, marks=pytest.mark.slow),
    ],
)
def test_groups_stay_floats_and_are_right(tmp_path: Path, change: dict) -> None:
    file = convolution(tmp_path, replace(Layer(), **change))
    assert not any("integer" in kernel for kernel in kernels(file, probe(threads=1)))
    check(file, 1)


@pytest.mark.parametrize("name", ["graviton3", "x86-64-v2"])
def test_a_target_without_such_an_instruction_keeps_floats(tmp_path: Path, name: str) -> None:
    found = kernels(convolution(tmp_path, Layer()), preset(name))
    assert not any("integer" in kernel for kernel in found)


def _with_unsigned_carriers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The form of VNNI, computed by plain loops, so that it runs everywhere."""
    from foretune.graph.passes import integers
    from foretune.operators import products

    vnni = integer_product(preset("zen4"))
    monkeypatch.setattr(integers, "integer_product", lambda _hardware: vnni)
    monkeypatch.setattr(products, "PRODUCT", "plain")


@pytest.mark.parametrize(
    "data, zero",
    [
        pytest.param("uint8", 0, marks=pytest.mark.slow),
        ("uint8", 131),
        pytest.param("int8", 0, marks=pytest.mark.slow),
        ("int8", -77),
    ],
)
@pytest.mark.slow
def test_unsigned_carriers_with_zero_points_are_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: str, zero: int
) -> None:
    _with_unsigned_carriers(monkeypatch)
    layer = replace(Layer(), data=data, zero=zero, outputs=18)
    for file in (convolution(tmp_path, layer), convolution(tmp_path, layer, "qlinear")):
        found = kernels(file, probe(threads=1))
        assert any("integer_conv2d" in k for k in found)
        check(file, 2)
    check(product(tmp_path, layer), 3)


@pytest.mark.parametrize(
    "target, instruction",
    [
        ("zen4", "vpdpbusd"),
        pytest.param("icelake-server", "vpdpbusd", marks=pytest.mark.slow),
        pytest.param("skylake-avx512", "vpmaddwd", marks=pytest.mark.slow),
        ("zen3", "vpmaddwd"),
    ],
)
@pytest.mark.slow
def test_default_and_space_use_the_instruction(
    tmp_path: Path, target: str, instruction: str
) -> None:
    hardware = preset(target, 2)
    model = load_input(convolution(tmp_path, replace(Layer(), channels=16, outputs=32)))
    extraction = extract(model, hardware)
    (workload,) = [w for w in extraction.workloads if "integer" in w.name]
    untuned = default_schedule(extraction.program, hardware)
    (function,) = [f for g, f in untuned.functions.items() if "integer" in str(g.name_hint)]
    named = function.with_attr("global_symbol", "main")
    code = _tvm.tvm.compile(_tvm.IRModule({"main": named}), hardware.code_target())
    assert instruction in code.mod.inspect_source("asm")
    candidates = Space.generate(workload, hardware).sample(np.random.default_rng(0), 4)
    for candidate in candidates:
        built = _tvm.tvm.compile(candidate.apply(), hardware.code_target())
        assert instruction in built.mod.inspect_source("asm")


def test_candidates_of_the_space_compute_what_the_default_does(tmp_path: Path) -> None:
    hardware = probe(threads=1)
    if integer_product(hardware) is None:
        pytest.skip("this processor has no such instruction")
    file = convolution(tmp_path, replace(Layer(), channels=16, outputs=32))
    (workload,) = [w for w in extract(load_input(file), hardware).workloads if "integer" in w.name]
    default = compile_workload(workload, hardware)
    rng = np.random.default_rng(0)
    inputs = [
        rng.uniform(0.5, 1, spec.shape).astype("float32")
        if spec.dtype == "float32"
        else rng.integers(0, 60, spec.shape).astype(spec.dtype)
        for spec in default.inputs
    ]
    (expected,) = default.run(inputs)
    for candidate in Space.generate(workload, hardware).sample(rng, 3):
        (found,) = compile_workload(workload, hardware, candidate).run(inputs)
        np.testing.assert_array_equal(found, expected)


def _network(folder: Path) -> str:
    """Strides, a rectifier, maximum pooling, a residual, an average and a product."""
    rng, node = np.random.default_rng(0), helper.make_node

    def weight(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype("float32")

    constants = {
        "w1": weight(16, 3, 3, 3), "b1": weight(16), "w2": weight(24, 16, 3, 3),
        "w3": weight(24, 24, 1, 1), "w4": weight(10, 24), "b4": weight(10),
    }  # fmt: skip
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1] * 4, strides=[2, 2]),
        node("Relu", ["c1"], ["r1"]),
        node("MaxPool", ["r1"], ["p"], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
        node("Conv", ["p", "w2"], ["c2"], pads=[1] * 4),
        node("Relu", ["c2"], ["r2"]),
        node("Conv", ["r2", "w3"], ["c3"]),
        node("Add", ["c3", "r2"], ["a"]),
        node("Relu", ["a"], ["r3"]),
        node("GlobalAveragePool", ["r3"], ["g"]),
        node("Flatten", ["g"], ["f"]),
        node("Gemm", ["f", "w4", "b4"], ["y"], transB=1),
    ]
    return _saved(folder, nodes, Layer(), (1, 3, 17, 17), constants)


@pytest.mark.parametrize(
    "data, form, by_channel",
    [
        ("QInt8", "QDQ", True),
        pytest.param("QUInt8", "QOperator", False, marks=pytest.mark.slow),
        pytest.param("QInt8", "QOperator", True, marks=pytest.mark.slow),
        pytest.param("QUInt8", "QDQ", False, marks=pytest.mark.slow),
    ],
)
def test_what_onnx_runtime_quantises_is_verified_and_without_transposes(
    tmp_path: Path, data: str, form: str, by_channel: bool
) -> None:
    from onnxruntime import quantization

    rng = np.random.default_rng(1)
    images = iter([{"x": rng.standard_normal((1, 3, 17, 17)).astype("float32")} for _ in "four"])

    class Reader(quantization.CalibrationDataReader):
        def get_next(self):
            return next(images, None)

    quantization.quantize_static(
        _network(tmp_path),
        str(tmp_path / "quantised.onnx"),
        Reader(),
        quant_format=quantization.QuantFormat[form],
        activation_type=quantization.QuantType[data],
        weight_type=quantization.QuantType.QInt8,
        per_channel=by_channel,
        reduce_range=True,
    )
    model, hardware = load_input(str(tmp_path / "quantised.onnx")), probe(threads=1)
    extraction = extract(model, hardware)
    names = [w.name for w in extraction.workloads]
    if integer_product(hardware) is not None:
        assert sum("integer" in name for name in names) == 4
    if form == "QDQ":
        assert sum("transpose" in name for name in names) <= 1  # the image's own
    verified = verify(compile_model(model, hardware, {}, extraction), model, seeds=(0,))
    assert verified.ok, verified.message
