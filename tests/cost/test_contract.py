"""Every registered cost model keeps the contract."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from foretune import cost
from foretune.cost import Needs, Ranker
from foretune.cost.gbdt import GradientBoosting
from foretune.cost.joined import JoinedRanker
from foretune.cost.joined_model import JoinedModel
from foretune.cost.pretrained import PretrainedModel
from foretune.cost.random import RandomModel
from foretune.testing import check_cost_model, cost_models, synthetic_features


class Rumour(Ranker):
    """A trained ranker of synthetic programs that is right, give or take a factor."""

    def fit(self, groups, validation=()):
        """Trained already."""

    def score(self, programs, machine, hardware=""):
        noise = [zlib.crc32(p.candidate.key.encode()) % 1000 / 1000 for p in programs]
        level = [-np.log2(p.candidate.seconds) for p in programs]
        return np.array(level, dtype=np.float64) + 0.5 * np.array(noise, dtype=np.float64)

    def save(self, path):
        """Nothing to save."""

    @classmethod
    def load(cls, path):
        """There is only one."""
        return cls()


class Rumours(JoinedRanker):
    """Two such rankers, of which the second is asked at a closer look only."""

    def _untrained(self, name):
        member = Rumour()
        member.needs = Needs(nests=name == "mlp_behaviour")
        return member


SYNTHETIC = {"extract": synthetic_features}
LEARNED: dict[str, Callable[..., Any]] = {
    "gbdt": functools.partial(PretrainedModel, ranker=Rumour(), **SYNTHETIC),
    "gbdt:scratch": functools.partial(GradientBoosting, **SYNTHETIC),
}
CONTROLS: dict[str, Callable[..., Any]] = {"random": RandomModel}
WEIGHTS_NEEDED = {"behaviour", "joined", "mlp", "mlp:formulas", "tlp", "world"}
"""Other weights in the same model as ``gbdt``; ``behaviour`` has tests of its own besides, and that
of ``joined`` is checked below."""


def test_every_registered_model_is_checked():
    assert set(cost.names()) == {*LEARNED, *CONTROLS, *WEIGHTS_NEEDED}


@pytest.mark.parametrize("check", cost_models.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", LEARNED)
def test_learned_model(name, check):
    check(LEARNED[name])


@pytest.mark.parametrize("name", CONTROLS)
def test_control(name):
    check_cost_model(CONTROLS[name], learns=False)


@pytest.mark.parametrize("check", cost_models.CHECKS, ids=lambda check: check.__name__)
def test_a_pretrained_model_that_learns_nothing_in_the_run(check):
    check(functools.partial(PretrainedModel, ranker=Rumour(), online=False))


@pytest.mark.parametrize("online", [True, False])
@pytest.mark.parametrize("check", cost_models.CHECKS, ids=lambda check: check.__name__)
def test_a_joined_model(check, online):
    ranker = Rumours(members="gbdt_actions,mlp_behaviour")
    trees = SYNTHETIC if online else {}
    check(functools.partial(JoinedModel, ranker=ranker, online=online, **trees))
