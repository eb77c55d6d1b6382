from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from foretune.cost import Needs
from foretune.dataset import Group, Program
from foretune.errors import BadInputError
from foretune.evaluate import (
    NONE,
    Bootstrap,
    check_request,
    evaluate,
    judge,
    print_evaluation,
    random_order,
    summarise,
)
from foretune.evaluate.data import FEW_TIMES
from foretune.evaluate.offline import NOT_EVERYWHERE
from foretune.workload.training import Excluded
from tests.evaluate.support import Hinted, group, several


@pytest.fixture(autouse=True)
def nothing_excluded(monkeypatch: pytest.MonkeyPatch) -> None:
    exclude(monkeypatch)


def exclude(monkeypatch: pytest.MonkeyPatch, *keys: str) -> None:
    monkeypatch.setattr(
        "foretune.workload.training.excluded", lambda: Excluded(frozenset(keys), frozenset())
    )


def run(ranker: Any, groups: list[Group], by: str = "workload", **options: Any) -> dict[str, Any]:
    return evaluate(ranker, groups, by, resamples=200, **options)


def test_the_object_has_what_the_contract_says_and_is_json() -> None:
    data = run(
        lambda _seed: Hinted(), several(10, hardware=("a", "b")), model="hinted", data=["here"]
    )
    assert data["schema"] == "foretune.eval/1"
    assert (data["model"], data["data"], data["split"]) == ("hinted", ["here"], "workload")
    assert (data["groups"], data["workloads"], data["programs"]) == (20, 10, 240)
    for name in ("top1", "top5", "pair_accuracy", "kendall_tau", "ndcg16"):
        value = data["metrics"][name]
        assert set(value) == {"mean", "low", "high"}
        assert value["low"] <= value["mean"] <= value["high"]
    for k in (1, 5):
        for definition in ("pooled", "per_network", "running"):
            assert f"top{k}_{definition}" in data["metrics"]
    assert [row["picks"] for row in data["curve"]] == [1, 2, 4, 8, 16, 32, 64]
    assert set(data["by_kind"]) == {"conv2d", "dense"}
    assert set(data["by_hardware"]) == {"a", "b"}
    assert sum(part["groups"] for part in data["by_kind"].values()) == 20
    assert {"seeds", "split_seed", "train_s", "score_s_per_program", "floors"} <= set(data)
    json.dumps(data, allow_nan=False)


def test_an_oracle_is_right_and_its_reverse_is_below_the_floor() -> None:
    groups = several(10)
    oracle = run(lambda _seed: Hinted(1.0), groups)
    wrong = run(lambda _seed: Hinted(-1.0), groups)
    for name, value in oracle["metrics"].items():
        assert value == pytest.approx({"mean": 1, "low": 1, "high": 1}), name
        floor = wrong["floors"]["random"]["metrics"][name]
        assert wrong["metrics"][name]["mean"] < floor["mean"] < 1, name
    assert [row["regret"]["mean"] for row in oracle["curve"]] == pytest.approx([0] * 7)
    floor = wrong["floors"]["random"]["curve"][0]["regret"]["mean"]
    assert wrong["curve"][0]["regret"]["mean"] > floor > 0


def test_a_model_that_knows_nothing_is_at_the_floor() -> None:
    data = run(lambda _seed: Hinted(0.0), several(60))
    floor = data["floors"]["random"]["metrics"]
    for name in ("top1", "top5", "ndcg16"):
        assert data["metrics"][name]["mean"] == pytest.approx(floor[name]["mean"], abs=0.05)
    assert data["metrics"]["pair_accuracy"]["mean"] == pytest.approx(0.5)
    assert floor["pair_accuracy"] == pytest.approx({"mean": 0.5, "low": 0.5, "high": 0.5})


def test_every_group_is_tested_once_by_a_ranker_that_has_not_seen_its_workload() -> None:
    made: list[Hinted] = []

    def make(_seed: int) -> Hinted:
        made.append(Hinted())
        return made[-1]

    groups = several(11, hardware=("a", "b"))
    data = run(make, groups, folds=3)
    assert len(made) == len(data["splits"]) == 3
    assert sum(len(ranker.scored) for ranker in made) == len(groups)
    tested = Counter((row["workload"], row["hardware"]) for row in data["per_group"])
    assert tested == Counter((g.workload, g.hardware) for g in groups)
    by_part = {
        part["name"]: {row["workload"] for row in data["per_group"] if row["split"] == part["name"]}
        for part in data["splits"]
    }
    for ranker, part in zip(made, data["splits"], strict=True):
        learned = {g.workload for g in (*ranker.trained, *ranker.validated)}
        assert learned and ranker.validated
        assert not learned & by_part[part["name"]]


def test_seeds_are_averaged_within_a_group_before_the_bootstrap() -> None:
    groups = several(10)
    both = run(lambda seed: Hinted(1.0 if seed == 0 else -1.0), groups, seeds=2)
    right = run(lambda _seed: Hinted(1.0), groups)
    wrong = run(lambda _seed: Hinted(-1.0), groups)
    assert both["seeds"] == [0, 1]
    for row, one, other in zip(
        both["per_group"], right["per_group"], wrong["per_group"], strict=True
    ):
        assert row["top1"] == pytest.approx((one["top1"] + other["top1"]) / 2)
    assert both["metrics"]["kendall_tau"] == pytest.approx({"mean": 0, "low": 0, "high": 0})


def test_the_same_call_gives_the_same_figures() -> None:
    results = [run(lambda _seed: Hinted(0.0), several(8), seeds=2) for _ in range(2)]
    for data in results:
        del data["train_s"], data["score_s_per_program"]
    assert results[0] == results[1]


def test_groups_without_two_times_are_left_out_and_counted() -> None:
    odd = [group("one", [1.0]), group("same", [2.0, 2.0]), group("none", [math.nan] * 3)]
    data = run(lambda _seed: Hinted(), [*several(6), *odd], skipped={"not JSON": 4})
    assert data["groups"] == 6
    assert data["skipped"] == {"not JSON": 4, FEW_TIMES: 3}
    with pytest.raises(BadInputError, match="none of 3 groups"):
        run(lambda _seed: Hinted(), odd)
    with pytest.raises(BadInputError, match="none of 0 groups"):
        run(lambda _seed: Hinted(), [])


def test_a_group_without_a_program_is_left_out_and_counted() -> None:
    result = evaluate(lambda _seed: Hinted(), [group("empty", []), *several(10)], "workload")
    assert result["groups"] == 10
    assert result["skipped"] == {FEW_TIMES: 1}
    assert result["metrics"]["top1"]["mean"] == 1.0
    for split in ("workload", NONE):
        with pytest.raises(BadInputError, match="nothing can be judged"):
            evaluate(Hinted() if split == NONE else lambda _seed: Hinted(), [group("e", [])], split)


def test_a_trained_ranker_is_judged_on_everything_as_it_is() -> None:
    ranker = Hinted()
    data = run(ranker, several(3), "none")
    assert data["split"] == "none"
    assert data["train_s"] is None
    assert not ranker.trained
    assert data["metrics"]["top1"]["mean"] == 1


def test_only_what_is_learned_from_is_thinned() -> None:
    made: list[Hinted] = []

    def make(_seed: int) -> Hinted:
        made.append(Hinted())
        return made[-1]

    data = run(make, several(10), programs=4)
    assert {len(g) for ranker in made for g in (*ranker.trained, *ranker.validated)} == {4}
    assert {row["programs"] for row in data["per_group"]} == {12}
    assert data["programs_per_group"] == 4 and data["programs"] == 120
    assert run(make, several(10))["programs_per_group"] is None


@pytest.mark.parametrize(("trained", "programs"), [(False, 1), (True, 100)])
def test_programs_to_learn_from_are_several_and_for_training(trained: bool, programs: int) -> None:
    with pytest.raises(BadInputError, match=f"programs={programs}"):
        check_request(trained, "none" if trained else "workload", None, 1, programs)


def test_programs_are_read_before_scoring_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    timer = SimpleNamespace(perf_counter=lambda: clock[0])
    monkeypatch.setattr("foretune.evaluate.offline.time", timer)

    class Reading(Hinted):
        """Takes a second to read a group, the first time only."""

        needs = Needs(programs=True)

        def __init__(self) -> None:
            super().__init__()
            self.read: set[int] = set()

        def score(self, programs: Sequence[Program], machine: Any, hardware: str = "") -> Any:
            clock[0] += 0.0 if id(programs) in self.read else 1.0
            self.read.add(id(programs))
            return super().score(programs, machine, hardware)

    data = run(Reading(), several(3), "none")
    assert clock[0] == 3.0 and data["score_s_per_program"] == 0.0
    assert "features kept" in data["definitions"]["score_s_per_program"]
    assert data["metrics"]["top1"]["mean"] == 1


def test_one_group_has_no_width_of_interval() -> None:
    data = run(Hinted(-1.0), [group("w", [1.0, 4.0])], "none")
    assert data["metrics"]["top1"] == {"mean": 0.25, "low": 0.25, "high": 0.25}
    assert data["metrics"]["top5"]["mean"] == 1


@pytest.mark.parametrize(
    ("trained", "by", "folds", "seeds", "told"),
    [
        (True, "workload", None, 1, "trained ranker"),
        (True, "none", 5, 1, "folds=5"),
        (True, "none", None, 3, "seeds=3"),
        (False, "none", None, 1, "nothing is left to learn from"),
        (False, "workload", None, 0, "seeds >= 1"),
        (False, "luck", None, 1, "unknown split"),
        (True, "within_task", None, 1, "never split by row"),
    ],
)
def test_requests_that_do_not_fit_together_are_refused(
    trained: bool, by: str, folds: int | None, seeds: int, told: str
) -> None:
    with pytest.raises(BadInputError, match=told):
        check_request(trained, by, folds, seeds)
    ranker: Any = Hinted() if trained else lambda _seed: Hinted()
    with pytest.raises(BadInputError, match=told):
        run(ranker, several(6), by, folds=folds, seeds=seeds)


def test_the_evaluation_set_is_not_learned_from(monkeypatch: pytest.MonkeyPatch) -> None:
    exclude(monkeypatch, "w3")
    with pytest.raises(BadInputError, match=r"evaluation set.*w3.*--exclude"):
        run(lambda _seed: Hinted(), several(6))
    assert run(Hinted(), several(6), "none")["groups"] == 6, "judging on it is what it is for"


def test_a_renamed_copy_of_the_evaluation_set_is_found_by_its_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Known(Excluded):
        def has(self, workload: Any) -> bool:
            return bool(workload.name == "copy")

    class Program:
        class candidate:
            class workload:
                name = "copy"

    monkeypatch.setattr(
        "foretune.workload.training.excluded", lambda: Known(frozenset(), frozenset())
    )
    groups = several(6)
    groups[2].programs[0] = Program()  # type: ignore[index]
    with pytest.raises(BadInputError, match="1 workloads of the data"):
        run(lambda _seed: Hinted(), groups)


def test_hardware_variants_of_a_workload_are_no_further_evidence() -> None:
    rng = np.random.default_rng(0)
    seconds = [rng.uniform(1, 9, 6).tolist() for _ in range(12)]
    alone = [group(f"w{i}", s) for i, s in enumerate(seconds)]
    copied = [
        group(f"w{i}", s, hardware=h) for i, s in enumerate(seconds) for h in ("a", "b", "c", "d")
    ]
    widths = []
    for groups in (alone, copied):
        judged = [random_order(g.seconds) for g in groups]
        found = summarise(groups, judged, Bootstrap([g.workload for g in groups]))["top1"]
        widths.append(found["high"] - found["low"])
    assert widths[1] == pytest.approx(widths[0])


def test_intervals_of_pooled_figures_come_from_the_same_resamples() -> None:
    groups = [group(f"w{i}", [1.0 + i, 2.0 + 3 * i], weight=1 + i) for i in range(6)]
    judged = [judge(np.array([0.0, 1.0]), g.seconds, np.random.default_rng(0)) for g in groups]
    found = summarise(groups, judged, Bootstrap([g.workload for g in groups], resamples=500))
    best, worst = (np.array([g.seconds[i] for g in groups]) for i in (0, 1))
    weight = np.array([g.weight for g in groups])
    pooled = found["top1_pooled"]
    assert pooled["mean"] == pytest.approx((best * weight).sum() / (worst * weight).sum())
    ratios = best / worst
    assert ratios.min() <= pooled["low"] < pooled["mean"] < pooled["high"] <= ratios.max()


def test_without_networks_the_mean_over_networks_is_the_plain_one() -> None:
    """Also where picks are a matter of chance: the mean of a ratio is not that of its seconds."""
    groups = [group(f"w{i}", [1.0, 2.0 + i, 30.0 - i]) for i in range(6)]
    found = summarise(
        groups, [random_order(g.seconds) for g in groups], Bootstrap([g.workload for g in groups])
    )
    assert found["top1_per_network"] == pytest.approx(found["top1"])
    assert found["top1_pooled"]["mean"] < found["top1"]["mean"]


def test_the_printed_result_names_every_metric_and_what_was_left_out() -> None:
    data = run(
        lambda _seed: Hinted(),
        [*several(8, hardware=("a", "b")), group("one", [1.0])],
        model="hinted",
        data=["log.json"],
    )
    text = StringIO()
    print_evaluation(data, Console(file=text, width=80))
    printed = text.getvalue()
    for told in ("hinted on log.json", "top-1", "top-5, per network", "Kendall tau", "NDCG@16",
                 "64 picks", "random order", "conv2d", FEW_TIMES, "trained 5 times"):  # fmt: skip
        assert told in printed
    trained_on = {"ranker": "mlp", "groups": 7, "training_workloads": ["x"], "data": ["d"],
                  "date": "2020-01-01", "seen_groups": 0}  # fmt: skip
    print_evaluation({**data, "trained_on": trained_on}, Console(file=text, width=80))
    assert "mlp, trained on 7 groups of 1 workloads" in text.getvalue()
    assert "none of the groups" in text.getvalue()
    unknown = {**data, "split": "none", "trained_on": None}
    print_evaluation(unknown, Console(file=text, width=80))
    assert "is not known" in text.getvalue()


def test_model_and_floor_of_unseen_hardware_are_judged_on_what_all_devices_ran() -> None:
    rng = np.random.default_rng(0)
    groups = []
    for i in range(4):
        first = group(f"w{i}", rng.uniform(1, 8, 30).tolist(), hardware="a")
        other = replace(first, hardware="b", seconds=np.append(first.seconds[1:], math.nan))
        groups += [first, other]
    groups.append(group("few", rng.uniform(1, 8, 12).tolist(), hardware="a"))
    data = run(lambda _seed: Hinted(), groups, "hardware_seen")
    assert data["judged_on"] == "programs that all hardware ran"
    assert (data["groups"], data["programs"], data["skipped"]) == (8, 8 * 29, {NOT_EVERYWHERE: 1})
    assert data["by_hardware"]["a"]["metrics"]["top1"]["mean"] == 1.0, "hints are those of a"
    floor = data["floors"]["other_devices"]
    for device in ("a", "b"):
        expected = []
        for first, other in zip(groups[0:8:2], groups[1:8:2], strict=True):
            tested, shown = (first, other) if device == "a" else (other, first)
            seconds = tested.seconds[:29]
            expected.append(seconds.min() / seconds[shown.seconds[:29].argmin()])
        found = floor["by_hardware"][device]["metrics"]["top1"]["mean"]
        assert found == pytest.approx(np.mean(expected))
    text = StringIO()
    print_evaluation(data, Console(file=text, width=200))
    assert text.getvalue().count("best elsewhere") == 2, "beside all metrics, and by hardware"


def test_where_devices_share_no_programs_all_are_judged_without_that_floor() -> None:
    groups = several(3, hardware=("a", "b"))
    data = run(lambda _seed: Hinted(), groups, "hardware_seen")
    assert data["judged_on"] == "all programs" and "other_devices" not in data["floors"]
    assert data["groups"] == 6
