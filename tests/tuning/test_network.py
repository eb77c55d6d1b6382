"""A network as a whole: proven before the first trial, and what ships in the end."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import foretune
from foretune import engines, graph
from foretune.cli import main
from foretune.cli._tune import _artifact
from foretune.engines import EngineResult
from foretune.errors import BadInputError, UnsupportedModelError, WrongResultError
from foretune.graph import Artifact
from foretune.graph._exact import PYTORCH
from foretune.hardware import Hardware, probe
from foretune.measure import Measurement
from foretune.records import Journal
from foretune.report._network import told_network
from foretune.space import Candidate
from foretune.tuning import Network, TuneResult
from foretune.workload import Model, from_object
from tests.tuning.support import FormulaMeasurer, ok

torch = pytest.importorskip("torch")


@functools.cache
def linear(seed: int = 0) -> Model:
    torch.manual_seed(seed)
    module = torch.nn.Sequential(torch.nn.Linear(24, 40), torch.nn.Tanh()).eval()
    return from_object((module, (torch.randn(3, 24),)), "linear", "a test")


def flatten() -> Model:
    return from_object((torch.nn.Flatten().eval(), (torch.randn(2, 3, 4),)), "flatten", "a test")


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> dict[str, float | None]:
    """Latencies that the comparison in child processes reports, by name."""
    seconds: dict[str, float | None] = {"default": 2e-3, "tuned": 1e-3, "eager": 3e-3}

    def compare(
        model: Model, artifacts: Mapping[str, Any], names: Any, **_options: Any
    ) -> dict[str, EngineResult]:
        found = {name: seconds[name] for name in (*artifacts, *names)}
        return {
            name: EngineResult(median=value, error="" if value else "it died")
            for name, value in found.items()
        }

    monkeypatch.setattr(engines, "compare", compare)
    return seconds


def tune(model: Model, measurer: FormulaMeasurer | None = None, **options: Any) -> TuneResult:
    options = {"trials": 4, **options}
    return foretune.tune(
        model,
        target=probe(),
        strategy="random",
        cost_model="random",
        measurer=measurer or FormulaMeasurer(),
        **options,
    )


def network_of(result: TuneResult) -> Network:
    assert result.network is not None
    return result.network


def outputs(artifact: Artifact, model: Model) -> np.ndarray[Any, Any]:
    return artifact.run(model.draw_inputs(7))[0]


def test_a_faster_network_ships_and_stands_beside_default_and_original(
    timed: dict[str, float | None], tmp_path: Path
) -> None:
    model, path = linear(), tmp_path / "net.so"
    result = tune(model, output=path)
    network = network_of(result)
    assert (network.original, network.shipped, network.fault) == ("eager", "tuned", "")
    assert (network.original_s, network.default_s, network.tuned_s) == (3e-3, 2e-3, 1e-3)
    assert network.inputs > 4 and network.max_abs_error is not None
    assert result.spent_s["proof_s"] == pytest.approx(network.proof_s, rel=1e-6)
    assert 0 < network.proof_s < result.elapsed_s
    (expected,) = model.reference(model.draw_inputs(7))
    saved = Artifact.load(path)
    assert saved.manifest["tuned"], "what was saved last is the tuned network"
    np.testing.assert_allclose(outputs(saved, model), expected, atol=1e-4)
    assert network.passes, "the rewrites of the graph are named"
    np.testing.assert_allclose(outputs(result.compile(), model), expected, atol=1e-4)
    assert saved.sample is not None
    np.testing.assert_allclose(
        saved.run(saved.sample.inputs)[0], saved.sample.outputs[0], atol=1e-4
    )


@pytest.mark.parametrize(
    ("tuned_s", "told"),
    [
        (2.5e-3, "slower than the default"),
        pytest.param(None, "it died", marks=pytest.mark.slow),
    ],
)
def test_a_network_that_is_slower_or_dies_ships_the_default(
    timed: dict[str, float | None], tmp_path: Path, tuned_s: float | None, told: str
) -> None:
    timed["tuned"] = tuned_s
    result = tune(linear(), output=tmp_path / "net.so")
    network = network_of(result)
    assert network.shipped == "default" and told in network.fault and not network.wrong
    assert network.tuned_s == tuned_s
    assert Artifact.load(tmp_path / "net.so").manifest["tuned"] == []
    assert result.compile().manifest["tuned"] == []


def compiling(monkeypatch: pytest.MonkeyPatch, tuned: bool) -> None:
    """Compiles a network with other weights: where something is tuned, or where nothing is."""
    compile_model, other = graph.compile_model, linear(seed=1)

    def wrong(model: Model, hardware: Hardware, best: Mapping[str, Any], *rest: Any) -> Artifact:
        if bool(best) is tuned:
            return compile_model(other, hardware, {})
        return compile_model(model, hardware, best, *rest)

    monkeypatch.setattr(graph, "compile_model", wrong)


@pytest.mark.usefixtures("timed")
def test_a_tuned_network_that_is_wrong_leaves_the_proven_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compiling(monkeypatch, tuned=True)
    model, path = linear(), tmp_path / "net.so"
    network = network_of(tune(model, output=path))
    assert network.wrong and network.shipped == "default"
    assert "differs from the original" in network.fault
    (expected,) = model.reference(model.draw_inputs(7))
    np.testing.assert_allclose(outputs(Artifact.load(path), model), expected, atol=1e-4)


def test_a_default_that_is_wrong_is_refused_before_the_first_trial(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compiling(monkeypatch, tuned=False)
    measurer = FormulaMeasurer()
    with pytest.raises(BadInputError, match=r"linear.*differs from the original"):
        tune(linear(), measurer, output=tmp_path / "net.so")
    assert measurer.asked == [] and not (tmp_path / "net.so").exists()


def test_kernels_that_cannot_be_compiled_are_all_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from foretune._tvm import tvm

    def program(name: str) -> Any:
        x = tvm.te.placeholder((8,), name="x")
        # An instruction of GPUs alone.
        y = tvm.te.compute((8,), lambda i: x[i] + tvm.tirx.call_intrin("float32", name, i))
        return tvm.te.create_prim_func([x, y])

    extract = graph.extract

    def broken(*given: Any) -> graph.Extraction:
        found = extract(*given)
        for name in ("one", "other"):
            found.program[name] = program("tirx.tvm_warp_shuffle")
        return found

    monkeypatch.setattr(graph, "extract", broken)
    measurer = FormulaMeasurer()
    with pytest.raises(UnsupportedModelError, match=r"kernel one .*kernel other") as caught:
        tune(linear(), measurer)
    assert "\n" not in str(caught.value) and measurer.asked == []


@pytest.mark.usefixtures("timed")
def test_a_resumed_run_is_proven_again_and_keeps_trials_and_artifact(tmp_path: Path) -> None:
    path, work_dir = tmp_path / "net.so", tmp_path / "run"
    tune(linear(), output=path, work_dir=work_dir)
    before = path.read_bytes()
    again = FormulaMeasurer()
    seen: list[bytes] = []

    class Watching(foretune.tuning.events.Silent):
        def resumed(self, spent: int, elapsed_s: float) -> None:
            seen.append(path.read_bytes())

    result = tune(linear(), again, output=path, work_dir=work_dir, progress=Watching())
    assert again.asked == [], "proving is no trial"
    assert seen == [before], "the tuned artifact of the earlier run was not replaced meanwhile"
    assert network_of(result).shipped == "tuned"


@pytest.mark.usefixtures("timed")
def test_a_network_without_anything_to_tune_ships_as_it_is(tmp_path: Path) -> None:
    model, path = flatten(), tmp_path / "net.so"
    result = tune(model, output=path)
    assert result.tasks == () and network_of(result).shipped == "default"
    (expected,) = model.reference(model.draw_inputs(7))
    np.testing.assert_array_equal(outputs(Artifact.load(path), model), expected)


@pytest.mark.usefixtures("timed")
def test_a_run_whose_time_the_proof_has_spent_ships_the_proven_network(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, path = linear(), tmp_path / "net.so"
    measurer = FormulaMeasurer()
    result = tune(model, measurer, trials=None, time_s=0.01, output=path)
    network = network_of(result)
    assert measurer.asked == [] and network.shipped == "default" and network.inputs
    assert "0.01 s was spent before anything could be measured" in caplog.text
    expected = model.reference(model.draw_inputs(7))[0]
    np.testing.assert_allclose(outputs(Artifact.load(path), model), expected, atol=1e-5)


def interrupted_timing(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_args: Any, **_options: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(engines, "compare", interrupt)


def test_ctrl_c_in_the_conclusion_leaves_the_proven_network(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    interrupted_timing(monkeypatch)
    result = tune(linear(), output=tmp_path / "net.so")
    assert result.interrupted and network_of(result).shipped == "default"
    assert Artifact.load(tmp_path / "net.so").manifest["tuned"] == []
    assert result.compile().manifest["tuned"] == []


@pytest.mark.slow
def test_ctrl_c_in_the_conclusion_of_a_resumed_run_leaves_the_tuned_network(
    timed: dict[str, float | None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path, work_dir = tmp_path / "net.so", tmp_path / "run"
    assert network_of(tune(linear(), output=path, work_dir=work_dir)).shipped == "tuned"
    before = {file.name: file.read_bytes() for file in graph.artifact_files(path)}

    interrupted_timing(monkeypatch)
    result = tune(linear(), output=path, work_dir=work_dir)
    assert result.interrupted
    assert {file.name: file.read_bytes() for file in graph.artifact_files(path)} == before
    assert f"{path} stays as another run left it" in caplog.text
    assert _artifact(result, path)[0] == {
        "verified": True, "max_abs_error": None, "artifact": str(path)
    }  # fmt: skip


@pytest.mark.usefixtures("timed")
def test_ctrl_c_in_a_resumed_run_of_other_weights_leaves_those(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path, work_dir = tmp_path / "net.so", tmp_path / "run"
    assert network_of(tune(linear(), output=path, work_dir=work_dir)).shipped == "tuned"
    interrupted_timing(monkeypatch)
    again, exported = FormulaMeasurer(), linear(seed=1)
    result = tune(exported, again, output=path, work_dir=work_dir)
    assert result.interrupted and again.asked == [], "the journal is of the same programs"
    saved = Artifact.load(path)
    assert saved.manifest["key"] == exported.key and saved.manifest["tuned"] == []
    (expected,) = exported.reference(exported.draw_inputs(7))
    np.testing.assert_allclose(outputs(saved, exported), expected, atol=1e-4)
    fields, wrong = _artifact(result, path)
    assert fields["verified"] is True and fields["artifact"] == str(path) and not wrong


def test_a_tuned_network_that_another_tuner_saves_meanwhile_stays(
    timed: dict[str, float | None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    elsewhere, path = tmp_path / "other.so", tmp_path / "net.so"
    assert network_of(tune(linear(), output=elsewhere)).shipped == "tuned"
    other = Artifact.load(elsewhere)
    asked: list[Candidate] = []

    def answer(candidate: Candidate) -> Measurement:
        if not asked:
            assert Artifact.load(path).manifest["tuned"] == [], "the proven one was there"
            other.save(path)
        asked.append(candidate)
        return ok(candidate)

    compare = engines.compare
    as_default: list[Any] = []

    def watched(model: Model, artifacts: Mapping[str, Any], *rest: Any, **options: Any) -> Any:
        as_default.append(artifacts["default"])
        return compare(model, artifacts, *rest, **options)

    monkeypatch.setattr(engines, "compare", watched)
    timed["tuned"] = 2.5e-3
    result = tune(linear(), FormulaMeasurer(answer), output=path)
    assert network_of(result).shipped == "default"
    (default,) = as_default
    assert isinstance(default, Artifact) and default.manifest["tuned"] == []
    assert Artifact.load(path).manifest["tuned"], "it was not replaced by the default"
    assert result.kept is not None and result.kept["tuned"]
    assert result.compile().manifest["tuned"] == []


def test_a_default_that_another_tuner_replaces_while_it_is_timed_is_timed_again(
    timed: dict[str, float | None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path, compare = tmp_path / "net.so", engines.compare
    as_default: list[Any] = []
    other = graph.compile_model(linear(seed=1), probe(), {})

    def replacing(model: Model, artifacts: Mapping[str, Any], *rest: Any, **options: Any) -> Any:
        as_default.append(artifacts["default"])
        other.save(path)
        timed["default"] = 2e-3 if isinstance(as_default[-1], Artifact) else 1e-6
        return compare(model, artifacts, *rest, **options)

    monkeypatch.setattr(engines, "compare", replacing)
    result = tune(linear(), output=path)
    assert as_default[0] == path and isinstance(as_default[1], Artifact)
    assert network_of(result).default_s == 2e-3 and network_of(result).shipped == "tuned"
    assert Artifact.load(path).manifest["key"] == linear().key


def test_an_original_that_cannot_be_timed_beside_it_is_said(
    timed: dict[str, float | None], caplog: pytest.LogCaptureFixture
) -> None:
    timed["eager"] = None
    found = network_of(tune(linear()))
    assert found.shipped == "tuned" and found.original_s
    assert "eager fails in a process of its own (it died)" in caplog.text


@pytest.mark.usefixtures("timed")
def test_a_fresh_run_begins_with_its_own_default(tmp_path: Path) -> None:
    path, work_dir = tmp_path / "net.so", tmp_path / "run"
    assert network_of(tune(linear(), output=path, work_dir=work_dir)).shipped == "tuned"
    seen: list[Any] = []

    class Watching(foretune.tuning.events.Silent):
        def start(self, *_given: Any) -> None:
            seen.append(Artifact.load(path).manifest["tuned"])

    tune(linear(), output=path, work_dir=work_dir, fresh=True, progress=Watching())
    assert seen == [[]]


@pytest.mark.usefixtures("timed")
def test_where_the_tuned_network_is_wrong_an_earlier_one_goes_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path, work_dir = tmp_path / "net.so", tmp_path / "run"
    assert network_of(tune(linear(), output=path, work_dir=work_dir)).shipped == "tuned"
    compiling(monkeypatch, tuned=True)
    result = tune(linear(), output=path, work_dir=work_dir)
    assert network_of(result).wrong and Artifact.load(path).manifest["tuned"] == []
    assert _artifact(result, path)[1].endswith(
        f"{path} holds the default schedules, which are right"
    )


def test_files_beside_the_artifact_are_refused_before_anything_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "net.json"
    mine.write_text("{}")
    monkeypatch.setattr("foretune.workload.load_input", lambda *_, **__: pytest.fail("too early"))
    given = ["tune", "resnet50", "--trials", "1", "--work-dir", str(tmp_path / "run")]
    assert main([*given, "-o", str(tmp_path / "net.so")]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and f"{mine} is none of an artifact: move it" in told
    measurer = FormulaMeasurer()
    with pytest.raises(BadInputError, match="move it, or choose another name"):
        tune(linear(), measurer, output=tmp_path / "net.so")
    assert measurer.asked == [] and mine.read_text() == "{}"


def wrong_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The network differs on the third of its inputs, and is too large to look there first."""
    verify = graph.verify

    def seen(artifact: Any, model: Model, **options: Any) -> graph.Verification:
        check = verify(artifact, model, **options)
        late = any(given.name == "random 1" for given in options["inputs"])
        return dataclasses.replace(check, ok=False, message="y differs") if late else check

    monkeypatch.setattr(graph, "verify", seen)
    monkeypatch.setattr(foretune.tuning.proof, "_MORE_INPUTS_S", -1.0)


@pytest.mark.usefixtures("timed")
@pytest.mark.slow
def test_a_default_that_turns_out_to_be_wrong_at_the_end_is_taken_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wrong_later(monkeypatch)
    path, work_dir = tmp_path / "net.so", tmp_path / "run"
    for _resumed in (False, True):
        result = tune(linear(), output=path, work_dir=work_dir)
        network = network_of(result)
        assert network.shipped == "" and network.wrong and network.shipped_s is None
        assert "differs from the original" in network.fault
        assert not any(file.exists() for file in graph.artifact_files(path))
        saved = json.loads((work_dir / "tune.json").read_text())
        assert saved["network"]["shipped"] is None and saved["network"]["fault"] == network.fault
        assert len(saved["tasks"][0]["trials"]) == 4
        with pytest.raises(WrongResultError, match="differs from the original"):
            result.compile()
        linear_saved = graph.compile_model(linear(), probe(), {}).save(path)  # of a killed run
        assert linear_saved.exists()


@pytest.mark.usefixtures("timed")
def test_a_network_without_artifact_ends_the_program_with_3_and_a_result(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from foretune.cli import main

    wrong_later(monkeypatch)
    module = tmp_path / "net.py"
    module.write_text(
        "import torch\ndef make():\n    return torch.nn.Flatten(), (torch.randn(2, 3, 4),)\n"
    )
    path, data = tmp_path / "net.so", tmp_path / "result.json"
    code = main(["tune", f"{module}:make", "--trials", "1", "--work-dir", str(tmp_path / "run"),
                 "-o", str(path), "--json", str(data)])  # fmt: skip
    told = capsys.readouterr()
    assert code == 3 and "Traceback" not in told.err
    assert told.err.splitlines()[-1].endswith(f"{path} was removed")
    assert told.out.startswith("no network that computes what the original does")
    assert "equal to the original" not in told.out
    result = json.loads(data.read_text())
    assert result["verified"] is False and result["network"]["shipped"] is None
    assert "artifact" not in result and not path.exists()


@pytest.mark.slow
def test_whose_error_it_is_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_args: Any, **_options: Any) -> Any:
        raise RuntimeError("out of order")

    for owner, name, expected, message in [
        (graph, "verify", RuntimeError, "^out of order$"),
        (Artifact, "run", UnsupportedModelError, "was compiled, but .* TVM refuses .*of order"),
        (Artifact, "time", UnsupportedModelError, "was compiled, but .* TVM refuses .*of order"),
        (Model, "reference", UnsupportedModelError, "the original of linear .*of order"),
        (engines, "time_original", UnsupportedModelError, "the original of linear .*of order"),
        (graph, "take_sample", RuntimeError, "^out of order$"),
    ]:
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, broken)
            if name == "reference":
                patched.setattr(Model, "prepare_reference", lambda _self: broken)
            with pytest.raises(expected, match=message):
                tune(linear())


@pytest.mark.usefixtures("timed")
def test_a_tuned_network_that_cannot_run_here_leaves_the_proven_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = Artifact.run

    def breaking(self: Artifact, inputs: Any) -> Any:
        if self.manifest["tuned"]:
            raise RuntimeError("out of order")
        return run(self, inputs)

    monkeypatch.setattr(Artifact, "run", breaking)
    network = network_of(tune(linear(), output=tmp_path / "net.so"))
    assert network.shipped == "default" and "out of order" in network.fault
    assert Artifact.load(tmp_path / "net.so").manifest["tuned"] == []


class Shifted(torch.nn.Module):
    """Rounding of the last digits, amplified by a number that is added and taken away again."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(512, 64)

    def forward(self, x: Any) -> Any:
        return (self.linear(x) + 1e4) - 1e4


@pytest.mark.usefixtures("timed")
def test_what_float64_judged_is_judged_alike_by_whoever_runs_the_artifact(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(0)
    model = from_object((Shifted().eval(), (torch.randn(8, 512),)), "shifted", "a test")
    path = tmp_path / "net.so"
    network = network_of(tune(model, output=path))
    saved = Artifact.load(path)
    assert network.judged_by == PYTORCH == saved.manifest["verification"]["judged_by"]
    assert {p["name"] for p in saved.manifest["passes"] if p["on"]} >= {"layouts", "keep-nan"}
    assert len(saved.manifest["verification"]["inputs"]) == network.inputs
    assert main(["run", str(path)]) == 0
    assert f"judged by {PYTORCH}" in capsys.readouterr().out
    assert saved.sample is not None and saved.sample.exact is not None
    for array in (*saved.sample.outputs, *saved.sample.exact.outputs):
        array[0, 3] += 0.1
    saved.save(tmp_path / "other.so")
    assert main(["run", str(tmp_path / "other.so")]) == 3


@pytest.mark.usefixtures("timed")
def test_who_judged_and_what_was_left_out_is_said() -> None:
    module = torch.nn.Embedding(11, 4)
    model = from_object((module, (torch.tensor([1, 2]),)), "rows", "a test")
    told = network_of(tune(model)).to_json()
    assert told["judged_by"] == "tolerance"
    assert set(told["left_out"]) == {"negative index"}
    assert "refuses" in told["left_out"]["negative index"]
    assert not any(p["reason"].startswith("failed") for p in told["passes"])
    assert "left out" not in told_network(told).verified
    failed = {"name": "fold", "on": False, "reason": "failed: why not", "changed": False}
    told |= {"judged_by": PYTORCH, "passes": [failed]}
    told["left_out"] = {**told["left_out"], "random 1": "the original refuses them: no"}
    assert told_network(told).verified.endswith(
        f"judged by {PYTORCH}; not compared on 'random 1': the original refuses them; "
        "passes that failed: 'fold'"
    )


@pytest.mark.slow
def test_layers_that_another_network_has_cost_no_trial(
    timed: dict[str, float | None], tmp_path: Path
) -> None:
    def network(*widths: int) -> Model:
        torch.manual_seed(0)
        layers = [torch.nn.Linear(a, b) for a, b in itertools.pairwise(widths)]
        module = torch.nn.Sequential(*layers).eval()
        return from_object((module, (torch.randn(3, widths[0]),)), "layers", "a test")

    with Journal(tmp_path / "store.jsonl") as store:
        first = tune(network(24, 40, 56), store=store, trials=8)
        second = tune(network(24, 40, 56, 72), store=store, trials=8)
    known = {task.workload.key for task in first.tasks}
    trials = {task.workload.key: len(task.trials) for task in second.tasks}
    assert len(known) == 2 and len(trials) == 3 and known < set(trials)
    assert [trials[key] for key in known] == [0, 0] and sum(trials.values()) == 8
    assert second.reused is not None
    assert {task["key"] for task in second.reused["tasks"] if task["best"]} == known
    assert all(task.confirmed for task in second.tasks)
    assert network_of(second).shipped == "tuned"
