"""The suites catch what they are for: each broken part fails the check named beside it."""

from __future__ import annotations

import numpy as np
import pytest

from foretune.cost import Prediction
from foretune.cost.random import RandomModel
from foretune.measure import Measurement, Status
from foretune.records import Journal
from foretune.search.random import RandomSearch
from foretune.testing import (
    SyntheticMeasurer,
    SyntheticSpace,
    check_measurer,
    check_store,
    cost_models,
    measurers,
    stores,
    strategies,
)


class Forgetful(RandomSearch):
    """Forgets what it proposed."""

    def ask(self, n):
        return self.space.sample(self.rng, n)


class Short(RandomSearch):
    """Proposes too few."""

    def ask(self, n):
        return super().ask(n)[: n // 2]


class Deaf(RandomSearch):
    """Does not listen to records."""

    def tell(self, records):
        pass


class Unseeded(RandomSearch):
    """Has randomness of its own."""

    def __init__(self, space, model, rng):
        super().__init__(space, model, np.random.default_rng())


class HashOrdered(RandomSearch):
    """Orders by Python's string hash, which differs between processes."""

    def ask(self, n):
        return sorted(super().ask(n), key=lambda c: hash(c.key))


class Careless(RandomSearch):
    """Proposes what cannot be applied."""

    def ask(self, n):
        return self.fresh.propose(self.fresh.unseen(n))


class Literal(RandomSearch):
    """Tells candidates apart by their decisions."""

    def ask(self, n):
        return self.fresh.propose([c for c in self.fresh.unseen(n) if self.fresh.is_legal(c)])


@pytest.mark.parametrize(
    ("factory", "check"),
    [
        (Forgetful, strategies.check_untold_not_repeated),
        (Forgetful, strategies.check_exhaustion),
        (Short, strategies.check_batch_size),
        (Deaf, strategies.check_told_not_proposed),
        (Deaf, strategies.check_program_once),
        (Literal, strategies.check_program_once),
        (Unseeded, strategies.check_same_seed),
        (HashOrdered, strategies.check_other_process),
        (Careless, strategies.check_illegal_candidates),
    ],
)
def test_broken_strategy_is_caught(factory, check):
    with pytest.raises(AssertionError):
        check(factory)


class WrongShape(RandomModel):
    """Scores one candidate too few."""

    def predict(self, candidates):
        return Prediction(
            np.zeros(max(0, len(candidates) - 1)), np.zeros(max(0, len(candidates) - 1))
        )


class BatchScaled(RandomModel):
    """Scales its scores by the batch at hand."""

    def predict(self, candidates):
        seconds = np.array([c.seconds for c in candidates])
        return Prediction(-seconds / seconds.max(initial=0.0), np.zeros(len(seconds)))


class Accumulating(RandomModel):
    """Never forgets."""

    count = 0

    def update(self, records):
        self.count += len(records)

    def fit(self, records):
        self.update(records)

    def predict(self, candidates):
        return Prediction(np.full(len(candidates), float(self.count)), np.zeros(len(candidates)))


@pytest.mark.parametrize(
    ("factory", "check"),
    [
        (WrongShape, cost_models.check_unfitted),
        (BatchScaled, cost_models.check_batch_independence),
        (Accumulating, cost_models.check_fit_forgets),
        (RandomModel, cost_models.check_learns),
    ],
)
def test_broken_model_is_caught(factory, check):
    with pytest.raises(AssertionError):
        check(factory)


class Losing(SyntheticMeasurer):
    """Drops failures."""

    def measure(self, candidates, best_s=None):
        return ((c, m) for c, m in super().measure(candidates, best_s) if m.ok)


class MagicNumber(SyntheticMeasurer):
    """Reports failures as an infinite time."""

    def _read(self, candidate):
        if candidate.fails:
            return Measurement(Status.OK, (float("inf"),), (True,))
        return super()._read(candidate)


class Silent(SyntheticMeasurer):
    """Does not say why."""

    def _read(self, candidate):
        if candidate.fails:
            return Measurement(Status.CRASH)
        return super()._read(candidate)


@pytest.mark.parametrize(
    ("factory", "check"),
    [
        (Losing, measurers.check_each_once),
        (MagicNumber, measurers.check_consistent),
        (Silent, measurers.check_consistent),
    ],
)
def test_broken_measurer_is_caught(factory, check):
    candidates = SyntheticSpace(failing=0.5).sample(np.random.default_rng(0), 8)
    with pytest.raises(AssertionError):
        check(factory, candidates)


def test_the_measurer_suite_wants_enough_candidates():
    with pytest.raises(ValueError, match="at least three"):
        check_measurer(SyntheticMeasurer, [SyntheticSpace().optimum] * 5)


class Overwriting(Journal):
    """Starts anew each time."""

    def __init__(self, path):
        path.unlink(missing_ok=True)
        super().__init__(path)


class HalfWriting(Journal):
    """Writes entries one by one."""

    def write(self, entries):
        for entry in entries:
            super().write([entry])


class Stale(Journal):
    """Never looks at what others wrote."""

    def refresh(self):
        return 0


class Lenient(Journal):
    """Takes records after its end, and loses them."""

    def write(self, entries):
        if self._fd is not None:
            super().write(entries)


class Unfiltered(Journal):
    """Gives failures where only what worked was asked for."""

    def records(self, workload=None, hardware=None, ok_only=False):
        return super().records(workload, hardware)


@pytest.mark.parametrize(
    ("kind", "check"),
    [
        (Overwriting, stores.check_written_is_read),
        (HalfWriting, stores.check_all_or_nothing),
        (Stale, stores.check_others_are_seen),
        (Lenient, stores.check_close),
        (Unfiltered, stores.check_filters),
    ],
)
def test_broken_store_is_caught(kind, check, tmp_path):
    with pytest.raises(AssertionError):
        check(lambda: kind(tmp_path / "journal.jsonl"))


def test_the_store_suite_runs_on_an_empty_place_each_time(tmp_path):
    places = iter(range(100))

    def make():
        path = tmp_path / f"{next(places)}.jsonl"
        return lambda: Journal(path)

    check_store(make)
