from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from foretune import dataset
from foretune.errors import BadInputError
from foretune.evaluate import keep_judgeable, measured_everywhere, read_data, select, thinned
from foretune.evaluate.data import FEW_TIMES
from tests import ROOT
from tests.evaluate.support import ansor_line, group, several, write_log

TESTS = ROOT / "tests"
DATA, GOLDEN = TESTS / "dataset" / "data", TESTS / "records" / "data"


def test_a_foreign_log_is_read_and_what_is_left_out_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "cpu.json"
    lines = [ansor_line(t, s, 1e-3 * (s + 1)) for t in range(2) for s in range(4)]
    path.write_text("".join(lines) + "torn {\n" + ansor_line(0, 9, 0.0))
    data = read_data([path])
    assert [len(g) for g in data.groups] == [4, 4]
    assert sum(data.skipped.values()) == 2
    assert data.paths == (str(path),)


def test_several_paths_are_joined(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.json", "b.json")]
    for path in paths:
        path.write_text("".join(ansor_line(0, s, 1e-3 * (s + 1)) for s in range(3)))
    assert {g.hardware for g in read_data(paths).groups} == {"a", "b"}


def test_files_of_one_name_are_not_one_device(tmp_path: Path) -> None:
    paths = [tmp_path / lab / "log.json" for lab in ("a", "b")]
    for path in paths:
        path.parent.mkdir()
        write_log(path, range(2))
    data = read_data(paths)
    assert [g.hardware for g in data.groups] == ["a/log", "a/log", "b/log", "b/log"]
    again = tmp_path / "b" / ".." / "a" / "log.json"
    assert [g.key for g in read_data([*paths, again]).groups] == [g.key for g in data.groups]
    assert {g.hardware for g in read_data(paths[:1]).groups} == {"log"}
    other = write_log(tmp_path / "gpu.json", range(2))
    assert {g.hardware for g in read_data([*paths, other]).groups} == {"a/log", "b/log", "gpu"}


def test_one_workload_on_one_hardware_from_two_paths_is_refused(tmp_path: Path) -> None:
    caches = [tmp_path / name for name in ("first.json", "second.json")]
    for cache in caches:
        cache.write_bytes((DATA / "kernel_tuner.json").read_bytes())
    with pytest.raises(BadInputError, match=r"first\.json and .*second\.json both hold .*give one"):
        read_data(caches)
    records = tmp_path / "db" / "database_tuning_record.json"
    records.parent.mkdir()
    for name in (records.name, "database_workload.json"):
        (records.parent / name).write_bytes((GOLDEN / name).read_bytes())
    with pytest.raises(BadInputError, match=r"db and .*record\.json both hold"):
        read_data([records.parent, records])


def test_our_own_data_sets_are_recognised_and_bring_their_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Stored:
        skipped: ClassVar[Counter[str]] = Counter({"unknown sketch": 2})

        def groups(self, _devices: Any = None) -> list[Any]:
            self.skipped["group with one record"] += 1
            return several(3)

    monkeypatch.setattr(dataset, "is_dataset", lambda _path: True)
    monkeypatch.setattr(dataset, "read_dataset", lambda _path: Stored())
    data = read_data([tmp_path])
    assert len(data.groups) == 3
    assert data.skipped == {"unknown sketch": 2, "group with one record": 1}


def test_data_that_is_missing_or_useless_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"no data at .*nowhere"):
        read_data([tmp_path / "nowhere"])
    path = tmp_path / "failed.json"
    path.write_text("".join(ansor_line(0, s, 1e10, error=1) for s in range(3)))
    with pytest.raises(BadInputError, match=r"no measurement in .*failed.json.*3 "):
        read_data([path])
    path.write_text("some words\n")
    with pytest.raises(BadInputError):
        read_data([path])


def test_groups_without_an_order_are_dropped_with_their_number() -> None:
    kept, dropped = keep_judgeable([group("a"), group("b", [1.0]), group("c", [1.0, 1.0])])
    assert [g.workload for g in kept] == ["a"]
    assert dropped == {FEW_TIMES: 2}
    assert keep_judgeable([group("a")])[1] == {}


def test_selecting_hardware_and_leaving_out_workloads() -> None:
    groups = several(4, kinds=("conv2d", "dense"), hardware=("k80", "mi50"))
    assert {g.hardware for g in select(groups, ["k80"])} == {"k80"}
    assert {g.workload for g in select(groups, exclude=["w1"])} == {"w0", "w2", "w3"}
    assert {g.kind for g in select(groups, exclude=["dense"])} == {"conv2d"}
    assert {g.workload for g in select(groups, exclude=["conv2d w*"])} == {"w1", "w3"}
    assert select(groups) == groups


@pytest.mark.parametrize(
    ("hardware", "exclude", "told"),
    [
        (["t4"], [], "'t4': choose of k80, mi50"),
        ([], ["softmax"], "matches 'softmax'.*conv2d, dense"),
        ([], ["w*"], "no group is left"),
    ],
)
def test_a_selection_that_matches_nothing_is_refused(
    hardware: list[str], exclude: list[str], told: str
) -> None:
    groups = several(4, kinds=("conv2d", "dense"), hardware=("k80", "mi50"))
    with pytest.raises(BadInputError, match=told):
        select(groups, hardware, exclude)


@pytest.mark.parametrize("name", ["matmul(64, 64)", '["dense", 0, 64]', "all [1*2?]"])
def test_a_name_is_matched_as_it_stands(name: str) -> None:
    groups = [replace(group("w0"), name=name), replace(group(name), name="x"), group("d")]
    assert select(groups, exclude=[name]) == groups[2:]


def test_training_groups_are_thinned_by_draws_that_the_seed_repeats() -> None:
    groups = [*several(3), group("small", [1.0, 2.0]), group("failing", [1.0, 2.0, *[np.nan] * 98])]
    fewer = thinned(groups, 5, seed=1)
    assert [len(g) for g in fewer] == [5, 5, 5, 2, 100], "whole, where too little would be left"
    for one, less in zip(groups, fewer, strict=True):
        assert less.key == one.key
        at = [one.programs.index(program) for program in less.programs]
        assert at == sorted(set(at))
        np.testing.assert_array_equal(less.seconds, one.seconds[at])
    again, other = thinned(groups, 5, seed=1), thinned(groups, 5, seed=2)
    assert [g.programs for g in again] == [g.programs for g in fewer]
    assert [g.programs for g in other] != [g.programs for g in fewer]
    assert thinned(groups, 100) == groups


@pytest.mark.parametrize("programs", [1, 0, -3])
def test_thinning_leaves_an_order_to_learn(programs: int) -> None:
    with pytest.raises(BadInputError, match=f"programs >= 2.*programs={programs}"):
        thinned(several(2), programs)


def test_workloads_measured_on_all_hardware() -> None:
    both = several(3, hardware=("a", "b"))
    groups = [group("x", hardware="a"), *both, group("y", hardware="b")]
    assert measured_everywhere(groups) == both
    assert len(measured_everywhere(several(3))) == 3, "one device is all"
    assert measured_everywhere([]) == []
    with pytest.raises(BadInputError, match="all of a, b"):
        measured_everywhere([groups[0], groups[-1]])
