"""What the page of unseen devices computes, on groups that were made up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import _devices, stages, unseen_devices
from benchmarks._devices import (
    Case,
    Family,
    best_elsewhere,
    distance,
    nearest_device,
    parameter_trees,
)
from foretune.dataset import Group, Program
from foretune.hardware import Device

FAMILY = Family((), least=5)


def device(key: str, cores: int) -> Device:
    factors = {"cores": cores, "simd_fp32_lanes": 8, "fp32_flop_per_cycle_per_core": 32,
               "l1d_kib_per_core": 32}  # fmt: skip
    return Device(key, key, "cpu", factors)


def made_up(workloads: int = 3, programs: int = 12) -> list[Group]:
    """Seconds follow a parameter: alike on a and b, the other way round on c."""
    rng = np.random.default_rng(0)
    groups = []
    for number in range(workloads):
        values = rng.permutation(programs)
        given = [Program(configuration={"tile": int(v)}) for v in values]
        for key, cores in (("a", 4), ("b", 5), ("c", 64)):
            seconds = 1.0 + (programs - 1 - values if key == "c" else values)
            groups.append(
                Group(f"w{number}", f"w{number}", "conv2d", key, given, seconds.astype(float),
                      device=device(key, cores))
            )  # fmt: skip
    return groups


def case_of(name: str, groups: list[Group] | None = None, seed: int = 0) -> Case:
    found = unseen_devices.cases(groups or made_up(), FAMILY, seed)
    return next(case for case in found if case.device == name)


def top1(scores: dict[str, np.ndarray], case: Case) -> float:
    entries = _devices.judged(scores, case, 1)
    return float(np.mean([entry["top1"] for entry in entries]))


def test_a_case_has_no_group_of_its_device_to_learn_from() -> None:
    case = case_of("a")
    assert {g.hardware for g in case.test} == {"a"} and len(case.test) == 3
    assert {g.hardware for g in case.train} == {"b", "c"}
    assert set(case.elsewhere["w0@a"]) == {"b", "c"}


def test_the_nearest_device_is_told_by_the_data_sheet_and_the_mean_by_all() -> None:
    case = case_of("a")
    assert top1(nearest_device(case), case) == 1.0, "b is as fast as a where a is"
    known = {key: -np.mean(list(logs.values()), axis=0) for key, logs in case.elsewhere.items()}
    assert all((best_elsewhere(case)[key] == known[key]).all() for key in known)
    assert distance(device("x", 4), device("y", 16)) > distance(device("x", 4), device("y", 8)) > 0


def test_trees_on_parameters_learn_what_the_other_devices_have_in_common() -> None:
    groups = [g for g in made_up(4, 40) if g.hardware != "c"]
    case = case_of("a", groups)
    assert top1(parameter_trees(case), case) == 1.0


def test_equal_scores_are_ordered_by_chance_and_the_same_chance_again() -> None:
    case = case_of("c")
    flat = {group.key: np.zeros(len(group)) for group in case.test}
    assert _devices.judged(flat, case, 10) == _devices.judged(flat, case, 10)
    other = replace(case, seed=1)
    assert _devices.judged(flat, case, 10) != _devices.judged(flat, other, 10)
    entry = _devices.judged(flat, case, 10)[0]
    assert entry["top1"] <= entry["top5"] <= entry["top10"]


@pytest.mark.parametrize(("floor", "asked"), [(0.88, 0.92), (0.7, 0.8), (0.95, 0.93)])
def test_a_third_is_asked_of_what_a_floor_leaves_where_it_leaves_much(
    floor: float, asked: float
) -> None:
    assert unseen_devices.goal(floor) == pytest.approx(asked)


def test_cells_are_computed_once_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Family, "groups", lambda _self: made_up())
    names = ["best elsewhere", "nearest device", "trees on parameters"]
    first = unseen_devices.compute("made up", FAMILY, names, 2, tmp_path)
    files = sorted(tmp_path.glob("*/*.json"))
    assert len(files) == 12, "floors have no seed"
    times = [file.stat().st_mtime_ns for file in files]
    assert unseen_devices.compute("made up", FAMILY, names, 2, tmp_path) == first
    assert [file.stat().st_mtime_ns for file in files] == times
    shown = _devices.figures(first, "top1")["best elsewhere"]
    assert shown["mean"] == pytest.approx(np.mean([shown[d] for d in "abc"]))
    better = _devices.gain(first, "nearest device", "best elsewhere", "top1")
    mean = _devices.figures(first, "top1")["nearest device"]["mean"] - shown["mean"]
    assert better["mean"] == pytest.approx(mean) and better["low"] <= better["high"]
    monkeypatch.setattr(unseen_devices, "FAMILIES", {"made up": FAMILY})
    first["behaviour"] = first.pop("trees on parameters")
    data = {"families": {"made up": unseen_devices.readings(first, FAMILY)}}
    told = unseen_devices.section(data)
    assert "| best elsewhere |" in told.table and "made up (" in told.answer
    assert "Workloads: 3, judged by the first choice. Asked:" in told.details


def test_rivals_are_those_that_a_family_can_ask() -> None:
    asked = unseen_devices.rivals_of(FAMILY, made_up())
    assert "trees on parameters" in asked and "tlp" not in asked
    solvers = replace(FAMILY, files=("devices/miopen/gfx900.parquet",))
    assert not [
        n
        for n in unseen_devices.rivals_of(solvers, made_up())
        if "behaviour" in n or "factors" in n
    ]


def test_of_one_device_workloads_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = [g for g in made_up(workloads=8) if g.hardware == "a"]
    groups[0].seconds[3] = np.nan
    cases = list(unseen_devices.cases(groups, Family((), by_workload=True), 0))
    tested = [g.workload for case in cases for g in case.test]
    assert sorted(tested) == sorted(g.workload for g in groups)
    for case in cases:
        assert not {g.workload for g in case.train} & {g.workload for g in case.test}
        assert all(g.valid.all() for g in case.test), "what failed is not judged"


def test_results_by_operator_are_means_over_workloads() -> None:
    cells = {"rival": {"a": {"0": [
        {"workload": "x", "kind": "conv2d", "top1": 0.5},
        {"workload": "y", "kind": "conv2d", "top1": 1.0},
        {"workload": "z", "kind": "dense", "top1": 0.25},
    ]}}}  # fmt: skip
    assert _devices.by_operator(cells, "top1") == {"rival": {"conv2d": 0.75, "dense": 0.25}}


def test_stages_are_means_over_groups_and_seeds() -> None:
    rows = [{"group": "g", "top1": top, "top5": 1.0, "top10": 1.0, "recall10": 0.0,
             "recall16": 0.0, "recall32": 1.0, "recall64": 1.0} for top in (0.5, 1.0)]  # fmt: skip
    cells = [{name: {"groups": rows[at : at + 1], "ms_per_program": 1.0} for name in ("a", "b")}
             for at in (0, 1)]  # fmt: skip
    found = stages.means(cells)
    assert found["a"]["top1"] == 0.75 and found["b"]["ms_per_program"] == 1.0
    told = stages.section({"sources": {"somewhere": found}})
    assert "somewhere: a (0.750)" in told.answer and "| 0.750 |" in told.table
