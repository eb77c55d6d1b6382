"""What a history tells follows from the records, not from when or how often they came."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from foretune.measure import Status
from foretune.records import CONFIRM, UNTUNED, History, Record, spent_trials
from tests.records.support import record
from tests.records.test_standings import records_of_one_task


def _told(history: History) -> object:
    standings = history.standings
    return (
        history.trials,
        history.tried_since_comparison,
        [history.was_tried(key) for key in "abcd"],
        [history.was_measured_here(key) for key in "abcd"],
        [r.identity for r in history.nearest(2, 1.5, without="d")],
        [r.identity for r in standings.ranked()],
        None if standings.leader is None else standings.leader.identity,
    )


def _history(*groups: list[Record], here: bool = False) -> History:
    history = History(comparable=(lambda r: r.time >= 2) if here else None)
    for group in groups:
        history.add(group)
    return history


@settings(deadline=None)
@given(records_of_one_task(), st.booleans(), st.randoms(use_true_random=False))
def test_any_order_of_arrival_gives_the_same_history(
    records: list[Record], here: bool, rng: random.Random
) -> None:
    """In one piece, one by one, or in groups that repeat what came before."""
    expected = _told(_history(records, here=here))
    shuffled = [*records, *rng.choices(records, k=3)]
    rng.shuffle(shuffled)
    cut = rng.randrange(len(shuffled) + 1)
    assert _told(_history(shuffled, here=here)) == expected
    assert _told(_history(*([each] for each in shuffled), here=here)) == expected
    assert _told(_history(shuffled[:cut], shuffled, shuffled[cut:], here=here)) == expected


@settings(deadline=None)
@given(records_of_one_task())
def test_trials_are_counted_alike_with_and_without_a_history(records: list[Record]) -> None:
    history = _history(records)
    assert len(history.trials) == spent_trials(records)
    assert [trial.index for trial in history.trials] == list(range(len(history.trials)))


@settings(deadline=None)
@given(records_of_one_task(), st.randoms(use_true_random=False))
def test_a_record_is_new_once(records: list[Record], rng: random.Random) -> None:
    """However it comes: from this run, from a resumed one, or from another tuner."""
    history = History()
    new = [each for _ in range(3) for each in history.add(rng.sample(records, len(records)))]
    assert sorted(map(str, new)) == sorted(map(str, {r.identity: r for r in records}.values()))
    assert history.unknown(records) == []


def test_what_two_tuners_tried_is_one_trial_and_the_first_counts() -> None:
    mine = replace(record(candidate="a", best_s=2e-3, origin="evolutionary"), time=2.0)
    theirs = replace(record(candidate="a", best_s=1e-3, origin="random"), time=1.0)
    history = _history([mine], [theirs])
    (trial,) = history.trials
    assert (trial.origin, trial.best_s) == ("random", 1e-3)


def test_late_records_find_their_place_in_the_curve() -> None:
    found = [replace(record(at, best_s=1e-3 * (4 - at)), time=float(at)) for at in range(4)]
    late = _history(found[2:], found[:2])
    assert [trial.best_s for trial in late.trials] == [4e-3, 3e-3, 2e-3, 1e-3]


def test_what_changes_what_compares_is_counted_anew() -> None:
    old = record(0, candidate="a", status=Status.OK, origin=UNTUNED)
    compared = record(1, candidate="a", origin=CONFIRM)
    here = True
    history = History(comparable=lambda _: here)
    history.add([old, compared])
    assert history.was_measured_here("a") and history.standings.compared_at is not None
    here = False
    history.recount()
    assert not history.was_measured_here("a") and history.standings.compared_at is None
