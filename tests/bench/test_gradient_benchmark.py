"""The comparison of searches on one frozen model: when each gets where evolution ends."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from benchmarks.gradient import Frozen, Watched, compared, counted, figure, reached, report
from foretune.testing import SyntheticSpace
from tests.search.gradient_support import SyntheticGuide, guided


def traced(objective, trace, seed=0, workload="w", predictions=1000):
    return {
        "workload": workload, "objective": objective, "seed": seed, "predictions": predictions,
        "trace": [[*step, None] if len(step) == 3 else step for step in trace],
    }  # fmt: skip


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
    # Twice the longer one: 400 and 400 predictions, 40 and 4 seconds.
    assert rows["random"]["predictions"][0] == pytest.approx(400 / 800)
    assert rows["random"]["seconds"][0] == pytest.approx(40 / 80)
    text = report(cells)
    assert "4.00" in text and "| w " in text


def test_what_evolution_could_not_search_is_left_out():
    cells = [traced("evolution", []), traced("gradient", [[1, 1.0, 1.0]])]
    assert compared(cells) == []


def test_what_a_last_round_made_beyond_the_predictions_does_not_count():
    cells = [
        traced("evolution", [[500, 1.0, 1.0]]),
        traced("gradient", [[900, 1.0, 0.5], [1001, 2.0, 1.5]]),
    ]
    assert [step[0] for step in counted(cells[1])] == [900]
    assert {row["objective"]: row["reached"] for row in compared(cells)}["gradient"] == 0


def test_the_figure_has_the_best_and_the_64th_best_after_so_many_predictions():
    cells = [
        traced("evolution", [[600, 1.0, 1.0, None], [900, 2.0, 3.0, 2.0]]),
        traced("gradient", [[500, 1.0, 2.0, 1.5], [1000, 2.0, 4.0, 3.5]]),
    ]
    found = {(r["objective"], r["predictions"]): (r["best"], r["spread"]) for r in figure(cells)}
    assert found["gradient", 512] == (-1.0, -1.5)
    assert found["gradient", 1024] == (1.0, 0.5)
    assert found["evolution", 1024] == (0.0, -1.0)
    assert ("evolution", 512) not in found
    assert "1.00 / 0.50" in report(cells)


def test_traces_know_the_best_and_the_64th_best_when_they_were_scored():
    class Given(SyntheticGuide):
        def scores(self, candidates):
            return np.asarray(candidates, dtype=float)

    guide = Watched(Given())
    drawn = np.random.default_rng(0).permutation(300)
    guide.scores(drawn[:200])
    guide.scores([*drawn[200:], np.nan])
    for predictions, seconds, best, spread in guide.trace:
        so_far = np.sort(drawn[: min(predictions, 300)])
        assert best == so_far[-1]
        assert spread == (so_far[-64] if len(so_far) >= 64 else None)
        assert seconds >= 0
    assert [step[0] for step in guide.trace][-1] == guide.predictions == 301
    assert {128, 200, 256} <= {step[0] for step in guide.trace}


def test_every_prediction_is_counted():
    guide = Watched(SyntheticGuide())
    strategy = guided(SyntheticSpace(seed=1), Frozen(guide), np.random.default_rng(0), guide=guide)
    strategy.explore()
    assert guide.predictions == strategy.predictions > 0
    counts = [step[0] for step in guide.trace]
    assert counts == sorted(counts)
    assert guide.trace[-1][2] == pytest.approx(strategy.best_score)
