"""The list of networks whose plans are collected."""

from __future__ import annotations

from benchmarks import plan_networks
from foretune.plans.collector import Collection
from foretune.plans.command import networks_of
from foretune.workload import catalog


def test_the_lists_are_what_their_module_writes():
    for file, text in plan_networks.lists().items():
        assert file.read_text(encoding="utf-8") == text
    assert set(plan_networks.JUDGED) <= set(catalog.names("network"))


def test_no_network_that_is_judged_is_learned_from():
    learned, judged = (set(text.split()) for text in plan_networks.lists().values())
    assert not learned & judged
    assert not learned & set(catalog.names("network"))


def test_there_are_at_least_sixty_and_each_has_a_name_of_its_own():
    names = networks_of(f"@{plan_networks.LIST}")
    assert len(names) >= 60
    assert len(Collection(names, 200).networks) == len(names)
