"""Replaying records."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from foretune.errors import BadInputError, NothingMeasuredError
from foretune.hardware import Hardware
from foretune.measure import Measurement, Status
from foretune.records import CONFIRM, Record, ReplayMeasurer
from foretune.space import Candidate, Space
from tests.measure.programs import matmul


@pytest.fixture(scope="module")
def candidates(hardware: Hardware) -> list[Candidate]:
    space = Space.generate(matmul(48), hardware)
    return space.sample(np.random.default_rng(0), 4)


def _record(candidate: Candidate, measurement: Measurement, time: float = 0.0) -> Record:
    return Record(
        workload=candidate.workload.key,
        hardware=candidate.hardware.key,
        candidate_key=candidate.key,
        decisions=candidate.to_json(),
        measurement=measurement,
        time=time,
    )


def _ok(seconds: float) -> Measurement:
    return Measurement(Status.OK, seconds=(seconds,), quiet=(True,))


def test_measurements_come_back_in_the_order_asked(candidates: list[Candidate]) -> None:
    records = [_record(c, _ok(i + 1.0)) for i, c in enumerate(candidates)]
    with ReplayMeasurer(records) as measurer:
        order = candidates[::-1]
        assert [c for c, _ in measurer.measure(order)] == order
        assert [m.best_s for _, m in measurer.measure(order)] == [4.0, 3.0, 2.0, 1.0]
        assert [m.best_s for m in measurer.compare(order[:2])] == [4.0, 3.0]
        assert measurer.environment() == {"measurer": "replay"}


def test_the_earliest_record_that_worked_counts_in_any_order(candidates: list[Candidate]) -> None:
    first = candidates[0]
    failed = Measurement(Status.TIMEOUT, message="slow day")
    told = [failed, _ok(2.0), _ok(1.0)]
    records = [_record(first, m, time) for time, m in enumerate(told)]
    for order in itertools.permutations(records):
        ((_, found),) = ReplayMeasurer(order).measure([first])
        assert found.best_s == 2.0


def test_a_wrong_output_is_replayed_as_one(candidates: list[Candidate]) -> None:
    first = candidates[0]
    wrong = Measurement(Status.WRONG_OUTPUT, message="differs")
    records = [_record(first, _ok(1.0), 0.0), _record(first, wrong, 1.0)]
    for order in (records, records[::-1]):
        ((_, found),) = ReplayMeasurer(order).measure([first])
        assert found == wrong


def test_what_failed_beside_others_is_replayed_as_that(candidates: list[Candidate]) -> None:
    """What can never be best is no goal of a search in records."""
    first = candidates[0]
    crashed = _record(first, Measurement(Status.CRASH, message="signal 11"), 1.0)
    records = [_record(first, _ok(1.0), 0.0), replace(crashed, origin=CONFIRM)]
    for order in (records, records[::-1]):
        ((_, found),) = ReplayMeasurer(order).measure([first])
        assert found.status is Status.CRASH


def test_a_missing_record_is_an_error_unless_asked_otherwise(candidates: list[Candidate]) -> None:
    with pytest.raises(NothingMeasuredError, match=candidates[0].key):
        list(ReplayMeasurer([]).measure(candidates))
    results = [m for _, m in ReplayMeasurer([], missing="run_error").measure(candidates)]
    assert [m.status for m in results] == [Status.RUN_ERROR] * 4
    assert candidates[0].key in results[0].message


def test_an_unknown_choice_is_refused() -> None:
    with pytest.raises(BadInputError, match="missing='skip'"):
        ReplayMeasurer([], missing="skip")
