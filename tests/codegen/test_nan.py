"""Numbers that are none come out where PyTorch and ONNX Runtime have them."""

from __future__ import annotations

import numpy as np
import pytest

from foretune import _tvm
from foretune.codegen.nan import keep_nan
from foretune.graph import compile_model
from foretune.hardware import probe
from foretune.workload import from_object, load_input

NAN, INF = float("nan"), float("inf")


def spoiled(*shape, seed=0):
    """Random numbers among which stand NaN and infinities, in some rows several, in some none."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape).astype("float32") * 4
    flat = x.reshape(-1)
    flat[rng.choice(flat.size, flat.size // 9, replace=False)] = NAN
    flat[rng.choice(flat.size, flat.size // 20, replace=False)] = INF
    flat[rng.choice(flat.size, flat.size // 20, replace=False)] = -INF
    return x


def compare(found, expected, rtol=1e-5):
    for at, (got, wanted) in enumerate(zip(found, expected, strict=True)):
        assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
        pair = got.astype("float32"), wanted.astype("float32")
        np.testing.assert_allclose(*pair, rtol=rtol, atol=1e-5, err_msg=f"output {at}")


def agree(model, rtol=1e-5):
    artifact = compile_model(model, probe(), {})
    compare(artifact.run(list(model.examples)), model.reference(model.examples), rtol)


ELEMENTWISE = {
    "relu": lambda x: x.relu(),
    "relu6": lambda x: x.clamp(0, 6),
    "lower": lambda x: x.clamp(min=-1),
    "upper": lambda x: x.clamp(max=1.5),
    "of tensors": lambda x: x.clamp(-x.abs(), x.flip(0)),
    "maximum": lambda x: x.maximum(x.flip(0)),
    "minimum": lambda x: x.minimum(x.flip(1)),
    "against a constant": lambda x: x.new_full((), 0.5).maximum(x).minimum(x.new_full((), 2.0)),
    "chained": lambda x: (x.relu() - 1).clamp(0, 3).relu(),
}
FUNCTIONS = ("hardtanh", "hardswish", "hardsigmoid", "leaky_relu", "elu", "selu", "silu", "gelu")
FUNCTIONS = (*FUNCTIONS, "softplus", "mish", "tanh", "sigmoid", "softmax")
REDUCTIONS = {
    "amax": lambda x: x.amax(-1),
    "amin": lambda x: x.amin((0, 2), keepdim=True),
    "max": lambda x: x.max(),
    "min of a dimension": lambda x: x.min(1)[0],
    "its place": lambda x: x.max(2)[1],
    "argmax": lambda x: x.argmax(-1),
    "argmin": lambda x: x.argmin(0),
    "aminmax": lambda x: x.aminmax(dim=1)[1],
    "cummax": lambda x: x.cummax(1)[0],
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.slow
def test_modules_keep_nan(dtype):
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    named = {name: getattr(functional, name) for name in FUNCTIONS}
    named["softmax"] = lambda x: functional.softmax(x, -1)
    # PyTorch's own code for AVX-512 makes NaN of infinity here, its other code does not.
    named["gelu"] = lambda x: functional.gelu(x.clamp(-1e4, 1e4))
    functions = [*ELEMENTWISE.values(), *REDUCTIONS.values(), *named.values()]

    class Calls(torch.nn.Module):
        def forward(self, x):
            return [function(x) for function in functions]

    x = torch.from_numpy(spoiled(6, 6, 8)).to(getattr(torch, dtype))
    model = from_object((Calls(), (x,)), "calls")
    agree(model, rtol=2e-2 if dtype == "bfloat16" else 1e-5)


def test_pooling_keeps_nan():
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional

    class Pools(torch.nn.Module):
        def forward(self, x):
            return (
                functional.max_pool2d(x, 3, 2, 1),
                functional.max_pool2d(x, 2, ceil_mode=True),
                functional.max_pool2d(x, 2, return_indices=True),
                functional.max_pool1d(x[0], 3, 2, 1),
                functional.max_pool3d(x, 2),
                functional.adaptive_max_pool2d(x, 3),
                functional.relu(functional.max_pool2d(x, 3, 1, 1)),
            )

    x = torch.from_numpy(spoiled(2, 8, 9, 9))
    model = from_object((Pools(), (x,)), "pools")
    agree(model)


def test_graphs_keep_nan(tmp_path):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    make = onnx.helper.make_node
    low, high, three = ("low", "high", "three")
    nodes = [
        make("Relu", ["x"], ["y0"]),
        make("Clip", ["x", low, high], ["y1"]),
        make("Clip", ["y1", low], ["y2"]),
        make("Max", ["x", low], ["y3"]),
        make("Max", ["x", "z"], ["y4"]),
        make("Min", ["z", "x", high], ["y5"]),
        make("ReduceMax", ["x"], ["y6"], keepdims=0),
        make("ReduceMin", ["x", three], ["y7"]),
        make("LeakyRelu", ["x"], ["y8"]),
        make("HardSigmoid", ["x"], ["y9"]),
        make("Softmax", ["x"], ["y10"]),
    ]
    outputs = [f"y{n}" for n in range(len(nodes))]
    value = onnx.helper.make_tensor_value_info
    kind = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        nodes,
        "g",
        [value("x", kind, [2, 4, 8, 8]), value("z", kind, [2, 4, 8, 8])],
        [value(name, kind, [f"{name}{n}" for n in range(4)]) for name in outputs],
        [
            onnx.numpy_helper.from_array(np.float32(-0.5), low),
            onnx.numpy_helper.from_array(np.float32(2.5), high),
            onnx.numpy_helper.from_array(np.array([3]), three),
        ],
    )
    graph.output[6].type.tensor_type.shape.Clear()
    path = tmp_path / "nan.onnx"
    opset = [onnx.helper.make_opsetid("", 18)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=9), str(path))
    model = load_input(str(path))
    artifact = compile_model(model, probe(), {})
    inputs = [spoiled(2, 4, 8, 8), spoiled(2, 4, 8, 8, seed=1)]
    found, wanted = artifact.run(inputs), model.reference(inputs)
    # ONNX Runtime loses them in some reductions and in pooling; NumPy, ONNX's reference, does not.
    wanted[6], wanted[7] = inputs[0].max(), inputs[0].min(3, keepdims=True)
    compare(found, wanted)


def test_a_bound_comes_first_and_softmax_is_left_alone():
    tvm = _tvm.tvm
    x = tvm.te.placeholder((4, 8), "float32", name="x")
    n = tvm.te.placeholder((4, 8), "int32", name="n")

    def text(result, *inputs):
        function = tvm.te.create_prim_func([*inputs, result])
        return keep_nan(_tvm.IRModule({"main": function})).script()

    clipped = text(tvm.topi.clip(x, 0.0, 6.0), x)
    assert "T.max(T.float32(0.0), T.min(T.float32(6.0), x[" in clipped
    assert "T.Select" not in text(tvm.topi.nn.softmax(x, 1), x)
    assert "T.Select" in text(tvm.topi.max(x, 1), x)
    whole = tvm.te.create_prim_func([n, tvm.topi.max(n, 1)])
    before = _tvm.IRModule({"main": whole})
    assert _tvm.structural_hash(keep_nan(before)) == _tvm.structural_hash(before)
