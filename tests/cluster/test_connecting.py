"""Connecting to clusters, and losing their nodes: each test has a cluster of its own."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import pytest

from foretune.cluster import _cluster, open_cluster
from foretune.errors import BadInputError, MissingDependencyError
from tests.cluster.nodes import running, slowly, square

pytest.importorskip("ray", reason="needs the package ray")
pytestmark = [pytest.mark.machine, pytest.mark.slow]


def test_a_node_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    with running(2) as nodes, open_cluster(nodes.url) as cluster:
        ended = []
        for count, (index, (number, _)) in enumerate(
            cluster.map_alone(slowly, [(n, str(tmp_path)) for n in range(6)])
        ):
            assert index == number
            ended.append(number)
            if count == 1:
                threading.Thread(target=nodes.kill).start()
        assert sorted(ended) == list(range(6))
        until = time.monotonic() + 120.0
        # Ray tells of a node that died without a word after some missed beats.
        while len(cluster.nodes()) > 1 and time.monotonic() < until:
            time.sleep(0.5)
        assert len(cluster.nodes()) == 1


def test_a_node_with_other_code_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_cluster, "code_fingerprint", lambda: "0" * 16)
    with pytest.raises(BadInputError, match="must have the foretune of this machine"):
        open_cluster("local:1")


def test_a_cluster_of_this_machine_ends_with_its_user() -> None:
    with open_cluster("local:2") as cluster:
        assert cluster.cores == 2
        assert dict(cluster.map(square, [(3,)])) == {0: 9}
    with pytest.raises(BadInputError, match="`threads < cores` must hold"):
        open_cluster("local", timed=4096)


def test_what_leads_nowhere_is_refused() -> None:
    with pytest.raises(BadInputError, match="must lead to the client server of a Ray cluster"):
        open_cluster("ray://127.0.0.1:1")


def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'foretune\[cluster\]'"):
        open_cluster("local:1")
