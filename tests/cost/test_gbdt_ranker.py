"""Trees trained on many workloads: objectives, stopping, thinning, options and files."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from foretune.cost import score_group
from foretune.cost.gbdt_ranker import GbdtActionRanker, GbdtRanker, _misordered, _Table
from foretune.dataset import Program
from foretune.errors import BadInputError, RecordError, VersionMismatchError
from foretune.features import cache, extract_per_store
from foretune.space import Action
from foretune.testing.rankers import (
    nest_features,
    nest_group,
    pair_accuracy,
    training_groups,
    unseen_groups,
)
from tests.space.programs import space


def nest(**options):
    options = {"rounds": 40, **options}
    return GbdtRanker(extract=nest_features, feature_version="nest", **options)


def accuracy(ranker):
    groups = unseen_groups(32)
    return np.mean([pair_accuracy(score_group(ranker, g), g.seconds) for g in groups])


@pytest.mark.parametrize("objective", ["lambda", "ndcg", "regression"])
def test_every_objective_learns(objective):
    ranker = GbdtActionRanker(objective=objective, rounds=60)
    ranker.fit(training_groups(32), unseen_groups(16)[:2])
    assert accuracy(ranker) > 0.62


def test_validation_groups_end_the_growing():
    ranker, through = (nest(rounds=400, patience=3) for _ in range(2))
    ranker.fit(training_groups(16), unseen_groups(16))
    through.fit(training_groups(16))
    assert ranker._boosters[0].num_boosted_rounds() < 400
    assert through._boosters[0].num_boosted_rounds() == 400


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
    one, three = nest(rounds=10), nest(rounds=10, boosters=3)
    for ranker in (one, three):
        ranker.fit(training_groups(16))
    group = unseen_groups(16)[0]
    assert len(three._boosters) == 3
    assert not np.allclose(score_group(one, group), score_group(three, group), equal_nan=True)


def test_too_much_data_is_thinned():
    ranker = nest(max_rows=60)
    ranker.fit(training_groups(32))
    scores = score_group(ranker, unseen_groups(16)[0])
    assert len(np.unique(scores[~np.isnan(scores)])) > 1


def test_disturbed_readings_are_left_out_where_others_are_left():
    groups = training_groups(24)
    rng = np.random.default_rng(0)
    noisy = []
    for group in groups:
        quiet = rng.random(len(group)) < 0.6
        seconds = np.where(quiet, group.seconds, group.seconds * rng.choice([0.2, 9], len(group)))
        noisy.append(replace(group, seconds=seconds, quiet=quiet))
    without, with_them = nest(), nest(disturbed=True)
    for ranker in (without, with_them):
        ranker.fit(noisy)
    assert accuracy(without) > accuracy(with_them)
    nothing_quiet = [replace(g, quiet=np.zeros(len(g), bool)) for g in groups]
    nest().fit(nothing_quiet)


def test_failed_programs_rank_last():
    """Programs whose innermost factor is 1 fail; the ranker is to learn that they are no use."""

    def broken(group):
        fails = np.array([p.candidate.decisions[1][3] == 1 for p in group.programs])
        return replace(group, seconds=np.where(fails, np.nan, group.seconds)), fails

    ranker = GbdtActionRanker(rounds=60)
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
        ranker = GbdtRanker(rounds=20, cache=tmp_path / "rows")
        ranker.fit([group])
        scores = score_group(ranker, group)
    assert len(asked) == len(set(asked)) == 16
    assert pair_accuracy(scores, group.seconds) > 0.65


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dept": 3}, r"no option 'dept'.*depth"),
        ({"rounds": 0}, "rounds >= 1 must hold, but got 0"),
        ({"subsample": 1.5}, "0 < subsample <= 1 must hold, but got 1.5"),
        ({"top": -1}, "0 <= top <= 1 must hold"),
        ({"learning_rate": 0}, "learning_rate > 0 must hold"),
        ({"bins": 1}, "bins >= 2 must hold"),
        ({"objective": "luck"}, r"unknown objective of gbdt 'luck'.*lambda, ndcg, regression"),
        ({"features": "actions"}, r"unknown features of gbdt 'actions'.*both, store"),
    ],
)
def test_unknown_and_impossible_options_are_refused(options, message):
    with pytest.raises(BadInputError, match=message):
        GbdtRanker(**options)


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
        nest(rounds=3, depth=2, seed=9, features="store").save(tmp_path / "m.npz")
        read = GbdtRanker.load(tmp_path / "m.npz", extract=nest_features, feature_version="nest")
        assert (read.config.depth, read.seed, read.features) == (2, 9, "store")


class TestTable:
    TABLE = _Table(np.zeros((5, 1), np.float32), np.array([4.0, 1.0, np.nan, 2.0, 16.0]))

    def test_labels_levels_and_relevance(self):
        assert self.TABLE.labels.tolist() == [0.25, 1.0, 0.0, 0.5, 0.0625]
        assert self.TABLE.levels.tolist() == [-2, 0, -5, -1, -4]
        assert self.TABLE.importance(0.5).tolist() == [0.625, 1, 0.5, 0.75, 0.53125]
        relevance = self.TABLE.relevance
        assert relevance[2] == 0 and relevance[1] > relevance[3] > relevance[0] >= relevance[4] > 0

    @pytest.mark.parametrize("n", [2, 130, 4000, 200_000])
    def test_relevance_stays_in_what_xgboost_takes(self, n):
        relevance = _Table(np.zeros((n, 1), np.float32), np.arange(1.0, n + 1)).relevance
        assert relevance.max() <= 31 and relevance.min() >= 1
        assert (np.diff(relevance) <= 0).all()
        assert (relevance == relevance.astype(int)).all()

    def test_misordered_is_the_share_of_the_wrong_weight(self):
        metric = _misordered([self.TABLE], 0.0, np.random.default_rng(0))
        assert metric(self.TABLE.levels, None)[1] == 0.0
        assert metric(-self.TABLE.levels, None)[1] == pytest.approx(1.0)
        assert metric(np.zeros(5), None)[1] == pytest.approx(0.5)
