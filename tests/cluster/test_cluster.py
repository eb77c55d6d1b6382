"""Calls on real clusters whose workers and nodes are killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from foretune.cluster import Cluster, LostError, open_cluster
from foretune.errors import BadInputError
from tests.cluster.nodes import Nodes, always_die, fail_once, refuse, running, square

pytest.importorskip("ray", reason="needs the package ray")
pytestmark = [pytest.mark.machine, pytest.mark.slow]


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with running(2) as nodes:
        yield nodes


@pytest.fixture(scope="module")
def cluster(nodes: Nodes) -> Iterator[Cluster]:
    with open_cluster(nodes.url) as cluster:
        yield cluster


def test_a_cluster_tells_its_nodes(cluster: Cluster) -> None:
    assert [node.cores for node in cluster.nodes()] == [1, 1]
    assert all(node.here for node in cluster.nodes())
    assert cluster.cores == 2


def test_every_call_ends_once(cluster: Cluster) -> None:
    ended = dict(cluster.map(square, [(n,) for n in range(20)]))
    assert ended == {n: n * n for n in range(20)}
    alone = dict(cluster.map_alone(square, [(n,) for n in range(5)]))
    assert alone == {n: n * n for n in range(5)}


def test_what_a_call_raises_is_raised_here(cluster: Cluster) -> None:
    for calls in (cluster.map(refuse, [(1,)]), cluster.map_alone(refuse, [(1,)])):
        with pytest.raises(BadInputError, match="number > 3"):
            list(calls)


def test_a_call_whose_worker_dies_is_made_again(cluster: Cluster, tmp_path: Path) -> None:
    calls = [(n, str(tmp_path)) for n in range(4)]
    assert dict(cluster.map(fail_once, calls)) == {n: n for n in range(4)}
    (tmp_path / "alone").mkdir()
    calls = [(n, str(tmp_path / "alone")) for n in range(4)]
    assert dict(cluster.map_alone(fail_once, calls)) == {n: n for n in range(4)}


def test_a_call_that_is_lost_again_and_again_is_an_error(cluster: Cluster) -> None:
    for calls in (
        cluster.map(always_die, [(7,)], retries=1),
        cluster.map_alone(always_die, [(7,)], retries=1),
    ):
        with pytest.raises(LostError, match="was lost 2 times"):
            list(calls)
