"""What the regressor reads, by hand."""

import numpy as np

from foretune.cost.behaviour.columns import NAMES, PROGRAM_NAMES, columns, factor_columns
from foretune.describe import METRICS, Behaviours
from foretune.hardware import FACTORS
from tests.cost.behaviour.behaviour_support import DEVICES, ROOF, behaviours


def test_limits_and_seconds_are_told_beside_the_roof():
    scores = np.full((2, len(METRICS)), 0.5)
    scores[:, ROOF] = [0.25, 0.5]
    limits = {"memory": np.array([8.0, 4.0]), "arithmetic": np.array([1.0, 2.0])}
    table = columns(Behaviours(DEVICES[0], scores, limits, np.array([8.0, 4.0]), {}))
    read = dict(zip(NAMES, table.T, strict=True))
    # The roof is 2 s for both.
    assert read["limit.memory"].tolist() == [2, 1]
    assert read["limit.arithmetic"].tolist() == [-1, 0]
    assert read["log2_seconds"].tolist() == [2, 1]
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
    np.testing.assert_array_equal(columns(found)[5], columns(alone)[0])


def test_factors_are_logarithms_and_of_one_kind():
    read = dict(zip((f.name for f in FACTORS), factor_columns(DEVICES[1]), strict=True))
    assert read["cores"] == 3 and read["simd_fp32_lanes"] == 3
    assert read["l3_kib"] == -1, "no third cache"
    assert np.isnan(read["warp"])
    table = columns(behaviours(0, DEVICES[1]), device=DEVICES[1])
    np.testing.assert_array_equal(table[9, len(PROGRAM_NAMES) :], factor_columns(DEVICES[1]))


def test_scores_without_seconds_leave_the_rest_unknown():
    scores = np.full((3, len(METRICS)), 0.5)
    table = columns(Behaviours(DEVICES[0], scores, {}, np.full(3, np.nan), {}))
    assert (table[:, : len(METRICS)] == 0.5).all()
    assert np.isnan(table[:, len(METRICS) :]).all()
