"""A tuning run that searches a plan first: what is tuned, what is kept, what ends it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import foretune
from foretune import engines, plans
from foretune.engines import EngineResult
from foretune.errors import BadInputError
from foretune.graph import Artifact, extract
from foretune.hardware import Hardware, probe
from foretune.plans import JOURNAL, PlanOutcome
from foretune.records import Journal
from foretune.tuning import TuneResult
from foretune.tuning.events import Silent
from foretune.tuning.work_dir import PLANS_JOURNAL
from foretune.workload import Model, load_input
from tests import ROOT
from tests.tuning.support import FormulaMeasurer, matmul

NETWORK = f"{ROOT / 'tests' / 'plans' / 'networks.py'}:product"


@pytest.fixture(scope="module")
def network() -> Model:
    model = load_input(NETWORK)
    assert isinstance(model, Model)
    return model


@pytest.fixture(scope="module")
def other(network: Model) -> dict[str, dict[str, str]]:
    """A plan that is not the default: weights as they are."""
    plan = extract(network, probe()).plan
    return {"packed-weights": dict.fromkeys(plan["packed-weights"], "plain")}


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What searches answer, the next one first; what they were asked with replaces it."""
    answers: list[Any] = []

    def search(network: Model, hardware: Hardware, folder: Path, **asked: Any) -> PlanOutcome:
        answer = answers.pop(0)
        answers.append({**asked, "folder": folder})
        if isinstance(answer, BaseException):
            raise answer
        asked["say"]("plans: one measured")
        assert isinstance(answer, PlanOutcome)
        return answer

    monkeypatch.setattr(plans, "search_plans", search)
    return answers


@pytest.fixture(autouse=True)
def timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def compare(_model: Model, artifacts: Any, names: Any, **_options: Any) -> Any:
        return {name: EngineResult(median=1e-3) for name in (*artifacts, *names)}

    monkeypatch.setattr(engines, "compare", compare)


class Told(Silent):
    """Keeps lines of progress."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.proofs = 0

    def proved(self, network: Any) -> None:
        self.proofs += 1

    def stopped(self, reason: str) -> None:
        self.lines.append(reason)

    def phase(self, text: str) -> None:
        self.lines.append(text)


def tune(model: Model, **options: Any) -> TuneResult:
    return foretune.tune(
        model,
        **{
            "target": probe(),
            "strategy": "random",
            "cost_model": "random",
            "measurer": FormulaMeasurer(),
            "trials": 1,
            "plan_trials": 4,
            **options,
        },
    )


def test_a_faster_plan_is_tuned_and_kept_and_a_resumed_run_tunes_it_again(
    network: Model, other: dict[str, dict[str, str]], found: list[Any], tmp_path: Path
) -> None:
    found.append(PlanOutcome(other, measured=4, seconds=3.0, ratio=1.25, stopped="4 were measured"))
    work_dir, output, told = tmp_path / "run", tmp_path / "net.so", Told()
    result = tune(network, work_dir=work_dir, output=output, progress=told)
    (asked,) = found
    assert (asked["trials"], asked["seconds"]) == (4, float("inf"))
    assert asked["folder"] == work_dir / "plans"
    assert result.network is not None and result.network.plans is not None
    assert result.network.plan["packed-weights"] == other["packed-weights"]
    data = json.loads((work_dir / "tune.json").read_text())["network"]
    assert data["plans"]["chosen"] and data["plans"]["ratio"] == 1.25
    assert Artifact.load(output).manifest["plan"] == result.network.plan == data["plan"]
    with Journal(work_dir / "journal.jsonl", read_only=True) as journal:
        (noted,) = journal.networks().values()
    assert noted["plan"] == result.network.plan and noted["plans"] == data["plans"]
    assert told.proofs == 2 and any("1.250 times as fast" in line for line in told.lines)
    assert result.spent_s["plans_s"] == 3.0
    again = tune(network, work_dir=work_dir)
    assert found == [asked], "nothing was searched"
    assert again.network is not None and again.network.plan == result.network.plan
    assert again.network.plans == result.network.plans


def test_without_a_model_the_default_plan_is_tuned_and_one_line_says_so(
    network: Model, found: list[Any], tmp_path: Path
) -> None:
    found.append(BadInputError("no trained model of plans comes with it: give one"))
    told = Told()
    result = tune(network, work_dir=tmp_path, progress=told)
    lines = [line for line in told.lines if "plan" in line]
    assert len(lines) == 1 and told.proofs == 1
    assert "the default plan is used: no trained model of plans comes with it" in lines[0]
    assert result.network is not None and result.network.plans is not None
    assert result.network.plans["chosen"] is False and result.network.plans["measured"] == 0
    assert result.network.plan == extract(network, probe()).plan


def test_a_plan_that_cannot_be_proven_is_not_tuned(
    network: Model, found: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    found.append(PlanOutcome({"algorithms": {"nothing": "direct"}}, ratio=2.0))
    result = tune(network)
    assert result.network is not None and result.network.plans is not None
    assert result.network.plans["chosen"] is False
    assert "cannot be proven" in result.network.plans["stopped"]
    assert "the default plan is" in caplog.text and result.network.inputs > 2


def test_ctrl_c_in_the_search_leaves_the_proven_network_and_no_decision(
    network: Model, found: list[Any], tmp_path: Path
) -> None:
    found.append(KeyboardInterrupt())
    output, work_dir = tmp_path / "net.so", tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        tune(network, output=output, work_dir=work_dir)
    assert Artifact.load(output).manifest["plan"] == extract(network, probe()).plan
    with Journal(work_dir / "journal.jsonl", read_only=True) as journal:
        assert not journal.networks()


def test_plans_take_a_fifth_of_the_time_and_count_what_earlier_runs_took(
    network: Model, found: list[Any]
) -> None:
    found.append(PlanOutcome(seconds=900.0, earlier_s=900.0, stopped="the time was spent"))
    result = tune(network, trials=None, time_s=1000.0, patience=1)
    assert found[0]["seconds"] == 200.0
    assert result.elapsed_s > 900.0 and result.spent_s["setup_s"] < 100.0


@pytest.mark.slow
def test_a_plan_of_the_journal_that_does_not_fit_any_more_is_refused_with_a_remedy(
    network: Model, found: list[Any], other: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    found.append(PlanOutcome(other, ratio=1.5))
    tune(network, work_dir=tmp_path)
    with pytest.raises(BadInputError, match=r"its journal holds.*is off.*--fresh"):
        tune(network, work_dir=tmp_path, without=("packed-weights",))


@pytest.mark.slow
def test_fresh_sets_aside_what_a_search_measured(
    network: Model, found: list[Any], tmp_path: Path
) -> None:
    assert f"plans/{JOURNAL}" == PLANS_JOURNAL
    Journal(tmp_path / PLANS_JOURNAL).close()
    found.append(PlanOutcome())
    tune(network, work_dir=tmp_path, fresh=True)
    assert [file.name for file in (tmp_path / "plans").iterdir()] == ["plans.1.jsonl"]


def test_a_device_that_is_not_here_has_its_default_plan(network: Model, found: list[Any]) -> None:
    from foretune.tuning.plan_search import Place, PlanSearch

    told = Told()
    elsewhere = Hardware("far away", '{"kind": "cuda", "arch": "sm_90"}', threads=1)
    search = PlanSearch(4, progress=told)
    place = Place(None, None, 10.0)
    assert search.run(network, elsewhere, place, seed=0, without=()).plan is None
    assert "processors of this machine" in told.lines[0] and not found


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"plan_trials": -1}, "plan_trials >= 0"),
        ({"plan": {}}, "leave one of them out"),
        ({"plan_trials": 0, "plan_model": "x.npz"}, "without plan_trials"),
        ({"plan_model": "missing.npz"}, "there is none at missing.npz"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_takes_time(
    network: Model, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], told: str
) -> None:
    early: Callable[..., Any] = lambda *_, **__: pytest.fail("too late")  # noqa: E731
    monkeypatch.setattr("foretune.tuning.proving.prepare", early)
    with pytest.raises(BadInputError, match=told):
        tune(network, **options)


def test_one_tensor_program_has_no_plan() -> None:
    with pytest.raises(BadInputError, match=r"a plan is for a network.*plan_trials"):
        foretune.tune(matmul(), trials=1, plan_trials=2, measurer=FormulaMeasurer())
