"""``foretune run``: an artifact proves itself where it is, or runs on arrays from a file."""

from __future__ import annotations

import dataclasses
import json

import ml_dtypes
import numpy as np
import pytest

from foretune import _tvm
from foretune.cli import main
from foretune.graph import Artifact, Sample, compile_model
from foretune.graph._exact import Exact
from foretune.workload import Model, TensorSpec


def _module():
    """``(a/b, state.n) -> (a/b + n, n + 1)``: a state, bfloat16, a name with a slash."""
    relax = _tvm.tvm.relax
    x = relax.Var("a", relax.TensorType((2, 3), "bfloat16"))
    count = relax.Var("n", relax.TensorType((), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, count]):
        with builder.dataflow():
            y = builder.emit(relax.op.add(relax.op.astype(x, "float32"), count))
            more = builder.emit(relax.op.add(count, relax.const(1, "float32")))
            result = builder.emit_output(relax.Tuple([y, more]))
        builder.emit_func_output(result)
    return builder.get()


@pytest.fixture(scope="module")
def compiled(hardware):
    x = np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16)
    made = Model.from_relax(_module(), "count", examples=[x, np.asarray(10, "float32")])
    model = dataclasses.replace(
        made,
        inputs=(TensorSpec("a/b", (2, 3), "bfloat16"), TensorSpec("state.n", (), "float32")),
        outputs=(TensorSpec("y", (2, 3), "float32"), TensorSpec("state.n", (), "float32")),
        states=("state.n",),
    )
    return compile_model(model, hardware, {})


def _sample(difference=0.0):
    x = np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16)
    y = x.astype("float32") + 10
    y[0, 0] += difference
    return Sample((x, np.asarray(10, "float32")), (y, np.asarray(11, "float32")), 1e-3)


@pytest.fixture
def library(compiled, tmp_path):
    compiled.sample = _sample()
    return compiled.save(tmp_path / "ein Ordner ä" / "zählen 1.so")


def _refused(capsys, *arguments):
    """The one line of a refusal."""
    capsys.readouterr()
    assert main(["run", *map(str, arguments)]) == 2
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1
    return printed.err


def test_an_artifact_proves_itself_on_its_sample(library, capsys):
    assert main(["run", str(library)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("y: float32 of shape (2, 3), largest difference 0 ")
    assert lines[1].startswith("state.n: float32 of shape (), largest difference 0 ")
    assert lines[2].startswith("latency ") and "one call" in lines[2]
    assert main(["run", str(library), "--repeat", "5"]) == 0
    assert "median of 5 (" in capsys.readouterr().out


@pytest.mark.parametrize("difference", [1, np.nan])
def test_another_result_ends_with_3_and_names_the_output(compiled, tmp_path, capsys, difference):
    compiled.sample = _sample(difference)
    library = compiled.save(tmp_path / "count.so")
    output = tmp_path / "y.npz"
    assert main(["run", str(library), "-o", str(output)]) == 3
    printed = capsys.readouterr()
    assert printed.out.splitlines()[0].startswith("y: float32 of shape (2, 3), largest difference ")
    assert "count.so computes something else here than the original did: output 'y' " in printed.err
    assert printed.err.count("\n") == 1
    with np.load(output) as arrays:
        assert arrays["y"][0, 0] == 10


@pytest.mark.parametrize(("moved", "code"), [(0.0, 0), (5.0, 3)])
def test_what_float64_judged_is_judged_by_it_again(compiled, tmp_path, capsys, moved, code):
    x = np.arange(6).reshape(2, 3) + 10.0
    x[0, 0] += moved
    exact = Exact([x, np.asarray(11.0)], None, "float64 (a test)")
    compiled.sample = dataclasses.replace(_sample(1), exact=exact)
    library = compiled.save(tmp_path / "count.so")
    entry = json.loads(library.with_suffix(".json").read_text())["sample"]
    assert entry["judged_by"] == "float64 (a test)"
    assert main(["run", str(library)]) == code
    first, second = capsys.readouterr().out.splitlines()[:2]
    assert "judged by float64 (a test)" in first and "judged" not in second


def test_a_sample_of_another_artifact_is_refused(library, capsys):
    library.with_suffix(".sample.npz").write_bytes(b"other")
    assert "sha256 differs" in _refused(capsys, library)


@pytest.mark.parametrize("bits", [True, False])
@pytest.mark.parametrize("state", [None, 20])
def test_arrays_from_a_file(library, tmp_path, capsys, bits, state):
    x = (np.arange(6).reshape(2, 3) * 2).astype(ml_dtypes.bfloat16)
    arrays = {"a/b": x.view("uint16") if bits else x}
    if state is not None:
        arrays["state.n"] = np.asarray(state, "float32")
    file, output = tmp_path / "eingänge 1.npz", tmp_path / "neu" / "aus gänge.npz"
    np.savez(file, **arrays)
    assert main(["run", str(library), "--inputs", str(file), "-o", str(output)]) == 0
    assert "difference" not in capsys.readouterr().out
    with np.load(output) as written:
        assert written.files == ["y", "state.n"]
        np.testing.assert_array_equal(written["y"], x.astype("float32") + (state or 10))
        assert written["state.n"].shape == () and written["state.n"] == (state or 10) + 1


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, "a/b (bfloat16 of shape (2, 3)), state.n (float32 of shape (), may be left out), but"),
        ({"x": 1.0}, "but got no 'a/b' and an unknown 'x'"),
        ({"a/b": np.zeros((2, 3))}, "'a/b' must be bfloat16 of shape (2, 3), but got float64"),
        ({"a/b": np.zeros(6, "uint16")}, "but got bfloat16 of shape (6,)"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_with_what_is_wanted(
    library, tmp_path, capsys, arrays, message
):
    np.savez(tmp_path / "x.npz", **arrays)
    assert message in _refused(capsys, library, "--inputs", tmp_path / "x.npz")


def test_what_is_no_npz_is_refused(library, tmp_path, capsys):
    assert "x.npz is missing" in _refused(capsys, library, "--inputs", tmp_path / "x.npz")
    (tmp_path / "x.npz").write_bytes(b"PK\3\4 no archive")
    assert "x.npz cannot be read" in _refused(capsys, library, "--inputs", tmp_path / "x.npz")
    np.save(tmp_path / "x.npy", np.zeros(3))
    assert "x.npy is a single array and no .npz" in _refused(
        capsys, library, "--inputs", tmp_path / "x.npy"
    )
    np.savez(tmp_path / "x.npz", x=np.array([{}], object))
    assert "cannot be read" in _refused(capsys, library, "--inputs", tmp_path / "x.npz")


def test_without_a_sample_inputs_are_asked_for(compiled, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("foretune.graph.artifact.SAMPLE_BYTES", 10)
    compiled.sample = _sample()
    library = compiled.save(tmp_path / "count.so")
    text = _refused(capsys, library)
    assert "no sample was saved with" in text and "at most 10 are kept" in text
    assert "--inputs X.npz" in text


def test_files_that_are_read_are_not_written(library, tmp_path, capsys):
    before = {path.name: path.read_bytes() for path in library.parent.iterdir()}
    np.savez(tmp_path / "x.npz", **{"a/b": np.zeros((2, 3), "uint16")})
    (tmp_path / "link.npz").symlink_to(library.with_suffix(".sample.npz"))
    inputs = ("--inputs", tmp_path / "x.npz")
    for output in (
        library.with_suffix(".sample.npz"),
        library.parent / ".." / "ein Ordner ä" / "zählen 1.sample.npz",
        tmp_path / "link.npz",
        tmp_path / "x.npz",
    ):
        assert "would overwrite" in _refused(capsys, library, *inputs, "-o", output)
    assert "name it *.npz" in _refused(capsys, library, "-o", library.with_suffix(".json"))
    assert "repeat >= 1" in _refused(capsys, library, "--repeat", 0)
    assert {path.name: path.read_bytes() for path in library.parent.iterdir()} == before
    assert json.loads(library.with_suffix(".json").read_text())["sample"]["tolerance"] == [1e-3] * 2
    Artifact.load(library)
