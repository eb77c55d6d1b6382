"""Names, plug-ins and what happens to those that are wrong."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import numpy as np
import pytest

from foretune import cost, search
from foretune._registry import Registry
from foretune.cost.random import RandomModel
from foretune.errors import BadInputError, ForetuneError, MissingDependencyError


def test_create_makes_what_was_named():
    assert isinstance(cost.create("random"), RandomModel)


def test_a_seed_and_a_generator_of_that_seed_are_the_same():
    by_seed = cost.create("random", rng=3).predict([None] * 4)
    by_generator = cost.create("random", rng=np.random.default_rng(3)).predict([None] * 4)
    assert (by_seed.score == by_generator.score).all()


@pytest.mark.parametrize("room", [cost, search])
def test_unknown_name_lists_the_known_ones(room):
    with pytest.raises(BadInputError, match=r"'no-such'.*random"):
        room.create("no-such", *([None] * 3 if room is search else []))


def test_registered_factory_is_listed_made_and_described():
    def factory(**options):
        """Says nothing.

        At length.
        """
        return RandomModel(rng=options["rng"])

    cost.register("mine", factory)
    try:
        assert "mine" in cost.names()
        assert isinstance(cost.create("mine"), RandomModel)
        assert cost.descriptions()["mine"] == "Says nothing."
    finally:
        cost.unregister("mine")
    assert "mine" not in cost.names()


@pytest.mark.parametrize("name", ["random", "gbdt"])
def test_a_taken_name_is_refused(name):
    with pytest.raises(BadInputError, match=f"{name!r} is taken"):
        cost.register(name, RandomModel)


def test_installed_plug_in_is_found(monkeypatch):
    entry = importlib.metadata.EntryPoint(
        "plugged", "foretune.cost.random:RandomModel", "foretune.cost_models"
    )

    def entry_points(*, group):
        return [entry] if group == "foretune.cost_models" else []

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    assert "plugged" in cost.names() and "plugged" not in search.names()
    assert isinstance(cost.create("plugged"), RandomModel)


@pytest.mark.parametrize("value", ["foretune.cost.random:Nothing", "tests.cost.broken:Model"])
def test_a_plug_in_that_is_broken_is_named_and_spoils_nothing_else(monkeypatch, value):
    entry = importlib.metadata.EntryPoint("plugged", value, "foretune.cost_models")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda *, group: [entry])
    if value.startswith("tests"):
        monkeypatch.setitem(sys.modules, "tests.cost.broken", None)
    registry: Registry[object] = Registry(
        "part", "foretune.cost_models", {"good": "foretune.cost.random:RandomModel"}
    )
    with pytest.raises(ForetuneError, match="plugged"):
        registry.factory("plugged")
    assert "plugged" in registry.descriptions()["plugged"]
    assert registry.factory("good") is RandomModel


def test_a_missing_package_is_an_install_hint():
    registry: Registry[object] = Registry("part", "no.group", {"heavy": "no_such_package.x:Y"})
    assert registry.names() == ["heavy"]
    with pytest.raises(MissingDependencyError, match="pip install no_such_package"):
        registry.factory("heavy")
    assert "no_such_package" in registry.descriptions()["heavy"]


def test_listing_names_imports_neither_tvm_nor_xgboost():
    code = (
        "import sys; from foretune import cost, search; cost.names(); search.names();"
        "print([m for m in ('tvm', 'xgboost', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
