"""Which candidate is best is a matter of the records, not of the order of their lines."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foretune.measure import Status
from foretune.records import (
    CONFIRM,
    DEFAULT,
    KNOWLEDGE,
    UNTUNED,
    Journal,
    Record,
    Standings,
    merge,
)
from tests.records.support import record

_STATUSES = [Status.OK, Status.OK, Status.OK, Status.CUT_SHORT, Status.TIMEOUT, Status.WRONG_OUTPUT]
_ORIGINS = ["random", UNTUNED, DEFAULT, CONFIRM, CONFIRM, "metaschedule"]


@st.composite
def records_of_one_task(draw: st.DrawFn) -> list[Record]:
    """Readings and comparisons of a few candidates, some at the same moment and of equal value."""
    found = []
    for _ in range(draw(st.integers(1, 14))):
        status = draw(st.sampled_from(_STATUSES))
        has_reading = status in (Status.OK, Status.CUT_SHORT)
        plain = record(
            candidate=draw(st.sampled_from("abcd")),
            status=status,
            best_s=draw(st.sampled_from([1e-3, 2e-3, 3e-3])) if has_reading else None,
            origin=draw(st.sampled_from(_ORIGINS)),
        )
        found.append(replace(plain, time=float(draw(st.integers(0, 5)))))
    return found


def _told(standings: Standings) -> object:
    best, leader = standings.best, standings.leader
    return (
        None if best is None else best.identity,
        None if leader is None else leader.identity,
        [r.identity for r in standings.ranked()],
        [r.identity for r in standings.last_comparison()],
        {key: standings.seconds(key) for key in "abcd"},
    )


@settings(deadline=None)
@given(records_of_one_task(), st.randoms(use_true_random=False))
def test_any_order_of_records_gives_the_same_standings(
    records: list[Record], rng: random.Random
) -> None:
    """Also where they are asked in between, and where a line stands twice."""
    expected = _told(Standings(records))
    shuffled = [*records, rng.choice(records)]
    rng.shuffle(shuffled)
    asked = Standings()
    for each in shuffled:
        asked.add(each)
        _ = asked.leader
    assert _told(asked) == expected


@settings(deadline=None)
@given(records_of_one_task())
def test_the_best_follows_the_rules(records: list[Record]) -> None:
    """The rules once more, written down as a search through all records."""
    out = {
        r.candidate_key
        for r in records
        if r.measurement.status is Status.WRONG_OUTPUT
        or (r.origin == CONFIRM and not r.measurement.ok)
    }
    last = max((r.time for r in records if r.origin == CONFIRM), default=math.nan)
    valid = [r for r in records if r.measurement.ok and r.candidate_key not in out]
    checked = [r for r in valid if r.origin not in KNOWLEDGE]
    compared = [r for r in valid if r.origin == CONFIRM and r.time == last]
    best = Standings(records).best
    if compared:
        assert best is not None
        assert best.time == last
        values = {
            key: [r.measurement.best_s for r in own]
            for key, own in itertools.groupby(
                sorted(compared, key=lambda r: r.candidate_key), lambda r: r.candidate_key
            )
        }
        assert best.measurement.best_s == min(min(map(float, own)) for own in values.values())  # type: ignore[arg-type]
    else:
        assert (best is None) == (not valid)
        assert best is None or best in (checked or valid), "what others measured comes last"
    leader = Standings(records).leader
    assert (leader is None) == (not checked)
    assert leader is None or leader in checked
    assert best is None or best.candidate_key not in out


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(records_of_one_task(), st.integers(0, 14))
def test_journals_merged_in_any_order_have_one_best(
    tmp_path: Path, records: list[Record], cut: int
) -> None:
    def best_of(parts: Sequence[Sequence[Record]]) -> object:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        with Journal(folder / "all") as whole:
            for number, part in enumerate(parts):
                with Journal(folder / f"{number}") as source:
                    source.extend(part)
                    merge(whole, source)
            best = whole.best("w", "h")
            return None if best is None else best.identity

    first, second = records[:cut], records[cut:]
    assert best_of([first, second]) == best_of([second, first]) == best_of([records])


def test_an_older_journal_merged_behind_a_newer_one_changes_nothing() -> None:
    def compared(candidate: str, best_s: float, time: float) -> Record:
        return replace(record(candidate=candidate, best_s=best_s, origin=CONFIRM), time=time)

    older = [compared("a", 1e-3, 1.0), compared("b", 2e-3, 1.0)]
    newer = [compared("a", 4e-3, 2.0), compared("b", 3e-3, 2.0)]
    assert Standings([*newer, *older]).best == newer[1]
    assert Standings([*newer, *older]).ranked() == newer[::-1]


def test_newer_readings_are_rivals_while_a_run_goes_on() -> None:
    champion = replace(record(candidate="a", best_s=2e-3, origin=CONFIRM), time=2.0)
    before = replace(record(candidate="b", best_s=1e-3), time=1.0)
    after = replace(record(candidate="c", best_s=1.5e-3), time=3.0)
    for order in itertools.permutations([champion, before, after]):
        assert Standings(order).leader == after
        assert Standings(order).best == champion
    assert Standings([champion, before]).leader == champion


def test_what_was_measured_elsewhere_does_not_count_beside_what_was_measured_here() -> None:
    def here(each: Record) -> bool:
        return each.environment["tvm"] == "new"

    old = record(0, candidate="a", best_s=1e-3)
    old_comparison = record(3, candidate="b", best_s=1e-4, origin=CONFIRM)
    new = replace(record(1, candidate="a", best_s=2e-3), environment={"tvm": "new"})
    for order in itertools.permutations([old, old_comparison, new]):
        standings = Standings(order, comparable=here)
        assert standings.best == new
        assert standings.compared_at is None
