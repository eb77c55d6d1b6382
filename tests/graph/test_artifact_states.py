"""States and samples: what a network remembers, and what it was seen to compute."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from foretune.errors import BadInputError
from foretune.graph import Artifact, Sample, compile_model
from foretune.workload import from_object

torch = pytest.importorskip("torch")
STATES = ("state.sum", "state.last")


class Sums(torch.nn.Module):
    """A running sum; what is written last is the largest number of the input, in bfloat16."""

    def __init__(self):
        super().__init__()
        self.register_buffer("sum", torch.full((2, 3), 10.0))
        self.register_buffer("last", torch.tensor(100.0, dtype=torch.bfloat16))

    def forward(self, x):
        before = self.last.clone()
        self.sum += x
        self.last.copy_(x.max())
        return self.sum + before.float()


@pytest.fixture(scope="module")
def model():
    return from_object((Sums(), (torch.zeros(2, 3),)), "sums")


@pytest.fixture(scope="module")
def compiled(model, hardware):
    return compile_model(model, hardware, {})


@pytest.fixture
def saved(compiled, tmp_path):
    return compiled.save(tmp_path / "sums.so")


@pytest.mark.parametrize("loaded", [False, True])
def test_a_state_left_out_starts_from_its_initial_value(compiled, saved, loaded):
    artifact = Artifact.load(saved) if loaded else compiled
    assert artifact.states == list(STATES)
    assert [spec.name for spec in artifact.inputs] == ["x", *STATES]
    assert [spec.name for spec in artifact.outputs] == ["output0", *STATES]
    x = np.arange(6, dtype="float32").reshape(2, 3)
    for _ in range(2):  # an artifact itself remembers nothing
        y, total, last = artifact.run([x])
        np.testing.assert_array_equal(y, x + 110)
        np.testing.assert_array_equal(total, x + 10)
        assert (last.shape, last.dtype, float(last)) == ((), ml_dtypes.bfloat16, 5)


def test_states_go_round_in_a_loop(compiled):
    x, states = np.ones((2, 3), "float32"), []
    for step in range(1, 4):
        y, *states = compiled.run([x, *states])
        np.testing.assert_array_equal(y, 10 + step + (100 if step == 1 else 1))


def test_arrays_go_in_by_name(compiled):
    x, total = np.ones((2, 3), "float32"), np.zeros((2, 3), "float32")
    np.testing.assert_array_equal(compiled.run({"state.sum": total, "x": x})[0], total + 101)
    np.testing.assert_array_equal(compiled.prepare({"x": x})()[0].numpy(), total + 111)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], r"takes 1 inputs, or 3 with its states, but got 0: x \(float32 of shape \(2, 3\)\)"),
        ([np.zeros((2, 3), "float32")] * 2, "or 3 with its states, but got 2"),
        ({}, r"state\.sum \(.*may be left out\).*, but got no 'x'"),
        ({"y": 1}, "got no 'x' and an unknown 'y'"),
        ({"x": np.zeros((2, 3))}, "'x' must be float32 of shape .* but got float64"),
        ([None], "'x' must be float32"),
    ],
)
def test_what_does_not_fit_is_refused(compiled, given, message):
    with pytest.raises(BadInputError, match=message):
        compiled.run(given)


def test_initial_values_are_not_lost(saved, tmp_path):
    again = Artifact.load(saved).save(tmp_path / "again.so")
    assert Artifact.load(again).run([np.zeros((2, 3), "float32")])[0].max() == 110
    again.with_suffix(".params").unlink()
    with pytest.raises(BadInputError, match=r"again\.params is missing"):
        Artifact.load(again)


def _sample(compiled, tolerance=1e-3):
    inputs = [np.ones((2, 3), "float32"), np.zeros((2, 3), "float32")]
    inputs.append(np.asarray(3, ml_dtypes.bfloat16))
    return Sample(tuple(inputs), tuple(compiled.run(inputs)), tolerance)


def test_a_sample_comes_back_as_it_was(model, hardware, tmp_path):
    compiled = compile_model(model, hardware, {})
    compiled.sample = _sample(compiled, (0.0, 1e-3, 1e-2))
    library = compiled.save(tmp_path / "ein Ä.so")
    for path in (library, Artifact.load(library).save(tmp_path / "again.so")):
        sample = Artifact.load(path).sample
        assert sample.tolerances == (0.0, 1e-3, 1e-2)
        pairs = zip(
            (*sample.inputs, *sample.outputs),
            (*compiled.sample.inputs, *compiled.sample.outputs),
            strict=True,
        )
        for actual, wanted in pairs:
            assert (actual.shape, actual.dtype) == (wanted.shape, wanted.dtype)
            np.testing.assert_array_equal(actual, wanted)
    library.with_suffix(".sample.npz").write_bytes(b"")
    with pytest.raises(BadInputError, match=r"sample\.npz is not the file its manifest describes"):
        Artifact.load(library)


def test_a_sample_that_outweighs_its_use_is_left_out(model, hardware, tmp_path, monkeypatch):
    compiled = compile_model(model, hardware, {})
    compiled.sample = _sample(compiled)
    monkeypatch.setattr("foretune.graph.artifact.SAMPLE_BYTES", 10)
    loaded = Artifact.load(compiled.save(tmp_path / "sums.so"))
    assert loaded.sample is None
    assert "at most 10 are kept" in loaded.manifest["sample"]["left_out"]
    assert not (tmp_path / "sums.sample.npz").exists()
