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
