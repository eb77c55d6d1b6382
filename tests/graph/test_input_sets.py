"""The inputs of verification: borders of what a model accepts, and what is left out."""

from __future__ import annotations

import numpy as np
import pytest

from foretune.graph import compile_model, verification_inputs, verify
from foretune.workload import from_object
from foretune.workload.model import TensorSpec

torch = pytest.importorskip("torch")


class Lookup(torch.nn.Module):
    """One index of each kind, a mask, and a number."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(37, 4)

    def forward(self, rows, back, mask, x):
        picked = self.table(rows) + x[back]
        return torch.where(mask, picked, torch.zeros(()))


def lookup():
    torch.manual_seed(0)
    args = (
        torch.tensor([3, 1, 2]),
        torch.tensor([0, 1, 2]),
        torch.tensor([[True], [True], [False]]),
        torch.randn(9, 4),
    )
    return from_object((Lookup().eval(), args), "lookup", "a test")


@pytest.fixture(scope="module")
def model():
    return lookup()


@pytest.fixture(scope="module")
def onnx_gather(tmp_path_factory):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    h, numpy_helper = onnx.helper, onnx.numpy_helper
    value = h.make_tensor_value_info
    graph = h.make_graph(
        [
            h.make_node("Cast", ["i"], ["wide"], to=onnx.TensorProto.INT64),
            h.make_node("Reshape", ["wide", "flat"], ["line"]),
            h.make_node("Gather", ["w", "line"], ["y"]),
        ],
        "g",
        [value("i", onnx.TensorProto.INT32, [2, 2])],
        [value("y", onnx.TensorProto.FLOAT, [4, 3])],
        [
            numpy_helper.from_array(np.arange(33, dtype="float32").reshape(11, 3), "w"),
            numpy_helper.from_array(np.array([4]), "flat"),
        ],
    )
    path = tmp_path_factory.mktemp("onnx") / "gather.onnx"
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), str(path))
    return from_object(path)


def test_the_reach_of_indices_is_found_through_casts_and_reshapes(model, onnx_gather):
    assert model.index_limits == {0: 37, 1: 9}
    assert onnx_gather.index_limits == {0: 11}


def _by_name(sets):
    return {given.name: given for given in sets}


def test_the_first_two_sets_are_the_examples_and_random_inputs(model):
    sets = verification_inputs(model)
    assert [given.name for given in sets[:2]] == ["examples", "random 0"]
    assert all(np.array_equal(a, b) for a, b in zip(sets[0].arrays, model.examples, strict=True))
    again = verification_inputs(model)
    for one, other in zip(sets, again, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(one.arrays, other.arrays, strict=True))


def test_the_borders_are_among_the_inputs(model):
    sets = _by_name(verification_inputs(model))
    assert set(sets["first index"].arrays[0]) == {0} == set(sets["first index"].arrays[1])
    assert set(sets["last index"].arrays[0]) == {36}
    assert set(sets["last index"].arrays[1]) == {8}
    assert sets["negative index"].arrays[1].min() == -9
    assert sets["negative index"].arrays[1].max() < 0
    # A set that was drawn already is not there twice.
    masks = {given.arrays[2].tobytes() for given in sets.values()}
    assert {bytes([0, 0, 0]), bytes([1, 1, 1])} <= masks
    assert not sets["zeros"].arrays[3].any()
    assert (sets["negative"].arrays[3] <= 0).all()
    assert np.abs(sets["large"].arrays[3]).max() > 1e3
    for given in sets.values():
        specs = [
            TensorSpec(s.name, a.shape, a.dtype.name)
            for s, a in zip(model.inputs, given.arrays, strict=True)
        ]
        assert specs == list(model.inputs)


def test_the_original_decides_whether_negative_indices_are_legal(model, onnx_gather):
    refused = _by_name(verification_inputs(model))["negative index"]
    assert refused.expected() is None  # an embedding of PyTorch takes none
    assert "refuses" in refused.refusal
    accepted = _by_name(verification_inputs(onnx_gather))["negative index"]
    rows = accepted.arrays[0].reshape(-1) % 11
    np.testing.assert_array_equal(accepted.expected()[0], np.arange(33.0).reshape(11, 3)[rows])


@pytest.fixture(scope="module", params=["float32", "float16"])
def onnx_scaling(request, tmp_path_factory):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    h = onnx.helper
    kind = h.np_dtype_to_tensor_dtype(np.dtype(request.param))
    value = h.make_tensor_value_info
    graph = h.make_graph(
        [h.make_node("Mul", ["x", "scale"], ["y"])],
        "g",
        [value("x", kind, [2, 3]), value("scale", kind, [])],
        [value("y", kind, [2, 3])],
    )
    path = tmp_path_factory.mktemp("onnx") / "scaling.onnx"
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), str(path))
    return from_object(path)


def test_an_input_without_axes_has_the_borders_of_others(onnx_scaling, hardware):
    sets = _by_name(verification_inputs(onnx_scaling))
    borders = {name: sets[name] for name in ("zeros", "negative", "positive", "small", "large")}
    for given in borders.values():
        assert [(a.shape, a.dtype) for a in given.arrays] == [
            (spec.shape, spec.dtype) for spec in onnx_scaling.inputs
        ]
        assert all(isinstance(array, np.ndarray) for array in given.arrays)
        assert given.expected() is not None, given.refusal
    assert borders["negative"].arrays[1] < 0 < borders["positive"].arrays[1]
    result = verify(compile_model(onnx_scaling, hardware, {}), onnx_scaling)
    assert result.ok and not result.left_out and borders.keys() <= set(result.inputs)


@pytest.mark.parametrize("make", ["model", "onnx_gather"])
def test_borders_are_computed_as_the_original_does(make, request, hardware):
    network = request.getfixturevalue(make)
    result = verify(compile_model(network, hardware, {}), network)
    assert result.ok, result.message
    assert {"examples", "first index", "last index"} <= set(result.inputs)
    assert ("negative index" in result.inputs) is (make == "onnx_gather")


def test_an_artifact_gets_only_what_the_original_accepts(model):
    class Recorder:
        def __init__(self):
            self.seen = []

        def run(self, inputs):
            self.seen.append(inputs)
            assert inputs[0].min() >= 0
            return model.reference(inputs)

    recorder = Recorder()
    result = verify(recorder, model)
    assert result.ok
    assert set(result.left_out) == {"negative index"}
    assert len(recorder.seen) == len(result.inputs)


def test_verification_goes_in_two_steps_and_asks_the_original_once(model, monkeypatch):
    calls = []
    loaded = []
    original = type(model).prepare_reference

    def counted(self):
        loaded.append(1)
        run = original(self)
        return lambda inputs: (calls.append(1), run(inputs))[1]

    monkeypatch.setattr(type(model), "prepare_reference", counted)
    sets = verification_inputs(model)

    class Same:
        def run(self, inputs):
            return original(model)(inputs)

    first = verify(Same(), model, inputs=sets[:2])
    assert first.inputs == ("examples", "random 0")
    assert len(calls) == 2
    assert verify(Same(), model, inputs=sets).ok
    assert verify(Same(), model, inputs=sets).ok
    assert len(calls) == len(sets)
    assert len(loaded) == 1


def test_what_tells_nothing_is_left_out(hardware):
    class Root(torch.nn.Module):
        def forward(self, x):
            return torch.exp(x), torch.sqrt(x)

    sets = _by_name(verification_inputs(from_object((Root(), (torch.rand(4),)), "root", "a test")))
    assert sets["large"].expected() is None
    assert "overflows" in sets["large"].refusal
    assert sets["negative"].expected() is not None

    class OnlyRoot(torch.nn.Module):
        def forward(self, x):
            return torch.sqrt(x - 1)

    sets = _by_name(
        verification_inputs(from_object((OnlyRoot(), (torch.rand(4) + 1,)), "root", "a test"))
    )
    assert "finite" in sets["negative"].refusal or sets["negative"].expected() is None
    assert sets["examples"].expected() is not None


def test_large_numbers_stay_within_half_precision():
    class Half(torch.nn.Module):
        def forward(self, x):
            return x * 2

    model = from_object((Half(), (torch.ones(8, dtype=torch.float16),)), "half", "a test")
    large = _by_name(verification_inputs(model))["large"]
    assert np.isfinite(large.expected()[0]).all()


def test_an_error_of_the_original_on_its_own_examples_is_not_hidden(model):
    given = verification_inputs(model)[0]
    given.arrays = (np.array([99, 0, 0]), *given.arrays[1:])
    with pytest.raises(IndexError):
        given.expected()


def test_masks_and_bytes_are_told_from_numbers():
    class Masked(torch.nn.Module):
        def forward(self, x, mask, image):
            return x * mask + image.float()

    args = (torch.randn(4), torch.ones(4, dtype=torch.int64), torch.zeros(4, dtype=torch.uint8))
    sets = _by_name(verification_inputs(from_object((Masked(), args), "masked", "a test")))
    assert not sets["empty mask"].arrays[1].any()
    assert set(sets["half a mask"].arrays[1]) <= {0, 1}
    assert "first index" not in sets
    assert sets["any byte"].arrays[2].max() > 1


def _integers(folder, nodes, inputs, constants=(), output="INT64"):
    """An ONNX model of integer inputs ``{name: (type, shape)}``."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    h, kinds = onnx.helper, onnx.TensorProto
    graph = h.make_graph(
        [h.make_node(op, reads, [to], **attributes) for op, reads, to, attributes in nodes],
        "g",
        [h.make_tensor_value_info(n, getattr(kinds, t), s) for n, (t, s) in inputs.items()],
        [h.make_tensor_value_info("y", getattr(kinds, output), None)],
        [onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in dict(constants).items()],
    )
    proto = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8)
    onnx.save(onnx.shape_inference.infer_shapes(proto), str(folder / "net.onnx"))
    return from_object(folder / "net.onnx")


LINE, TABLE = ("INT64", [12]), ("INT64", [3, 12])
NUMBERS = {
    "a quotient": ([("Div", ["i", "c"], "y", {})], {"i": TABLE}, {"c": 3}, "INT64"),
    "a rest": ([("Mod", ["i", "c"], "y", {})], {"i": LINE}, {"c": 5}, "INT64"),
    "a rest as of C": ([("Mod", ["i", "c"], "y", {"fmod": 1})], {"i": LINE}, {"c": 5}, "INT64"),
    "two numbers": ([("Div", ["i", "j"], "y", {})], {"i": LINE, "j": LINE}, {}, "INT64"),
    "32 bits": (
        [("Neg", ["i"], "n", {}), ("Mul", ["n", "i"], "y", {})],
        {"i": ("INT32", [12])}, {}, "INT32",
    ),
    "without a sign": ([("Div", ["i", "c"], "y", {})], {"i": ("UINT32", [12])},
                       {"c": np.uint32(3)}, "UINT32"),
    "times": (
        [("Cast", ["i"], "f", {"to": 1}), ("Sin", ["f"], "y", {})], {"i": LINE}, {}, "FLOAT",
    ),
    "lengths": ([("Less", ["c", "i"], "y", {})], {"i": ("INT64", [4, 1])},
                {"c": np.arange(-9, 9)}, "BOOL"),
}  # fmt: skip
OTHERS = {
    "a mask": (
        [("Cast", ["i"], "f", {"to": 1}), ("Mul", ["f", "c"], "y", {})],
        {"i": TABLE}, {"c": np.float32(-1e9)}, "FLOAT",
    ),
    "a mask by its name": ([("Sub", ["c", "row_mask"], "y", {})], {"row_mask": LINE},
                           {"c": 1}, "INT64"),
    "an index": ([("Gather", ["c", "i"], "y", {})], {"i": LINE}, {"c": np.arange(7)}, "INT64"),
    "a count of bits": ([("BitShift", ["c", "i"], "y", {"direction": "LEFT"})],
                        {"i": ("UINT64", [12])}, {"c": np.uint64(5)}, "UINT64"),
}  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
def test_integers_that_are_numbers_are_tried_on_both_sides_of_zero(name, tmp_path, hardware):
    model = _integers(tmp_path, *NUMBERS[name])
    assert model.number_inputs == set(range(len(model.inputs)))
    signed = "uint" not in model.inputs[0].dtype
    for example in model.examples:
        assert not np.isin(example, (0, 1)).any()
        assert example.size < 9 or (example < 0).any() == signed
    sets = _by_name(verification_inputs(model))
    drawn = sets["any integer"].arrays[0]
    assert (drawn < 0).any() == signed and np.abs(drawn.astype("int64")).max() > 100
    assert ("negative integer" in sets) is signed
    if signed:
        assert (sets["negative integer"].arrays[0] < 0).all()
    assert (sets["positive integer"].arrays[0] > 0).all()
    result = verify(compile_model(model, hardware, {}), model)
    assert result.ok, result.message
    assert {"examples", "any integer", "positive integer"} <= set(result.inputs)


@pytest.mark.parametrize("name", OTHERS)
def test_integers_that_are_none_stay_what_they_may_be(name, tmp_path):
    model = _integers(tmp_path, *OTHERS[name])
    assert not model.number_inputs
    assert np.isin(model.examples[0], (0, 1)).all()
    assert not {"any integer", "negative integer"} & set(_by_name(verification_inputs(model)))


def test_a_quotient_that_is_rounded_down_is_caught(tmp_path):
    model = _integers(tmp_path, *NUMBERS["a quotient"])

    class Floored:
        def run(self, inputs):
            return [inputs[0] // 3]

    result = verify(Floored(), model)
    assert not result.ok and "examples" in result.message


def test_numbers_of_a_person_s_own_examples_are_tried_beyond_them():
    class Scaled(torch.nn.Module):
        def forward(self, x, step, mask, count):
            return torch.sin(x * step) * mask, count // 3

    args = (torch.randn(4), torch.tensor([7]), torch.tensor([1, 0, 1, 1]), torch.tensor([5, 9]))
    model = from_object((Scaled(), args), "scaled", "a test")
    assert model.number_inputs == {1, 3}
    sets = _by_name(verification_inputs(model))
    assert (sets["negative integer"].arrays[1] < 0).all()
    assert set(sets["negative integer"].arrays[2]) <= {0, 1}
    assert sets["full mask"].arrays[2].all()
