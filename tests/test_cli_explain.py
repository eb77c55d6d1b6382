"""``foretune explain`` on a run, its artifact, and inputs, as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path

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
) -> tuple[dict[str, object], str]:
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
    (kernel,) = data["kernels"]  # type: ignore[misc]
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
    (kernel,) = explained(capsys, tmp_path, str(run / "a.so"))[0]["kernels"]  # type: ignore[misc]
    (other,) = explained(capsys, tmp_path, str(run))[0]["kernels"]  # type: ignore[misc]
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
    (kernel,) = data["kernels"]  # type: ignore[misc]
    assert kernel["seconds"] is None and kernel["predicted_s"] > 0
    assert "not measured" in out


def test_another_device_is_another_judgement(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    factors = {"cores": 64, "simd_fp32_lanes": 4, "fp32_flop_per_cycle_per_core": 8,
               "l1d_kib_per_core": 32, "boost_mhz": 2000}  # fmt: skip
    file = tmp_path / "devices.json"
    file.write_text(json.dumps({"mine": {"name": "Mine", "kind": "cpu", **factors}}))
    own = explained(capsys, tmp_path, WORKLOAD)[0]["kernels"]
    other = explained(capsys, tmp_path, WORKLOAD, "--devices", str(file), "--device", "mine")[0][
        "kernels"
    ]
    assert other[0]["device"] == "mine" != own[0]["device"]  # type: ignore[index]
    assert other[0]["predicted_s"] != own[0]["predicted_s"]  # type: ignore[index]


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
