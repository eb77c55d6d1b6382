"""The list of networks whose plans are collected."""

from __future__ import annotations

from benchmarks import plan_networks
from foretune.plans.collector import Collection
from foretune.plans.command import networks_of
from foretune.workload import catalog


def test_the_list_is_what_its_module_writes():
    assert plan_networks.LIST.read_text(encoding="utf-8") == plan_networks.listed()
    assert set(plan_networks.CATALOG) <= set(catalog.names("network"))


def test_there_are_at_least_sixty_and_each_has_a_name_of_its_own():
    names = networks_of(f"@{plan_networks.LIST}")
    assert len(names) >= 60
    assert len(Collection(names, 200).networks) == len(names)
