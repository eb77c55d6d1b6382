"""Programs built on the nodes of real clusters and timed here, whatever dies meanwhile."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretune.cluster import Cluster, open_cluster, ray
from foretune.errors import BadInputError
from foretune.hardware import Hardware, probe
from foretune.measure import LocalMeasurer, Measurement, RemoteMeasurer, Status
from foretune.space import Space
from foretune.testing import check_measurer
from tests.cluster.nodes import Nodes, running
from tests.measure.misbehaviour import Trick, TrickSketch
from tests.measure.policies import OpenPolicy
from tests.measure.programs import matmul
from tests.measure.remote_tricks import BUILDER

pytest.importorskip("ray", reason="needs the package ray")
pytestmark = [pytest.mark.machine, pytest.mark.slow]

POLICY = OpenPolicy(
    run_timeout_s=3.0,
    build_timeout_s=30.0,
    budget_s=0.01,
    max_rereads=0,
    cut_factor=1e6,
    compare_rounds=2,
    compare_extra_rounds=0,
)


@pytest.fixture(scope="module")
def hardware() -> Hardware:
    return probe(threads=1)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with running(2) as nodes:
        yield nodes


@pytest.fixture(scope="module")
def cluster(nodes: Nodes) -> Iterator[Cluster]:
    with open_cluster(nodes.url) as cluster:
        yield cluster


def tricks(hardware: Hardware, *modes: str) -> list[Any]:
    sketch = TrickSketch(matmul(32), hardware)
    return [Trick(sketch, mode, number) for number, mode in enumerate(modes)]


def statuses(measurer: RemoteMeasurer, wanted: list[Any]) -> dict[str, Status]:
    measured = list(measurer.measure(wanted))
    assert sorted(trick.key for trick, _ in measured) == sorted(trick.key for trick in wanted)
    return {trick.key: result.status for trick, result in measured}


def test_programs_built_there_are_those_built_here(
    cluster: Cluster, hardware: Hardware, rng: np.random.Generator
) -> None:
    space = Space.generate(matmul(48), hardware)
    candidates = [space.untuned, *space.sample(rng, 4)]
    with RemoteMeasurer(hardware, (), POLICY, cluster=cluster) as measurer:
        results = dict(measurer.measure(candidates))
        compared = measurer.compare(candidates[:2])
        told = measurer.environment()
    assert set(results) == set(candidates)
    for result in [*results.values(), *compared]:
        assert result.ok and result.max_error == 0.0, result
        assert result.device == ""
        assert Measurement.from_json(result.to_json()) == result
    with LocalMeasurer(hardware, POLICY) as measurer:
        assert told == measurer.environment()


def test_the_contract_of_measurers_holds(
    cluster: Cluster, hardware: Hardware, rng: np.random.Generator
) -> None:
    space = Space.generate(matmul(32), hardware)
    make = partial(RemoteMeasurer, hardware, (), POLICY, cluster=cluster)
    check_measurer(make, [space.untuned, *space.sample(rng, 3)])


def test_what_programs_do_becomes_their_status(cluster: Cluster, hardware: Hardware) -> None:
    modes = ("good", "writes_nothing", "overwrites_input", "build_raises", "crashes", "good")
    with RemoteMeasurer(hardware, (), POLICY, BUILDER, cluster=cluster) as measurer:
        told = statuses(measurer, tricks(hardware, *modes))
    assert told == {
        "good0": Status.OK,
        "writes_nothing1": Status.WRONG_OUTPUT,
        "overwrites_input2": Status.WRONG_OUTPUT,
        "build_raises3": Status.COMPILE_ERROR,
        "crashes4": Status.CRASH,
        "good5": Status.OK,
    }


def test_builders_leave_no_files(cluster: Cluster, hardware: Hardware) -> None:
    def built() -> set[Path]:
        return set(Path(tempfile.gettempdir()).glob("foretune-*/program.so"))

    before = built()
    with RemoteMeasurer(hardware, (), POLICY, BUILDER, cluster=cluster) as measurer:
        told = statuses(measurer, tricks(hardware, "good", "good"))
        assert set(told.values()) == {Status.OK} and built() > before
    assert built() <= before


def test_builders_that_are_killed_lose_no_candidate(cluster: Cluster, hardware: Hardware) -> None:
    ended = []
    with RemoteMeasurer(hardware, (), POLICY, BUILDER, cluster=cluster) as measurer:
        for trick, result in measurer.measure(tricks(hardware, *["good"] * 12)):
            ended.append((trick.key, result.status))
            if len(ended) in (1, 5):
                for place in measurer._devices._transport._parts[1]._places:
                    ray().kill(place.actor)
    assert sorted(ended) == sorted((f"good{n}", Status.OK) for n in range(12))


def test_somebody_has_to_build_or_time_elsewhere(hardware: Hardware) -> None:
    with pytest.raises(BadInputError, match="LocalMeasurer does both here"):
        RemoteMeasurer(hardware, ())
