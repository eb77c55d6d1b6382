"""Evaluations, collections and benchmarks on a real cluster are what they are here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from foretune.bench import run_bench
from foretune.cluster import Cluster, open_cluster
from foretune.collect import Collector, pack, plan
from foretune.collect.collector import Store
from foretune.cost import rankers
from foretune.dataset import StoredWorkload, load
from foretune.evaluate import evaluate
from foretune.hardware import probe
from foretune.measure import MeasurePolicy
from tests.cluster.nodes import running
from tests.measure.programs import matmul

pytest.importorskip("ray", reason="needs the package ray")
pytestmark = [pytest.mark.machine, pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running(2) as nodes, open_cluster(nodes.url) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def collected(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A collection of eight products, three of which were begun here."""
    place = tmp_path_factory.mktemp("collected")
    workloads = [StoredWorkload(matmul(size), "dense") for size in range(24, 56, 4)]
    wanted = plan(workloads, ["host"], [1], programs=6, uniform=3, predicted=0, rounds=1, seed=0,
                  cost_model="gbdt:scratch")  # fmt: skip
    begun = replace(wanted, workloads=wanted.workloads[:3], programs=4)
    policy = MeasurePolicy(budget_s=0.01)
    with Store(place) as store:
        with Collector(begun, store, policy=policy) as collector:
            assert collector.run()
        assert len(store.records()) == 3 * 4
        with Collector(wanted, store, policy=policy) as collector:
            assert collector.run(cluster=cluster)
        records = store.records()
        assert len(records) == 8 * 6
        assert len({(r.workload, r.candidate_key) for r in records}) == len(records)
        assert {r.hardware for r in records} == {probe(threads=1).key}
        # What it says is complete is left alone.
        with Collector(wanted, store, policy=policy) as collector:
            assert collector.run()
        assert len(store.records()) == len(records)
    return place


def test_a_collection_is_complete_and_counts_nothing_twice(collected: Path) -> None:
    with Store(collected) as store:
        assert len(store.records()) == 8 * 6


def test_an_evaluation_is_the_same(cluster: Cluster, collected: Path) -> None:
    target = collected / "packed"
    with Store(collected) as store:
        pack(store, target)
    groups = load(target)

    def without_times(result: dict[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in result.items() if k not in ("train_s", "score_s_per_program")}

    def make(seed: int) -> Any:
        return rankers.create("gbdt_actions", seed=seed)

    told: list[str] = []
    there = evaluate(make, groups, folds=2, seeds=2, cluster=cluster, progress=told.append)
    here = evaluate(make, groups, folds=2, seeds=2)
    assert without_times(there) == without_times(here)
    assert [line.split(":")[0] for line in told] == [
        "workloads 1/2  seed 0", "workloads 1/2  seed 1",
        "workloads 2/2  seed 0", "workloads 2/2  seed 1",
    ]  # fmt: skip


def test_runs_of_a_benchmark_are_made_there_and_compared_here(
    cluster: Cluster, tmp_path: Path
) -> None:
    lines: list[str] = []
    result = run_bench(
        [matmul(32), matmul(48)],
        ["random", "evolutionary"],
        trials=3,
        seeds=2,
        own_seeds={"random": 1},
        cost_models=["gbdt:scratch"],
        hardware=probe(threads=1),
        work_dir=tmp_path,
        progress=lines.append,
        cluster=cluster,
    )
    assert sum(line.endswith("run on the cluster") for line in lines) == 4
    assert sum("found from an earlier call" in line for line in lines) == len(result["runs"]) == 6
    assert all(run["trials"] == 3 and run["untuned_s"] > 0 for run in result["runs"])
    assert any(run["curve"] for run in result["runs"])
