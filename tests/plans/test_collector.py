"""Collections: what is measured, in which order, and that a stopped one goes on."""

from __future__ import annotations

import numpy as np
import pytest

from foretune.errors import BadInputError, RecordError
from foretune.measure import Measurement, Status
from foretune.plans.collector import Collection, PlanCollector, folder_of
from foretune.plans.pack import pack
from foretune.plans.trials import (
    DEFAULT,
    EVOLVED,
    JOURNAL,
    RANDOM,
    SPACE,
    read_space,
    seconds_of,
)
from foretune.records import Journal, Record
from foretune.tgraph import read_graphs
from tests.plans import spaces
from tests.plans.formula import NETWORK, Interrupted, hardware


def collector(folder, measurer, plans=24, said=None, **options):
    collection = Collection((NETWORK,), plans, **options)
    say = (said if said is not None else []).append
    return PlanCollector(collection, hardware(), folder, measurer, say)


def test_half_of_the_plans_are_random_and_the_others_bred_from_the_fastest(tmp_path, measurer):
    said = []
    with collector(tmp_path, measurer, said=said) as collecting:
        assert collecting.run()
    with Journal(tmp_path / JOURNAL, read_only=True) as journal:
        records = journal.records()
    origins = [record.origin for record in records]
    assert origins == [DEFAULT] + [RANDOM] * 12 + [EVOLVED] * 11
    assert len({record.candidate_key for record in records}) == 24
    means = {
        origin: np.mean([s for r in records if r.origin == origin
                         and (s := seconds_of(r.measurement))])
        for origin in (RANDOM, EVOLVED)
    }  # fmt: skip
    assert means[EVOLVED] < means[RANDOM]
    assert "24 of 24 plans" in said[-1]
    assert not (tmp_path / "convolutions" / "kernels").exists()


def test_a_stopped_collection_goes_on_and_measures_nothing_twice(tmp_path, measurer):
    measurer.stop_after = 9
    with pytest.raises(Interrupted), collector(tmp_path, measurer) as collecting:
        collecting.run()
    measurer.stop_after = 10**9
    with collector(tmp_path, measurer) as collecting:
        assert collecting.run()
    assert len(measurer.measured) == len(set(measurer.measured)) == 24
    with collector(tmp_path, measurer) as collecting:
        assert collecting.run()
    assert len(measurer.measured) == 24
    with collector(tmp_path, measurer, plans=30) as collecting:
        assert collecting.run()
    assert len(measurer.measured) == 30


def test_half_of_a_small_space_is_left_for_breeding():
    space = spaces.space(convolutions=0, products=2)
    proposals = Collection(("small",), 200).proposals(space)
    origins = []
    while asked := proposals.ask()[1]:
        origin = RANDOM if len(origins) in range(1, 9) else EVOLVED if origins else DEFAULT
        origins += [origin] * len(asked)
        measurement = Measurement(Status.OK, (1e-3,), (True,))
        proposals.tell([Record.of(plan, measurement, origin, {}) for plan in asked])
    assert [origins.count(o) for o in (DEFAULT, RANDOM, EVOLVED)] == [1, 8, 7]
    assert proposals.count == space.size == 16


def test_time_ends_a_run_between_two_plans(tmp_path, measurer):
    with collector(tmp_path, measurer) as collecting:
        assert not collecting.run(seconds=1e-9)
    assert not measurer.measured


def test_a_network_that_cannot_be_loaded_is_left_out_and_said(tmp_path, measurer):
    measurer.fail = "no such operator"
    said = []
    with collector(tmp_path, measurer, said=said) as collecting:
        assert not collecting.run()
    assert "is left out: no such operator" in said[0]


def test_what_was_collected_is_files_that_tgraph_reads(tmp_path, measurer, network):
    space, graph = network
    with collector(tmp_path / "work", measurer) as collecting:
        collecting.run()
    packed = pack(tmp_path / "work", tmp_path / "out")
    assert packed.files == 2
    graphs = {g.name: g for g in read_graphs(tmp_path / "out")}
    assert set(graphs) == {f"layout/foretune/{o}/convolutions" for o in ("random", "evolved")}
    for found in graphs.values():
        assert len(found.nodes) == len(graph.opcode)
        assert len(found.configurable) == len(space.sketch.operators)
        assert found.runtime[0] == 1_000_000
    assert packed.plans == sum(len(g.configurations) for g in graphs.values())
    with np.load(tmp_path / "out/layout/foretune/random/convolutions.npz") as data:
        assert set(data.files) == {
            "node_feat", "node_opcode", "edge_index", "node_config_ids", "node_config_feat",
            "config_runtime", "node_splits", "schema",
        }  # fmt: skip
        assert data["node_feat"].dtype == np.float32
        assert data["node_config_feat"].shape[1:] == (len(space.sketch.operators), 18)
        assert data["config_runtime"].dtype == np.int64
        assert str(data["schema"]) == "foretune.plans/1"


def test_a_folder_without_a_collection_is_refused(tmp_path):
    with pytest.raises(BadInputError, match="holds no collection"):
        pack(tmp_path, tmp_path / "out")


@pytest.mark.parametrize("damage", ["{", '{"schema": "foretune.plans/0"}'])
def test_damaged_choices_are_refused_with_a_remedy(tmp_path, damage):
    (tmp_path / SPACE).write_text(damage)
    with pytest.raises(RecordError, match="delete the folder"):
        read_space(tmp_path)


def test_few_plans_and_equal_names_are_refused():
    with pytest.raises(BadInputError, match="plans >= 4"):
        Collection(("resnet50",), 3)
    with pytest.raises(BadInputError, match="names of their own"):
        Collection(("a.py:net", "b.py:net"), 8)
    assert folder_of("some/file.py:net") == "net"
    assert folder_of("some/network.onnx") == "network"
    assert folder_of("matmul:1x2") == "matmul_1x2"


def test_seconds_are_the_median_of_quiet_readings_where_there_are_enough():
    ok = Status.OK
    assert seconds_of(Measurement(ok, (1.0, 2.0, 3.0, 9.0), (True, True, True, False))) == 2.0
    assert seconds_of(Measurement(ok, (1.0, 2.0, 9.0), (True, False, False))) == 2.0
    assert seconds_of(Measurement(Status.CRASH)) is None
