"""What a task makes of comparisons, of this run and of earlier ones."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import foretune
from foretune.measure import Measurement, Status
from foretune.records import CONFIRM, DEFAULT, UNTUNED
from foretune.space import Candidate
from foretune.tuning import Task, TuneResult
from tests.tuning.support import HARDWARE, FormulaMeasurer, matmul, ok, seconds_of


def scaled(factor: float) -> Callable[[Candidate], Measurement]:
    """A machine on which everything takes ``factor`` times as long."""
    return lambda candidate: Measurement(Status.OK, (factor * seconds_of(candidate),), (True,))


class Session(FormulaMeasurer):
    """A run whose single readings and comparisons come from different formulas."""

    def __init__(self, alone: float = 1.0, together: float = 1.0, version: str = "1") -> None:
        super().__init__(scaled(alone))
        self.together = scaled(together)
        self.version = version
        self.compared: list[Candidate] = []

    def compare(self, candidates: Sequence[Candidate]) -> list[Measurement]:
        self.compared += candidates
        return [self.together(candidate) for candidate in candidates]

    def environment(self) -> dict[str, Any]:
        return {"tvm": self.version, "policy": {"compare_rounds": 5}}

    def tune(self, work_dir: Path, trials: int) -> TuneResult:
        return foretune.tune(
            matmul(),
            target=HARDWARE,
            strategy="random",
            cost_model="random",
            batch=4,
            trials=trials,
            work_dir=work_dir,
            measurer=self,
        )


def test_the_best_is_chosen_among_those_compared_last(tmp_path: Path) -> None:
    """What was fast side by side yesterday has to show it beside today's contenders."""
    yesterday, today = Session(), Session(alone=0.5, together=2.0)
    before = yesterday.tune(tmp_path, 8).tasks[0]
    after = today.tune(tmp_path, 16).tasks[0]
    assert before.best in today.compared
    assert after.best == min(today.compared, key=seconds_of)
    assert after.best_s == pytest.approx(2.0 * min(map(seconds_of, today.compared)))
    assert after.confirmed


def test_a_run_that_finds_no_new_contender_compares_nothing(tmp_path: Path) -> None:
    before = Session().tune(tmp_path, 8).tasks[0]
    slower = Session(alone=3.0)
    after = slower.tune(tmp_path, 12).tasks[0]
    assert len(after.trials) == 12
    assert slower.compared == []
    assert (after.best, after.best_s) == (before.best, before.best_s)


def test_comparisons_of_another_environment_do_not_count(tmp_path: Path) -> None:
    first = Session().tune(tmp_path, 8).tasks[0]
    newer = Session(together=2.0, version="2")
    second = newer.tune(tmp_path, 8).tasks[0]
    assert second.trials == first.trials, "trials stay spent"
    assert newer.asked == []
    assert second.confirmed
    assert first.best in newer.compared
    assert second.best_s == pytest.approx(2.0 * min(map(seconds_of, newer.compared)))
    again = Session(version="2")
    assert again.tune(tmp_path, 8).tasks[0].best_s == second.best_s
    assert again.compared == []


def test_baselines_of_another_environment_are_measured_again(tmp_path: Path) -> None:
    Session().tune(tmp_path, 4)
    newer = Session(alone=2.0, version="2")
    newer.tune(tmp_path, 6)
    space = Task(matmul(), HARDWARE, strategy="random", cost_model="random").space
    assert space.default is not None
    assert {space.untuned.key, space.default.key} <= set(newer.asked)
    assert len(newer.asked) == 4


def test_candidates_of_both_environments_are_compared(tmp_path: Path) -> None:
    first = Session(alone=0.1).tune(tmp_path, 8).tasks[0]
    newer = Session(version="2")
    newer.tune(tmp_path, 16)
    found = [candidate for candidate in newer.compared if candidate.key in newer.asked]
    assert first.best in newer.compared
    assert any(candidate.sketch.variables for candidate in found), "today's own best as well"


def test_records_of_a_comparison_share_their_time() -> None:
    task = Task(matmul(), HARDWARE, strategy="random", cost_model="random")
    a, b, c = task.ask(3)
    task.tell([(candidate, ok(candidate)) for candidate in (a, b, c)])

    def compared(ended: float, **seconds: float) -> None:
        named = {"a": a, "b": b, "c": c}
        task.take(
            [
                task.record(
                    named[name], Measurement(Status.OK, (s,), (True,)), origin=CONFIRM, ended=ended
                )
                for name, s in seconds.items()
            ]
        )

    compared(1.0, a=1e-6, b=2e-6)
    assert (task.best, task.best_s) == (a, 1e-6)
    compared(2.0, b=5e-6, c=4e-6)
    assert (task.best, task.best_s) == (c, 4e-6)


def test_a_candidate_that_two_tuners_tried_is_one_trial() -> None:
    def fresh() -> Task:
        return Task(matmul(), HARDWARE, strategy="random", cost_model="random")

    task = fresh()
    (candidate,) = task.ask(1)
    both = [task.record(candidate, Measurement(Status.OK, (s,), (True,)), ended=s)
            for s in (1.0, 2.0)]  # fmt: skip
    at_once, in_turns = fresh(), fresh()
    at_once.take(both)
    for record in both:
        in_turns.take([record])
    assert at_once.spent == in_turns.spent == 1


def test_a_baseline_is_no_tuned_result_whoever_measured_it() -> None:
    task = Task(matmul(), HARDWARE, strategy="random", cost_model="random")
    task.tell([(task.space.untuned, ok(task.space.untuned))])
    assert task.best == task.space.untuned and not task.tuned
    task.tell([(candidate, ok(candidate)) for candidate in task.ask(2)])
    assert task.tuned


def test_a_candidate_that_is_told_twice_counts_and_teaches_once() -> None:
    task = Task(matmul(), HARDWARE, strategy="random", cost_model="random")
    taught: list[int] = []
    task.model.update = lambda records: taught.append(len(records))  # type: ignore[method-assign]
    (candidate,) = task.ask(1)
    for factor in (1.0, 0.5):
        task.tell([(candidate, scaled(factor)(candidate))])
    assert task.spent == 1 and taught == [1]
    assert task.best_s == pytest.approx(0.5 * seconds_of(candidate)), "the lowest reading"


def test_another_environment_is_counted_anew() -> None:
    task = Task(matmul(), HARDWARE, strategy="random", cost_model="random")
    default = task.space.default
    assert default is not None
    here = {"tvm": "1"}
    task.take([task.record(default, ok(default), origin=DEFAULT, environment=here)])
    assert [origin for _, origin in task.baselines.missing()] == [UNTUNED]
    task.environment = {"tvm": "2"}
    assert [origin for _, origin in task.baselines.missing()] == [UNTUNED, DEFAULT]
    assert not task.baselines.default_known
    task.environment = here
    assert task.baselines.default_known


def test_what_a_journal_holds_counts_once() -> None:
    task = Task(matmul(), HARDWARE, strategy="random", cost_model="random")
    records = task.tell([(candidate, ok(candidate)) for candidate in task.ask(4)])
    first = records[0].candidate
    assert first is not None
    quick, quicker = (Measurement(Status.OK, (s,), (True,)) for s in (1e-4, 1e-5))
    comparison = task.record(first, quick, origin=CONFIRM, ended=1.0)
    task.take([comparison])
    (later,) = task.ask(1)
    task.tell([(later, quicker)])
    task.take([*records, comparison])
    assert task.best == later, "an old comparison read again decides nothing anew"
    assert task.spent == 5


def test_a_restored_task_does_not_depend_on_the_order_of_lines() -> None:
    """An older journal merged behind a newer one must not change what ships."""

    def fresh() -> Task:
        return Task(matmul(), HARDWARE, strategy="random", cost_model="random")

    task = fresh()
    measured = task.ask(5)
    started = time.time() - 100
    records = [
        task.record(candidate, ok(candidate), ended=started + at)
        for at, candidate in enumerate(measured)
    ]
    for at, factor in ((10, 2.0), (20, 5.0)):
        records += [
            task.record(
                c, scaled(factor * (1 + (i + at) % 3))(c), origin=CONFIRM, ended=started + at
            )
            for i, c in enumerate(measured[:3])
        ]
    records.append(task.record(task.space.untuned, ok(task.space.untuned), origin=UNTUNED))
    expected = None
    for seed in range(6):
        order = [*records]
        random.Random(seed).shuffle(order)
        at_once, in_turns = fresh(), fresh()
        at_once.take(order)
        for record in order:
            in_turns.take([record])
        trials = [trial.to_json() for trial in at_once.trials]
        told = (at_once.best, at_once.best_s, at_once.untuned_s, at_once.confirmed)
        assert (in_turns.best, in_turns.best_s, in_turns.untuned_s, in_turns.confirmed) == told
        expected = expected or (*told, trials)
        assert (*told, trials) == expected
    assert expected is not None
    assert expected[0] in measured[:3], "one of those compared last"
