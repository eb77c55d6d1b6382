"""Networks of all kinds through the command line: how ``tune`` and ``compare`` deal with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from foretune import engines
from foretune.cli import main
from foretune.engines import EngineResult, time_original
from foretune.graph import Artifact, compile_model
from foretune.hardware import probe
from foretune.records import Journal
from foretune.workload import load_input

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
h, T = onnx.helper, onnx.TensorProto


def save(
    path: Path, nodes: list[Any], inputs: list[Any], outputs: list[Any], held: tuple[Any, ...] = ()
) -> Path:
    graph = h.make_graph(nodes, "net", inputs, outputs, list(held))
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(model)
    onnx.save_model(model, str(path))
    return path


def tensor(name: str, *shape: int, kind: int = T.FLOAT) -> Any:
    return h.make_tensor_value_info(name, kind, shape)


def branches(folder: Path) -> Path:
    """``a`` and ``b`` are enough for ``part``; ``rest`` wants ``mask``, and cannot be compiled."""
    nodes = [
        h.make_node("Add", ["a", "b"], ["sum/of them"]),
        h.make_node("Relu", ["sum/of them"], ["part"]),
        h.make_node("Mul", ["part", "mask"], ["masked"]),
        h.make_node("NonZero", ["masked"], ["rest"]),
    ]
    inputs = [tensor("a", 4, 6), tensor("mask", 4, 6), tensor("b", 6)]
    return save(folder / "branches.onnx", nodes, inputs, [tensor("rest", 2, "n", kind=T.INT64)])


def half_sums(folder: Path) -> Path:
    """Operators that ONNX Runtime has no kernels for in bfloat16."""
    kind = T.BFLOAT16
    nodes = [h.make_node("Mul", ["x", "x"], ["square"]), h.make_node("Add", ["square", "x"], ["y"])]
    return save(folder / "sums.onnx", nodes, [tensor("x", 4, 6, kind=kind)],
                [tensor("y", 4, 6, kind=kind)])  # fmt: skip


def half_casts(folder: Path) -> Path:
    """Operators that ONNX Runtime has, of a type that it gives to nobody."""
    nodes = [h.make_node("Cast", ["x"], ["wide"], to=T.FLOAT), h.make_node("Tanh", ["wide"], ["y"])]
    return save(folder / "casts.onnx", nodes, [tensor("x", 4, 6, kind=T.BFLOAT16)],
                [tensor("y", 4, 6)])  # fmt: skip


def tune(folder: Path, path: Path, *options: str) -> tuple[Artifact, dict[str, Any]]:
    """The artifact of a short run, and its JSON object."""
    library, result = folder / "net.so", folder / "net.json.txt"
    arguments = ["--trials", "1", "--strategy", "random", "--cost-model", "random"]
    assert main(["tune", str(path), *arguments, "--work-dir", str(folder / "run"), "-o",
                 str(library), "--json", str(result), *options]) == 0  # fmt: skip
    return Artifact.load(library), json.loads(result.read_text())


@pytest.mark.slow
def test_a_cut_is_compared_and_timed_as_it_is_cut(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = branches(tmp_path)
    artifact, data = tune(tmp_path, path, "--until", "part")
    assert [spec.name for spec in artifact.inputs] == ["a", "b"], "the mask is not needed"
    assert [spec.name for spec in artifact.outputs] == ["part"]
    network = data["network"]
    assert network["original"] == "onnxruntime" and network["original_s"] > 0
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((4, 6), "float32"), rng.standard_normal(6, "float32")
    np.testing.assert_allclose(artifact.run([a, b])[0], np.maximum(a + b, 0))
    assert "ONNX Runtime" in capsys.readouterr().out.splitlines()[0]
    compared = tmp_path / "compared.txt"
    assert main(["compare", str(path), "--artifact", str(tmp_path / "net.so"), "--against",
                 "onnxruntime", "--rounds", "1", "--json", str(compared)]) == 0  # fmt: skip
    seen = json.loads(compared.read_text())["latency_s"]["onnxruntime"]
    assert seen["within_tolerance"] and seen["median"] > 0


@pytest.mark.parametrize("made", [half_sums, pytest.param(half_casts, marks=pytest.mark.slow)])
def test_what_onnx_runtime_cannot_run_is_tuned_without_a_time_for_the_original(
    made: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    artifact, data = tune(tmp_path, made(tmp_path))
    network = data["network"]
    assert (network["original"], network["original_s"]) == (None, None)
    assert data["verified"] and network["inputs"] > 2 and network["default_s"] > 0
    x = np.random.default_rng(0).standard_normal((4, 6)).astype(ml_dtypes.bfloat16)
    wide = x.astype("float32")
    expected = np.tanh(wide) if made is half_casts else wide * wide + wide
    actual = artifact.run([x])[0].astype("float32")
    np.testing.assert_allclose(actual, expected, rtol=2e-2, atol=2e-2)
    told = capsys.readouterr()
    assert "original" not in told.out.splitlines()[0] and "several" not in told.err
    assert main(["report", str(tmp_path / "run"), "-o", str(tmp_path / "page.html")]) == 0


def test_constants_and_cuts_are_timed_as_they_are_run(tmp_path: Path) -> None:
    path = branches(tmp_path)
    for until, constants, inputs in [
        (("masked",), {}, ["a", "mask", "b"]),
        (("part",), {"b": np.zeros(6, "float32")}, ["a"]),
        (("masked",), {"mask": np.ones((4, 6), "float32")}, ["a", "b"]),
    ]:
        model = load_input(str(path), until=until, constants=constants)
        assert [spec.name for spec in model.inputs] == inputs  # type: ignore[union-attr]
        engine, seconds = time_original(model, 1)  # type: ignore[arg-type]
        assert engine == "onnxruntime" and seconds is not None and seconds > 0


DECODER = """
import torch

class Decoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.step = torch.nn.Linear(8, 8)
        self.register_buffer("cache", torch.zeros(1, 4, 8))
        self.register_buffer("at", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.cache = torch.cat([self.cache[:, 1:], self.step(x)[:, None]], 1)
        self.at += 1
        return self.cache.sum(1) * self.at

class Held(Decoder):
    def __init__(self):
        super().__init__()
        self.held = (n for n in range(3))  # cannot be pickled

def plain():
    return Decoder(), (torch.ones(1, 8),)

def held():
    return Held(), (torch.ones(1, 8),)
"""


@pytest.mark.parametrize(
    ("function", "engine"),
    [
        pytest.param("plain", "eager", marks=pytest.mark.slow),
        pytest.param("plain", "onnxruntime", marks=pytest.mark.slow),
        ("held", "eager"),
        pytest.param("archive", "eager", marks=pytest.mark.slow),
        pytest.param("plain", "inductor", marks=pytest.mark.slow),
        pytest.param("archive", "inductor", marks=pytest.mark.slow),
        pytest.param("plain", "openvino", marks=pytest.mark.slow),
    ],
)
def test_a_network_with_states_is_compared_and_timed_beside_its_original(
    function: str, engine: str, tmp_path: Path
) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "decoder.py"
    path.write_text(DECODER)
    given = f"{path}:{function}"
    if function == "archive":
        space: dict[str, Any] = {}
        exec(DECODER, space)
        module, inputs = space["plain"]()
        given = str(tmp_path / "decoder.pt2")
        # Of a buffer that is assigned anew, not only written in place.
        torch.export.save(torch.export.export(module, inputs, strict=False), given)
    model = load_input(given)
    library = compile_model(model, probe(), {}).save(tmp_path / "net.so")  # type: ignore[arg-type]
    result = tmp_path / "result.txt"
    assert main(["compare", given, "--artifact", str(library), "--against", engine, "--rounds",
                 "1", "--json", str(result)]) == 0  # fmt: skip
    seen = json.loads(result.read_text())["latency_s"]
    for name in ("foretune", engine):
        assert seen[name]["error"] is None and seen[name]["within_tolerance"], seen[name]
        assert seen[name]["median"] > 0


def test_outputs_have_the_names_of_the_original_and_states_go_round_by_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "decoder.py"
    path.write_text(DECODER)
    model = load_input(f"{path}:plain")
    library = compile_model(model, probe(), {}).save(tmp_path / "net.so")  # type: ignore[arg-type]
    given, made = tmp_path / "x.npz", tmp_path / "y.npz"
    space: dict[str, Any] = {}
    exec(DECODER, space)
    module, _ = space["plain"]()
    x, states = np.full((1, 8), 0.5, "float32"), {}
    for _ in range(3):
        np.savez(given, x=x, **states)
        assert main(["run", str(library), "--inputs", str(given), "-o", str(made)]) == 0
        with np.load(made) as arrays:
            assert list(arrays) == ["output0", "state.cache", "state.at"]
            states = {name: arrays[name] for name in arrays if name.startswith("state.")}
            with torch.no_grad():
                expected = module(torch.from_numpy(x)).numpy()
            np.testing.assert_allclose(arrays["output0"], expected, rtol=1e-5, atol=1e-6)
    assert states["state.at"] == 3
    assert capsys.readouterr().out.splitlines()[1].startswith("state.cache: ")
    cut = load_input(str(branches(tmp_path)), until=["sum/of them", "part", "part"])
    library = compile_model(cut, probe(), {}).save(tmp_path / "cut.so")  # type: ignore[arg-type]
    np.savez(given, a=np.ones((4, 6), "float32"), b=np.zeros(6, "float32"))
    assert main(["run", str(library), "--inputs", str(given), "-o", str(made)]) == 0
    with np.load(made) as arrays:
        assert list(arrays) == ["sum/of them", "part"]


def test_an_original_that_fails_on_its_own_examples_is_told_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = onnx.numpy_helper.from_array(np.ones((1, 4), "float32"), "table")
    nodes = [h.make_node("Gather", ["table", "at"], ["y"])]
    path = save(tmp_path / "net.onnx", nodes, [tensor("at", 3, kind=T.INT64)], [tensor("y", 3, 4)],
                (table,))  # fmt: skip
    module = tmp_path / "net.py"
    module.write_text(
        "import torch\n"
        "class Net(torch.nn.Module):\n"
        "    def forward(self, at):\n"
        "        return torch.nn.functional.embedding(at, torch.ones(2, 3))\n"
        "def make():\n"
        "    return Net(), (torch.tensor([1, 5]),)\n"
    )
    for given in (str(path), f"{module}:make"):
        code = main(["tune", given, "--trials", "1", "--work-dir", str(tmp_path / "run")])
        err = capsys.readouterr().err.splitlines()[-1]
        assert code == 2 and "the original of net" in err.replace("make", "net"), err
        assert "out of data bounds" in err or "index out of range" in err, err
        assert "TVM refuses" not in err


def images(folder: Path) -> Path:
    """A convolution with many channels, and a function of what it gives."""
    rng = np.random.default_rng(0)
    weight = onnx.numpy_helper.from_array(
        rng.standard_normal((32, 16, 3, 3), dtype="float32"), "weight"
    )
    nodes = [
        h.make_node("Conv", ["x", "weight"], ["c"], pads=[1, 1, 1, 1]),
        h.make_node("Tanh", ["c"], ["y"]),
    ]
    return save(folder / "images.onnx", nodes, [tensor("x", 1, 16, 12, 12)],
                [tensor("y", 1, 32, 12, 12)], (weight,))  # fmt: skip


@pytest.mark.slow
def test_passes_are_switched_off_and_reported(tmp_path: Path) -> None:
    path = images(tmp_path)
    off = ("algorithms", "one-function", "vector-math")
    artifact, data = tune(tmp_path, path, *(o for n in off for o in ("--pass", f"{n}=off")))
    passes = {report["name"]: report for report in data["network"]["passes"]}
    assert [n for n, report in passes.items() if report["reason"] == "switched off"] == list(off)
    assert data["passes_off"] == sorted(off)
    assert artifact.manifest["passes"] == data["network"]["passes"], "of what ships"
    assert passes["layouts"]["changed"]
    assert passes["packed-weights"]["changed"]
    assert data["tasks"]
    for task in data["tasks"]:
        assert task["untuned_s"] == task["default_s"] > 0, "what would run without tuning"
    assert data["untuned_s"] >= data["tuned_s"] > 0


def test_a_pass_that_nobody_has_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = images(tmp_path)
    for wrong, told in (("layout=off", "did you mean layouts?"), ("layouts", "say layouts=off")):
        assert main(["tune", str(path), "--trials", "1", "--pass", wrong]) == 2
        assert told in capsys.readouterr().err


def test_a_plan_is_given_back_and_kept_in_the_journal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def compare(_model: Any, artifacts: Any, names: Any, **_options: Any) -> Any:
        return {name: EngineResult(median=1e-3) for name in (*artifacts, *names)}

    monkeypatch.setattr(engines, "compare", compare)
    path = images(tmp_path)
    result = tmp_path / "result.json"
    untuned = compile_model(load_input(str(path)), probe(), {})  # type: ignore[arg-type]
    other = dict.fromkeys(untuned.manifest["plan"]["algorithms"], "winograd2")
    result.write_text(json.dumps({"network": {"plan": {"algorithms": other}}}))
    artifact, data = tune(tmp_path, path, "--plan", str(result))
    plan = data["network"]["plan"]
    assert plan == artifact.manifest["plan"]
    assert plan["algorithms"] == other and len(other) == 1
    with Journal(tmp_path / "run" / "journal.jsonl") as journal:
        (network,) = journal.networks().values()
    assert network["plan"] == plan
    assert {each["name"] for each in network["passes"]} >= {"layouts", "algorithms"}
    for text, told in (
        ('{"algorithms": {"conv2d": "direct"}}', "operators that have a choice"),
        ('{"algorithms": 1}', "--plan must be"),
        ("no JSON", "--plan must be"),
    ):
        result.write_text(text)
        assert main(["tune", str(path), "--trials", "1", "--plan", str(result)]) == 2
        assert told in capsys.readouterr().err
    result.write_text('{"algorithms": {"conv2d": "direct"}}')
    assert main(["tune", "softmax", "--trials", "1", "--plan", str(result)]) == 2
    assert "a plan is for a network" in capsys.readouterr().err
