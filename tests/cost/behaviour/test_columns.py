"""What the regressor reads, by hand."""

import numpy as np

from foretune.cost.behaviour.columns import NAMES, PROGRAM_NAMES, columns, factor_columns
from foretune.describe import METRICS, Behaviours
from foretune.hardware import FACTORS
from tests.cost.behaviour.behaviour_support import DEVICES, behaviours, nests, tiny_nests


def test_limits_are_shares_and_seconds_are_told_beside_what_must_be_moved():
    scores = np.full((2, len(METRICS)), 0.5)
    limits = {"memory": np.array([8.0, 4.0]), "arithmetic": np.array([1.0, 2.0])}
    limits["overhead"] = np.zeros(2)
    # Three arrays of 1024 x 8 floats at 25 GB/s.
    programs = tiny_nests([[1024, 8], [1024, 8]])
    least = 3 * 1024 * 8 * 4 / 25e9
    found = Behaviours(DEVICES[0], scores, limits, least * np.array([8.0, 4.0]), {})
    limits.update({name: least * value for name, value in limits.items()})
    read = dict(zip(NAMES, columns(found, programs).T, strict=True))
    np.testing.assert_allclose(read["limit.memory"], [0, 0], atol=1e-9)
    np.testing.assert_allclose(read["limit.arithmetic"], [-3, -1])
    np.testing.assert_allclose(read["log2_seconds"], [3, 2])
    assert (read["limit.overhead"] == -10).all()
    assert np.isnan(read["limit.l3"]).all() and np.isnan(read["device.cores"]).all()
    assert np.isnan(read["memory.mean"]).all()


def test_a_programs_columns_do_not_depend_on_the_others():
    found = behaviours(1, DEVICES[0])
    alone = Behaviours(
        found.device,
        found.scores[5:6],
        {name: s[5:6] for name, s in found.limits_s.items()},
        found.seconds[5:6],
        {},
    )
    np.testing.assert_array_equal(columns(found, nests(1))[5], columns(alone, nests(1, 1))[0])


def test_factors_are_logarithms_and_of_one_kind():
    read = dict(zip((f.name for f in FACTORS), factor_columns(DEVICES[1]), strict=True))
    assert read["cores"] == 3 and read["simd_fp32_lanes"] == 3
    assert read["l3_kib"] == -1, "no third cache"
    assert np.isnan(read["warp"])
    table = columns(behaviours(0, DEVICES[1]), nests(0), device=DEVICES[1])
    np.testing.assert_array_equal(table[9, len(PROGRAM_NAMES) :], factor_columns(DEVICES[1]))


def test_scores_without_seconds_leave_the_rest_unknown():
    scores = np.full((3, len(METRICS)), 0.5)
    table = columns(Behaviours(DEVICES[0], scores, {}, np.full(3, np.nan), {}), nests(0, 3))
    assert (table[:, : len(METRICS)] == 0.5).all()
    assert np.isnan(table[:, len(METRICS) :]).all()
