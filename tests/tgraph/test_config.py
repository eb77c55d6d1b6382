"""Switches: named configurations, and what is refused."""

from __future__ import annotations

import pytest

from foretune.errors import BadInputError
from foretune.tgraph import TGraphConfig, named, names


def test_the_defaults_are_published():
    assert names() == ["published", "corrected"]
    assert named("published") == TGraphConfig()


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
        ({"prune_hops": 9}, "prune_hops must be one of 0, 1"),
        ({"prune_hops": "some"}, "prune_hops must be one of"),
        ({"prune_hops": True}, "prune_hops must be"),
        ({"edges": "sideways"}, "consumers, both, none"),
        ({"loss": "l2"}, "hinge, listmle, ranknet, mse"),
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
        named("corrected", options)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(BadInputError, match="choose one of corrected, published"):
        named("improved")
