"""``foretune explain`` on a run, its artifact, and inputs, as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from foretune.describe import METRICS
from tests.test_cli import call

WORKLOAD = "matmul:64x64x64"
FIELDS = {"name", "seconds", "bound", "share_of_bound", "scores", "advice", "limits_s", "numbers"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A work directory with an artifact, of a few random trials."""
    from foretune.cli import main

    folder = tmp_path_factory.mktemp("explained")
    words = ["tune", WORKLOAD, "--trials", "6", "--strategy", "random", "--cost-model", "random"]
    code = main([*words, "--work-dir", str(folder / "run"), "-o", str(folder / "run" / "a.so")])
    assert code == 0
    return folder / "run"


def explained(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, *arguments: str
) -> tuple[dict[str, Any], str]:
    target = tmp_path / "explained.json"
    code, out, err = call(capsys, "explain", *arguments, "--json", str(target))
    assert code == 0, err
    data = json.loads(target.read_text())
    assert data["schema"] == "foretune.explain/1"
    return data, out


def test_the_best_of_a_run_is_explained_beside_its_measured_seconds(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, run: Path
) -> None:
    data, out = explained(capsys, tmp_path, str(run))
    (kernel,) = data["kernels"]
    assert set(kernel) >= FIELDS
    assert set(kernel["scores"]) == {metric.name for metric in METRICS}
    result = json.loads((run / "tune.json").read_text())
    assert kernel["seconds"] == pytest.approx(result["tasks"][0]["best_s"])
    assert kernel["numbers"]["flops"] == 2 * 64**3
    assert "bound by" in out and "try: " in out
    for change in (each for each in kernel["advice"] if each["change"]):
        assert " -> " in change["change"] and change["gain"] > 1 and change["decisions"]


def test_an_artifact_says_what_was_said_when_it_was_made(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, run: Path
) -> None:
    (kernel,) = explained(capsys, tmp_path, str(run / "a.so"))[0]["kernels"]
    (other,) = explained(capsys, tmp_path, str(run))[0]["kernels"]
    for field in ("name", "seconds", "bound", "share_of_bound", "scores", "numbers"):
        assert kernel[field] == other[field]
    report = json.loads((run / "tune.json").read_text())["kernels"]
    assert report == [kernel]


def test_the_report_has_what_bounds_the_kernels(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, run: Path
) -> None:
    code, _, err = call(capsys, "report", str(run), "-o", str(tmp_path / "r.html"))
    assert code == 0, err
    page = (tmp_path / "r.html").read_text()
    assert "What bounds the kernels" in page and "lowest scores" in page


def test_a_workload_that_was_not_tuned_is_explained_by_its_default_schedule(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    data, out = explained(capsys, tmp_path, WORKLOAD)
    (kernel,) = data["kernels"]
    assert kernel["seconds"] is None and kernel["predicted_s"] > 0
    assert "not measured" in out


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A file of one device, which is called like no machine."""
    return devices_file(tmp_path)


def devices_file(folder: Path, *aliases: str) -> Path:
    factors = {"cores": 64, "simd_fp32_lanes": 4, "fp32_flop_per_cycle_per_core": 8,
               "l1d_kib_per_core": 32, "boost_mhz": 2000}  # fmt: skip
    entry = {"name": "Mine", "kind": "cpu", "aliases": list(aliases), **factors}
    file = folder / "devices.json"
    file.write_text(json.dumps({"mine": entry}))
    return file


def test_another_device_is_another_judgement(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, mine: Path
) -> None:
    (own,) = explained(capsys, tmp_path, WORKLOAD)[0]["kernels"]
    data, out = explained(capsys, tmp_path, WORKLOAD, "--devices", str(mine), "--device", "mine")
    (other,) = data["kernels"]
    assert other["device"] == "mine" != own["device"] and other["device_name"] == "Mine, 64 cores"
    assert other["predicted_s"] != own["predicted_s"] and other["hardware"] == own["hardware"]
    assert set(other["assumed"]) == {"memory_gb_per_s", "l2_kib"}
    assert "the schedules are those for" in out and "assumed of Mine" in out
    assert len(data["notes"]) == 2


def test_seconds_of_one_machine_say_nothing_of_another(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, run: Path, mine: Path
) -> None:
    data, out = explained(capsys, tmp_path, str(run), "--devices", str(mine), "--device", "mine")
    (kernel,) = data["kernels"]
    assert kernel["seconds"] is None and "not measured" in out
    assert 0 < kernel["share_of_bound"] <= 1
    assert "the schedules are those for" in out


@pytest.mark.parametrize("source", ["RUN", WORKLOAD])
def test_an_entry_that_is_called_like_the_machine_is_used(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, run: Path, source: str
) -> None:
    from foretune.hardware import probe

    file, name = devices_file(tmp_path, probe().name), source.replace("RUN", str(run))
    (kernel,) = explained(capsys, tmp_path, name, "--devices", str(file))[0]["kernels"]
    assert kernel["device"] == "mine"
    # It is the kernel's own, so that what was measured is of it, also where it is named.
    (named,) = explained(capsys, tmp_path, name, "--devices", str(file), "--device", "mine")[0][
        "kernels"
    ]
    assert (named["device"], named["seconds"]) == ("mine", kernel["seconds"])
    assert (kernel["seconds"] is None) == (source == WORKLOAD)


def test_an_entry_that_is_called_like_the_target_is_used(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = devices_file(tmp_path, "cortex-a55")
    target = ("--target", "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a55 -num-cores=4")
    (kernel,) = explained(capsys, tmp_path, WORKLOAD, "--devices", str(file), *target)[0]["kernels"]
    assert kernel["device"] == "mine"


def test_a_file_that_has_not_this_machine_is_told(
    capsys: pytest.CaptureFixture[str], run: Path, mine: Path
) -> None:
    code, _, err = call(capsys, "explain", str(run), "--devices", str(mine))
    assert code == 0 and "has no device that is called" in err


def test_of_a_machine_that_no_table_has_peaks_are_measured_and_the_rest_is_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from foretune.hardware import _probe
    from foretune.hardware._peak import Peaks

    monkeypatch.setattr(_probe, "_cpu_name", lambda: "Abacus 1")
    judged: dict[float, Any] = {}
    for gflops in (100.0, 0.0):  # Zeros stand for what could not be measured.
        monkeypatch.setattr(_probe, "measure_peaks", lambda *_, g=gflops: Peaks(g, g / 5))
        data, out = explained(capsys, tmp_path, WORKLOAD)
        (judged[gflops],) = data["kernels"]
        assert "assumed of Abacus 1" in out
    clock = "boost_mhz"
    assert clock not in judged[100.0]["assumed"] and judged[0.0]["assumed"][clock] == 2000
    assert judged[100.0]["predicted_s"] != judged[0.0]["predicted_s"]


def test_the_default_schedule_is_told_what_tuning_is_predicted_to_gain(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    data, out = explained(capsys, tmp_path, "depthwise_3x3", "--device", "i7-3770")
    (kernel,) = data["kernels"]
    first = kernel["advice"][0]
    assert first["gain"] > 1.1 and first["decisions"] and first["sketch"]
    assert "try: tune: of" in out


def test_each_kernel_of_two_hardwares_is_judged_on_its_own(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, run: Path
) -> None:
    from dataclasses import replace

    from foretune.records import Journal
    from foretune.tuning import JOURNAL

    with Journal(run / JOURNAL, read_only=True) as old:
        (hardware,) = old.hardware().values()
        (workload,) = old.workloads().values()
        records = list(old.records())
    more = replace(hardware, threads=hardware.threads + 1)
    with Journal(tmp_path / JOURNAL) as journal:
        journal.add_workload(workload)
        for each in (hardware, more):
            journal.add_hardware(each)
        for record in records:
            for each in (hardware, more):
                journal.append(replace(record, hardware=each.key))
    data, out = explained(capsys, tmp_path, str(tmp_path))
    kernels = {kernel["hardware"]: kernel for kernel in data["kernels"]}
    assert set(kernels) == {hardware.key, more.key}
    names = {kernel["device_name"] for kernel in kernels.values()}
    assert len(names) == 2 and all(f"on {name}" in out.replace("\n  ", " ") for name in names)


def test_what_is_no_kernel_of_a_model_is_left_out_with_the_reason(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    model = onnx_model(tmp_path, ("Relu", ["x"], ["r"]), ("TopK", ["r", "k"], ["y", "i"]))
    data, out = explained(capsys, tmp_path, model)
    assert len(data["kernels"]) == 1
    assert "no tensor program" in data["left_out"]["topk"]
    assert "topk is not explained" in out
    code, _, err = call(capsys, "explain", model, "--task", "topk")
    assert code == 2 and "no tensor program" in err


def test_operators_with_a_fixed_schedule_are_left_out_with_the_reason(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:

    onnx = pytest.importorskip("onnx")
    shape = [1, 64, 28, 28]
    kind = onnx.TensorProto.FLOAT
    weights = onnx.helper.make_tensor("w", kind, [64, 64, 3, 3], [0.5] * 64 * 64 * 9)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])],
        "g",
        [onnx.helper.make_tensor_value_info("x", kind, shape)],
        [onnx.helper.make_tensor_value_info("y", kind, shape)],
        [weights],
    )
    opset = onnx.helper.make_opsetid("", 17)
    path = tmp_path / "conv.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=9), path)
    data, _ = explained(capsys, tmp_path, str(path), "--device", "i7-3770")
    fixed = {name for name, why in data["left_out"].items() if "its schedule is fixed" in why}
    # Winograd's transformations of tiles, around a product that is a kernel.
    assert fixed and fixed.isdisjoint(kernel["name"] for kernel in data["kernels"])


def test_what_a_run_left_as_it_was_is_left_out_with_the_reason(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, run: Path
) -> None:
    from foretune.tuning import JOURNAL, RESULT

    (tmp_path / JOURNAL).write_bytes((run / JOURNAL).read_bytes())
    (tmp_path / RESULT).write_text(json.dumps({"untuned_operators": ["topk", WORKLOAD]}))
    data, out = explained(capsys, tmp_path, str(tmp_path))
    assert list(data["left_out"]) == ["topk"] and "topk is not explained" in out


def test_a_model_without_kernels_is_refused_with_the_reason(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, _, err = call(capsys, "explain", onnx_model(tmp_path, ("Reshape", ["x", "s"], ["y"])))
    assert code == 2 and "views of its inputs" in err and err.count("\n") == 1


def onnx_model(folder: Path, *nodes: tuple[str, list[str], list[str]]) -> str:
    """A model of one input ``x`` of 8 x 8 and output ``y``; ``k`` is 4 and ``s`` a flat shape."""
    onnx = pytest.importorskip("onnx")
    helper, kinds = onnx.helper, onnx.TensorProto
    shape = [64] if nodes[-1][0] == "Reshape" else [8, 4]
    graph = helper.make_graph(
        [helper.make_node(*node) for node in nodes],
        "g",
        [helper.make_tensor_value_info("x", kinds.FLOAT, [8, 8])],
        [helper.make_tensor_value_info("y", kinds.FLOAT, shape)],
        [helper.make_tensor(name, kinds.INT64, [1], [value]) for name, value in
         (("k", 4), ("s", 64))],
    )  # fmt: skip
    path = folder / "model.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path
    )
    return str(path)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("RUN", "--task", "conv"), "no task 'conv': choose from"),
        (("RUN", "--top", "0"), "`top >= 1` must hold"),
        (("RUN", "--device", "abacus"), "abacus"),
        (("EMPTY",), "holds no journal"),
        (("nowhere.so",), "is missing"),
        (("nowhere",), "nowhere"),
        (("RUN/a.so", "--device", "a100"), "explain the work directory"),
        (("RUN", "--devices", "nowhere.json", "--device", "x"), "nowhere.json"),
        (("RUN", "--devices", "nowhere.json"), "nowhere.json"),
        (("RUN", "--device", "a100"), "is a gpu, but the kernels of"),
        ((WORKLOAD, "--device", "a100"), "--target a100"),
        ((WORKLOAD, "--device", "i7-3770", "--target", "a100"), "--target host"),
        (("RUN", "--device", "i7-3770", "--counters"), "--counters counts on this machine"),
        (("RUN", "--threads", "2"), "--threads is for models"),
    ],
)
def test_what_cannot_be_explained_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    run: Path,
    arguments: tuple[str, ...],
    words: str,
) -> None:
    given = [word.replace("RUN", str(run)).replace("EMPTY", str(tmp_path)) for word in arguments]
    code, _, err = call(capsys, "explain", *given)
    assert code == 2 and words in err and err.count("\n") == 1


def test_an_artifact_of_earlier_days_says_how_to_get_an_explanation(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, run: Path
) -> None:
    for file in run.glob("a.*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    manifest = json.loads((tmp_path / "a.json").read_text())
    del manifest["kernels"]
    (tmp_path / "a.json").write_text(json.dumps(manifest))
    code, _, err = call(capsys, "explain", str(tmp_path / "a.so"))
    assert code == 2 and "explain the work directory" in err
