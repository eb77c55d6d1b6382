"""A node of a cluster is killed while programs are built there."""

from __future__ import annotations

import pytest

from foretune.cluster import open_cluster
from foretune.hardware import probe
from foretune.measure import RemoteMeasurer, Status
from tests.cluster.nodes import running
from tests.cluster.test_building import POLICY, tricks
from tests.measure.remote_tricks import BUILDER

pytest.importorskip("ray", reason="needs the package ray")
pytestmark = [pytest.mark.machine, pytest.mark.slow]


def test_a_node_that_is_killed_loses_no_candidate() -> None:
    ended = []
    hardware = probe(threads=1)
    with (
        running(2) as nodes,
        open_cluster(nodes.url) as cluster,
        RemoteMeasurer(hardware, (), POLICY, BUILDER, cluster=cluster) as measurer,
    ):
        for trick, result in measurer.measure(tricks(hardware, *["good"] * 12)):
            ended.append((trick.key, result.status))
            if len(ended) == 2:
                nodes.kill()
    assert sorted(ended) == sorted((f"good{n}", Status.OK) for n in range(12))
