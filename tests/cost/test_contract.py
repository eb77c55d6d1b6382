"""Every registered cost model keeps the contract."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from foretune import cost
from foretune.cost.gbdt import GradientBoosting
from foretune.cost.random import RandomModel
from foretune.testing import check_cost_model, cost_models, synthetic_features

LEARNED: dict[str, Callable[..., Any]] = {
    "gbdt": functools.partial(
        GradientBoosting, extract=synthetic_features, feature_version="synthetic"
    ),
}
CONTROLS: dict[str, Callable[..., Any]] = {"random": RandomModel}


def test_every_registered_model_is_checked():
    assert set(cost.names()) == {*LEARNED, *CONTROLS}


@pytest.mark.parametrize("check", cost_models.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", LEARNED)
def test_learned_model(name, check):
    check(LEARNED[name])


@pytest.mark.parametrize("name", CONTROLS)
def test_control(name):
    check_cost_model(CONTROLS[name], learns=False)
