"""``benchmarks.limits``: who learns from what, and what is judged."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import limits, results
from foretune.cost import Needs
from foretune.dataset import Group
from tests.evaluate.support import Hinted, group, several


def test_halves_cut_a_group_in_two_and_lose_nothing() -> None:
    whole = group(seconds=[3.0, 1.0, 2.0, 5.0, 4.0])
    cut = limits.halves(whole, np.random.default_rng(0))
    assert cut is not None
    assert {len(half) for half in cut} == {2, 3}
    assert sorted(np.concatenate([half.seconds for half in cut]).tolist()) == [1, 2, 3, 4, 5]
    for half in cut:
        assert [-p.actions[0].args[1] for p in half.programs] == half.seconds.tolist()


def test_a_group_of_which_half_cannot_be_judged_is_not_cut() -> None:
    assert limits.halves(group(seconds=[1.0, 2.0, 3.0]), np.random.default_rng(0)) is None


def test_a_share_of_workloads_keeps_all_hardware_of_each() -> None:
    groups = several(8, hardware=("a", "b"))
    kept = limits.some_workloads(groups, 0.25, seed=0)
    assert len(kept) == 4 and len({g.workload for g in kept}) == 2


def test_only_the_control_learns_from_what_it_is_judged_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[tuple[Hinted, dict[str, Any]]] = []

    def create(name: str, **options: Any) -> Hinted:
        assert name == "gbdt_actions"
        made.append((Hinted(), options))
        return made[-1][0]

    monkeypatch.setattr(limits.rankers, "create", create)
    groups = several(8)
    study = limits.Study(groups, "gbdt_actions", folds=2, seed=0)
    assert sum(map(len, study.judged.values())) == 48
    rows = study.rows()
    assert [row["metrics"]["top1"]["mean"] for row in rows] == [1.0] * 6
    (*others, control, deep) = made
    assert len(others) == 8, "four ways to learn in two folds"
    assert deep[1]["depth"] > 7 and "depth" not in control[1]

    def learned(ranker: Hinted) -> list[Group]:
        return ranker.trained

    for ranker, _options in others:
        assert len({g.workload for g in learned(ranker)}) <= 4
    assert {len(g) for ranker, _ in others[4:6] for g in learned(ranker)} == {6}
    assert {len(g) for ranker, _ in others[6:] for g in learned(ranker)} == {12}
    assert len({g.workload for g in learned(control[0])}) == 8
    seen = {id(p) for g in learned(control[0]) for p in g.programs}
    assert len(seen) == 48, "the other halves, and nothing of the judged ones"


def test_runs_stand_beside_each_other_and_the_last_comes_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(limits.rankers, "create", lambda name, **options: Hinted())
    monkeypatch.setattr(limits.rankers, "needs", lambda name: Needs())
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    read = SimpleNamespace(groups=several(8))
    monkeypatch.setattr(limits, "read_data", lambda paths: read)
    given = ["--folds", "2", "--write"]
    for more in (["--model", "tlp"], ["--model", "gbdt_actions"], ["--model", "tlp"]):
        limits.main([*given, *more])
    data = results.readings_of("limits")
    assert data is not None
    assert [run["model"] for run in data["runs"]] == ["tlp", "gbdt_actions"]
    told = limits.section(data)
    assert "| gbdt_actions, all programs of a group " in told.table
    assert "1.000 (1.000 to 1.000)" in told.table and "control: the other half" in told.details
