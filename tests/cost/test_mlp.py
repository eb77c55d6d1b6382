"""The perceptron over stores: what it learns, leaves out, refuses and reads back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from foretune.cost._ranker import fitted_scale, score_group
from foretune.cost._ranker_file import read_model, write_model
from foretune.cost.mlp import MlpRanker
from foretune.dataset import Group, Program
from foretune.errors import BadInputError, RecordError, VersionMismatchError
from foretune_research.neural import MlpReference, MlpVariants
from tests.cost import neural_support as support

torch = pytest.importorskip("torch")

READ = {"read_rows": support.read_rows, "read_actions": support.read_actions, **support.ON_CPU}
LEARN = {"hidden": 32, "epochs": 40, "batch": 64, "list_size": 16, "learning_rate": 1e-2}
QUICK = {"hidden": 16, "epochs": 2, "batch": 64}
KINDS = {"variants": MlpVariants, "reference": MlpReference}


def make(variant="variants", **options):
    """The product's ranker with more options, or as published."""
    return KINDS[variant](**{**READ, **QUICK, **options})


def fitted(**options):
    ranker = make(**options)
    ranker.fit(support.groups(4))
    return ranker


def some(n=20):
    return support.groups(1, n=n, seed=99)[0].programs


@pytest.mark.parametrize("loss", ["lambda_rank", "pairwise", "list_net"])
def test_orders_programs_of_unseen_workloads(loss):
    ranker = make(**LEARN, loss=loss)
    ranker.fit(support.groups(10), support.groups(4, seed=1))
    assert support.pair_accuracy(ranker, support.groups(8, seed=2)) > 0.85


def test_the_reference_learns_from_programs_of_all_workloads_in_one_list():
    ranker = make(**LEARN, variant="reference")
    ranker.fit(support.groups(10))
    assert ranker.name == "mlp:reference"
    assert support.pair_accuracy(ranker, support.groups(8, seed=2)) > 0.7


@pytest.mark.slow
def test_one_model_serves_machines_that_like_the_opposite():
    # What is fast with one thread is slow with eight.
    def both(count, seed):
        one = support.groups(count, seed=seed, hardware="one", threads=1)
        return one + support.groups(
            count, seed=seed + 1, hardware="eight", threads=8, direction=-1.0
        )

    ranker = make(**{**LEARN, "epochs": 60}, actions=False, dropout=0.0)
    ranker.fit(both(12, 0))
    assert support.pair_accuracy(ranker, both(5, 10)) > 0.75
    blind = make(**LEARN, actions=False, hardware=False)
    blind.fit(both(12, 0))
    assert abs(support.pair_accuracy(blind, both(5, 10)) - 0.5) < 0.1


def test_decisions_join_the_stores():
    # The stores are all alike here; what counts is in the actions.
    def read_rows(programs):
        return [np.ones((1, 2)) for _ in programs]

    def read_actions(programs, _machine):
        return np.array([support.logs(p).sum(axis=0) for p in programs])

    ranker = make(**LEARN, read_rows=read_rows, read_actions=read_actions)
    ranker.fit(support.groups(10))
    assert support.pair_accuracy(ranker, support.groups(8, seed=2)) > 0.85


def test_programs_that_failed_rank_last():
    # Whatever has a first factor of 32 somewhere crashes.
    def crash(group):
        failed = np.array([(support.logs(p)[:, 0] == 5).any() for p in group.programs])
        return replace(group, seconds=np.where(failed, np.nan, group.seconds)), failed

    ranker = make(**LEARN)
    ranker.fit([crash(group)[0] for group in support.groups(12, direction=-1.0)])
    unseen, failed = crash(support.groups(1, n=200, seed=5, direction=-1.0)[0])
    score = score_group(ranker, unseen)
    assert np.median(score[failed]) < np.median(score[~failed])


def test_programs_that_cannot_be_applied_are_left_out_and_have_no_score():
    def read_rows(programs):
        found = support.read_rows(programs)
        return [None if len(r) == 2 else r for r in found]

    ranker = make(read_rows=read_rows)
    ranker.fit(support.groups(4))
    programs = some(60)
    illegal = np.array([len(p.actions) == 2 for p in programs])
    score = ranker.score(programs, None)
    assert np.isnan(score[illegal]).all()
    assert np.isfinite(score[~illegal]).all()
    assert np.isnan(ranker.score([programs[int(np.flatnonzero(illegal)[0])]], None)).all()


def empty(seconds):
    rng = np.random.default_rng(0)
    group = support.group("other", 3, rng)
    return replace(group, seconds=np.array(seconds))


def test_groups_that_say_nothing_are_ignored():
    useless = [
        empty([1e-3, np.nan, np.nan]),
        empty([1e-3, 1e-3, 1e-3]),
        empty([np.nan, np.nan, np.nan]),
        Group("none", "none", "dense", "cpu", [], np.zeros(0)),
    ]
    plain, mixed = make(), make()
    plain.fit(support.groups(3))
    mixed.fit([*useless, *support.groups(3)], useless)
    assert (plain.score(some(), None) == mixed.score(some(), None)).all()


@pytest.mark.parametrize("groups", [[], [empty([1e-3, np.nan, np.nan]), empty([1e-3] * 3)]])
def test_without_two_different_times_there_is_nothing_to_learn(groups):
    with pytest.raises(BadInputError, match="two programs with different seconds"):
        make().fit(groups)


def test_without_a_program_that_can_be_applied_there_is_nothing_to_learn():
    with pytest.raises(BadInputError, match="two programs that can be applied"):
        make(read_rows=lambda programs: [None] * len(programs)).fit(support.groups(2))


def test_the_seed_decides_and_nothing_else():
    first, again, other = fitted(), fitted(), fitted(seed=1)
    assert (first.score(some(), None) == again.score(some(), None)).all()
    assert (first.score(some(), None) != other.score(some(), None)).any()
    losses = [[epoch.loss for epoch in ranker.history] for ranker in (first, again, other)]
    assert losses[0] == losses[1] != losses[2]


def test_fit_forgets():
    ranker = make()
    ranker.fit(support.groups(3, seed=7))
    ranker.fit(support.groups(4))
    assert (ranker.score(some(), None) == fitted().score(some(), None)).all()


def test_untrained_every_score_is_zero():
    assert (make().score(some(), None) == np.zeros(20)).all()
    assert make(members=3).member_scores(some(), None).shape == (3, 20)


def test_no_programs_have_no_scores():
    assert fitted().score([], None).shape == (0,)


def test_members_differ_and_are_averaged():
    ranker = fitted(members=2)
    each = ranker.member_scores(some(), None)
    assert each.shape == (2, 20)
    assert (each[0] != each[1]).any()
    assert (ranker.score(some(), None) == each.mean(axis=0)).all()
    assert {epoch.member for epoch in ranker.history} == {0, 1}
    alone = fitted()
    assert (each[0] == alone.score(some(), None)).all()


def test_the_scale_says_what_a_unit_of_score_is_worth():
    ranker = make(**LEARN)
    assert ranker.scale == 1.0
    held = support.groups(6, seed=1)
    ranker.fit(support.groups(10), held)
    judged = [(score_group(ranker, group), group.seconds) for group in held]
    assert ranker.scale == pytest.approx(fitted_scale(judged), rel=1e-3)
    # Scores in log2 slow-downs stand beside measurements.
    score, speed = score_group(ranker, held[0]) * ranker.scale, -np.log2(held[0].seconds)
    assert np.std(score) == pytest.approx(np.std(speed), rel=0.5)


def test_half_precision_keeps_the_order():
    ranker, precise = (make(**LEARN, storage=s) for s in ("float16", "float32"))
    for one in (ranker, precise):
        one.fit(support.groups(4))
    programs = some(200)
    same = support.agreement(precise.score(programs, None), ranker.score(programs, None))
    assert same > 0.99


def load(path, variant="variants", **parts):
    return KINDS[variant].load(path, **{**READ, **parts})


@pytest.mark.parametrize("variant", ["variants", "reference"])
@pytest.mark.parametrize("storage", ["float16", "float32"])
def test_what_is_read_back_scores_the_same(tmp_path, variant, storage):
    ranker = fitted(variant=variant, storage=storage, members=2, seed=3)
    ranker.save(tmp_path / "model.npz")
    loaded = load(tmp_path / "model.npz", variant)
    assert (loaded.config, loaded.seed) == (ranker.config, 3)
    assert (loaded.scale, loaded.strength) == (ranker.scale, ranker.strength)
    assert loaded.name == ranker.name
    machine = support.machine(2)
    assert (loaded.score(some(), machine) == ranker.score(some(), machine)).all()
    assert read_model(tmp_path / "model.npz")[0]["ranker"] == ranker.name


def test_an_untrained_ranker_can_be_saved(tmp_path):
    make(epochs=7).save(tmp_path / "model.npz")
    loaded = load(tmp_path / "model.npz")
    assert loaded.config.epochs == 7
    assert (loaded.score(some(), None) == 0).all()


def test_another_feature_version_is_refused(tmp_path):
    fitted(feature_version="old").save(tmp_path / "model.npz")
    assert load(tmp_path / "model.npz", feature_version="old").score(some(), None).any()
    with pytest.raises(VersionMismatchError, match="features must be"):
        load(tmp_path / "model.npz")


def test_damaged_files_are_refused(tmp_path):
    path = tmp_path / "model.npz"
    fitted().save(path)
    whole = path.read_bytes()
    meta, arrays = read_model(path)
    broken = {
        "truncated": whole[: len(whole) // 2],
        "empty": b"",
        "text": b"no model",
    }
    for content in broken.values():
        path.write_bytes(content)
        with pytest.raises(RecordError):
            load(path)
    with pytest.raises(RecordError):
        load(tmp_path / "absent.npz")
    for missing in ("rows/shift", "member0/out.weight"):
        write_model(path, "mlp", meta, {k: v for k, v in arrays.items() if k != missing})
        with pytest.raises(RecordError, match="damaged"):
            load(path)
    write_model(path, "mlp", {**meta, "config": {"layers": 9}}, arrays)
    with pytest.raises(RecordError, match="damaged"):
        load(path)


def test_a_file_of_another_ranker_is_refused(tmp_path):
    write_model(tmp_path / "model.npz", "gbdt", {}, {})
    with pytest.raises(RecordError, match="holds 'gbdt'"):
        load(tmp_path / "model.npz")


def test_the_default_is_small_enough_to_ship(tmp_path):
    rng = np.random.default_rng(0)
    ranker = MlpRanker(
        epochs=1,
        read_rows=lambda programs: [rng.normal(size=(2, 164)) for _ in programs],
        read_actions=lambda programs, _machine: rng.normal(size=(len(programs), 320)),
        **support.ON_CPU,
    )
    ranker.fit(support.groups(2))
    ranker.save(tmp_path / "model.npz")
    assert (tmp_path / "model.npz").stat().st_size < 1.5e6


def test_real_programs_are_read_and_scored(tmp_path):
    from tests.space.programs import space

    here = space("matmul")
    rng = np.random.default_rng(0)
    programs = [Program(candidate=c) for c in here.sample(rng, 12)]
    group = Group(
        workload=here.workload.key,
        name="matmul",
        kind="dense",
        hardware=here.hardware.key,
        programs=programs,
        seconds=rng.uniform(1e-4, 1e-3, 12),
        machine=here.hardware,
    )
    ranker = MlpRanker(**QUICK, **support.ON_CPU)
    assert ranker.needs.programs
    ranker.fit([group])
    score = score_group(ranker, group)
    assert np.isfinite(score).all()
    assert len(np.unique(score)) > 1
    ranker.save(tmp_path / "model.npz")
    loaded = MlpRanker.load(tmp_path / "model.npz", **support.ON_CPU)
    assert (score_group(loaded, group) == score).all()
