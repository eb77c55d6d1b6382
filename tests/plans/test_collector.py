"""Collections: what is measured, in which order, and that a stopped one goes on."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from foretune.errors import BadInputError, RecordError
from foretune.measure import Measurement, Status
from foretune.plans import provenance
from foretune.plans.collector import Collection, PlanCollector, folder_of
from foretune.plans.pack import pack
from foretune.plans.trials import (
    DEFAULT,
    EVOLVED,
    JOURNAL,
    MADE,
    RANDOM,
    SPACE,
    TVM,
    read_space,
    seconds_of,
)
from foretune.records import CONFIRM, Journal, Record
from foretune.tgraph import read_graphs
from tests.plans import spaces
from tests.plans.formula import NETWORK, Interrupted, formula, hardware, seconds


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
    assert origins == [
        DEFAULT, TVM, *[RANDOM] * 12, *[EVOLVED] * 10, *[CONFIRM] * 6
    ]  # fmt: skip
    assert len({record.candidate_key for record in records}) == 24
    assert len({record.environment[MADE] for record in records}) == 1
    means = {
        origin: np.mean([s for r in records if r.origin == origin
                         and (s := seconds_of(r.measurement))])
        for origin in (RANDOM, EVOLVED)
    }  # fmt: skip
    assert means[EVOLVED] < means[RANDOM]
    assert "24 of 24 plans" in said[-2]
    assert not (tmp_path / "convolutions" / "kernels").exists()


def test_a_stopped_collection_goes_on_and_measures_nothing_twice(tmp_path, measurer, network):
    measurer.stop_after = 9
    with pytest.raises(Interrupted), collector(tmp_path, measurer) as collecting:
        collecting.run()
    measurer.stop_after = 10**9
    with collector(tmp_path, measurer) as collecting:
        assert collecting.run()
    assert len(set(measurer.measured)) == 24
    once = [key for key in measurer.measured[:-6] if key != network[0].default.key]
    assert len(once) == len(set(once)) == 23
    done = len(measurer.measured)
    with collector(tmp_path, measurer) as collecting:
        assert collecting.run()
    assert len(measurer.measured) == done
    with collector(tmp_path, measurer, plans=30) as collecting:
        assert collecting.run()
    assert len(set(measurer.measured)) == 30


def test_half_of_a_small_space_is_left_for_breeding():
    space = spaces.space(convolutions=0, products=2)
    proposals = Collection(("small",), 200).proposals(space)
    origins = []
    while (found := proposals.ask())[1]:
        origin, asked = found
        origins += [origin] * len(asked)
        measurement = Measurement(Status.OK, (1e-3,), (True,))
        proposals.tell([Record.of(plan, measurement, origin, {}) for plan in asked])
    assert [origins.count(o) for o in (DEFAULT, TVM, RANDOM, EVOLVED)] == [1, 1, 8, 6]
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
        assert collecting.left_out == [NETWORK]
    assert "is left out: no such operator" in said[0]
    measurer.fail = ""
    with collector(tmp_path, measurer) as collecting:
        assert collecting.run()
        assert not collecting.left_out


def test_a_default_plan_that_failed_once_is_measured_again(tmp_path, network):
    class Unlucky(formula(*network)):
        """Has no memory for the first plan."""

        left = 1

        def compare(self, candidates):
            found = super().compare(candidates)
            type(self).left -= 1
            return found if self.left < 0 else [Measurement(Status.OUT_OF_MEMORY)] * len(found)

    said = []
    with collector(tmp_path, Unlucky, said=said) as collecting:
        assert not collecting.run()
    assert "default plan must run" in said[0]
    with collector(tmp_path, Unlucky) as collecting:
        assert collecting.run()
    packed = pack(tmp_path, tmp_path / "out", fewest=2)
    assert packed.files == 2


def test_plans_measured_with_other_weights_are_not_mixed(tmp_path, measurer, monkeypatch):
    with collector(tmp_path, measurer, plans=6) as collecting:
        assert collecting.run()
    monkeypatch.setattr(provenance, "_weights", lambda kind: "another")
    said = []
    with collector(tmp_path, measurer, plans=12, said=said) as collecting:
        assert not collecting.run()
    assert "weights" in said[0] and "another" in said[0] and "--work-dir" in said[0]
    assert len(set(measurer.measured)) == 6


def test_a_slower_machine_is_seen_by_its_default_plan(tmp_path, network):
    """After 12 plans everything takes twice as long; files have what plans take on average."""

    class Slowing(formula(*network, fails=lambda plan: False)):
        def _read(self, candidate):
            found = super()._read(candidate)
            slower = 2.0 if len(self.measured) > 42 else 1.0
            return replace(found, seconds=tuple(slower * s for s in found.seconds))

    with collector(tmp_path, Slowing, plans=80) as collecting:
        assert collecting.run()
    pack(tmp_path, tmp_path / "out", fewest=2)
    space = network[0]
    with Journal(tmp_path / JOURNAL, read_only=True) as journal:
        records = journal.records()
    graphs = read_graphs(tmp_path / "out")
    wrong = []
    for graph in graphs:
        default = graph.runtime[0]
        keys = {key: at for at, key in enumerate(map(bytes, graph.configurations.keys))}
        assert len(keys) == len(graph.configurations)
        plans = _plans_of(records, space, graph.name.rpartition("/")[0].rpartition("/")[2])
        assert len(plans) == len(graph.configurations)
        ratios = [seconds(plan) / seconds(space.default) for plan in plans]
        wrong += (np.abs(graph.runtime / default / ratios - 1) > 0.02).tolist()
    # Between the two measurements of the default plan around the change nobody knows.
    assert np.mean(wrong) < 0.25


def _plans_of(records, space, origin):
    """Plans of a file, in its order."""
    found = {}
    for name in (DEFAULT, TVM, origin):
        for record in records:
            if record.origin == name:
                found.setdefault(record.candidate_key, space.candidate(record.decisions))
    return list(found.values())


def test_what_became_another_plan_is_not_written(tmp_path, network):
    class Otherwise(formula(*network, fails=lambda plan: False)):
        def compare(self, candidates):
            found = super().compare(candidates)
            self.last = {"otherwise": int(len(self.measured) % 5 == 0)}
            return found

    with collector(tmp_path, Otherwise) as collecting:
        assert collecting.run()
    packed = pack(tmp_path, tmp_path / "out", fewest=2)
    assert packed.otherwise > 0 and "became others" in str(packed)
    assert packed.plans == 24 + 2 - packed.otherwise


def test_what_was_collected_is_files_that_tgraph_reads(tmp_path, measurer, network):
    space, graph = network
    with collector(tmp_path / "work", measurer) as collecting:
        collecting.run()
    assert pack(tmp_path / "work", tmp_path / "few").files == 0
    packed = pack(tmp_path / "work", tmp_path / "out", fewest=2)
    assert packed.files == 2
    graphs = {g.name: g for g in read_graphs(tmp_path / "out")}
    assert set(graphs) == {f"layout/foretune/{o}/convolutions" for o in ("random", "evolved")}
    for found in graphs.values():
        assert len(found.nodes) == len(graph.opcode)
        assert len(found.configurable) == len(space.sketch.operators)
        assert found.runtime[0] == 1_000_000
        assert found.anchors.codes.shape == (16, len(found.configurable), 3)
    assert packed.plans == sum(len(g.configurations) for g in graphs.values())
    with np.load(tmp_path / "out/layout/foretune/random/convolutions.npz") as data:
        assert set(data.files) == {
            "node_feat", "node_opcode", "edge_index", "node_config_ids", "node_config_feat",
            "config_runtime", "node_splits", "schema", "config_quiet", "config_compared",
            "config_origin", "anchor_config_feat", "made",
        }  # fmt: skip
        assert (data["config_quiet"] == 3).all()
        compared = data["config_compared"]
        assert data["config_origin"][:2].tolist() == [DEFAULT, TVM]
        assert compared[0] and 1 <= compared.sum() <= 6
        assert json.loads(str(data["made"]))["threads"] == 1
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
