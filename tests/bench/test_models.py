"""``benchmarks.models`` and ``benchmarks.world``: cells, tables, and that these are of eval."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from benchmarks import _rankers as cells
from benchmarks import models, results, world
from foretune.cost import Needs
from foretune.dataset import Group, Program
from foretune.errors import BadInputError
from foretune.evaluate import evaluate, judge
from foretune.evaluate.fingerprints import fingerprint
from foretune.hardware import Hardware
from foretune.space import Action
from tests.evaluate.support import Hinted, several

pytestmark = pytest.mark.slow


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
    known = models.rankers.needs
    decisions = lambda name: replace(known(name), programs=False)  # noqa: E731
    monkeypatch.setattr(models.rankers, "needs", decisions)
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    monkeypatch.setattr(cells, "model_code", lambda model: "code")
    Counting.fits = 0
    return tmp_path / "cells"


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
    needs = Needs(programs=True)

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


def test_models_are_trained_once_and_the_table_has_floors(
    made_up_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--models", "tlp,gbdt_actions", "--seeds", "2", "--work-dir", str(made_up_data)]
    models.main(arguments)
    printed = capsys.readouterr().out
    # Two parts; two seeds of the network, one of the trees.
    assert Counting.fits == 6
    assert "#### cpu/workload" in printed and "3 torn line" in printed
    rows = [line for line in printed.splitlines() if line.startswith("| tlp")]
    assert "1.000 (1.000 to 1.000)" in rows[0] and "| random order" in printed
    assert "--split workload --folds 2 --programs 32`" in printed
    assert "top-1 0.90: met" in printed
    assert "k80/workload is left out: absent is not on this machine" in printed
    models.main(arguments)
    assert Counting.fits == 6, "finished cells are not computed again"
    models.main([*arguments, "--programs", "5"])
    assert Counting.fits == 12, "other settings are other cells"


def test_a_table_replaces_its_own_and_leaves_the_others(made_up_data: Path) -> None:
    other = {"data": "k80", "split": "workload", "rows": [], "made": "before"}
    results.write_readings("models", {"tables": [other, {**other, "data": "cpu"}]})
    given = ["--models", "tlp", "--seeds", "1", "--only", "cpu/workload"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            models, "publish", lambda name, section, data, where, write: found.append(data)
        )
        found: list[Any] = []
        models.main([*given, "--work-dir", str(made_up_data), "--write"])
    own, kept = found[0]["tables"]
    assert kept == other and "made" not in own and own["conditions"]["command"]


def test_a_model_that_cannot_be_judged_is_left_out_with_the_reason(
    made_up_data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(models.rankers, "needs", lambda name: Needs(programs=name == "mlp"))
    models.main(["--models", "mlp,mtl_tlp", "--work-dir", str(made_up_data)])
    printed = capsys.readouterr().out
    assert Counting.fits == 0
    assert "- mlp: reads programs" in printed
    assert "- mtl_tlp: one device to learn from" in printed


def test_a_figure_below_random_order_is_marked(
    made_up_data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(models.rankers, "create", lambda name, **options: Hinted(-1.0))
    groups = tuple(several(8))
    monkeypatch.setattr(models, "load", lambda data: (groups, {}))
    models.main(["--models", "tlp", "--seeds", "1", "--work-dir", str(made_up_data)])
    printed = capsys.readouterr().out
    worst = next(line for line in printed.splitlines() if line.startswith("| tlp"))
    floor = next(line for line in printed.splitlines() if line.startswith("| random order"))
    assert "▼" in worst and "▼" not in floor


def test_a_variant_of_the_world_is_a_name_with_options(
    made_up_data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[tuple[str, Any]] = []

    def create(name: str, *, seed: int, cache: Path, **options: Any) -> Counting:
        made.append((name, options))
        return Counting()

    monkeypatch.setattr(cells.rankers, "create", create)
    world.main(["--variants", "objective=ndcg", "--work-dir", str(made_up_data)])
    assert {name for name, _ in made} == {"world:variants"}
    assert [options for _, options in made[::5]] == [{}, {"state": "none"}, {"objective": "ndcg"}]
    printed = capsys.readouterr().out
    row = next(line for line in printed.splitlines() if line.startswith("| objective=ndcg"))
    assert "1.000 (1.000 to 1.000); +0.000 (+0.000 to +0.000)" in row
    with pytest.raises(BadInputError, match="variant of the world"):
        world.main(["--variants", "state=wrong"])


def made_up_cell() -> cells.Cell:
    part = models.cross_validation(several(8), "workload", 2)[0]
    return cells.Cell(0, part, "gbdt", 0, 32)


def test_a_cell_is_of_its_settings_its_sides_and_its_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cells, "model_code", lambda model: model)
    made: list[cells.Cell] = []
    monkeypatch.setattr(cells, "train_and_judge", lambda cell, *_: made.append(cell) or {})
    cell = made_up_cell()
    fewer = replace(cell.part, train=cell.part.train[1:])

    def ask(cell: cells.Cell, data: str = "data", precision: str = "float32") -> int:
        kept = cells.cells_of(tmp_path, cell.model, data, cell.programs, precision)
        cells.result_of(cell, kept, tmp_path, precision)
        return len(made)

    others = [replace(cell, seed=1), replace(cell, part=fewer), replace(cell, programs=6),
              replace(cell, model="tlp")]  # fmt: skip
    assert [ask(one) for one in (cell, *others)] == [1, 2, 3, 4, 5]
    assert ask(replace(cell, model="tlp"), precision="bfloat16") == 6
    assert ask(cell, data="other") == 7
    assert ask(made_up_cell()) == 7
    assert ask(cell, precision="bfloat16") == 7, "trees have none"


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
    monkeypatch.setattr(cells.rankers, "needs", lambda name: Needs())
    cell = made_up_cell()
    cell = replace(cell, programs=5)
    result = cells.train_and_judge(cell, tmp_path)
    assert {len(group) for group in (*ranker.trained, *ranker.validated)} == {5}
    assert result["train_programs"] == 5 * result["train_groups"]
    assert {len(group) for group in cell.part.test} == {12}


@pytest.mark.parametrize("sign", [1.0, 0.0])
def test_a_row_of_a_table_is_what_foretune_eval_gives(
    sign: float, made_up_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = several(8, hardware=("a", "b"))
    job = models.Job("cpu", "hardware", 2, True, programs=5)
    monkeypatch.setattr(models, "load", lambda data: (tuple(groups), {}))
    monkeypatch.setattr(models.rankers, "create", lambda name, **options: Hinted(sign))
    options = models._options(["--seeds", "2", "--work-dir", str(made_up_data)])
    found = models.table_of(job, ["tlp"], options)
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

    monkeypatch.setattr(cells, "code_of", code_of)
    # Past the cache, which other tests are to find as it was.
    assert cells.model_code.__wrapped__("gbdt_actions") == "code"
    assert {"foretune.cost.gbdt_ranker", "benchmarks._rankers"} <= set(asked["modules"])
    assert {"space", "hardware", "features", "dataset", "evaluate", "cost"} <= set(asked["within"])
