"""Priors: how far a run believes them, and what they remember."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from foretune.cost._prior import Measured, RankerPrior, RulePrior, Weighed
from foretune.measure import Measurement, Status
from foretune.testing.rankers import nest_space
from tests.cost.test_pretrained import Expert, levels, nests, records


def measured(slope: float, n: int = 60) -> Measured:
    """Programs of which a prior knew minus log2 of their seconds, but for a factor."""
    rng = np.random.default_rng(0)
    opinions = rng.normal(size=n)
    keys = [str(i) for i in range(n)]
    seconds = (1e-3 * 2.0 ** (-slope * opinions)).tolist()
    return Measured(
        "w", dict(zip(keys, seconds, strict=True)), dict(zip(keys, opinions, strict=True))
    )


def test_it_is_believed_without_measurements() -> None:
    assert Measured("w").slope(8.0) == 1.0 and Measured("w").timed() == 0


@pytest.mark.parametrize("true", [0.0, 0.5, 1.5])
def test_measurements_move_how_far(true: float) -> None:
    assert abs(measured(true).slope(8.0) - true) < 0.25
    assert abs(measured(true).slope(1e9) - 1.0) < 1e-6, "a strong belief holds"


def test_what_misleads_is_dropped_and_never_inverted() -> None:
    assert measured(-1.0).slope(8.0) == 0.0


def test_failures_stand_below_the_slowest_and_have_no_time() -> None:
    candidates = nests(4)
    kept = Measured(candidates[0].workload.key)
    for at, each in enumerate(records(candidates)):
        failed = Measurement(Status.CRASH, message="segmentation fault")
        kept.add(each if at else _with(each, failed), 0.0)
    level = kept.levels()
    assert level[0] == level[1:].min() - 1.0 and kept.timed() == 3
    _, seconds = kept.table()
    assert np.isnan(seconds).tolist() == [True, False, False, False]


def _with(record: Any, measurement: Measurement) -> Any:
    from dataclasses import replace

    return replace(record, measurement=measurement)


def test_a_ranker_is_asked_once_about_each_of_so_many() -> None:
    expert = Expert()
    prior, some = RankerPrior(expert, remembered=8), nests(24)
    said = prior.alone(some)
    prior.alone(some[-8:])
    assert expert.scored == 24
    np.testing.assert_array_equal(prior.alone(some), said)
    assert expert.scored == 40, "the earliest of them are forgotten"
    again = RankerPrior(expert)
    again.alone(some)
    again.alone(some)
    assert expert.scored == 88, "nothing is to be remembered"


def test_what_is_illegal_to_a_ranker_counts_for_nothing() -> None:
    class Unsure(Expert):
        def score(self, programs: Any, machine: Any, hardware: str = "") -> Any:
            return np.full(len(programs), np.nan)

    prior = RankerPrior(Unsure())
    assert np.isnan(prior.alone(nests(4))).all() and not prior.opinions(nests(4)).any()


def test_workloads_are_weighed_apart() -> None:
    known = Weighed(RankerPrior(Expert(factor=-1.0)))
    some, others = nests(48), nests(12, shape=(64, 64, 64))
    known.learn(records(some))
    scores = known.scores([*some, *others])
    np.testing.assert_allclose(scores[:48], 0, atol=1e-9)
    np.testing.assert_allclose(scores[48:], -levels(others))
    assert [len(each.seconds) for each in known.measured] == [48]
    known.forget()
    np.testing.assert_allclose(known.scores(some), -levels(some))


def test_a_rule_knows_no_other_workloads() -> None:
    rule = RulePrior(lambda candidates: np.arange(len(candidates), dtype=np.float64))
    assert not rule.informed and RankerPrior(Expert()).informed
    drawn = nest_space((128, 128, 128)).sample(np.random.default_rng(0), 3)
    assert Weighed(rule).scores(drawn).tolist() == [0.0, 1.0, 2.0]
    assert Weighed(rule).scores([]).shape == (0,)
