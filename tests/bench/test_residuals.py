"""What columns say of what a ranker leaves: found where it is there, and not where it is not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import residuals
from foretune.dataset import Group, Program


def made(seed: int = 0, workloads: int = 25, programs: int = 20):
    """Groups whose times are the sum of what the scores say and of what a column says."""
    rng = np.random.default_rng(seed)
    groups, scores, hidden = [], [], []
    for number in range(workloads):
        known, unknown = rng.standard_normal((2, programs))
        # The mean of a workload's column says nothing of its programs.
        hidden.append(np.stack([unknown + 10 * number, rng.standard_normal(programs)], axis=1))
        scores.append(2.0 * known + number)
        seconds = 2.0 ** -(known + unknown)
        rows = [Program(actions=()) for _ in seconds]
        groups.append(Group(f"w{number:02}", "n", "k", "h", rows, seconds))
    return groups, scores, hidden, rng


@pytest.fixture(scope="module")
def rows():
    groups, scores, hidden, rng = made()
    columns = {"hidden": hidden, "noise": [rng.standard_normal((len(g), 8)) for g in groups]}
    found = residuals.score_rows(groups, scores, columns)
    return {(row["columns"], row["learner"]): residuals.summary(row["groups"]) for row in found}


@pytest.mark.parametrize("learner", list(residuals.LEARNERS))
def test_what_the_scores_lack_is_found(rows, learner):
    found = rows["hidden", learner]
    assert found["groups"] == 25
    assert found["residual"]["low"] > 0.7
    # By itself the column tells half.
    assert 0.3 < found["alone"]["mean"] < 0.7
    assert found["tau gained"]["low"] > 0.1


@pytest.mark.parametrize("learner", list(residuals.LEARNERS))
def test_noise_says_nothing(rows, learner):
    found = rows["noise", learner]
    assert found["residual"]["mean"] < 0.05
    assert found["tau gained"]["mean"] < 0.02


def test_no_group_is_predicted_by_a_model_of_its_workload(monkeypatch):
    groups, _, hidden, _ = made(workloads=12, programs=4)
    seen = []

    def learner(x, y, owner, new):
        seen.append((set(x[:, 0]), set(new[:, 0])))
        assert len(owner) == len(y) == len(x)
        return np.zeros(len(new))

    monkeypatch.setitem(residuals.LEARNERS, "spy", learner)
    residuals.predicted(hidden, [h[:, 0] for h in hidden], [g.workload for g in groups], "spy")
    assert all(not known & new for known, new in seen)
    assert set().union(*(new for _, new in seen)) == {v for h in hidden for v in h[:, 0]}


def test_programs_of_one_machine_that_ran():
    groups, *_ = made(workloads=2, programs=6)
    first = groups[0]
    first.seconds[1] = np.nan
    other = Group("w9", "n", "k", "another", first.programs, first.seconds)
    found = residuals.some_programs([*groups, other], "h", 4, 0)
    assert [len(group) for group in found] == [4, 4]
    assert all(np.isfinite(group.seconds).all() for group in found)
    origins = ("evolved", "uniform", "uniform", "evolved", "uniform", "uniform")
    known = replace(first, origins=origins)
    (drawn,) = residuals.some_programs([known], "h", 4, 0)
    assert drawn.origins == ("uniform",) * 3, "one of the four did not run"
