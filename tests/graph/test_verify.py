"""Verification: what is as exact as the original passes, and a network that is wrong does not."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest

from foretune.graph import compile_model, default_tolerance, verification_inputs, verify
from foretune.graph._exact import (
    ONNX,
    PYTORCH,
    _moving,
    _run_torch,
    exact_outputs,
    with_spread,
)
from foretune.workload import Model, TorchSource, from_object

torch = pytest.importorskip("torch")
nn = torch.nn
functional = nn.functional


class Small(nn.Module):
    """An embedding, a normalised input and two layers."""

    def __init__(self):
        super().__init__()
        self.rows = nn.Embedding(13, 8)
        self.norm = nn.LayerNorm(8)
        self.mix = nn.Linear(8, 8)
        self.out = nn.Linear(8, 5)

    def forward(self, ids, x):
        y = self.norm(x) + self.rows(ids)
        return self.out(torch.relu(self.mix(y)))


def _without_bias(module):
    module.out.bias.data.zero_()


def _swapped_channels(module):
    module.mix.weight.data[[0, 1]] = module.mix.weight.data[[1, 0]].clone()


def _next_row(module):
    module.rows.weight.data = module.rows.weight.data.roll(1, 0)


def _wrong_last_row(module):
    module.rows.weight.data[12] = module.rows.weight.data[11]


def _wrong_epsilon(module):
    module.norm.eps = 1e-6


def _no_norm_weight(module):
    module.norm.weight.data.mul_(1.01)


MUTATIONS = {
    "a bias is dropped": _without_bias,
    "two channels are swapped": _swapped_channels,
    "an index is off by one": _next_row,
    "the last row is another": _wrong_last_row,
    "an epsilon is another": _wrong_epsilon,
    "a scale is one percent off": _no_norm_weight,
}


class Run:
    """Something that runs in place of an artifact."""

    def __init__(self, run):
        self.run = run


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    args = (torch.randint(0, 13, (1, 6)), torch.randn(1, 6, 8))
    return from_object((Small().eval(), args), "small", "a test")


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_wrong_network_is_caught(model, name):
    module = copy.deepcopy(model.source.module)
    MUTATIONS[name](module)
    wrong = from_object((module, model.source.args), "wrong", "a test")
    result = verify(Run(wrong.reference), model)
    assert not result.ok, result
    assert "'output0'" in result.message


def test_the_same_network_in_other_arithmetic_passes(model):
    def run(inputs):
        exact = exact_outputs(model, inputs)
        return [a.astype(s.dtype) for a, s in zip(exact.outputs, model.outputs, strict=True)]

    result = verify(Run(run), model)
    assert result.ok, result.message


def test_pytorch_is_widened_through_its_casts_constants_and_convolutions():
    class Chain(nn.Module):
        def __init__(self):
            super().__init__()
            self.mix = nn.Conv1d(3, 2, 1)

        def forward(self, x, w):
            y = torch.softmax(x @ w, -1).float() + torch.full((3,), 0.1, dtype=torch.float32)
            return self.mix(y.t()[None])

    torch.manual_seed(0)
    module, args = Chain().eval(), (torch.randn(4, 7), torch.randn(7, 3))
    exact = exact_outputs(from_object((module, args), "chain", "a test"), [a.numpy() for a in args])
    product = np.dot(*(a.numpy().astype("float64") for a in args))
    e = np.exp(product - product.max(-1, keepdims=True))
    y = e / e.sum(-1, keepdims=True) + 0.1
    weight = module.mix.weight.detach().numpy().astype("float64")[:, :, 0]
    wanted = weight @ y.T + module.mix.bias.detach().numpy().astype("float64")[:, None]
    assert exact.by == PYTORCH and exact.own is None
    np.testing.assert_allclose(exact.outputs[0][0], wanted, rtol=1e-13)


def test_what_depends_on_its_type_has_no_float64():
    class Bits(nn.Module):
        def forward(self, x):
            return x.view(torch.int32) + 1

    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(3))

        def forward(self, x):
            self.count.add_(x)
            return self.count * 2

    for module in (Bits(), Counter()):
        source = TorchSource(module, (torch.ones(3),))
        model = Model("m", None, (), (), (np.ones(3, "float32"),), source)
        assert exact_outputs(model, model.examples) is None


def masked_encoder(path, length=8, width=64):
    """Attention under a mask and a feed-forward layer in float16, with inputs kept in float32."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    h, kind = onnx.helper, onnx.TensorProto
    rng = np.random.default_rng(0)

    def weight(name, *shape):
        values = rng.standard_normal(shape) / np.sqrt(shape[0])
        return onnx.numpy_helper.from_array(values.astype("float16"), name)

    def held(name, value):
        return onnx.numpy_helper.from_array(np.array(value), name)

    node = h.make_node
    nodes = [
        node("Cast", ["x"], ["xh"], to=kind.FLOAT16),
        node("Cast", ["mask"], ["mh"], to=kind.FLOAT16),
        node("Unsqueeze", ["mh", "axis"], ["rows"]),
        node("Sub", ["one", "rows"], ["inverse"]),
        node("Mul", ["inverse", "lowest"], ["bias"]),
        *(node("MatMul", ["xh", f"w{n}"], [n]) for n in "qkv"),
        node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        node("MatMul", ["q", "kt"], ["s"]),
        node("Mul", ["s", "scale"], ["ss"]),
        node("Add", ["ss", "bias"], ["sb"]),
        node("Softmax", ["sb"], ["p"], axis=-1),
        node("MatMul", ["p", "v"], ["o"]),
        node("Add", ["o", "xh"], ["res"]),
        node("LayerNormalization", ["res", "g", "b"], ["ln"], axis=-1),
        node("MatMul", ["ln", "w1"], ["f1"]),
        node("Relu", ["f1"], ["fr"]),
        node("MatMul", ["fr", "w2"], ["f2"]),
        node("Add", ["f2", "ln"], ["yh"]),
        node("Cast", ["yh"], ["y"], to=kind.FLOAT),
    ]
    weights = [
        *(weight(f"w{n}", width, width) for n in "qkv"),
        weight("w1", width, 4 * width),
        weight("w2", 4 * width, width),
        held("g", np.ones(width, "float16")),
        held("b", np.zeros(width, "float16")),
        held("one", np.float16(1)),
        held("lowest", np.float16(-65504)),
        held("scale", np.float16(1 / 8)),
        held("axis", [1]),
    ]
    value = h.make_tensor_value_info
    graph = h.make_graph(
        nodes,
        "encoder",
        [
            value("x", kind.FLOAT, [1, length, width]),
            value("mask", kind.INT64, [1, length]),
        ],
        [value("y", kind.FLOAT, [1, length, width])],
        weights,
    )
    proto = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8)
    onnx.save(proto, str(path))
    return from_object(path)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return masked_encoder(tmp_path_factory.mktemp("half") / "encoder.onnx")


def test_half_precision_inside_of_float32_is_judged_as_half_precision(encoder, hardware):
    assert {s.dtype for s in (*encoder.inputs, *encoder.outputs)} == {"float32", "int64"}
    assert 1e-3 < default_tolerance(encoder) < 1e-2
    artifact = compile_model(encoder, hardware, {})
    result = verify(artifact, encoder)
    assert result.ok, result.message
    assert "empty mask" in result.inputs
    # A mask of zeros leaves nothing but rounding in float16, which ONNX Runtime does not do.
    assert result.judged_by == ONNX
    json.dumps(result.to_json(), allow_nan=False)
    fixed = verify(artifact, encoder, tolerance=1e-2)
    assert not fixed.ok and "empty mask" in fixed.message


@pytest.mark.parametrize(
    "name",
    [
        "wq",
        pytest.param("wv", marks=pytest.mark.slow),
        pytest.param("w1", marks=pytest.mark.slow),
        "w2",
        "scale",
        "b",
    ],
)
def test_a_wrong_weight_in_half_precision_is_caught(encoder, tmp_path, name):
    import onnx

    proto = onnx.load(encoder.source.path)
    tensor = next(t for t in proto.graph.initializer if t.name == name)
    values = onnx.numpy_helper.to_array(tensor).copy()
    if values.ndim == 2:
        values[:, [0, 1]] = values[:, [1, 0]]
    else:
        values += np.float16(0.05)
    tensor.CopyFrom(onnx.numpy_helper.from_array(values, name))
    path = tmp_path / "wrong.onnx"
    onnx.save(proto, str(path))
    result = verify(Run(from_object(path).reference), encoder)
    assert not result.ok
    assert "'output0' differs" in result.message or "'y' differs" in result.message


def test_the_exact_outputs_of_an_onnx_graph_are_those_of_numpy(encoder):
    given = verification_inputs(encoder)[1]
    exact = given.exact()
    assert exact.by == ONNX and exact.outputs[0].dtype == np.float64
    # Rounded to half precision operator by operator; the runtime keeps more.
    scale = np.abs(exact.outputs[0]).max()
    own = np.abs(exact.own[0] - exact.outputs[0]).max() / scale
    runtime = np.abs(given.expected()[0] - exact.outputs[0]).max() / scale
    assert runtime < 2e-3
    assert max(1e-5, runtime) < own < 1e-2
    assert given.exact() is exact


def test_a_choice_that_rounding_makes_is_not_held_against_an_artifact():
    class Choice(nn.Module):
        def forward(self, x):
            # The two sums are equal but for rounding, which float64 has less of.
            forth = torch.cumsum(x, 1)[:, -1]
            back = torch.cumsum(x.flip(1), 1)[:, -1]
            return torch.stack([forth, back], 1).argmax(1)

    torch.manual_seed(0)
    model = from_object((Choice(), (torch.rand(64, 513),)), "choice", "a test")
    right = verify(Run(lambda inputs: exact_outputs(model, inputs).outputs), model)
    assert right.ok, right.message

    def other(inputs):
        return [1 - a for a in model.reference(inputs)]

    assert not verify(Run(other), model).ok


class Cosine(nn.Module):
    """Directions that nearly stand at right angles: the product of long vectors cancels out."""

    def forward(self, x, y):
        return functional.cosine_similarity(x, y - (x * y).sum() / (x * x).sum() * x, dim=0)


def test_the_spread_is_what_rounding_does_to_a_program_in_torch():
    torch.manual_seed(0)
    args = (torch.randn(4096), torch.randn(4096))
    model = from_object((Cosine().eval(), args), "cosine", "a test")
    exact = with_spread(exact_outputs(model, model.examples), model, model.examples)
    (spread,) = exact.spread
    # A random walk of 4096 steps of half a unit, each of 1/64 times 1/64: 1e-9 or so, far more than
    # the last place of the result.
    assert 1e-10 < spread.max() < 1e-7
    again = with_spread(exact_outputs(model, model.examples), model, model.examples)
    np.testing.assert_array_equal(again.spread[0], spread)


def test_a_program_without_rounding_has_no_spread():
    class Order(nn.Module):
        def forward(self, x, at):
            y = x.flatten().clone()
            y[0] = y[1]
            return y.view(2, -1).t(), at + 1

    args = (torch.randn(2, 6), torch.arange(3))
    model = from_object((Order().eval(), args), "order", "a test")
    exact = with_spread(exact_outputs(model, model.examples), model, model.examples)
    floats, integers = exact.spread
    assert floats.max() <= 4 * 2.0**-24 * np.abs(exact.outputs[0]).max()
    assert not integers.any()


def test_the_spread_of_an_onnx_graph(encoder):
    given = verification_inputs(encoder)[1]
    known = given.exact_with_spread()
    for output, spread in zip(known.outputs, known.spread, strict=True):
        assert spread.shape == output.shape
        assert 0 < spread.max() < 1e-4 * np.abs(output).max()
    assert given.exact_with_spread() is known


class Unstable(nn.Module):
    """Normalises what is constant up to rounding wherever its input is."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.mix = nn.Linear(64, 64)

    def forward(self, x):
        y = self.mix(x).cumsum(-1) * 0.1
        z = y - y.mean(0)
        return z / (z.square().mean(0).sqrt() + 1e-30)


def rounding_otherwise(model):
    """What stands in place of an artifact: the same program with other roundings."""

    def run(inputs):
        outputs = _run_torch(model, inputs, _moving(9))
        return [a.astype(s.dtype) for a, s in zip(outputs, model.outputs, strict=True)]

    return Run(run)


def test_inputs_on_which_rounding_decides_are_left_out_and_named():
    model = from_object((Unstable().eval(), (torch.randn(3, 64),)), "unstable", "a test")
    result = verify(rounding_otherwise(model), model)
    assert result.ok, result.message
    assert "rounding alone" in result.left_out["zeros"]
    assert {"examples", "random 0"} <= set(result.inputs)


def test_examples_are_never_left_out():
    model = from_object((Unstable().eval(), (torch.zeros(3, 64),)), "unstable", "a test")
    assert not verify(Run(lambda inputs: [np.ones((3, 64), "float32")]), model).ok
