"""What the system counts of time that threads waited for a core, and what is made of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from foretune.measure.timing import Reading, Stopwatch
from foretune.measure.waiting import is_crowded, longest_wait, waits
from tests.measure.policies import OpenPolicy


@pytest.mark.parametrize(
    ("switches", "seconds", "threads", "crowded"),
    [
        (1, 0.005, 1, False),
        (3, 0.005, 1, True),
        (30, 1.0, 1, True),
        (30, 1.0, 2, False),
        (60, 1.0, 2, True),
        (1000, 1.0, 64, False),
    ],
)
def test_more_threads_are_interrupted_more_often(
    switches: int, seconds: float, threads: int, crowded: bool
) -> None:
    assert is_crowded(switches, 0.0, seconds, threads) is crowded


@pytest.mark.parametrize(
    ("waited", "seconds", "crowded"),
    [(0.004, 0.012, True), (0.0001, 0.012, False), (0.004, 1.0, False), (0.03, 1.0, True)],
)
def test_a_slice_of_somebody_else_crowds_a_short_reading(
    waited: float, seconds: float, crowded: bool
) -> None:
    assert is_crowded(1, waited, seconds, 1) is crowded


def test_waiting_is_that_of_the_thread_that_waited_longest(tmp_path: Path) -> None:
    def write(**threads: str) -> None:
        for name, text in threads.items():
            (tmp_path / name[1:]).mkdir(exist_ok=True)
            (tmp_path / name[1:] / "schedstat").write_text(text, encoding="ascii")

    write(t7="1000 5000000 10\n", t8="1000 0 1\n")
    before = waits(tmp_path)
    assert before == {7: (5_000_000, 10), 8: (0, 1)}
    write(t7="2000 5000000 12\n", t8="2000 8000000 3\n", t9="1 90000000 1\n")
    assert longest_wait(before, waits(tmp_path)) == pytest.approx(0.0079), "9 began meanwhile"
    assert longest_wait(before, before) == 0.0
    write(t7="what a kernel of tomorrow says")
    (tmp_path / "8" / "schedstat").unlink()
    assert set(waits(tmp_path)) == {9}, "of which nothing is said, nothing is known"
    assert waits(tmp_path / "none") == {} and longest_wait({}, before) == 0.0


_SHARED_CORE = """
import os, subprocess, sys, time
core = min(os.sched_getaffinity(0))
os.sched_setaffinity(0, {core})
from foretune.measure.waiting import CoreWatch, waits
busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
try:
    time.sleep(0.5)
    watch = CoreWatch(1)
    until = time.perf_counter() + 0.3
    while time.perf_counter() < until:
        pass
    print(bool(waits()), watch.crowded())
finally:
    busy.kill()
"""


def test_a_competitor_for_the_core_is_seen() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SHARED_CORE], capture_output=True, text=True, check=True
    )
    says, crowded = done.stdout.split()
    if says == "False":
        pytest.skip("this system does not count how long threads wait")
    assert crowded == "True"


def test_readings_that_waited_do_not_agree() -> None:
    policy = OpenPolicy(spread=0.01, min_readings=3, budget_s=1.0)
    watch = object.__new__(Stopwatch)
    watch._policy = policy

    def enough(*found: tuple[float, bool], spent: float = 0.1) -> bool:
        readings = [Reading(seconds, 1.0, 1.0, crowded) for seconds, crowded in found[:1]]
        return watch._enough(readings, list(found[1:]), spent, None, float("inf"))

    waited = [(11.0e-3, True), (11.01e-3, True), (11.0e-3, True)]
    assert not enough(*waited)
    assert not enough(*waited, (3.0e-3, False))
    assert enough(*waited, (3.0e-3, False), (3.01e-3, False))
    assert enough(*waited, spent=1.0), "the budget is spent"
