"""Groups as trees see them: labels, thinning, folds and the columns that help."""

from __future__ import annotations

import numpy as np
import pytest

from foretune.cost._tables import Table, folds, informative


def rng():
    return np.random.default_rng(0)


def table(seconds, matrix=None, workload="w", quiet=None):
    seconds = np.array(seconds, dtype=np.float64)
    n = len(seconds)
    matrix = np.zeros((n, 1)) if matrix is None else matrix
    quiet = np.ones(n, bool) if quiet is None else np.array(quiet)
    return Table(workload, np.asarray(matrix, np.float32), seconds, quiet)


TABLE = table([4.0, 1.0, np.nan, 2.0, 16.0], quiet=[True, False, False, True, True])


def test_labels_levels_and_relevance():
    assert TABLE.labels.tolist() == [0.25, 1.0, 0.0, 0.5, 0.0625]
    assert TABLE.levels.tolist() == [-2, 0, -5, -1, -4]
    assert TABLE.importance(0.5).tolist() == [0.625, 1, 0.5, 0.75, 0.53125]
    relevance = TABLE.relevance
    assert relevance[2] == 0 and relevance[1] > relevance[3] > relevance[0] >= relevance[4] > 0


def test_a_failure_is_certain_and_a_disturbed_reading_is_not():
    assert TABLE.trust(0.5).tolist() == [1, 0.5, 1, 1, 1]


@pytest.mark.parametrize("n", [2, 130, 4000, 200_000])
def test_relevance_stays_in_what_xgboost_takes(n):
    relevance = table(np.arange(1.0, n + 1)).relevance
    assert relevance.max() <= 31 and relevance.min() >= 1
    assert (np.diff(relevance) <= 0).all()
    assert (relevance == relevance.astype(int)).all()


@pytest.mark.parametrize(("share", "count"), [(0.5, 40), (0.01, 10), (1.0, 80)])
def test_thinning_keeps_the_fastest_eighth(share, count):
    seconds = rng().permutation(np.arange(1.0, 81))
    seconds[seconds > 75] = np.nan
    whole = table(seconds, seconds[:, None])
    thinned = whole.thinned(share, rng())
    assert len(thinned.seconds) == len(thinned.quiet) == count
    assert set(range(1, 11)) <= set(thinned.seconds)
    np.testing.assert_array_equal(thinned.matrix[:, 0], thinned.seconds)


def test_at_least_two_programs_stay():
    assert len(table([3.0, 1.0, 2.0]).thinned(1e-9, rng()).seconds) == 2


def test_columns_that_differ_within_workloads_are_informative():
    draw = rng()

    def matrix(at):
        own = draw.normal(size=(20, 1))
        # Constant, of the workload alone, within, mostly of the workload, and 0.1 in float32.
        parts = (np.ones((20, 1)), np.full((20, 1), 3.0 * at), own, 100.0 * at + own)
        return np.concatenate([*parts, np.full((20, 1), 0.1)], axis=1)

    tables = [table(np.arange(1.0, 21), matrix(at), str(at)) for at in range(6)]
    assert informative(tables).tolist() == [2]
    assert informative(tables, [1, 2]).tolist() == [1, 2]


def test_folds_never_cut_a_workload():
    tables = [table([1.0, 2.0], workload=name) for name in "abcdefgabcdefg"]
    fold = folds(tables, 5, rng())
    assert (fold[:7] == fold[7:]).all()
    assert set(fold) == set(range(5))
    assert max(np.bincount(fold[:7])) == 2
    assert set(folds(tables[:3], 5, rng())) == {0, 1, 2}
    assert folds(tables[:1], 5, rng()).tolist() == [0]
