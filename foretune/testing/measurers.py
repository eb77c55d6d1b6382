"""The contract of a measurer, as checks over its factory and candidates it can measure.

A factory is called without arguments and returns a fresh ``Measurer``. ``candidates`` are at least
three distinct candidates that the measurer can measure or fail on.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

from foretune.measure import Measurement, Measurer

MeasurerFactory = Callable[[], Measurer]


def check_each_once(factory: MeasurerFactory, candidates: Sequence[Any]) -> None:
    """``measure`` yields every candidate exactly once."""
    with factory() as measurer:
        yielded = [c.key for c, _ in measurer.measure(candidates)]
    assert sorted(yielded) == sorted(c.key for c in candidates), "not every candidate came once"


def check_empty(factory: MeasurerFactory, candidates: Sequence[Any]) -> None:
    """No candidates give no measurements."""
    with factory() as measurer:
        assert list(measurer.measure([])) == []
        assert measurer.compare([]) == []


def check_consistent(factory: MeasurerFactory, candidates: Sequence[Any]) -> None:
    """Readings are finite, positive, each with its quiet flag; failures say why and have none."""
    with factory() as measurer:
        for _, measurement in measurer.measure(candidates, {}):
            _consistent(measurement)


def check_round_trip(factory: MeasurerFactory, candidates: Sequence[Any]) -> None:
    """Measurements and the environment survive JSON."""
    with factory() as measurer:
        json.dumps(measurer.environment(), allow_nan=False)
        for _, measurement in measurer.measure(candidates):
            text = json.dumps(measurement.to_json(), allow_nan=False)
            assert Measurement.from_json(json.loads(text)) == measurement


def check_compare(factory: MeasurerFactory, candidates: Sequence[Any]) -> None:
    """``compare`` gives one measurement per candidate; a repeated candidate gets its own."""
    with factory() as measurer:
        pair = [candidates[0], candidates[1], candidates[0]]
        measurements = measurer.compare(pair)
        assert len(measurements) == len(pair)
        for measurement in measurements:
            _consistent(measurement)
        assert measurements[0].ok == measurements[2].ok, "one candidate both ran and failed"


def check_reuse(factory: MeasurerFactory, candidates: Sequence[Any]) -> None:
    """A measurer measures again after a batch, and after a batch that was abandoned half-way."""
    with factory() as measurer:
        abandoned = measurer.measure(candidates)
        next(abandoned)
        close = getattr(abandoned, "close", None)
        if close is not None:
            close()
        assert len(list(measurer.measure(candidates[:2]))) == 2
        assert len(list(measurer.measure(candidates[:1]))) == 1


def check_close_twice(factory: MeasurerFactory, candidates: Sequence[Any]) -> None:
    """``close`` may be called twice, and before anything was measured."""
    measurer = factory()
    measurer.close()
    measurer.close()
    with factory() as used:
        list(used.measure(candidates[:1]))
        used.close()


def _consistent(measurement: Measurement) -> None:
    assert len(measurement.seconds) == len(measurement.quiet), "one quiet flag per reading"
    assert all(math.isfinite(s) and s > 0 for s in measurement.seconds), "readings are positive"
    assert measurement.build_s >= 0 and measurement.run_s >= 0
    if measurement.ran:
        assert measurement.seconds, f"status {measurement.status.value} must have a reading"
    else:
        assert not measurement.ok and measurement.message, "a failure must say why"


CHECKS: tuple[Callable[[MeasurerFactory, Sequence[Any]], None], ...] = (
    check_each_once,
    check_empty,
    check_consistent,
    check_round_trip,
    check_compare,
    check_reuse,
    check_close_twice,
)


def check_measurer(factory: MeasurerFactory, candidates: Sequence[Any]) -> None:
    """Runs every check of the suite. Raises AssertionError at the first promise broken."""
    if len({c.key for c in candidates}) < 3:
        raise ValueError("the suite needs at least three distinct candidates")
    for check in CHECKS:
        check(factory, candidates)
