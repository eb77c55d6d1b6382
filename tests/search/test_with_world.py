"""The world model that comes with the package in every strategy that has no guide of its own.

``tests/search/test_world_guide.py`` has gradient search, the room ``metaschedule`` TVM's tuner.
"""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

import foretune
from foretune import cost, search
from foretune.cost.world import WorldRanker
from foretune.space import Space
from tests.tuning.support import HARDWARE, FormulaMeasurer, matmul

TRIALS = 12


@pytest.fixture
def asked(monkeypatch):
    """How many candidates the ranker was asked about in each call."""
    counts = []
    score = WorldRanker.score

    def counted(self, programs, machine, hardware=""):
        counts.append(len(programs))
        return score(self, programs, machine, hardware)

    monkeypatch.setattr(WorldRanker, "score", counted)
    return counts


@pytest.mark.parametrize("strategy", ["evolutionary", "mcts", "random"])
def test_a_run_spends_its_trials_and_returns_the_best(strategy, asked):
    result = foretune.tune(
        matmul(),
        target=HARDWARE,
        trials=TRIALS,
        strategy=strategy,
        cost_model="world",
        batch=4,
        seed=1,
        measurer=FormulaMeasurer(),
    )
    (task,) = result.tasks
    assert result.cost_model == "world" and len(task.trials) == TRIALS
    assert task.best_s <= min(trial.seconds[0] for trial in task.trials if trial.seconds)
    # Random search asks nobody what to measure, and the model learns all the same.
    assert sum(asked) >= (TRIALS if strategy == "random" else 10 * TRIALS)


@pytest.mark.parametrize("strategy", ["evolutionary", "mcts"])
def test_what_it_thinks_most_of_is_proposed_before_anything_is_measured(strategy):
    space = Space.generate(matmul(), HARDWARE)
    model = cost.create("world", rng=0, hardware=HARDWARE)
    proposed = search.create(strategy, space, model, 0).ask(8)
    drawn = space.sample(np.random.default_rng(0), 64)
    assert len(proposed) == 8
    found, by_chance = (model.predict(some).score for some in (proposed, drawn))
    assert np.median(found) > np.quantile(by_chance, 0.9)
