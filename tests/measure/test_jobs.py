"""How long a build may take."""

from __future__ import annotations

from foretune.measure._jobs import BuildPace
from foretune.measure.transport import Task
from tests.measure.policies import OpenPolicy

POLICY = OpenPolicy(build_timeout_s=60.0, build_factor=10.0, build_least_s=2.0)


def test_the_limit_follows_the_builds_of_the_same_workload() -> None:
    pace = BuildPace(POLICY)
    for seconds in (1.0, 1.0):
        pace.add("a", seconds)
        assert pace.limit_s("a") == 60.0, "too little is known"
    pace.add("a", 3.0)
    assert pace.limit_s("a") == 10.0
    assert pace.limit_s("b") == 60.0, "nothing is known of it"


def test_builds_of_long_ago_are_forgotten() -> None:
    pace = BuildPace(POLICY)
    for seconds in [0.5] * 100 + [1.0] * 64:
        pace.add("a", seconds)
    assert pace.limit_s("a") == 10.0


def test_another_limit_counts_from_the_beginning_of_a_task() -> None:
    task = Task(id=1, deadline=160.0, what="building", limit_s=60.0, resident_bytes=0)
    task.allow(2.0)
    assert (task.deadline, task.limit_s) == (102.0, 2.0)
    task.allow(5.0)
    assert (task.deadline, task.limit_s) == (105.0, 5.0)


def test_the_limit_stays_between_its_bounds() -> None:
    pace = BuildPace(POLICY)
    for workload, seconds in (("quick", 0.001), ("slow", 30.0)):
        for _ in range(3):
            pace.add(workload, seconds)
    assert pace.limit_s("quick") == 2.0
    assert pace.limit_s("slow") == 60.0
