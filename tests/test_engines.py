"""Comparing with other engines: real child processes, interleaved rounds, failures as text."""

from __future__ import annotations

import dataclasses
import errno
import json
import math
import re
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

from foretune._child import environment
from foretune.engines import ENGINES, EngineResult, bootstrap_median, compare
from foretune.engines._process import Child, Workspace
from foretune.engines._serve import save_arrays
from foretune.errors import BadInputError
from foretune.graph import CHAOS, compile_model, verify
from foretune.hardware import probe, usable_cores
from foretune.workload import TorchSource, from_object, load_input

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


@pytest.fixture(scope="module")
def artifact(model, hardware):
    return compile_model(model, hardware, {})


def _is_measured(result: EngineResult) -> bool:
    assert result.error == ""
    assert result.low is not None and result.high is not None
    assert 0 < result.low <= result.median <= result.high
    assert result.max_abs_error < 1e-5
    assert result.max_relative_error < 1e-4
    assert result.within_tolerance is True
    return True


def test_engines_run_the_same_model_as_the_artifact(model, artifact):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    lines = []
    results = compare(
        model, artifact, ["eager", "onnxruntime"], threads=1, rounds=3, progress=lines.append
    )
    assert list(results) == ["foretune", "eager", "onnxruntime"]
    assert all(_is_measured(result) for result in results.values())
    assert {len(result.readings) for result in results.values()} == {3}
    assert "starting eager" in lines


def test_a_saved_artifact_is_compared_by_its_path(model, artifact, tmp_path):
    pytest.importorskip("openvino")
    pytest.importorskip("onnxscript")
    path = artifact.save(tmp_path / "net.so")
    results = compare(model, path, ["openvino"], threads=1, rounds=1)
    assert all(_is_measured(result) for result in results.values())


@pytest.mark.parametrize("compiled_for", [1, usable_cores()])
def test_an_artifact_is_given_as_many_threads_as_the_others(relu_onnx, tmp_path, compiled_for):
    model = load_input(str(relu_onnx))
    path = compile_model(model, probe(threads=compiled_for), {}).save(tmp_path / "net.so")
    asked = usable_cores() + 1 - compiled_for
    inputs = tmp_path / "inputs.npz"
    save_arrays(inputs, model.examples)
    code = f"""
import tvm
from pathlib import Path
from foretune.engines._serve import _LOADERS, load_arrays
run = _LOADERS["foretune"]({str(path)!r}, load_arrays(Path({str(inputs)!r})), {asked})
run()
print(tvm.get_global_func("runtime.NumThreads")())
"""
    command = [sys.executable, "-c", code]
    told = subprocess.run(
        command, capture_output=True, text=True, check=True, env=environment(asked)
    )
    assert int(told.stdout.split()[-1]) == asked


PARTS = {
    "blocks.py": """
import torch

class Block(torch.nn.Module):
    def forward(self, x):
        from scales import scale  # when it is called
        return scale(x)
""",
    "scales.py": "def scale(x):\n    return 3 * x\n",
    "net.py": """
import torch
import blocks

class Own(torch.nn.Module):
    def forward(self, x):
        return blocks.Block()(x).relu()

def inner():
    return torch.nn.Sequential(torch.nn.Linear(8, 4), Own()), (torch.randn(2, 8),)

def beside():
    from blocks import Block
    return torch.nn.Sequential(torch.nn.Linear(8, 4), Block()), (torch.randn(2, 8),)
""",
}


@pytest.mark.parametrize("function", ["inner", "beside"])
def test_engines_know_classes_of_the_file_and_of_those_beside_it(tmp_path, function):
    folder = tmp_path / "input"
    folder.mkdir()
    for name, text in PARTS.items():
        (folder / name).write_text(text)
    network = load_input(f"{folder}/net.py:{function}")
    result = compare(network, None, ["eager"], threads=1, rounds=1)["eager"]
    assert _is_measured(result)
    assert "blocks" not in sys.modules and str(folder) not in sys.path


@pytest.mark.slow
def test_artifacts_are_compared_with_each_other_by_name(model, artifact, tmp_path):
    saved = artifact.save(tmp_path / "net.so")
    results = compare(model, {"mcts/a": artifact, "mcts/b": saved}, [], threads=1, rounds=2)
    assert list(results) == ["mcts/a", "mcts/b"]
    assert all(_is_measured(result) for result in results.values())
    with pytest.raises(BadInputError, match=r"name of an engine.*'eager'"):
        compare(model, {"eager": artifact}, [], threads=1)


@pytest.mark.slow
def test_inductor_runs(model):
    assert _is_measured(compare(model, None, ["inductor"], threads=1, rounds=2)["inductor"])


def _state(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return re.search(r"^State:\s+(\w)", status, re.MULTILINE).group(1)


def _eventually(holds, seconds=20.0):
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.01)
    return holds()


def test_who_is_not_being_timed_is_stopped(relu_onnx, hardware, tmp_path):
    pytest.importorskip("onnxruntime")
    model = load_input(str(relu_onnx))
    artifacts = {"foretune": compile_model(model, hardware, {})}
    workspace = Workspace(tmp_path, model, artifacts, model.examples)
    with (
        Child.start("foretune", workspace, 1) as ours,
        Child.start("onnxruntime", workspace, 1) as other,
    ):
        for child in (ours, other, ours):
            idle = [c._process.pid for c in (ours, other) if c is not child]
            assert _eventually(lambda: all(_state(pid) == "T" for pid in idle))  # noqa: B023
            assert child.time() > 0
    assert ours._process.returncode is not None


def test_what_an_engine_has_started_is_stopped_and_ended_with_it(tmp_path):
    path = tmp_path / "net.py"
    told = tmp_path / "pid"
    started = "subprocess.Popen(['sleep', '600'])"
    path.write_text(
        NET.replace("return self.second", f"start({str(told)!r}); return self.second")
        + f"""
def start(told):
    import os, subprocess
    if not os.path.exists(told):
        with open(told, "w") as file:
            file.write(str({started}.pid))
"""
    )
    model = load_input(f"{path}:make")
    told.unlink(missing_ok=True)
    with Child.start("eager", Workspace(tmp_path, model, {}, model.examples), 1) as child:
        pid = int(told.read_text())
        assert _eventually(lambda: _state(pid) == "T")
        assert child.time() > 0
    assert _eventually(lambda: not Path(f"/proc/{pid}").exists() or _state(pid) == "Z")


def test_a_stopped_engine_does_not_outlive_the_comparison(relu_onnx, tmp_path):
    pytest.importorskip("onnxruntime")
    script = f"""
import os, signal
from pathlib import Path
from foretune.engines._process import Child, Workspace
from foretune.workload import load_input

model = load_input({str(relu_onnx)!r})
workspace = Workspace(Path({str(tmp_path)!r}), model, {{}}, model.examples)
with Child.start("onnxruntime", workspace, 1) as c:
    print(c._process.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ended.returncode == -9, ended.stderr
    pid = int(ended.stdout.split()[-1])
    # Whoever adopts orphans here may let them stay as zombies.
    assert _eventually(lambda: not Path(f"/proc/{pid}").exists() or _state(pid) == "Z")


def test_an_onnx_model_has_no_eager_engine(relu_onnx):
    pytest.importorskip("onnxruntime")
    model = load_input(str(relu_onnx))
    results = compare(model, None, ["eager", "inductor", "onnxruntime"], threads=1, rounds=1)
    assert "needs a PyTorch input" in results["eager"].error
    assert "needs a PyTorch input" in results["inductor"].error
    assert results["eager"].to_json()["median"] is None
    assert _is_measured(results["onnxruntime"])


def test_an_engine_that_fails_does_not_stop_the_others(relu_onnx, tmp_path):
    pytest.importorskip("onnxruntime")
    model = load_input(str(relu_onnx))
    (tmp_path / "broken.so").write_bytes(b"no library")
    results = compare(model, tmp_path / "broken.so", ["onnxruntime"], threads=1, rounds=1)
    assert "broken.json is missing" in results["foretune"].error
    assert "\n" not in results["foretune"].error
    assert _is_measured(results["onnxruntime"])


class Reference:
    """A model whose reference returns something else than what its engines return."""

    def __init__(self, model, change):
        self._model = model
        self._change = change

    def __getattr__(self, name):
        return getattr(self._model, name)

    def reference(self, inputs):
        return self._change(self._model.reference(inputs))


def test_outputs_of_another_shape_or_number_are_that_engines_error(relu_onnx):
    pytest.importorskip("onnxruntime")
    model = load_input(str(relu_onnx))
    widened = Reference(model, lambda outputs: [np.stack([a, a]) for a in outputs])
    result = compare(widened, None, ["onnxruntime"], threads=1, rounds=1)["onnxruntime"]
    assert "output 0 of shape (1, 4) where the reference returned (2, 1, 4)" in result.error
    assert result.median is None
    doubled = Reference(model, lambda outputs: [*outputs, *outputs])
    result = compare(doubled, None, ["onnxruntime"], threads=1, rounds=1)["onnxruntime"]
    assert "returned 1 outputs where the reference returned 2" in result.error


@pytest.mark.slow
def test_other_numbers_are_timed_and_said_to_be_outside_the_tolerance(model):
    shifted = Reference(model, lambda outputs: [a * 1.01 for a in outputs])
    result = compare(shifted, None, ["eager"], threads=1, rounds=1)["eager"]
    assert result.error == "" and result.median > 0
    # Of its own magnitude and that of the others.
    assert 0.004 < result.max_relative_error < 0.01
    assert result.within_tolerance is False
    assert result.difference.startswith("output ") and "differs by" in result.difference
    broken = Reference(model, lambda outputs: [a * np.nan for a in outputs])
    result = compare(broken, None, ["eager"], threads=1, rounds=1)["eager"]
    assert math.isnan(result.max_abs_error)
    assert result.within_tolerance is False
    text = json.dumps(result.to_json(), allow_nan=False)
    assert json.loads(text)["max_abs_error"] is None


def test_the_names_of_the_engines_cost_nothing_to_import():
    code = "import sys; from foretune.engines import ENGINES; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"numpy", "tvm", "torch"} & set(done.stdout.split())


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


class Stubborn(torch.nn.Module):
    """Runs, but can be neither pickled nor exported."""

    def __reduce_ex__(self, protocol):
        raise TypeError("on purpose\nwith more lines")

    def forward(self, x):
        return x if x.sum() > 0 else -x


def test_a_module_that_cannot_be_handed_over_is_those_engines_error(model):
    source = TorchSource(Stubborn(), (torch.ones(2, 8),))
    stubborn = dataclasses.replace(model, source=source)
    results = compare(stubborn, None, ["eager", "inductor"], threads=1, rounds=1)
    for result in results.values():
        assert "needs a module that can be pickled or exported" in result.error
        assert "\n" not in result.error
        assert result.median is None


def test_no_room_for_temporary_files_is_said(model, monkeypatch):
    def nowhere(*_args, **_kwargs):
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "mkdtemp", nowhere)
    with pytest.raises(BadInputError, match=r"No usable temporary directory .*set TMPDIR"):
        compare(model, None, ["eager"], threads=1, rounds=1)


class Chaotic(torch.nn.Module):
    """The logistic map: each step doubles what rounding did before."""

    def __init__(self, expanded):
        super().__init__()
        self.expanded = expanded

    def forward(self, x):
        turned = torch.eye(16).roll(1, 0)
        x = x.sigmoid()
        for _ in range(30):
            x = x @ turned
            x = 4 * x - 4 * x * x if self.expanded else 4 * x * (1 - x)
        return x


def test_nothing_is_said_where_rounding_alone_makes_another_result(hardware):
    one, other = (
        from_object((Chaotic(expanded), torch.zeros(4, 16)), "net") for expanded in (True, False)
    )
    artifact = compile_model(other, hardware, {})
    assert verify(artifact, one).ok
    result = compare(one, artifact, [], threads=1, rounds=1)["foretune"]
    assert result.error == "" and result.max_abs_error > 0.1
    assert result.within_tolerance is None and result.difference == CHAOS
    assert result.to_json()["within_tolerance"] is None


@pytest.mark.slow
def test_an_exported_model_starts_an_engine_without_pytorchs_warnings_about_itself(tmp_path):
    path = tmp_path / "net.pt2"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(torch.nn.Linear(8, 4).eval(), (torch.ones(2, 8),))
        torch.export.save(program, str(path))
    exported = load_input(str(path))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        workspace = Workspace(tmp_path, exported, {}, exported.examples)
        with Child.start("eager", workspace, 1) as child:
            (output,) = child.outputs()
    np.testing.assert_allclose(output, exported.reference(exported.examples)[0], rtol=1e-5)
    assert not [warning for warning in told if "LeafSpec" in str(warning.message)]
    assert "LeafSpec" not in (tmp_path / "eager.log").read_text()
