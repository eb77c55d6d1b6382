"""Names, plug-ins and what happens to those that are wrong."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from typing import ClassVar

import numpy as np
import pytest

from foretune import _registry, cost, search
from foretune._registry import Registry, plugin_tables
from foretune.cost.random import RandomModel
from foretune.errors import BadInputError, ForetuneError, MissingDependencyError
from foretune_research import plugin


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


class Parts:
    """A module of a plug-in with several parts."""

    TABLES: ClassVar = {
        "some.group": {"added": "foretune.cost.random:RandomModel", "own": "nowhere:X"}
    }


@pytest.fixture
def installed(monkeypatch):
    """Installs modules by their entry points: of a name of this file, or of a broken one."""

    def install(*places):
        entries = [
            importlib.metadata.EntryPoint("p", place, "foretune.plugins") for place in places
        ]

        def entry_points(*, group):
            return entries if group == "foretune.plugins" else []

        monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
        monkeypatch.setattr(_registry, "plugin_tables", plugin_tables.__wrapped__)

    return install


def test_a_plug_in_of_many_parts_adds_rows_to_every_table(installed):
    installed(f"{__name__}:Parts")
    registry: Registry[object] = Registry("part", "some.group", {"own": "foretune.cost:create"})
    assert registry.names() == ["added", "own"]
    assert registry.factory("added") is RandomModel
    assert registry.factory("own") is cost.create
    assert Registry("part", "other.group", {}).names() == []


@pytest.mark.parametrize("place", ["tests.no_such_module", "foretune.cost.random"])
def test_such_a_plug_in_that_is_broken_is_named_and_spoils_nothing_else(installed, caplog, place):
    installed(place, f"{__name__}:Parts")
    registry: Registry[object] = Registry("part", "some.group", {})
    assert registry.names() == ["added", "own"]
    assert place in caplog.text


def test_what_the_research_package_adds_names_it_where_it_is_missing(installed):
    installed()
    registry: Registry[object] = Registry("part", "some.group", {}, studied=["added"])
    assert registry.names() == []
    with pytest.raises(MissingDependencyError, match="foretune_research"):
        registry.factory("added")
    installed(f"{__name__}:Parts")
    assert registry.factory("added") is RandomModel


def test_every_row_of_the_research_package_can_be_imported():
    for group, rows in plugin.TABLES.items():
        for name in rows:
            assert Registry("part", group, rows).factory(name) is not None, (group, name)


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
