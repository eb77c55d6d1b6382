"""Trees trained on many workloads: objectives, stopping, thinning, options and files."""

from __future__ import annotations

import zlib
from dataclasses import replace

import numpy as np
import pytest

from foretune.cost import score_group
from foretune.cost._ranker_file import read_model, write_model
from foretune.cost.gbdt_ranker import GbdtActionRanker, GbdtRanker
from foretune.dataset import Program
from foretune.errors import BadInputError, RecordError, VersionMismatchError
from foretune.features import extract_per_store
from foretune.features.stores import cache
from foretune.space import Action
from foretune.testing.rankers import (
    nest_features,
    nest_group,
    pair_accuracy,
    training_groups,
    unseen_groups,
)
from foretune_research.trees import GbdtActionVariants, GbdtVariants
from tests.space.programs import space

SMALL = {"min_child_weight": 0.5, "learning_rate": 0.15, "columns": 0.4}
"""For hundreds of programs instead of tens of thousands."""


def nest(**options):
    options = {**SMALL, "rounds": 40, **options}
    return GbdtRanker(extract=nest_features, feature_version="nest", **options)


def accuracy(ranker):
    groups = unseen_groups(32)
    return np.mean([pair_accuracy(score_group(ranker, g), g.seconds) for g in groups])


@pytest.mark.parametrize("objective", ["list", "lambda", "ndcg", "regression"])
def test_every_objective_learns(objective):
    ranker = GbdtActionVariants(**SMALL, objective=objective, rounds=60)
    ranker.fit(training_groups(32), unseen_groups(16)[:2])
    assert accuracy(ranker) > 0.62


def test_ranks_of_a_large_group_are_levels_that_xgboost_takes():
    """More than 4,000 programs of a task, as TenSet has them, and 31 levels at most."""
    large, unseen = (nest_group((512, 512, 512), n, seed) for seed, n in enumerate((4300, 200)))
    ranker = GbdtActionVariants(
        **SMALL, objective="ndcg", rounds=16, boosters=1, depth=5, opponents=8
    )
    (table,) = ranker._tables([large])
    relevance = table.relevance
    assert len(relevance) > 4000 and (relevance.min(), relevance.max()) == (0, 31)
    # However many there are, the fastest few are told apart.
    fastest = np.argsort(np.nan_to_num(table.seconds, nan=np.inf))[:8]
    assert len(np.unique(relevance[fastest])) > 2
    ranker.fit([large])
    # It is trained to find the fastest, and orders hardly more.
    liked = unseen.seconds[np.argsort(-score_group(ranker, unseen))[:8]]
    assert np.nanmedian(liked) < 0.5 * np.nanmedian(unseen.seconds)


def grown(ranker):
    return [member.booster.num_boosted_rounds() for member in ranker._members]


def test_workloads_left_out_end_the_growing():
    ranker = nest(rounds=400, patience=3)
    ranker.fit(training_groups(16))
    assert max(grown(ranker)) < 400
    # One workload leaves nothing to stop by but validation groups.
    alone, judged = (nest(rounds=100, patience=3) for _ in range(2))
    alone.fit(training_groups(16)[:1])
    judged.fit(training_groups(16)[:1], unseen_groups(16))
    assert set(grown(alone)) == {100}
    assert max(grown(judged)) < 100


def test_members_leave_out_different_workloads():
    asked = []

    class Watched(GbdtActionRanker):
        def _weigh(self, tables, left_out, held):
            asked.append((tables, left_out, held))
            super()._weigh(tables, left_out, held)

    Watched(rounds=2).fit(training_groups(8), unseen_groups(8))
    tables, left_out, held = asked[0]
    assert left_out.shape == (5, len(tables)) and len(held) == len(unseen_groups(8))
    # Ten workloads in five folds: every workload is left out once.
    assert (left_out.sum(axis=0) == 1).all() and (left_out.sum(axis=1) == 2).all()


def test_the_scale_is_fitted_to_workloads_left_out():
    """What is learned of labels without sense holds for the programs trained on, and no others."""
    rng = np.random.default_rng(0)
    groups = [replace(g, seconds=rng.permutation(g.seconds)) for g in training_groups(32)]
    ranker = nest(rounds=40)
    ranker.fit(groups)
    assert ranker.scale < 0.3
    assert 1 <= ranker.strength <= 64


def test_columns_that_only_name_the_workload_are_not_read():
    """All programs of a workload share these rows but for two columns."""

    def extract(candidates):
        rows = nest_features(candidates)
        for candidate, row in zip(candidates, rows, strict=True):
            if row is not None:
                row[:, 40:60] = int(candidate.workload.key[:4], 16)
        return rows

    ranker = GbdtRanker(extract=extract, feature_version="named", **SMALL, rounds=5)
    ranker.fit(training_groups(16))
    read = np.unique(np.concatenate([member.columns for member in ranker._members]))
    assert 0 < len(read) < 500
    assert not set(read) & {part * 164 + at for part in range(3) for at in range(40, 60)}


def test_the_scale_is_that_of_log2_slow_downs():
    ranker = nest(rounds=80)
    ranker.fit(training_groups(32), unseen_groups(32)[:2])
    slopes = []
    for group in unseen_groups(48)[2:]:
        known = group.valid
        score = ranker.scale * score_group(ranker, group)[known]
        slopes.append(np.polyfit(score, -np.log2(group.seconds[known]), 1)[0])
    assert 0.5 < np.mean(slopes) < 2


def test_members_are_averaged():
    one, three = nest(rounds=10, boosters=1), nest(rounds=10, boosters=3)
    for ranker in (one, three):
        ranker.fit(training_groups(16))
    group = unseen_groups(16)[0]
    assert len(three._members) == 3
    assert not np.allclose(score_group(one, group), score_group(three, group), equal_nan=True)


def test_too_much_data_is_thinned():
    ranker = nest(max_rows=60)
    ranker.fit(training_groups(32))
    scores = score_group(ranker, unseen_groups(16)[0])
    assert len(np.unique(scores[~np.isnan(scores)])) > 1


def test_disturbed_readings_count_less():
    groups = training_groups(24)
    rng = np.random.default_rng(0)
    noisy = []
    for group in groups:
        quiet = rng.random(len(group)) < 0.6
        # The opposite of the truth.
        seconds = np.where(quiet, group.seconds, np.nanmedian(group.seconds) ** 2 / group.seconds)
        noisy.append(replace(group, seconds=seconds, quiet=quiet))
    without, some, alike = (
        GbdtActionVariants(**SMALL, rounds=40, disturbed=d) for d in (0.0, 0.5, 1.0)
    )
    for ranker in (without, some, alike):
        ranker.fit(noisy)
    assert accuracy(without) > accuracy(alike) + 0.1
    assert accuracy(some) > accuracy(alike)
    nothing_quiet = [replace(g, quiet=np.zeros(len(g), bool)) for g in groups]
    nest().fit(nothing_quiet)


def test_failed_programs_rank_last():
    """Programs whose innermost factor is 1 fail; the ranker is to learn that they are no use."""

    def broken(group):
        fails = np.array([p.candidate.decisions[1][3] == 1 for p in group.programs])
        return replace(group, seconds=np.where(fails, np.nan, group.seconds)), fails

    ranker = GbdtActionRanker(**SMALL, rounds=60)
    ranker.fit([broken(group)[0] for group in training_groups(48)])
    group, fails = broken(nest_group((128, 128, 128), 200, seed=4))
    scores = score_group(ranker, group)
    assert np.median(scores[fails]) < np.quantile(scores[~fails], 0.3)


def test_programs_of_others_need_the_ranker_of_actions():
    foreign = replace(
        nest_group((64, 64, 64), 4),
        programs=[Program(actions=[Action("SP", (i, 2))]) for i in range(4)],
        seconds=np.array([1.0, 2.0, 3.0, np.nan]),
        machine=None,
    )
    with pytest.raises(BadInputError, match=r"4 of 4 have actions only.*gbdt_actions"):
        GbdtRanker().fit([foreign])
    ranker = GbdtActionRanker(rounds=5)
    ranker.fit([foreign])
    assert np.isfinite(score_group(ranker, foreign)).all()


def test_real_programs_are_read_once_and_kept_in_a_folder(tmp_path, monkeypatch):
    asked = []

    def extract(candidates):
        asked.extend(candidate.key for candidate in candidates)
        return extract_per_store(candidates, threads=1)

    monkeypatch.setattr(cache, "extract_per_store", extract)
    drawn = space("matmul").sample(np.random.default_rng(0), 16)
    group = replace(
        nest_group((64, 64, 64), 16),
        programs=[Program(candidate=candidate) for candidate in drawn],
        seconds=np.array([1e-5 * sum(map(float, c.decisions[0])) for c in drawn]),
        machine=space("matmul").hardware,
    )
    for _ in range(2):
        ranker = GbdtRanker(**SMALL, rounds=20, cache=tmp_path / "rows")
        ranker.fit([group])
        scores = score_group(ranker, group)
    assert len(asked) == len(set(asked)) == 16
    assert pair_accuracy(scores, group.seconds) > 0.65


def test_formulas_give_the_scores_of_programs(monkeypatch):
    pytest.importorskip("torch")
    drawn = space("matmul").sample(np.random.default_rng(0), 16)
    group = replace(
        nest_group((64, 64, 64), 16),
        programs=[Program(candidate=candidate) for candidate in drawn],
        seconds=np.array([1e-5 * sum(map(float, c.decisions[0])) for c in drawn]),
        machine=space("matmul").hardware,
    )
    ranker = GbdtRanker(**SMALL, rounds=5)
    ranker.fit([group])
    expected = score_group(ranker, group)
    made = []
    monkeypatch.setattr(cache, "extract_per_store", made.append)
    ranker.store_source = "formulas"
    np.testing.assert_allclose(score_group(ranker, group), expected, rtol=1e-5, atol=1e-5)
    assert made == []
    with pytest.raises(BadInputError, match="formulas"):
        GbdtRanker(source="guesses")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dept": 3}, r"no option 'dept'.*depth"),
        ({"rounds": 0}, "`rounds >= 1` must hold, but got rounds=0"),
        ({"subsample": 1.5}, "`0 < subsample <= 1` must hold, but got subsample=1.5"),
        ({"top": -1}, "`0 <= top <= 1` must hold"),
        ({"disturbed": 2}, "`0 <= disturbed <= 1` must hold"),
        ({"sharpness": 0}, "`sharpness > 0` must hold"),
        ({"min_child_weight": -1}, "`min_child_weight >= 0` must hold"),
        ({"learning_rate": 0}, "`learning_rate > 0` must hold"),
        ({"bins": 1}, "`bins >= 2` must hold"),
        ({"objective": "luck"}, r"unknown objective of gbdt 'luck'.*lambda, list, ndcg"),
        ({"features": "actions"}, r"unknown features of gbdt.* 'actions'.*both, store"),
    ],
)
def test_unknown_and_impossible_options_are_refused(options, message):
    with pytest.raises(BadInputError, match=message):
        GbdtVariants(**options)


class TestFile:
    def test_other_features_are_refused(self, tmp_path):
        ranker = nest(rounds=3)
        ranker.fit(training_groups(8))
        ranker.save(tmp_path / "m.npz")
        with pytest.raises(VersionMismatchError, match="versions must be"):
            GbdtRanker.load(tmp_path / "m.npz")

    def test_another_ranker_s_file_is_refused(self, tmp_path):
        GbdtActionRanker().save(tmp_path / "m.npz")
        with pytest.raises(RecordError, match="the ranker 'gbdt', but holds 'gbdt_actions'"):
            GbdtRanker.load(tmp_path / "m.npz")

    def test_configuration_and_seed_are_kept(self, tmp_path):
        nest(rounds=3, depth=2, seed=9).save(tmp_path / "m.npz")
        read = GbdtRanker.load(tmp_path / "m.npz", extract=nest_features, feature_version="nest")
        assert (read.config.depth, read.seed, read.features) == (2, 9, "both")

    def test_other_hardware_features_are_refused(self, tmp_path, monkeypatch):
        GbdtActionRanker().save(tmp_path / "m.npz")
        monkeypatch.setattr("foretune.cost._table_ranker.HARDWARE_VERSION", "another")
        with pytest.raises(VersionMismatchError, match="versions must be"):
            GbdtActionRanker.load(tmp_path / "m.npz")

    def test_an_older_file_with_an_option_that_is_gone_is_of_another_version(self, tmp_path):
        GbdtActionRanker().save(tmp_path / "m.npz")
        meta, arrays = read_model(tmp_path / "m.npz")
        meta["config"]["gone"] = 1
        meta["versions"].pop("hardware")
        write_model(tmp_path / "m.npz", "gbdt_actions", meta, arrays)
        with pytest.raises(VersionMismatchError, match="versions must be"):
            GbdtActionRanker.load(tmp_path / "m.npz")

    def test_threads_may_be_others_than_in_training(self, tmp_path):
        ranker = nest(rounds=3, threads=3)
        ranker.fit(training_groups(8))
        ranker.save(tmp_path / "m.npz")
        parts = {"extract": nest_features, "feature_version": "nest"}
        assert GbdtRanker.load(tmp_path / "m.npz", **parts).config.threads == 3
        read = GbdtRanker.load(tmp_path / "m.npz", **parts, threads=1)
        assert read.config.threads == 1
        scores = [score_group(r, unseen_groups(8)[0]) for r in (ranker, read)]
        assert np.allclose(*scores, equal_nan=True)

    def test_what_scores_do_not_depend_on_is_not_in_it(self, tmp_path):
        ranker = nest(rounds=20)
        ranker.fit(training_groups(8))
        ranker.save(tmp_path / "m.npz")
        read = GbdtRanker.load(tmp_path / "m.npz", extract=nest_features, feature_version="nest")
        for group in unseen_groups(8):
            np.testing.assert_array_equal(score_group(read, group), score_group(ranker, group))
        _, arrays = read_model(tmp_path / "m.npz")
        for i, member in enumerate(ranker._members):
            whole, kept = bytes(member.booster.save_raw("ubj")), arrays[f"booster{i}"].tobytes()
            assert len(zlib.compress(kept)) < 0.8 * len(zlib.compress(whole))
