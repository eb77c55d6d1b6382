"""The command line of collecting, with a measurer that goes by formula."""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from foretune.cli import main
from foretune.collect import EVOLVED, UNIFORM, Collector, Plan, audit, command, reread
from foretune.collect.collector import Store
from foretune.dataset import write_dataset
from foretune.measure import Measurement, Status
from tests.collect.device import FormulaMeasurer
from tests.collect.test_collect import ONE, TWO, fresh_device  # noqa: F401

WORKLOADS = "matmul:48x48x48,matmul:64x32x48,conv2d:1x8x8x16x16x3x1"


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """`foretune collect` of three small workloads on two variants, by formula."""
    monkeypatch.setattr(
        command, "Collector", functools.partial(Collector, measurer=FormulaMeasurer)
    )
    monkeypatch.setattr(command, "audit", functools.partial(audit, measurer=FormulaMeasurer))
    monkeypatch.setattr(command, "reread", functools.partial(reread, measurer=FormulaMeasurer))
    monkeypatch.setattr(
        command, "plan", lambda w, *_, **options: Plan(tuple(w), (ONE, TWO), **options)
    )
    return [
        "collect",
        "--workloads",
        WORKLOADS,
        "--programs",
        "8",
        "--work-dir",
        str(tmp_path / "w"),
    ]


@pytest.mark.slow
def test_collect_audit_pack_and_learn(
    base: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = str(tmp_path / "data")
    assert main(base) == 0
    assert "6 groups" in capsys.readouterr().err
    assert main([*base, "--audit", "--min-age", "0", "--share", "0.5"]) == 0
    assert "programs measured twice" in capsys.readouterr().out
    assert main([*base, "--reread"]) == 0
    assert main([*base, "--pack", "-o", data]) == 0
    assert "6 groups of 3 workloads of 2 operator kinds" in capsys.readouterr().out
    assert main(["eval", "gbdt_actions", "--data", data, "--folds", "2"]) == 0
    assert "top-1" in capsys.readouterr().out
    weights = tmp_path / "w.npz"
    assert main(["train", "gbdt_actions", "--data", data, "-o", str(weights)]) == 0
    assert weights.is_file()


def test_known_groups_are_not_measured_again(base: list[str], tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    assert main(base) == 0
    assert main([*base, "--pack", "-o", data]) == 0
    measured = len(FormulaMeasurer.measured)
    base[base.index("--work-dir") + 1] = str(tmp_path / "other")
    assert main([*base, "--known", data]) == 0
    assert len(FormulaMeasurer.measured) == measured


@pytest.mark.slow
def test_training_workloads_of_a_kind_with_few_uniform_ones(
    base: list[str], tmp_path: Path
) -> None:
    base[base.index(WORKLOADS)] = "training:attention,matmul:48x48x48"
    assert main([*base, "--uniform", "2", "--rounds", "3"]) == 0
    with Store(tmp_path / "w") as store:
        assert Counter(store.kinds().values()) == {"attention": 4, "dense": 1}
        origins = Counter((r.workload, r.hardware, r.origin) for r in store.journal.records())
    assert {origin: n for (*_, origin), n in origins.items()} == {UNIFORM: 2, EVOLVED: 6}
    assert len(origins) == 5 * 2 * 2


def test_a_collection_evolves_with_one_cost_model(
    base: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*base, "--cost-model", "random"]) == 0
    measured = len(FormulaMeasurer.measured)
    assert main([*base, "--cost-model", "random"]) == 0
    assert main(base) == 2
    assert "does with random, but got gbdt:scratch" in capsys.readouterr().err
    assert len(FormulaMeasurer.measured) == measured
    # What was collected before the model was noted evolved with the one from scratch.
    (tmp_path / "w" / "cost_model.json").unlink()
    assert main(base) == 0
    assert main([*base, "--cost-model", "random"]) == 2


@pytest.mark.parametrize("flags", [["--audit"], ["--pack", "-o", "data"]])
def test_a_wrong_work_directory_is_refused_and_not_made(
    base: list[str], flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*base, *flags]) == 2
    assert "holds no collection" in capsys.readouterr().err
    assert not (tmp_path / "w").exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--threads", "two"], "threads are numbers"),
        (["--threads", "0"], "threads >= 1"),
        (["--workloads", ","], "workloads"),
        (["--workloads", "matmul:8x8x8,matmul:8x8x8"], "all different"),
        (["--workloads", "mobilenet_v2"], "whole model"),
        (["--workloads", "training:sorting"], "choose of attention, batch_matmul"),
        (["--workloads", "training:"], "choose of attention"),
        (["--workloads", "training:attention,training:attention"], "all different"),
        (["--known", "nowhere"], "no data set"),
    ],
)
@pytest.mark.slow
def test_bad_input_is_one_line(
    base: list[str], given: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*base, *given]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1


def test_a_machine_on_which_nothing_runs_is_no_success(
    base: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = Measurement(Status.COMPILE_ERROR, message="no such instruction")

    def fail(self: FormulaMeasurer, candidates: list[object], best_s: object = None) -> object:
        return ((candidate, failed) for candidate in candidates)

    monkeypatch.setattr(FormulaMeasurer, "measure", fail)
    assert main(base) == 3
    statuses = Counter(r.measurement.status for r in Store(tmp_path / "w").journal.records())
    assert set(statuses) == {Status.COMPILE_ERROR}


def test_workloads_of_a_data_set_keep_their_order_and_kinds(
    base: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["matmul:64x32x48", "conv2d:1x8x8x16x16x3x1", "matmul:48x48x48"]
    listed = [stored for name in names for stored in command._named(name)]
    listed[0] = replace(listed[0], kind="gated_mlp")
    data = tmp_path / "list"
    write_dataset(data, listed, (), (), ())
    assert command._named(str(data)) == listed
    base[base.index(WORKLOADS)] = str(data)
    assert main(base) == 0
    assert "6 groups" in capsys.readouterr().err
    with Store(tmp_path / "w") as store:
        assert sorted(store.kinds().values()) == ["conv2d", "dense", "gated_mlp"]
