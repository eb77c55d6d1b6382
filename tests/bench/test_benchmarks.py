"""The scripts of ``make bench``, with tiny settings or made-up figures."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from benchmarks import (
    model_speed,
    models,
    results,
    sources,
)
from benchmarks._model import cells
from benchmarks._model import store as cell_store
from foretune.dataset import Group, Program
from foretune.errors import BadInputError
from foretune.evaluate import evaluate, judge
from foretune.evaluate.fingerprints import fingerprint
from foretune.hardware import Hardware
from foretune.space import Action, Candidate
from tests.evaluate.support import Hinted, several

pytestmark = pytest.mark.slow


def test_a_table_lines_up() -> None:
    lines = results.table(["a", "bb"], [["xyz", "1"]]).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[1].startswith("|--")


# Models


class Counting:
    """A ranker that knows the answer, which is in the program, and counts its trainings."""

    fits = 0

    def prepare(self, groups: Sequence[Group]) -> None:
        """Reads nothing."""

    def fit(self, groups: Sequence[Group], validation: Sequence[Group] = ()) -> None:
        assert not {g.workload for g in groups} & {g.workload for g in validation}
        Counting.fits += 1

    def score(self, programs: Sequence[Program], machine: Any, hardware: str = "") -> Any:
        return -np.array([float(program.actions[0].args[0]) for program in programs])


def made_up_group(workload: int, hardware: str = "h", programs: int = 12) -> Group:
    seconds = np.random.default_rng(workload).uniform(1.0, 9.0, programs)
    return Group(
        workload=f"{workload:016x}",
        name=f"w{workload}",
        kind=("conv2d", "dense")[workload % 2],
        hardware=hardware,
        programs=[Program(actions=[Action("split", (float(s),))]) for s in seconds],
        seconds=seconds,
    )


@pytest.fixture
def made_up_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Eight groups in place of our data set, and ``Counting`` in place of every model."""
    groups = tuple(made_up_group(i) for i in range(8))
    monkeypatch.setattr(models, "DATA", {"cpu": (tmp_path,), "k80": (tmp_path / "absent",)})
    monkeypatch.setattr(
        models, "JOBS", (models.Job("cpu", "workload", 2), models.Job("k80", "workload", 2))
    )
    monkeypatch.setattr(models, "load", lambda data: (groups, {"torn line": 3}))
    monkeypatch.setattr(models.rankers, "create", lambda name, **options: Counting())
    monkeypatch.setattr(models.rankers, "reads_programs", lambda name: False)
    monkeypatch.setattr(cell_store, "model_code", lambda model: "code")
    Counting.fits = 0
    return tmp_path / "cells"


def test_models_are_trained_once_and_the_table_has_floors(
    made_up_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--models", "tlp,gbdt_actions", "--seeds", "2", "--work-dir", str(made_up_data)]
    models.main(arguments)
    printed = capsys.readouterr().out
    # Two parts; two seeds of the network, one of the trees.
    assert Counting.fits == 6
    assert "## cpu, split by workload" in printed and "3 torn line" in printed
    rows = [line for line in printed.splitlines() if line.startswith("| tlp")]
    assert "1.000 (1.000–1.000)" in rows[0] and "| random order" in printed
    assert "ms/program, features kept" in printed and "at most 32 programs are taken" in printed
    assert "--split workload --folds 2 --programs 32` gives the row" in printed
    assert "Goal: top1 at least 0.90" in printed and "has 1.000, met" in printed
    assert "missing: k80/workload: absent is not on this machine" in printed
    models.main(arguments)
    assert Counting.fits == 6, "finished cells are not computed again"
    assert "4/4" in capsys.readouterr().out
    models.main([*arguments, "--programs", "5"])
    assert Counting.fits == 12, "other settings are other cells"


def test_what_was_not_computed_in_time_is_said(
    made_up_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models.main(["--models", "tlp", "--time", "0", "--work-dir", str(made_up_data)])
    printed = capsys.readouterr().out
    assert Counting.fits == 0
    assert "missing: cpu/workload tlp: 6 of 6 cells are not computed" in printed
    assert "the table cpu/workload has no complete row" in printed


def test_a_model_that_cannot_be_judged_is_left_out_with_the_reason(
    made_up_data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(models.rankers, "reads_programs", lambda name: name == "mlp")
    models.main(["--models", "mlp,mtl_tlp", "--work-dir", str(made_up_data)])
    printed = capsys.readouterr().out
    assert Counting.fits == 0
    assert "mlp is left out: reads programs" in printed
    assert "mtl_tlp is left out: one device to learn from" in printed


def test_a_figure_below_random_order_is_marked_and_what_a_table_lacks_is_named(
    made_up_data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(models.rankers, "create", lambda name, **options: Hinted(-1.0))
    groups = tuple(several(8))
    monkeypatch.setattr(models, "load", lambda data: (groups, {}))
    monkeypatch.setattr(models, "JOBS", (models.Job("cpu", "workload", 2, models=("tlp",)),))
    models.main(["--models", "tlp,gbdt_actions", "--seeds", "1", "--work-dir", str(made_up_data)])
    printed = capsys.readouterr().out
    worst = next(line for line in printed.splitlines() if line.startswith("| tlp"))
    floor = next(line for line in printed.splitlines() if line.startswith("| random order"))
    assert "▼" in worst and "▼" not in floor
    assert "gbdt_actions is left out: nobody has computed it" in printed
    # Groups of no network: a figure by network would say nothing.
    assert "per_network" not in printed


@pytest.mark.parametrize(
    ("option", "value"), [("--only", "cpu/rows"), ("--data", "v100"), ("--models", "oracle")]
)
def test_models_refuses_unknown_names(option: str, value: str) -> None:
    with pytest.raises(BadInputError, match=f"unknown .* '{value}'"):
        models.main([option, value])


def test_a_cell_keeps_all_that_the_metrics_need() -> None:
    rng = np.random.default_rng(0)
    judged = judge(rng.normal(size=70), rng.uniform(1, 2, 70), rng)
    text = json.dumps(cells.metrics_to_json(judged))
    again = cells.metrics_from_json(json.loads(text))
    assert cells.metrics_to_json(again) == cells.metrics_to_json(judged)
    assert again.ratio.shape == judged.ratio.shape


def test_data_is_told_apart_by_whatever_a_model_can_see(hardware: Hardware) -> None:
    first, second = made_up_group(0), made_up_group(1)
    assert fingerprint([first]) == fingerprint([made_up_group(0)])
    other_programs = replace(first, programs=[*first.programs[1:], first.programs[0]])
    disturbed = replace(first, quiet=np.zeros(len(first), bool))
    known, wider = (replace(first, machine=replace(hardware, l2_bytes=n)) for n in (1, 2))
    data = [[first, second], [second, first], [first], [first.subset([1, 0])], [other_programs],
            [disturbed], [known], [wider]]  # fmt: skip
    assert len({fingerprint(groups) for groups in data}) == len(data)


def test_a_table_may_be_of_the_workloads_that_every_device_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups = tuple(made_up_group(i, h) for i, h in ((0, "a"), (1, "a"), (1, "b"), (2, "b")))
    monkeypatch.setattr(models, "load", lambda data: (groups, {}))
    found = models.groups_of(models.Job("cpu", "hardware_seen", None, True))
    assert [group.key for group in found] == [groups[1].key, groups[2].key]
    assert len(models.groups_of(models.Job("cpu", "workload"))) == 4


class Clock:
    """Counts how often somebody looks at it."""

    looks = 0

    def perf_counter(self) -> float:
        self.looks += 1
        return float(self.looks)


class Reading(Hinted):
    """Reads programs, as far as anyone can tell; must find their features kept."""

    kept: ClassVar[set[str]] = set()
    clock: ClassVar[Any]
    reads_programs: ClassVar[bool] = True

    def prepare(self, groups: Iterable[Group]) -> None:
        assert self.clock.looks == 0
        self.kept.update(group.key for group in groups)

    def fit(self, groups: Sequence[Group], validation: Sequence[Group] = ()) -> None:
        assert {g.key for g in (*groups, *validation)} <= self.kept
        assert self.clock.looks == 1, "the clock starts when all is read"
        super().fit(groups, validation)

    def score(self, programs: Sequence[Program], machine: Any, hardware: str = "") -> Any:
        assert len(self.kept) == 8, "those to be tested are read before the clock starts, too"
        return super().score(programs, machine, hardware)


def made_up_cell() -> cells.Cell:
    part = models.cross_validation(several(8), "workload", 2)[0]
    return cells.Cell(models.Job("cpu", "workload", 2), 0, part, "gbdt", seed=0)


def test_a_cell_is_of_its_settings_its_sides_and_its_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cell_store, "model_code", lambda model: model)
    cell, store = made_up_cell(), cell_store.Store(tmp_path, "data")
    fewer = replace(cell.part, train=cell.part.train[1:])
    files = [
        store.file(cell),
        *(store.file(replace(cell, **{k: v})) for k, v in (("seed", 1), ("part", fewer))),
        store.file(replace(cell, job=replace(cell.job, programs=6))),
        store.file(replace(cell, model="tlp")),
        replace(store, precision="bfloat16").file(replace(cell, model="tlp")),
        replace(store, fingerprint="other").file(cell),
    ]
    assert len(set(files)) == len(files)
    assert store.file(made_up_cell()) == files[0]
    assert replace(store, precision="bfloat16").file(cell) == files[0], "trees have none"
    assert store.file(replace(cell, job=replace(cell.job, models=("gbdt",)))) == files[0]


def test_a_cell_behind_a_published_page_is_found_without_a_work_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cell_store, "model_code", lambda model: model)
    cell = made_up_cell()
    store = cell_store.Store(tmp_path / "work", "data", published=tmp_path / "page")
    store.publish(cell)
    assert not store.has(cell), "what is not finished is not published"
    store.write(cell, {"train_s": 1 / 3, "groups": {"g": {"ratio": [0.5, 2 / 3], "programs": 7}}})
    store.publish(cell)
    store.file(cell).unlink()
    assert store.has(cell)
    assert store.read(cell) == {
        "train_s": 0.3333333,
        "groups": {"g": {"ratio": [0.5, 0.6666667], "programs": 7}},
    }
    assert not replace(store, fingerprint="other").has(cell)
    (kept,) = store.published.iterdir()
    before = kept.read_bytes()
    store.publish(cell)
    assert kept.read_bytes() == before


def test_features_are_kept_before_the_clock_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = made_up_cell()
    part = cell.part
    Reading.kept, Reading.clock = set(), Clock()
    monkeypatch.setattr(cells, "time", Reading.clock)

    def create(name: str, *, seed: int, cache: Path) -> Reading:
        assert cache == tmp_path
        return Reading(0.0)

    monkeypatch.setattr(cells.rankers, "create", create)
    result = cells.train_and_judge(cell, tmp_path)
    assert set(result["groups"]) == {group.key for group in part.test}


def test_groups_to_learn_from_are_thinned_and_those_to_be_tested_are_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranker = Hinted(0.0)
    monkeypatch.setattr(cells.rankers, "create", lambda name, **options: ranker)
    monkeypatch.setattr(cells.rankers, "reads_programs", lambda name: False)
    cell = made_up_cell()
    cell = replace(cell, job=replace(cell.job, programs=5))
    result = cells.train_and_judge(cell, tmp_path)
    assert {len(group) for group in (*ranker.trained, *ranker.validated)} == {5}
    assert result["train_programs"] == 5 * result["train_groups"]
    assert {len(group) for group in cell.part.test} == {12}


@pytest.mark.parametrize("sign", [1.0, 0.0])
def test_a_row_of_a_table_is_what_foretune_eval_gives(
    sign: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = several(8, hardware=("a", "b"))
    job = models.Job("cpu", "hardware", 2, True, programs=5)
    monkeypatch.setattr(models, "load", lambda data: (tuple(groups), {}))
    monkeypatch.setattr(models.rankers, "create", lambda name, **options: Hinted(sign))
    monkeypatch.setattr(models.rankers, "reads_programs", lambda name: False)
    monkeypatch.setattr(cell_store, "model_code", lambda model: "code")
    parts = models.cross_validation(models.groups_of(job), job.by, job.folds)
    store = cell_store.Store(tmp_path, fingerprint(groups))
    assert models._fill(models.cells(job, parts, ["tlp"], 2), store, None) == []
    found = models.summarise_table(job, parts, ["tlp"], 2, store)
    told = evaluate(lambda _seed: Hinted(sign), groups, job.by, folds=2, seeds=2, programs=5)
    (row,) = found["rows"]
    for name, value in told["metrics"].items():
        assert row["metrics"][name] == pytest.approx(value), name
    assert found["command"].endswith("--split hardware --folds 2 --on-all-hardware --programs 5")


def test_the_code_of_a_cell_covers_how_it_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def code_of(*modules: str, within: Sequence[str]) -> str:
        asked.update(modules=modules, within=within)
        return "code"

    monkeypatch.setattr(cell_store, "code_of", code_of)
    # Past the cache, which other tests are to find as it was.
    assert cell_store.model_code.__wrapped__("gbdt_actions") == "code"
    assert {"foretune.cost.gbdt_ranker", "benchmarks._model.cells"} <= set(asked["modules"])
    assert {"space", "hardware", "features", "dataset", "evaluate", "cost"} <= set(asked["within"])


def test_the_hash_of_code_looks_at_what_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)

    def code(name: str, text: str) -> str:
        (tmp_path / f"{name}.py").write_text(text)
        importlib.invalidate_caches()
        return sources.code_of(name, within=("cost",))

    first = code("made_up_1", '"""Text."""\ndef f(x):\n    """More."""\n    return x + 1\n')
    other = code("made_up_2", "def f(x):\n    return x + 1  # why\n")
    changed = code("made_up_2", "def f(x):\n    return x + 2\n")
    following = code("made_up_2", "import foretune.cost.random\n")
    plain = code("made_up_2", "import foretune.space.decision\n")
    # Neither comments nor where a module lies count.
    assert first == other != changed
    assert len({other, changed, following, plain}) == 4
    assert code("made_up_2", "def f(x):\n\n    return (x + 1)\n") == other


# Speed of models


def test_no_candidate_is_timed_cold_twice(hardware: Hardware) -> None:
    source = model_speed.Unscored("matmul:64x64x64", hardware)
    calls: list[list[str]] = []

    def scorer(candidates: Sequence[Candidate]) -> None:
        calls.append([candidate.key for candidate in candidates])

    found = model_speed.time_batches(scorer, source, 64)
    assert len(found["cold"]) == len(found["warm"]) == 3
    assert calls[0] == calls[1] and calls[2] == calls[3]
    cold = [*calls[0], *calls[2], *calls[4]]
    assert len(set(cold)) == len(cold) == 3 * 64


def test_model_speed_judges_the_slowest_workload() -> None:
    rows = [
        {"model": "m", "workload": "a", "batch": 64, "cold": [0.5], "warm": [0.1]},
        {"model": "m", "workload": "b", "batch": 64, "cold": [2.0], "warm": [0.1]},
        {"model": "quick", "workload": "a", "batch": 64, "cold": [0.5], "warm": [0.1]},
        {"model": "quick", "workload": "b", "batch": 64, "cold": [], "warm": []},
    ]
    body = model_speed._body(rows)
    lines = {line.split("|")[1].strip(): line for line in body.splitlines() if "|" in line}
    assert "1.250 (2.000)" in lines["m"] and "not met" in lines["m"]
    assert "0.500 (0.500)" in lines["quick"] and "not met" not in lines["quick"]


def test_a_goal_of_candidates_a_second_is_judged_by_the_slowest_workload() -> None:
    rows = [
        {"model": model, "workload": workload, "processes": processes, "rate": rate * processes}
        for model, rates in (
            (model_speed.label("world"), {"a": 4000.0, "b": 9000.0}),
            (model_speed.PROGRAMS, {"a": 70.0, "b": 90.0}),
        )
        for processes in (1, 2)
        for workload, rate in rates.items()
    ]
    text = model_speed._rates_body(rows)
    lines = {line.split("|")[1].strip(): line for line in text.splitlines() if "|" in line}
    assert "6,500 (4,000)" in lines["cost model world"]
    assert "13,000 (8,000)" in lines["cost model world"]
    assert "80 (70)" in lines[model_speed.PROGRAMS]
    (goal,) = [line for line in text.splitlines() if line.startswith("- Goal")]
    assert "one process 4,000, not met; 2 processes 8,000, met" in goal
    # Without the model that has a goal there is none.
    others = [row for row in rows if row["model"] == model_speed.PROGRAMS]
    assert "Goal" not in model_speed._rates_body(others)


def test_a_rate_is_of_what_was_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(model_speed, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def takes(seconds: float) -> Callable[[Sequence[Candidate]], None]:
        def score(_batch: Sequence[Candidate]) -> None:
            now[0] += seconds

        return score

    batches: Any = [[None] * 10] * 3
    assert model_speed.rate(takes(0.5), batches) == pytest.approx(30 / 1.5)
    # Who takes long is not asked again.
    assert model_speed.rate(takes(4.0), batches) == pytest.approx(10 / 4.0)


def test_reading_programs_is_timed_without_a_model(hardware: Hardware) -> None:
    timed = model_speed.scorers([], ["random"], hardware)
    assert list(timed) == ["cost model random", model_speed.PROGRAMS]
    candidates = model_speed.Unscored("matmul:64x64x64", hardware).take(4)
    assert [rows.shape[1] for rows in timed[model_speed.PROGRAMS](candidates)] == [164] * 4


@pytest.mark.slow
def test_processes_that_score_at_once_are_added_up(hardware: Hardware) -> None:
    names, workloads = ["random", model_speed.PROGRAMS], ["matmul:64x64x64", "matmul:32x64x64"]
    found = model_speed.rates(names, workloads, hardware, 2, batch=8)
    assert [(row["model"], row["workload"], row["processes"]) for row in found] == [
        (model_speed.label(name), workload, 2) for name in names for workload in workloads
    ]
    assert all(row["rate"] > 0 for row in found)


def test_model_speed_refuses_other_batches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        model_speed.main(["--batches", "7"])
    assert "1, 64, 512" in capsys.readouterr().err


def test_model_speed_refuses_no_processes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        model_speed.main(["--processes", "0"])
    assert "processes >= 1 must hold, but got 0" in capsys.readouterr().err
