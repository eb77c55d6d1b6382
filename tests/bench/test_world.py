"""``benchmarks.world``: what is shared within a fold, what is kept, and what the tables say."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import _world_cells, world
from benchmarks._world_cells import FULL, SWAPPED, VARIANTS, Fold, partners
from foretune import _tvm
from foretune.cost.world import WorldConfig
from foretune.dataset import Group, Program
from foretune.evaluate import Split, judge
from foretune.space import Space
from foretune.workload import Workload
from tests.space.programs import CPU, space

pytest.importorskip("torch")
pytest.importorskip("tokenizers")

NONE = "gbdt_actions (state=none)"
TINY = WorldConfig(
    target="text",
    encoder_options={
        "dimension": 8,
        "width": 16,
        "layers": 1,
        "heads": 2,
        "vocabulary": 300,
        "windows": 4,
    },
    contrastive_options={"epochs": 1},
    transition_options={
        "members": 2,
        "horizons": ((0, 1),),
        "terminal_epochs": 0,
        "batch": 256,
    },
    trajectories=16,
    encoder_states=40,
)
OF_FEATURES = WorldConfig(
    dimension=8,
    transition_options={"members": 2, "terminal_epochs": 1, "batch": 256},
    trajectories=16,
)


def as_group(here: Space, n: int = 8) -> Group:
    candidates = list(dict.fromkeys(here.sample(np.random.default_rng(0), n)))
    seconds = [1e-3 * (1 + zlib.crc32(c.key.encode()) % 97 / 97) for c in candidates]
    return Group(
        workload=here.workload.key,
        name=here.workload.name,
        kind=here.workload.name,
        hardware=here.hardware.key,
        programs=[Program(candidate=c) for c in candidates],
        seconds=np.array(seconds),
        machine=here.hardware,
    )


def product(rows: int) -> Group:
    te = _tvm.tvm.te
    a, b = te.placeholder((rows, 24), name="A"), te.placeholder((24, 40), name="B")
    k = te.reduce_axis((0, 24), name="k")
    c = te.compute((rows, 40), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    workload = Workload.from_module(te.create_prim_func([a, b, c]), f"product{rows}")
    return as_group(Space.generate(workload, CPU))


@pytest.fixture(scope="module")
def groups() -> list[Group]:
    small = [as_group(space(name)) for name in ("softmax", "pooling", "layer_norm")]
    return [*small, product(32), product(56)]


@pytest.fixture(scope="module", params=[TINY, OF_FEATURES], ids=lambda config: config.target)
def fold(
    groups: list[Group],
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Fold:
    part = Split("products", tuple(groups[:3]), (), tuple(groups[3:]))
    return Fold(part, tmp_path_factory.mktemp("fold"), request.param, 0, 1, 32)


@pytest.mark.parametrize("config", [TINY, OF_FEATURES], ids=lambda config: config.target)
def test_everything_is_made_once(
    config: WorldConfig, groups: list[Group], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {
        "folds": 2,
        "seed": 0,
        "threads": 1,
        "programs": 32,
        "paths": 16,
        "variants": [FULL, NONE],
        "batch": 20,
    }
    cells = world.Cells(tmp_path, {"a": 1})
    made = world.run(groups, cells, config, **settings, rated=["matmul:32x32x32"])
    rows = {row["variant"]: row for row in made["variants"]}
    assert {FULL, NONE} <= set(rows)
    assert rows[FULL]["groups"] == made["groups"] == len(groups)
    assert all(0 < rows[name]["top1"]["mean"] <= 1 for name in rows)
    assert "top1 - full" in rows[NONE] and "top1 - full" not in rows[FULL]
    assert sum(row["paths"] for row in made["terminals"][:-1]) == made["terminals"][-1]["paths"]
    (rate,) = made["rates"]
    assert rate["candidates"] == 20 and min(rate["cold"], rate["warm"], rate["made"]) > 0
    text = world._body(made)
    assert NONE in text and "matmul:32x32x32" in text

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("made a second time")

    monkeypatch.setattr(_world_cells, "learn", refuse)
    monkeypatch.setattr(_world_cells.Lesson, "of", refuse)
    monkeypatch.setattr(world, "train_and_judge", refuse)
    again = world.run(groups, world.Cells(tmp_path, {"a": 1}), config, **settings, rated=[])
    assert again["variants"] == made["variants"] and again["terminals"] == made["terminals"]
    with pytest.raises(AssertionError, match="a second time"):
        world.run(groups, world.Cells(tmp_path, {"a": 2}), config, **settings, rated=[])


def test_what_a_fold_has_learned_is_read_from_its_folder(fold: Fold) -> None:
    candidates = [p.candidate for p in fold.part.test[0].programs if p.candidate is not None]
    trained = [p.candidate for p in fold.part.train[0].programs if p.candidate is not None]
    first = fold.world("trained")
    other = Fold(fold.part, fold.folder, fold.config, 0, 1, 32)
    second = other.world("trained")
    assert "lesson" not in vars(other)
    assert np.array_equal(first.predicted(candidates), second.predicted(candidates))
    assert np.array_equal(
        first.predicted(trained, aware=False), second.predicted(trained, aware=False)
    )
    assert set(first.unaware) == set(second.unaware) == {g.workload for g in fold.part.train}


def test_terminal_states_are_beside_the_floors(fold: Fold) -> None:
    rows = fold.terminals(16)
    assert {row["workload"] for row in rows} == {group.workload for group in fold.part.test}
    # The rows of a workload are its programs, in some order.
    here = fold.part.test[0]
    candidates = [p.candidate for p in here.programs if p.candidate is not None]
    world = fold.world("trained")
    true = np.stack(world.reader.finals(candidates, fold.cache))
    told = sorted(row["trained"] for row in rows if row["workload"] == here.workload)
    expected = sorted(1.0 - (world.predicted(candidates) * true).sum(axis=1))
    assert np.allclose(told, expected, atol=2e-3)
    start = world.initial(candidates[0].workload)
    told = sorted(row["initial"] for row in rows if row["workload"] == here.workload)
    assert np.allclose(told, sorted(1.0 - true @ start), atol=2e-3)


def test_partners_have_the_same_kinds_of_steps(groups: list[Group]) -> None:
    found = partners(groups)
    products = {group.workload for group in groups[3:]}
    assert set(found) == products
    assert all(workload.key in products - {key} for key, workload in found.items())


def test_swapping_begins_where_the_partner_begins_and_ends_with_the_table(fold: Fold) -> None:
    here = fold.world("trained")
    ranker = fold.ranker(VARIANTS[FULL])
    before = fold.judged(ranker)
    rows = _world_cells.train_and_judge(fold, FULL)
    assert set(rows) == {FULL, SWAPPED} and rows[FULL] == before
    assert set(rows[SWAPPED]) == {group.key for group in fold.part.test}
    one, other = (group.programs[0].candidate for group in fold.part.test)
    assert one is not None and other is not None
    own = here.initial(one.workload)
    here.others = partners(fold.part.test)
    assert np.array_equal(here.initial(other.workload), own)
    here.others = {}
    assert np.array_equal(here.initial(one.workload), own)
    assert not np.array_equal(here.initial(other.workload), own)


def test_a_world_that_has_seen_everything_has_no_other(fold: Fold) -> None:
    ranker = fold.ranker(VARIANTS["trees see all members"])
    assert ranker._world is not None and not ranker._world.unaware
    assert fold.world("trained").unaware


def test_differences_are_paired() -> None:
    rng = np.random.default_rng(0)
    seconds = rng.uniform(1, 2, (6, 12))
    made = [
        Group(f"w{i}", "n", "k", "h", [Program(actions=()) for _ in row], row)
        for i, row in enumerate(seconds)
    ]
    right = {g.key: judge(-g.seconds, g.seconds, rng) for g in made}
    wrong = {g.key: judge(g.seconds, g.seconds, rng) for g in made[:4]}
    full, other = world.compare(made, {FULL: right, "wrong": wrong})
    assert full["groups"] == 6 and other["groups"] == 4
    assert full["kendall_tau"]["mean"] == pytest.approx(1)
    assert other["kendall_tau - full"]["mean"] == pytest.approx(-2)
    assert other["kendall_tau - full"]["high"] == pytest.approx(-2)


def test_paths_are_put_together_by_length() -> None:
    names = ("initial", "mean", "untrained", "actions_only", "trained")
    rows = [
        {
            "workload": f"w{steps % 3}",
            "steps": steps,
            "apart": 4.0 * steps,
            **dict.fromkeys(names, float(steps)),
            **{f"{name} found": steps > 8 for name in names},
        }
        for steps in (2, 4, 10, 12, 30)
    ]
    short, middle, long, everything = world.terminal_table(rows)
    assert [row["paths"] for row in (short, middle, long, everything)] == [2, 2, 1, 5]
    assert short["trained"]["mean"] == 3 and long["trained"]["mean"] == 30
    assert everything["trained found"]["mean"] == pytest.approx(0.6)
    # Twice 1 - cosine is what is not explained of the distances.
    assert everything["trained explained"]["mean"] == pytest.approx(0.5)


def test_variants_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    for variants in ("state=none", NONE):
        with pytest.raises(SystemExit):
            world.main(["--variants", variants])
        assert FULL in capsys.readouterr().err
