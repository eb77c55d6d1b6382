"""Gradient boosting: what it learns, keeps, refuses and reads back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from foretune import cost
from foretune.cost import gbdt
from foretune.cost._prior import RulePrior
from foretune.cost.gbdt import GbdtConfig, GradientBoosting, program_vector
from foretune.errors import BadInputError
from foretune.features.actions import SUMMARY_COLUMNS
from foretune.measure import Measurement, Status
from foretune.testing import SyntheticSpace, cost_models, synthetic_features, synthetic_trial

SPACE = SyntheticSpace(seed=5)


def make(seed=0, extract=synthetic_features, **options):
    return GradientBoosting(rng=np.random.default_rng(seed), extract=extract, **options)


def records(n, seed=0, space=SPACE):
    return cost_models.measured(space, n, seed)


def some(n=32, seed=50):
    return SPACE.sample(np.random.default_rng(seed), n)


class Counting:
    """An extractor that counts what it was asked for."""

    def __init__(self):
        self.asked = []

    def __call__(self, candidates):
        self.asked += [c.key for c in candidates]
        return synthetic_features(candidates)


def test_ready_needs_different_times_of_one_workload():
    model = make()
    model.fit(records(7))
    assert not model.abilities.ready
    model.update(records(7, seed=1))
    assert model.abilities.ready
    same = Measurement(Status.OK, (1e-3,), (True,))
    model.fit([synthetic_trial(c, same) for c in some(20)])
    assert not model.abilities.ready


def test_failures_do_not_make_it_ready_and_rank_last():
    # Candidates whose first choice is 0 fail; the model is to learn that they are no use.
    failed = Measurement(Status.CRASH, message="segmentation fault")
    learned = [
        replace(r, measurement=failed) if r.candidate.decisions[3] == 0 else r for r in records(160)
    ]
    model = make()
    model.fit([r for r in learned if not r.measurement.ok])
    assert not model.abilities.ready
    model.fit(learned)
    candidates = some(200)
    score = model.predict(candidates).score
    bad = np.array([c.decisions[3] == 0 for c in candidates])
    assert np.median(score[bad]) < np.quantile(score[~bad], 0.2)


def test_a_wrong_output_is_a_failure_however_fast():
    wrong = Measurement(Status.WRONG_OUTPUT, (1e-9,), (True,), message="max error 3")
    base = records(40)
    model, without = make(), make()
    model.fit([*base, synthetic_trial(SPACE.optimum, wrong)])
    without.fit([*base, synthetic_trial(SPACE.optimum, replace(wrong, seconds=(), quiet=()))])
    assert np.allclose(model.predict(some()).score, without.predict(some()).score)


def test_cut_short_readings_are_learned_from():
    model = make()
    cut = [
        replace(r, measurement=replace(r.measurement, status=Status.CUT_SHORT)) for r in records(40)
    ]
    model.fit(cut)
    assert model.abilities.ready


def test_illegal_candidates_score_nan_before_and_after_training():
    space = SyntheticSpace(seed=1, illegal=0.5)
    candidates = space.sample(np.random.default_rng(0), 30)
    illegal = np.array([not c.legal for c in candidates])
    model = make()
    for _ in range(2):
        assert (np.isnan(model.predict(candidates).score) == illegal).all()
        model.fit(records(40, space=space))


def test_spread_comes_from_the_ensemble():
    alone, three = make(boosters=1), make(boosters=3)
    for model in (alone, three):
        model.fit(records(40))
    assert (alone.predict(some()).spread == 0).all()
    assert (three.predict(some()).spread > 0).any()


def test_a_second_measurement_replaces_the_first():
    model, once = make(), make()
    slow = [replace(r, measurement=replace(r.measurement, seconds=(9.0,))) for r in records(30)]
    model.fit(slow)
    model.update(records(30))
    once.fit(records(30))
    assert np.allclose(model.predict(some()).score, once.predict(some()).score)


def test_features_are_extracted_once_per_candidate():
    extract = Counting()
    model = make(extract=extract)
    candidates = some(12)
    model.predict(candidates)
    model.fit([r for r in records(10)])
    model.predict(candidates)
    assert len(extract.asked) == len(set(extract.asked))


def test_the_feature_cache_is_bounded():
    extract = Counting()
    model = make(extract=extract, cache=8)
    for _ in range(2):
        for candidate in some(12):
            model.predict([candidate])
    assert len(extract.asked) == 2 * len({c.key for c in some(12)})


def test_many_workloads_are_thinned_to_the_limit(monkeypatch):
    monkeypatch.setattr(GbdtConfig, "max_rows", 40)
    spaces = [SyntheticSpace(seed=seed) for seed in range(4)]
    model = make()
    model.fit([r for i, space in enumerate(spaces) for r in records(40, i, space)])
    assert np.isfinite(model.predict(some()).score).all()


@pytest.mark.parametrize(
    ("counts", "rows", "most"),
    [
        ([30, 30], 100, 30),  # nothing is thinned
        ([30, 3000, 3000], 2030, 1000),  # the small one is left whole
        ([30, 3000], 40, 20),
        ([5, 5, 5], 3, 2),
    ],
)
def test_large_groups_are_thinned_first(counts, rows, most):
    assert gbdt._most_of_each(counts, rows) == most


def test_unknown_and_impossible_options_are_refused():
    with pytest.raises(BadInputError, match=r"no option 'round'.*rounds"):
        make(round=3)
    with pytest.raises(BadInputError, match="'depth': it is one of the package"):
        make(depth=3)
    with pytest.raises(BadInputError, match=r"`rounds >= 1` must hold, but got rounds=0"):
        make(rounds=0)


def test_program_vector_of_several_stores():
    rows = np.array([[1.0, 2.0], [5.0, 1.0]], dtype=np.float32)
    assert program_vector(rows).tolist() == [5, 1, 6, 3, 5, 2, 2]
    assert program_vector(rows[:0]).tolist() == [0] * 7


def test_the_heaviest_store_is_the_one_with_most_operations():
    rows = np.zeros((3, 12), dtype=np.float32)
    rows[0, 7:] = 30  # much else, but no operation
    rows[1, 0], rows[1, 2] = 19, 19
    rows[2, 0] = 20.5
    assert program_vector(rows)[:12].tolist() == rows[2].tolist()
    # Flags and sizes that another candidate of the workload has do not change which it is.
    rows[1, 7:] = 60
    assert program_vector(rows)[:12].tolist() == rows[2].tolist()


def test_the_first_of_equally_heavy_stores_counts():
    rows = np.zeros((2, 9), dtype=np.float32)
    rows[1, 8] = 5
    assert program_vector(rows)[:9].tolist() == [0] * 9


def test_named_model_reads_real_programs(hardware):
    te = pytest.importorskip("tvm.te")
    from foretune.space import Space
    from foretune.workload import Workload

    a, b = (te.placeholder((64, 64), name=name) for name in "AB")
    k = te.reduce_axis((0, 64), name="k")
    c = te.compute((64, 64), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    space = Space.generate(Workload.from_module(te.create_prim_func([a, b, c]), "matmul"), hardware)
    candidates = space.sample(np.random.default_rng(0), 12)
    # As if every further iteration of the innermost loops cost time.
    measured = [
        Measurement(Status.OK, (1e-5 * sum(map(float, c.decisions[0])),), (True,))
        for c in candidates
    ]
    model = cost.create("gbdt", rng=0, hardware=hardware)
    model.fit([synthetic_trial(c, m) for c, m in zip(candidates, measured, strict=True)])
    assert model.abilities.ready
    score = model.predict(candidates).score
    assert np.isfinite(score).all() and len(np.unique(score)) > 1


class TestPrior:
    """Any prior may stand where ``machine_fit`` does."""

    def knows(self, candidates):
        return -np.log2(np.array([c.seconds for c in candidates], dtype=np.float64))

    def test_it_is_the_score_before_measurements(self):
        score = make(prior=RulePrior(self.knows)).predict(some()).score
        assert np.allclose(score, self.knows(some()))

    def test_trees_start_from_it(self):
        with_it, without = make(prior=RulePrior(self.knows)), make()
        for model in (with_it, without):
            model.fit(records(24))
        candidates = some(100)
        quality = [
            cost_models.pair_accuracy(model.predict(candidates), candidates)
            for model in (with_it, without)
        ]
        assert quality[0] > quality[1]

    def test_trust_holds_the_trees_back_while_measurements_are_few(self):
        spreads = []
        for trust in (0.0, 16.0, 1e9):
            model = make(trust=trust)
            model.fit(records(16))
            spreads.append(model.predict(some()).spread.mean())
        assert spreads[1] == pytest.approx(spreads[0] / 2)
        assert spreads[2] == pytest.approx(0, abs=1e-6)

    @pytest.mark.parametrize("name", ["prior_strength", "trust"])
    def test_negative_weights_are_refused(self, name):
        with pytest.raises(BadInputError, match=f"`{name} >= 0` must hold, but got {name}=-1"):
            make(**{name: -1})

    def test_rows_may_be_aggregated_otherwise(self):
        model = make(aggregate=lambda rows: rows[0])
        model.fit(records(30))
        rows = synthetic_features(some(1))[0]
        summary = len(SUMMARY_COLUMNS)
        assert len(model._vectors(some(1))[0]) == rows.shape[1] + summary
