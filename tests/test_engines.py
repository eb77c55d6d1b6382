"""Comparing with other engines: real child processes, interleaved rounds, failures as text."""

from __future__ import annotations

import math

import numpy as np
import pytest

from foretune.engines import ENGINES, EngineResult, bootstrap_median, compare
from foretune.errors import BadInputError
from foretune.graph import compile_model
from foretune.workload import load_input

torch = pytest.importorskip("torch")

NET = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(8, 16)
        self.second = torch.nn.Linear(16, 4)

    def forward(self, x):
        return self.second(self.first(x).relu())

def make():
    torch.manual_seed(0)
    return Net(), (torch.randn(2, 8),)
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("engines") / "net.py"
    path.write_text(NET)
    return load_input(f"{path}:make")


def _is_measured(result: EngineResult) -> bool:
    assert result.error == ""
    assert result.low is not None and result.high is not None
    assert 0 < result.low <= result.median <= result.high
    assert result.max_abs_error < 1e-5
    return True


def test_engines_run_the_same_model_as_the_artifact(model, hardware):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    artifact = compile_model(model, hardware, {})
    lines = []
    results = compare(
        model, artifact, ["eager", "onnxruntime"], threads=1, rounds=3, progress=lines.append
    )
    assert list(results) == ["foretune", "eager", "onnxruntime"]
    assert all(_is_measured(result) for result in results.values())
    assert {len(result.readings) for result in results.values()} == {3}
    assert "starting eager" in lines


def test_a_saved_artifact_is_compared_by_its_path(model, hardware, tmp_path):
    pytest.importorskip("openvino")
    pytest.importorskip("onnxscript")
    path = compile_model(model, hardware, {}).save(tmp_path / "net.so")
    results = compare(model, path, ["openvino"], threads=1, rounds=1)
    assert all(_is_measured(result) for result in results.values())


@pytest.mark.slow
def test_inductor_runs(model):
    assert _is_measured(compare(model, None, ["inductor"], threads=1, rounds=2)["inductor"])


def test_an_onnx_model_has_no_eager_engine(tmp_path):
    pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [value("x", 1, [1, 4])],
        [value("y", 1, [1, 4])],
    )
    proto = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9
    )
    onnx.save(proto, str(tmp_path / "relu.onnx"))
    model = load_input(str(tmp_path / "relu.onnx"))
    results = compare(model, None, ["eager", "inductor", "onnxruntime"], threads=1, rounds=1)
    assert "needs a PyTorch input" in results["eager"].error
    assert "needs a PyTorch input" in results["inductor"].error
    assert results["eager"].to_json()["median"] is None
    assert _is_measured(results["onnxruntime"])


def test_an_engine_that_fails_does_not_stop_the_others(model, tmp_path):
    (tmp_path / "broken.so").write_bytes(b"no library")
    results = compare(model, tmp_path / "broken.so", ["eager"], threads=1, rounds=1)
    assert "broken.json is missing" in results["foretune"].error
    assert "\n" not in results["foretune"].error
    assert _is_measured(results["eager"])


def test_an_engine_that_is_not_installed_says_how_to_install_it(model, monkeypatch):
    import importlib.util

    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *a: None if name == "openvino" else found(name, *a),
    )
    results = compare(model, None, ["openvino"], threads=1, rounds=1)
    assert "pip install openvino" in results["openvino"].error


def test_an_unknown_engine_or_no_rounds_is_refused(model):
    with pytest.raises(BadInputError, match=f"unknown engine 'tensorrt'.*{sorted(ENGINES)[0]}"):
        compare(model, None, ["tensorrt"], threads=1)
    with pytest.raises(BadInputError, match="rounds must be at least 1, but got 0"):
        compare(model, None, ["eager"], threads=1, rounds=0)


def test_the_bootstrap_interval_holds_the_median_and_is_seeded():
    seconds = np.random.default_rng(0).lognormal(size=50)
    low, high = bootstrap_median(seconds, seed=1)
    assert low < np.median(seconds) < high
    assert (low, high) == bootstrap_median(seconds, seed=1)
    assert math.isclose(*bootstrap_median([0.5]))
