"""The comparison of guides: picks, and judges that were not climbed."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("torch")

from benchmarks.guides import PICKS, Picking, cell, compared, judged, picked, report
from foretune.testing import SyntheticSpace
from tests.cost.small_world import trained
from tests.search.gradient_support import SyntheticGuide
from tests.space.programs import CPU


def test_the_picks_are_the_best_that_were_scored():
    where = SyntheticSpace(seed=2, illegal=0.3)
    guide = Picking(SyntheticGuide())
    drawn = where.sample(np.random.default_rng(0), 60)
    for some in (drawn[:30], drawn[20:]):
        guide.scores(some)
    legal = {c.key: c.seconds for c in drawn if c.legal}
    assert [c.key for c in guide.picks] == sorted(legal, key=lambda k: (legal[k], k))[:PICKS]


def test_climbs_pick_better_candidates_than_chance():
    where = SyntheticSpace(seed=2)
    picks = picked(where, SyntheticGuide(), 0, 200, {"seeds": 8, "steps": 6})
    drawn = where.sample(np.random.default_rng(1), 50)
    found = judged(
        picks, drawn, {"truth": lambda some: np.array([-math.log2(c.seconds) for c in some])}
    )
    mean, best = found["truth"]
    assert 0 < mean <= best


def test_the_control_picks_from_as_many_random_candidates():
    where, guide = SyntheticSpace(seed=2), SyntheticGuide()
    picks = picked(where, guide, 0, 100, {"objective": "random", "steps": 6})
    assert len(guide.asked) == len(set(guide.asked)) == 100 and len(picks) == PICKS


def told(guide, workload, looked="gradient", **means):
    return {
        "guide": guide, "looked": looked, "workload": workload, "seed": 0,
        "judged": {judge: [mean, mean + 1] for judge, mean in means.items()},
    }  # fmt: skip


def test_a_speed_up_is_a_geometric_mean_over_workloads():
    cells = [
        told("mlp", "a", default=1.0, mlp=5.0, world=0.0),
        told("mlp", "b", default=3.0, mlp=5.0, world=0.0),
        told("world", "a", default=0.0, mlp=0.0, world=9.0),
        {"guide": "world", "looked": "gradient", "workload": "b", "seed": 0, "judged": {}},
        told("mlp", "a", looked="random", default=0.5, mlp=1.0, world=0.0),
    ]
    every = compared(cells)
    rows = {(row["guide"], row["judge"]): row for row in every if row["looked"] == "gradient"}
    (control,) = (r for r in every if (r["looked"], r["judge"]) == ("random", "default"))
    assert control["mean"][0] == pytest.approx(2**0.5)
    assert rows["mlp", "default"]["mean"][0] == pytest.approx(4)
    assert rows["mlp", "default"]["best"][0] == pytest.approx(8)
    assert rows["world", "default"]["pairs"] == 1
    text = report(compared(cells))
    assert "mlp (itself)" in text and "32.00" in text


@pytest.mark.slow
def test_a_world_and_the_perceptron_judge_each_other(tmp_path):
    trained().save(tmp_path / "w.npz")
    options = {"seeds": 8, "steps": 2, "structures": 1}
    for guide in ("mlp", "world"):
        found = cell("matmul:32x32x32", CPU, guide, 0, 32, options, str(tmp_path / "w.npz"))
        assert set(found) == {"default", "mlp", "world"}
        assert found[guide][0] > 0, "a guide likes its own picks"
