"""Collections: what is measured, in which order, and that a stopped one goes on."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

from foretune.errors import BadInputError, RecordError
from foretune.measure import Measurement, Status
from foretune.plans import provenance
from foretune.plans.collector import Collection, PlanCollector, folder_of
from foretune.plans.loop import JOURNAL, MADE, SPACE, read_space
from foretune.plans.pack import pack
from foretune.plans.standings import DEFAULT, EVOLVED, RANDOM, TVM, seconds_of
from foretune.records import CONFIRM, Journal, Trial
from foretune.tgraph import read_graphs
from tests.plans import spaces
from tests.plans.formula import NETWORK, Interrupted, formula, hardware, seconds


def written(folder):
    """Origin to the file of ``convolutions`` and its graph."""
    files = {origin: folder / "layout/foretune" / origin / "convolutions.npz"
             for origin in (RANDOM, EVOLVED)}  # fmt: skip
    return {origin: (file, read_graphs(file)[0]) for origin, file in files.items()}


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
        DEFAULT, TVM, *[RANDOM] * 12, *[EVOLVED] * 10, *[CONFIRM] * 24
    ]  # fmt: skip
    assert len({record.candidate_key for record in records}) == 24
    assert len({record.environment[MADE] for record in records}) == 1
    means = {
        origin: np.mean([s for r in records if r.origin == origin
                         and (s := seconds_of(r.measurement))])
        for origin in (RANDOM, EVOLVED)
    }  # fmt: skip
    assert means[EVOLVED] < means[RANDOM]
    assert "24 of 24 plans" in said[-2] and "the best 20 beside" in said[-1]
    assert not (tmp_path / "convolutions" / "kernels").exists()


def test_a_stopped_collection_goes_on_and_measures_nothing_twice(tmp_path, measurer, network):
    measurer.stop_after = 9
    with pytest.raises(Interrupted), collector(tmp_path, measurer) as collecting:
        collecting.run()
    measurer.stop_after = 10**9
    with collector(tmp_path, measurer) as collecting:
        assert collecting.run()
    assert len(set(measurer.measured)) == 24
    once = [key for key in measurer.measured[:-24] if key != network[0].default.key]
    assert len(once) == len(set(once)) == 23
    done = len(measurer.measured)
    with collector(tmp_path, measurer) as collecting:
        assert collecting.run()
    assert len(measurer.measured) == done
    with collector(tmp_path, measurer, plans=30) as collecting:
        assert collecting.run()
    assert len(set(measurer.measured)) == 30


def test_one_that_is_stopped_between_comparisons_compares_the_others(tmp_path, measurer):
    measurer.stop_after = 24 + 6
    with pytest.raises(Interrupted), collector(tmp_path, measurer) as collecting:
        collecting.run()
    assert len(measurer.measured) == 30
    measurer.stop_after = 10**9
    with collector(tmp_path, measurer) as collecting:
        assert collecting.run()
    compared = measurer.measured[24:]
    assert len(compared) == 24 and len(set(compared)) == 21


def test_half_of_a_small_space_is_left_for_breeding():
    space = spaces.space(convolutions=0, products=2)
    proposals = Collection(("small",), 200).proposals(space)
    origins = []
    while (found := proposals.ask())[1]:
        origin, asked = found
        origins += [origin] * len(asked)
        measurement = Measurement(Status.OK, (1e-3,), (True,))
        proposals.tell([Trial.of(plan, measurement, origin, {}) for plan in asked])
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
    measurer.stop_after = 6
    with pytest.raises(Interrupted), collector(tmp_path, measurer) as collecting:
        collecting.run()
    measurer.stop_after = 10**9
    monkeypatch.setattr(provenance, "_weights", lambda kind: "another")
    with collector(tmp_path, measurer) as collecting:
        assert collecting.run() and not collecting.left_out
    places = {place.name for place in tmp_path.iterdir() if place.is_dir()}
    assert len(places) == 2 and all(place.startswith("convolutions") for place in places)
    with Journal(tmp_path / JOURNAL, read_only=True) as journal:
        kinds = [record.environment[MADE] for record in journal.records()]
    assert kinds == [kinds[0]] * 6 + [kinds[-1]] * 48
    # What is not complete is not written, and not measured again either.
    packed = pack(tmp_path, tmp_path / "out", fewest=2)
    assert packed.left_out == ("convolutions",)
    assert {file.stem for file in (tmp_path / "out").rglob("*.npz")} == {"convolutions"}
    monkeypatch.undo()
    done = len(measurer.measured)
    with collector(tmp_path, measurer) as collecting:
        assert collecting.run()
    assert len(measurer.measured) == done


def test_one_collection_at_a_time_works_in_a_folder(tmp_path, measurer):
    with collector(tmp_path, measurer), pytest.raises(BadInputError, match="one collection"):
        collector(tmp_path, measurer)
    with collector(tmp_path, measurer, plans=6) as collecting:
        assert collecting.run()


def test_a_network_whose_best_cannot_be_compared_is_not_written(tmp_path, network):
    class Dying(formula(*network)):
        """Dies where several plans are loaded at once."""

        def compare(self, candidates):
            found = super().compare(candidates)
            died = Measurement(Status.OUT_OF_MEMORY, message="killed")
            return found if len(candidates) == 1 else [died] * len(candidates)

    with collector(tmp_path, Dying) as collecting:
        assert collecting.run()
    assert pack(tmp_path, tmp_path / "out", fewest=2).left_out == ("convolutions",)


def test_what_was_not_quiet_is_measured_again_in_the_end(tmp_path, network):
    class Loud(formula(*network, fails=lambda plan: False)):
        """Half of the first readings are disturbed, and take twice as long."""

        seen: ClassVar[Counter[str]] = Counter()

        def _read(self, candidate):
            found = super()._read(candidate)
            self.seen[candidate.key] += 1
            if self.seen[candidate.key] > 1 or candidate == self.space.default:
                return found
            if int(candidate.key, 16) % 2:
                return found
            return replace(found, seconds=tuple(2 * s for s in found.seconds), quiet=(False,) * 3)

    with collector(tmp_path, Loud, plans=60) as collecting:
        assert collecting.run()
    packed = pack(tmp_path, tmp_path / "out", fewest=2)
    assert packed.unquiet == 0 and packed.plans == 62
    for file, graph in written(tmp_path / "out").values():
        assert graph.runtime.max() < 2 * 1e9 * seconds(network[0].tvm_default)
        with np.load(file) as data:
            assert (data["config_quiet"] == 3).all()


@pytest.mark.parametrize("sudden", [False, True])
def test_a_slower_machine_is_seen_by_its_default_plan(tmp_path, network, sudden):
    """Files have what plans take on average, whether a machine slows down or a process is slow."""

    class Slowing(formula(*network, fails=lambda plan: False)):
        def _read(self, candidate):
            found = super()._read(candidate)
            at = len(self.measured)
            slower = 1 + at / 500 if not sudden else 2.0 if at > 40 else 1.0
            self.last = {"process": "later" if sudden and at > 40 else "first"}
            return replace(found, seconds=tuple(slower * s for s in found.seconds))

    with collector(tmp_path, Slowing, plans=80) as collecting:
        assert collecting.run()
    pack(tmp_path, tmp_path / "out", fewest=2)
    space = network[0]
    with Journal(tmp_path / JOURNAL, read_only=True) as journal:
        records = journal.records()
    wrong = []
    for origin, (_, graph) in written(tmp_path / "out").items():
        plans = _plans_of(records, space, origin)
        assert len(plans) == len(graph.configurations)
        ratios = [seconds(plan) / seconds(space.default) for plan in plans]
        wrong += np.abs(graph.runtime / graph.runtime[0] / ratios - 1).tolist()
    assert max(wrong) < (0.001 if sudden else 0.06)


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
            default = candidates[0] == self.space.default
            self.last = {"otherwise": int(not default and len(self.measured) % 5 == 0)}
            return found

    with collector(tmp_path, Otherwise) as collecting:
        assert collecting.run()
    packed = pack(tmp_path, tmp_path / "out", fewest=2)
    assert packed.otherwise > 0 and "became others" in str(packed)
    assert packed.plans == 24 + 2 - packed.otherwise
    assert packed.unquiet == 0


def test_what_was_collected_is_files_that_tgraph_reads(tmp_path, measurer, network):
    space, graph = network
    with collector(tmp_path / "work", measurer) as collecting:
        collecting.run()
    assert pack(tmp_path / "work", tmp_path / "few").files == 0
    packed = pack(tmp_path / "work", tmp_path / "out", fewest=2)
    assert packed.files == 2
    graphs = {origin: graph for origin, (_, graph) in written(tmp_path / "out").items()}
    assert set(graphs) == {RANDOM, EVOLVED}
    (both,) = read_graphs(tmp_path / "out")
    assert both.name == "convolutions" and len(both.configurations) == packed.plans
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
            "config_origin", "config_alone", "default_readings", "tvm_is_default",
            "anchor_config_feat", "made",
        }  # fmt: skip
        assert (data["config_quiet"] == 3).all()
        compared = data["config_compared"]
        assert data["config_origin"][:2].tolist() == [DEFAULT, TVM]
        assert compared[0] and 1 < compared.sum() <= 21
        assert data["default_readings"].tolist() == [1_000_000]
        assert not data["tvm_is_default"]
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
