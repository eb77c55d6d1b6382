"""Switches: named configurations, and what is refused."""

from __future__ import annotations

import pytest

from foretune import _registry
from foretune.errors import BadInputError, MissingDependencyError
from foretune.tgraph import TGraphConfig, named, names
from foretune.tgraph.config import restored


def test_the_defaults_are_corrected():
    assert names() == ["corrected", "published", "variants"]
    assert named("corrected") == TGraphConfig()
    assert named("variants").to_json().items() >= TGraphConfig().to_json().items()


def test_what_is_constant_is_an_option_of_the_research_package():
    with pytest.raises(BadInputError, match="'sage': it is one of the package foretune_research"):
        named("corrected", {"sage": "paper"})
    assert named("variants", {"sage": "paper"}).sage == "paper"


def test_without_the_research_package_published_names_it(monkeypatch):
    monkeypatch.setattr(_registry, "plugin_tables", dict)
    assert names() == ["corrected"]
    for name in ("published", "variants"):
        with pytest.raises(MissingDependencyError, match="foretune_research"):
            named(name)


def test_stored_configurations_are_those_that_were_written():
    assert restored(named("corrected", {"epochs": 3}).to_json()) == named(
        "corrected", {"epochs": 3}
    )
    # From when every switch was an option.
    assert restored(named("variants", {"epochs": 3}).to_json()) == named("corrected", {"epochs": 3})
    for config in (named("published"), named("variants", {"norm": "instance"})):
        assert restored(config.to_json()).to_json() == config.to_json()


def test_options_change_a_configuration():
    assert named("corrected", {"epochs": 3}).epochs == 3
    assert named("corrected", {"prune_hops": "all"}).hops is None
    assert named("corrected", {"prune_hops": 3}).hops == 3


def test_corrected_scores_do_not_depend_on_companions_nor_on_validation():
    config = named("corrected")
    assert config.attention == "anchors"
    assert config.edges == "both"
    assert not config.kept
    assert not config.best_checkpoint


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"prune_hops": 9}, "unknown prune_hops of tgraph 9: choose one of 0, 1"),
        ({"prune_hops": "some"}, "unknown prune_hops of tgraph 'some'"),
        ({"prune_hops": True}, "prune_hops must be"),
        ({"edges": "sideways"}, "both, consumers, none"),
        ({"loss": "l2"}, "hinge, listmle, mse, ranknet"),
        ({"width": 24}, "width % 16 == 0"),
        ({"width": 8}, "width >= 16"),
        ({"width": 2.5}, "width must be int"),
        ({"epochs": -1}, "epochs >= 0"),
        ({"batch": 1}, "batch >= 2"),
        ({"folds": 1}, "folds >= 2"),
        ({"dropout": 1.0}, "0 <= dropout < 1"),
        ({"learning_rate": 0}, "learning_rate > 0"),
        ({"no_such": 1}, "no option 'no_such'"),
    ],
)
def test_what_makes_no_sense_is_refused(options, said):
    with pytest.raises(BadInputError, match=said):
        named("variants", options)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(BadInputError, match="choose one of corrected, published, variants"):
        named("improved")
