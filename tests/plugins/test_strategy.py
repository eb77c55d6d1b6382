"""A strategy from another package: found by its entry point, whole contract kept."""

from __future__ import annotations

import importlib.metadata

import numpy as np
import pytest

from foretune import search
from foretune.cost import create as create_model
from foretune.errors import BadInputError
from foretune.testing import SyntheticSpace, strategies
from tests.plugins.strategy import Walk


@pytest.fixture
def installed(monkeypatch):
    """Whether its distribution were installed."""
    entry = importlib.metadata.EntryPoint(
        "walk", "tests.plugins.strategy:Walk", "foretune.strategies"
    )
    monkeypatch.setattr(
        importlib.metadata,
        "entry_points",
        lambda *, group: [entry] if group == entry.group else [],
    )


@pytest.mark.parametrize("check", strategies.CHECKS, ids=lambda check: check.__name__)
def test_it_keeps_the_contract(check):
    check(Walk)


@pytest.mark.usefixtures("installed")
def test_it_is_found_by_its_entry_point_and_takes_options():
    assert "walk" in search.names()
    made = search.create("walk:epsilon=0.5", SyntheticSpace(), create_model("random", rng=0), 0)
    assert isinstance(made, Walk) and made.policy.epsilon == 0.5
    with pytest.raises(BadInputError, match="Walk has no option 'share': choose from epsilon"):
        search.check("walk:share=2", {})
    with pytest.raises(BadInputError, match="epsilon <= 1` must hold, but got epsilon=2"):
        search.create("walk:epsilon=2", SyntheticSpace(), create_model("random", rng=0), 0)


@pytest.mark.usefixtures("installed")
def test_it_searches_better_than_chance():
    def best(name, seed):
        space = SyntheticSpace(seed=seed)
        strategy = search.create(name, space, strategies.OracleModel(), seed)
        return min(seconds for _, seconds in strategies.run(strategy, 48))

    ratios = [best("walk", seed) / best("random", seed) for seed in range(6)]
    assert np.mean(np.log(ratios)) < 0
