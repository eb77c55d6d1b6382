"""Every registered strategy keeps the contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from foretune import search
from foretune.search.evolutionary import Evolutionary
from foretune.search.gradient import Gradient
from foretune.search.mcts import Mcts
from foretune.search.random import RandomSearch
from foretune.testing import strategies
from foretune_research import plugin
from tests.search.gradient_support import guided

FACTORIES: dict[str, Callable[..., Any]] = {
    "evolutionary": Evolutionary,
    "gradient": Gradient,
    "mcts": Mcts,
    "random": RandomSearch,
}


def test_every_registered_strategy_is_checked():
    # Those of studies are checked beside them, in tests/research.
    studies = plugin.TABLES["foretune.strategies"]
    assert set(search.names()) == {*FACTORIES, *studies}


@pytest.mark.parametrize("check", strategies.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", FACTORIES)
def test_strategy(name, check):
    check(FACTORIES[name])


@pytest.mark.parametrize("check", strategies.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.slow
def test_gradient_search_where_it_climbs(check):
    """Synthetic sketches have no trace: without a guide of theirs evolution proposes."""
    check(guided)
