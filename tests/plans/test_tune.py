"""``foretune tune --plan-trials``: what is refused, and a small network from begin to end."""

from __future__ import annotations

import json

import pytest

from foretune.cli import main
from foretune.graph import Artifact
from foretune.records import Journal
from tests.plans.formula import NETWORK

SHORT = ["--trials", "1", "--strategy", "random", "--cost-model", "random", "--threads", "1"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--plan-trials", "-1"], "plan_trials >= 0"),
        (["--plan-trials", "2", "--plan", "plan.json"], "leave one of them out"),
        (["--plan-model", "text.npz"], "without plan_trials"),
        (["--plan-trials", "2", "--plan-model", "missing.npz"], "there is none at missing.npz"),
        (["--plan-trials", "2", "--plan-model", "text.npz"], "text.npz is not a trained TGraph"),
        (["--plan-trials", "2", "--plan-model", "text.npz", "--json", "text.npz"], "--plan-model"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(tmp_path, monkeypatch, capsys, arguments, told):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.json").write_text("{}")
    (tmp_path / "text.npz").write_text("no model")
    assert main(["tune", NETWORK, *SHORT, *arguments]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert told in line
    assert {file.name for file in tmp_path.iterdir()} == {"plan.json", "text.npz"}


def test_a_single_program_is_refused_as_with_a_plan(tmp_path, capsys):
    run = ["--work-dir", str(tmp_path / "run")]
    assert main(["tune", "softmax", *SHORT, *run, "--plan-trials", "2"]) == 2
    assert "a plan is for a network, but" in capsys.readouterr().err


@pytest.mark.slow
def test_a_network_is_planned_tuned_and_resumed(tmp_path, capsys, model):
    weights, library = tmp_path / "plans.npz", tmp_path / "net.so"
    model.save(weights)
    arguments = ["tune", NETWORK, *SHORT, "--plan-trials", "3", "--plan-model", str(weights),
                 "--work-dir", str(tmp_path / "run"), "-o", str(library)]  # fmt: skip
    found = []
    for name in ("first", "again"):
        result = tmp_path / f"{name}.txt"
        assert main([*arguments, "--json", str(result)]) == 0
        found.append(json.loads(result.read_text()))
        said = capsys.readouterr().err
        assert ("plans: 3 of 3 beside the default measured" in said) == (name == "first")
    first, again = (data["network"] for data in found)
    assert first["plans"] == again["plans"] and first["plan"] == again["plan"]
    assert (first["plans"]["measured"], first["plans"]["model"]) == (3, "made up")
    assert found[0]["verified"] and found[0]["plans_s"] > 0
    assert Artifact.load(library).manifest["plan"] == first["plan"]
    with Journal(tmp_path / "run" / "plans" / "plans.jsonl", read_only=True) as journal:
        assert len({record.candidate_key for record in journal.records()}) == 4


@pytest.mark.slow
def test_without_weights_the_default_plan_is_tuned_and_said(tmp_path, capsys, monkeypatch):
    from foretune.plans import choose

    monkeypatch.setattr(choose, "shipped_plan_model", lambda kind: None)
    result = tmp_path / "result.txt"
    assert main(["tune", NETWORK, *SHORT, "--plan-trials", "3", "--work-dir",
                 str(tmp_path / "run"), "--json", str(result)]) == 0  # fmt: skip
    lines = [line for line in capsys.readouterr().err.splitlines() if "plan" in line]
    assert len(lines) == 1 and "the default plan is used: no trained model of plans" in lines[0]
    plans = json.loads(result.read_text())["network"]["plans"]
    assert (plans["chosen"], plans["measured"]) == (False, 0)
