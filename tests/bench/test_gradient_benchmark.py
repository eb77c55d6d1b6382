"""The comparison of searches on one frozen model: when each gets where evolution ends."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from benchmarks.gradient import Frozen, Watched, compared, reached, report
from foretune.testing import SyntheticSpace
from tests.search.gradient_support import SyntheticGuide, guided


def traced(objective, trace, seed=0, workload="w"):
    return {"workload": workload, "objective": objective, "seed": seed, "trace": trace}


def test_a_score_is_reached_when_it_is_first_as_good():
    trace = [[10, 1.0, 0.2], [20, 2.0, 0.5], [30, 3.0, 0.5]]
    assert reached(trace, 0.5) == [20, 2.0]
    assert reached(trace, 0.6) is None


def test_a_side_that_gets_there_sooner_is_above_one():
    cells = [
        traced("evolution", [[100, 10.0, 0.1], [400, 40.0, 1.0]]),
        traced("gradient", [[100, 20.0, 1.0], [800, 80.0, 2.0]]),
        traced("random", [[400, 4.0, 0.5]]),
    ]
    rows = {row["objective"]: row for row in compared(cells)}
    assert rows["gradient"]["predictions"][0] == pytest.approx(4)
    assert rows["gradient"]["seconds"][0] == pytest.approx(2)
    assert rows["evolution"]["predictions"][0] == pytest.approx(1)
    assert rows["random"]["reached"] == 0
    text = report(cells, compared(cells))
    assert "4.00" in text and "| w " in text


def test_what_evolution_could_not_search_is_left_out():
    cells = [traced("evolution", []), traced("gradient", [[1, 1.0, 1.0]])]
    assert compared(cells) == []


def test_every_prediction_is_counted():
    guide = Watched(SyntheticGuide())
    strategy = guided(SyntheticSpace(seed=1), Frozen(guide), np.random.default_rng(0), guide=guide)
    strategy.explore()
    assert guide.predictions == strategy.predictions > 0
    counts = [step[0] for step in guide.trace]
    assert counts == sorted(counts)
    assert guide.trace[-1][2] == pytest.approx(strategy.best_score)
