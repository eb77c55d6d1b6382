"""``benchmarks.world``: what is shared within a fold, what is kept, and what the tables say."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import world
from benchmarks._model.cells import Cell, Job, metrics_to_json
from benchmarks._model.store import Store
from benchmarks._world import cells as world_cells
from benchmarks._world import direct as direct_module
from benchmarks._world import folds as world_folds
from benchmarks._world import learned as world_learned
from benchmarks._world import page as world_page
from benchmarks._world.cells import (
    DIRECT,
    FULL,
    INITIAL,
    NONE,
    PREDICTIONS,
    SWAPPED,
    VARIANTS,
    Fold,
    partners,
    skeleton,
)
from benchmarks._world.folds import Cells, Learning
from foretune import _tvm
from foretune.cost import score_group
from foretune.dataset import Group, Program
from foretune.evaluate import GroupMetrics, Split, judge, thinned
from foretune.hardware import Hardware
from foretune.space import Candidate, Space
from foretune.workload import Workload
from foretune_research.world.config import WorldStudyConfig
from foretune_research.world.ranker import WorldVariants
from tests.space.programs import CPU, space

pytestmark = pytest.mark.slow

pytest.importorskip("torch")
pytest.importorskip("tokenizers")

TINY = WorldStudyConfig(
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
OF_FEATURES = WorldStudyConfig(
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


@pytest.fixture(scope="module", autouse=True)
def few_steps() -> Iterator[None]:
    """Controls are trained for seconds where they count."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(direct_module, "STEPS", 10)
        yield


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
    return fold_of(part, tmp_path_factory.mktemp("fold"), request.param)


def fold_of(part: Split, folder: Path, config: WorldStudyConfig, programs: int = 32) -> Fold:
    given: dict[str, Any] = {"seed": 0, "threads": 1, "programs": programs, "draw": 1}
    return Fold(part, folder, config, **given, cache=folder / "cache")


def learned_in(folder: Path, config: WorldStudyConfig) -> Learning:
    given: dict[str, Any] = {"folds": 2, "seed": 0, "programs": 32, "threads": 1}
    return Learning(config, **given, cache=folder / "cache", folder=folder)


@pytest.fixture(scope="module")
def of_features(groups: list[Group], tmp_path_factory: pytest.TempPathFactory) -> Fold:
    part = Split("products", tuple(groups[:3]), (), tuple(groups[3:]))
    return fold_of(part, tmp_path_factory.mktemp("features"), OF_FEATURES)


@pytest.mark.parametrize("config", [TINY, OF_FEATURES], ids=lambda config: config.target)
def test_everything_is_made_once(
    config: WorldStudyConfig, groups: list[Group], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learning = learned_in(tmp_path, config)
    settings: dict[str, Any] = {"paths": 16, "variants": [FULL, NONE]}
    cells = Cells(tmp_path, {"a": 1})
    made = world.run(groups, cells, learning, **settings)
    rows = {row["variant"]: row for row in made["variants"]}
    assert list(rows) == [name for name in (FULL, SWAPPED, NONE, INITIAL) if name in rows]
    assert rows[FULL]["groups"] == made["groups"] == len(groups)
    assert all(0 < rows[name]["top1"]["mean"] <= 1 for name in rows)
    assert "top1 - full" in rows[NONE] and "top1 - full" not in rows[FULL]
    assert rows[INITIAL] == {**rows[NONE], "variant": INITIAL}
    assert NONE in world.body_of(made) and "seeds they are means of" not in world.body_of(made)

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("made a second time")

    monkeypatch.setattr(world_learned, "learn", refuse)
    monkeypatch.setattr(world_learned.Lesson, "of", refuse)
    monkeypatch.setattr(world, "train_and_judge", refuse)
    judged = {
        f"{name} (benchmarks.models)": _metrics_of(groups) for name in ("gbdt_actions", "tlp")
    }
    again = world.run(
        groups, Cells(tmp_path, {"a": 1}), learning, **settings, others=judged, missing=["gbdt"]
    )
    assert again["terminals"] == made["terminals"] and again["readings"] == made["readings"]
    assert again["variants"][2:] == made["variants"] and again["check"]["groups"] == len(groups)
    text = world.body_of(again)
    assert "Missing: gbdt." in text and "## Scoring" not in text and "world_speed.md" in text
    # Of how many paths there are, neither what is learned nor the ranking depends.
    with pytest.raises(AssertionError, match="a second time"):
        world.run(groups, Cells(tmp_path, {"a": 1}), learning, **{**settings, "paths": 8})
    with pytest.raises(AssertionError, match="a second time"):
        world.run(groups, Cells(tmp_path, {"a": 2}), learning, **settings)


def _metrics_of(groups: Sequence[Group]) -> dict[str, GroupMetrics]:
    rng = np.random.default_rng(0)
    return {group.key: judge(-group.seconds, group.seconds, rng) for group in groups}


def test_folds_are_computed_alone_and_put_together_later(
    groups: list[Group],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    where = SimpleNamespace(end=dict)
    monkeypatch.setattr(world, "conditions", lambda *_: where)
    monkeypatch.setattr(world, "read_data", lambda _: SimpleNamespace(groups=groups))
    monkeypatch.setattr(world, "learning_of", lambda _: learned_in(tmp_path, OF_FEATURES))
    published, trained = [], []

    def train(fold: Fold, name: str) -> Any:
        trained.append((fold.part.name, name))
        judged = _metrics_of(fold.part.test)
        return {name: {key: metrics_to_json(found) for key, found in judged.items()}}

    monkeypatch.setattr(world, "publish", lambda *given: published.append(given))
    monkeypatch.setattr(world, "train_and_judge", train)
    monkeypatch.setattr(Fold, "terminals", lambda _, count: [a_path(at) for at in range(1, count)])
    options = ["--folds", "2", "--paths", "8"]
    options += ["--variants", f"{FULL},{NONE}"]
    world.main([*options, "--fold", "2"])
    assert trained == [("workloads 2/2", FULL), ("workloads 2/2", NONE)] and not published
    world.main(options)
    assert [part for part, _ in trained[2:]] == ["workloads 1/2"] * 2
    ((page, _, body, result, *_),) = published
    assert page == "world" and "Missing: tlp, gbdt, gbdt_actions" in body
    assert result["groups"] == len(groups) and result["check"] is None
    assert "workloads 1/2: terminal states: " in capsys.readouterr().out


def test_what_a_fold_has_learned_is_read_from_its_folder(fold: Fold) -> None:
    candidates = [p.candidate for p in fold.part.test[0].programs if p.candidate is not None]
    trained = [p.candidate for p in fold.part.train[0].programs if p.candidate is not None]
    first = fold.world("trained")
    other = fold_of(fold.part, fold.learned.folder.parent, fold.config)
    second = other.world("trained")
    assert "lesson" not in vars(other.learned)
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


def test_swapped_paths_begin_at_the_partners_state(fold: Fold) -> None:
    here, other = fold.part.test
    rows = [row for row in fold.terminals(16) if row["workload"] == here.workload]
    candidates = [p.candidate for p in here.programs if p.candidate is not None]
    instead = other.programs[0].candidate
    assert instead is not None
    world = fold.world("trained")
    true = np.stack(world.reader.finals(candidates, fold.cache))
    begun = world.predicted(candidates, initial=world.initial(instead.workload))
    expected = sorted(1.0 - (begun * true).sum(axis=1))
    assert np.allclose(sorted(row["swapped"] for row in rows), expected, atol=2e-3)
    assert {f"swapped {name}" for name in ("missed", "found")} <= set(rows[0])


@pytest.mark.parametrize("name", DIRECT)
def test_a_world_that_predicts_in_one_step_has_not_seen_what_it_is_asked_of(
    name: str, of_features: Fold
) -> None:
    world = of_features.world(name)
    assert of_features.world(name) is world, "trained once"
    group = of_features.part.train[0]
    candidates = [p.candidate for p in group.programs if p.candidate is not None]
    own = world.predicted(candidates, aware=False)
    assert own.shape == (len(candidates), world.columns)
    assert np.allclose(np.linalg.norm(own, axis=1), 1.0, atol=1e-3)
    # The network that left the workload out is one of those whose mean everybody else gets.
    first = np.tile(world.initial(candidates[0].workload), (len(candidates), 1))
    columns = world.columns_of(candidates, first)
    networks = world.each_end(columns)
    assert len(networks) == direct_module.MEMBERS
    (alone,) = world.each_end(columns, group.workload)
    assert [np.array_equal(alone, each) for each in networks].count(True) == 1
    assert np.allclose(own, alone, atol=1e-3)
    asked = of_features.part.test[0].workload
    assert np.array_equal(world.each_end(columns, asked), networks), "nobody has seen that one"
    other = replace(CPU, name="another", simd_bits=512, l2_bytes=1 << 22)
    moved_on = [as_on(other, candidate) for candidate in candidates]
    assert np.array_equal(world.columns_of(moved_on, first), columns), "no machine is in them"
    elsewhere = world.predicted(candidates, initial=-world.initial(candidates[0].workload))
    moved = not np.array_equal(elsewhere, world.predicted(candidates))
    assert moved == (name == "direct"), "one of them does not look where a path begins"


def as_on(hardware: Hardware, candidate: Candidate) -> Candidate:
    """The same decisions for another machine."""
    return replace(candidate.sketch, hardware=hardware).candidate(candidate.decisions)


@pytest.mark.parametrize("name", DIRECT)
def test_no_network_learns_from_the_workloads_it_is_to_leave_out(
    name: str, of_features: Fold, monkeypatch: pytest.MonkeyPatch
) -> None:
    lesson = of_features.learned.lesson
    owners = [set(lesson.workloads)]

    def spied(columns: Any, ends: Any, owner: Any, seed: int) -> Any:
        number = {n: key for n, key in zip(lesson.paths.workload, lesson.workloads, strict=True)}
        owners.append({number[n] for n in owner.tolist()})
        return SimpleNamespace()

    monkeypatch.setattr(direct_module, "trained", spied)
    made = direct_module.Direct(lesson, name == "direct", 0, 1)
    everything, *seen = owners
    assert len(seen) == direct_module.MEMBERS
    for number, own in enumerate(seen):
        assert own == {key for key in everything if made._left_out[key] != number} != everything


@pytest.mark.slow
def test_a_network_learns_where_programs_end() -> None:
    rng = np.random.default_rng(0)
    columns = rng.standard_normal((400, 12)).astype(np.float32)
    ends = np.concatenate([columns[:, :5], np.ones((400, 1), np.float32)], axis=1)
    ends /= np.linalg.norm(ends, axis=1, keepdims=True)
    owner = np.repeat(np.arange(20), 20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(direct_module, "STEPS", 150)
        network = direct_module.trained(columns[:300], ends[:300], owner[:300], seed=0)
    error = 1.0 - (network.ends(columns[300:]) * ends[300:]).sum(axis=1).mean()
    mean = ends[:300].mean(axis=0)
    floor = 1.0 - (ends[300:] @ (mean / np.linalg.norm(mean))).mean()
    assert error < 0.2 * floor


def test_only_workloads_with_a_partner_have_swapped_paths(
    groups: list[Group], tmp_path: Path
) -> None:
    part = Split("one product", tuple(groups[:2]), (), (groups[2], groups[3]))
    rows = fold_of(part, tmp_path, OF_FEATURES).terminals(8)
    assert not any("swapped" in row for row in rows)
    for row in world.terminal_table(rows):
        assert "trained" in row and "swapped" not in row


def test_partners_have_the_same_steps(groups: list[Group]) -> None:
    found = partners(groups)
    products = {group.workload for group in groups[3:]}
    assert set(found) == products
    assert all(workload.key in products - {key} for key, workload in found.items())


def test_a_skeleton_is_that_of_the_sketch_whatever_was_decided(groups: list[Group]) -> None:
    for group in groups:
        by_sketch: dict[str, set[Any]] = {}
        for at, program in enumerate(group.programs):
            assert program.candidate is not None
            alone = group.subset(np.array([at]))
            by_sketch.setdefault(program.candidate.sketch.key, set()).add(skeleton(alone))
        assert all(len(found) == 1 for found in by_sketch.values())
        assert skeleton(group) == frozenset().union(
            *(s for each in by_sketch.values() for s in each)
        )


def test_as_many_programs_are_drawn_as_where_models_are_compared(
    groups: list[Group], tmp_path: Path
) -> None:
    part = Split("products", tuple(groups[:3]), tuple(groups[3:4]), tuple(groups[4:]))
    fold = fold_of(part, tmp_path, OF_FEATURES, programs=3)
    drawn = [[p.key for p in group.programs] for group in (*fold.train, *fold.validation)]
    expected = thinned(groups[:4], 3, 1)
    assert drawn == [[p.key for p in group.programs] for group in expected]
    assert drawn != [[p.key for p in group.programs] for group in thinned(groups[:4], 3, 0)]


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_ranks_as_it_would_alone(of_features: Fold, name: str) -> None:
    fold, variant = of_features, VARIANTS[name]
    found = world_cells.train_and_judge(fold, name)
    assert set(found) - {name} <= {SWAPPED, INITIAL}
    assert set(found[name]) == {group.key for group in fold.part.test}
    shared = fold.ranker(variant)
    alone = WorldVariants(seed=0, world=shared._given, cache=fold.cache, **dict(variant.options))
    alone.fit(fold.train, fold.validation)
    for shared._fitting in (False, True):
        alone._fitting = shared._fitting
        for group in (*fold.train, *fold.part.test):
            one, two = (ranker._matrix(group.programs, group.machine) for ranker in (shared, alone))
            assert np.array_equal(one[0], two[0]) and np.array_equal(one[1], two[1])
    for group in fold.part.test:
        assert np.array_equal(score_group(shared, group), score_group(alone, group))


def test_columns_are_computed_once_for_all_variants(
    groups: list[Group], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = Split("products", tuple(groups[:3]), (), tuple(groups[3:]))
    fold = fold_of(part, tmp_path, OF_FEATURES)
    first = fold.ranker(VARIANTS[FULL])
    before = fold.judged(first)

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("computed a second time")

    monkeypatch.setattr(world_cells, "action_features", refuse)
    for name in ("hardware=false", "actions=false", NONE):
        fold.judged(fold.ranker(VARIANTS[name]))
    monkeypatch.setattr(WorldVariants, "_states", refuse)
    assert fold.judged(fold.ranker(VARIANTS[FULL])) == before
    with pytest.raises(AssertionError, match="a second time"):
        fold.swapped(first)
    # Programs of others are none of the fold's, whatever place in memory they come to.
    with pytest.raises(AssertionError, match="a second time"):
        first.score(list(groups[3].programs), groups[3].machine)


def test_swapping_begins_where_the_partner_begins_and_ends_with_the_table(fold: Fold) -> None:
    here = fold.world("trained")
    ranker = fold.ranker(VARIANTS[FULL])
    before = fold.judged(ranker)
    rows = world_cells.train_and_judge(fold, FULL)
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


@given(st.lists(st.integers(1, 40), min_size=1, max_size=80))
def test_ranges_of_lengths_hold_every_path_once_and_then_all(steps: list[int]) -> None:
    *ranges, everything = world_page.lengths(steps)
    assert everything == (min(steps), max(steps))
    held = [sum(low <= length <= high for low, high in ranges) for length in steps]
    assert set(held) <= {1 if ranges else 0}
    # Where lengths differ, no range has much more than its share.
    if len(set(steps)) == len(steps) and ranges:
        counts = [sum(low <= length <= high for length in steps) for low, high in ranges]
        assert max(counts) <= -(-len(steps) // len(ranges)) + 1


def a_path(steps: int, **changed: Any) -> dict[str, Any]:
    return {
        "workload": f"w{steps % 3}",
        "steps": steps,
        "apart": 4.0,
        "distinct": 4,
        "spread": 0.25,
        **dict.fromkeys(("initial", "mean", "untrained", "actions_only", *DIRECT), 3.0 * steps),
        "trained": float(steps),
        **{f"{name} missed": 3.0 for name in PREDICTIONS if name != "swapped"},
        **{f"{name} found": steps > 8 for name in PREDICTIONS if name != "swapped"},
        **changed,
    }


def test_paths_are_put_together_by_length() -> None:
    swapped = {"swapped": 10.0, "swapped missed": 4.0, "swapped found": False}
    rows = [a_path(2, **swapped), a_path(4, distinct=1), a_path(10), a_path(12), a_path(30)]
    *each, everything = world.terminal_table(rows)
    assert [row["paths"] for row in each] == [1] * 5 and everything["paths"] == 5
    assert [row["steps"] for row in each] == [[2, 2], [3, 4], [5, 10], [11, 12], [13, 30]]
    assert each[0]["trained"]["mean"] == 2 and each[4]["trained"]["mean"] == 30
    assert each[4]["initial - trained"]["mean"] == 60
    assert everything["actions_only - trained"]["mean"] == pytest.approx(2 * 58 / 5)
    assert everything["trained explained"]["mean"] == pytest.approx(0.25)
    # Of paths that have a partner alone, and of those that have another to be taken for.
    assert everything["swapped - trained"]["mean"] == 8 and "swapped" not in each[1]
    assert "partners explained" in everything and "partners explained" not in each[1]
    assert everything["trained found"]["mean"] == pytest.approx(0.75)
    assert everything["chance found"]["mean"] == 0.25 and "trained found" not in each[1]
    assert all(f"{name} found" in each[0] for name in PREDICTIONS)


def test_readings_are_lines_of_text() -> None:
    rng = np.random.default_rng(0)
    seconds = rng.uniform(1, 2, (3, 12))
    made = [
        Group(f"w{i}", "n", "k", "h", [Program(actions=()) for _ in row], row)
        for i, row in enumerate(seconds)
    ]
    judged = {FULL: _metrics_of(made), SWAPPED: _metrics_of(made[:1])}
    judged |= {NONE: judged[FULL], INITIAL: judged[FULL]}
    found = world_page.readings(made, judged, [a_path(2), a_path(4)])
    assert found["groups"] == [group.key for group in made] and INITIAL not in found["variants"]
    assert found["variants"][FULL] == ["1.0000 1.0000 1.0000 1.0000"] * 3
    assert found["variants"][SWAPPED][1:] == ["", ""]
    columns = found["path"].split(", ")
    first = dict(zip(columns, found["paths"][0].split(), strict=True))
    assert (first["steps"], first["trained"], first["swapped"]) == ("2", "2.000", "-")
    assert found["workloads"][int(first["workload"])] == "w2"


def test_rows_of_other_models_are_means_over_seeds_of_all_folds(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    made = [
        Group(f"w{i}", "n", "k", "h", [Program(actions=()) for _ in row], row)
        for i, row in enumerate(rng.uniform(1, 2, (4, 12)))
    ]
    parts = [
        Split(f"{n}", tuple(made[2:]), (), tuple(made[:2])) if n == 0 else
        Split(f"{n}", tuple(made[:2]), (), tuple(made[2:]))
        for n in range(2)
    ]  # fmt: skip
    job = Job("cpu", "workload", 2)
    store = Store(tmp_path / "cells", "f", "bfloat16", tmp_path / "none")

    def keep(model: str, seed: int, sign: float) -> None:
        for number, part in enumerate(parts):
            judged = {
                group.key: metrics_to_json(judge(sign * group.seconds, group.seconds, rng))
                for group in part.test
            }
            store.write(Cell(job, number, part, model, seed), {"groups": judged})

    keep("gbdt_actions", 0, -1.0)
    for seed, sign in ((0, -1.0), (1, -1.0), (2, 1.0)):
        keep("tlp", seed, sign)
    found, missing = world.published(parts, store, job)
    assert set(found) == {f"{name} (benchmarks.models)" for name in ("tlp", "gbdt_actions")}
    assert found["tlp (benchmarks.models)"]["w0@h"].kendall_tau == pytest.approx(1 / 3)
    assert len(missing) == 1 and missing[0].startswith("gbdt (") and "2 of 2 cells" in missing[0]
    right = found["gbdt_actions (benchmarks.models)"]
    assert set(right) == {group.key for group in made}
    assert world_page.agreement(right, right) == {"groups": 4, "equal": 4, "furthest": 0.0}
    wrong = {**right, "w0@h": replace(right["w0@h"], kendall_tau=0.5)}
    found_apart = world_page.agreement(right, wrong)
    assert found_apart["equal"] == 3 and found_apart["furthest"] == pytest.approx(0.5)


def test_trainings_are_heard_of_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter([0.0, 1.0, 30.0, 31.0, 32.0])
    # The module's own, not that of the whole process.
    monkeypatch.setattr(world_folds, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    log = logging.getLogger("foretune.cost.world")
    with world_folds.told():
        for text in ("one", "two", "three"):
            log.info(text)
        log.warning("careful")
    log.info("after")
    said = [line.split("] ")[1] for line in capsys.readouterr().out.splitlines()]
    assert said == ["two", "careful"]


def test_variants_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    for variants in ("state=none", NONE):
        with pytest.raises(SystemExit):
            world.main(["--variants", variants])
        assert FULL in capsys.readouterr().err
    for folds in ("0", "6", "one"):
        with pytest.raises(SystemExit):
            world.main(["--fold", folds])
        assert "from 1 to 5" in capsys.readouterr().err
