"""What a store knows costs no trial, makes nothing slower, and stops no run."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import foretune
from foretune.errors import BadInputError, RecordError
from foretune.measure import Measurement, MeasurePolicy, Status
from foretune.records import UNTUNED, Entry, Journal, Record
from foretune.space import Candidate
from foretune.tuning import JOURNAL, Budget, Task, Tuner, TuneResult
from foretune.tuning.reuse import Reuse, misfit
from tests.tuning.support import HARDWARE, FormulaMeasurer, matmul, ok, seconds_of, spare_compiling

HERE = {"tvm": "0.27", "policy": MeasurePolicy().to_json()}


class InEnvironment(FormulaMeasurer):
    """Says in which environment it measures."""

    def __init__(self, environment: Mapping[str, Any], **options: Any) -> None:
        super().__init__(**options)
        self._environment = environment

    def environment(self) -> dict[str, Any]:
        return dict(self._environment)


@pytest.fixture
def store(tmp_path: Path) -> Iterable[Journal]:
    with Journal(tmp_path / "store.jsonl") as opened:
        yield opened


@pytest.fixture(autouse=True)
def nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    spare_compiling(monkeypatch)


def run(
    store: Journal | None,
    trials: int,
    work_dir: Path | None = None,
    measurer: FormulaMeasurer | None = None,
    **options: Any,
) -> TuneResult:
    settings = {"strategy": "random", "cost_model": "random", "batch": 4, "target": HARDWARE}
    return foretune.tune(
        matmul(),
        trials=trials,
        work_dir=work_dir,
        measurer=measurer or InEnvironment(HERE),
        store=store,
        **{**settings, **options},
    )


def told(result: TuneResult) -> dict[str, Any]:
    """What was reused of the one task."""
    assert result.reused is not None
    (task,) = result.reused["tasks"]
    return dict(task)


def test_what_is_known_costs_no_trial(store: Journal) -> None:
    first = run(store, 16)
    assert told(first)["fitting"] == 0 and not told(first)["enough"]
    again = InEnvironment(HERE)
    second = run(store, 16, measurer=again, seed=5)
    assert second.tasks[0].trials == ()
    assert second.tasks[0].best == first.tasks[0].best
    assert second.tasks[0].confirmed and second.tasks[0].tuned
    assert len(again.asked) == 2, "the baselines"
    assert told(second) | {"key": ""} == {
        "name": "matmul", "key": "", "fitting": 16, "suggested": 0, "missed": {},
        "enough": True, "best": True,
    }  # fmt: skip
    third = run(store, 64)
    assert third.tasks[0].trials == (), "what was reused is still enough for four times as much"


def test_who_allows_more_looks_further_and_measures_nothing_twice(store: Journal) -> None:
    first, again = InEnvironment(HERE), InEnvironment(HERE)
    before = run(store, 8, measurer=first)
    after = run(store, 33, measurer=again, seed=1)
    assert len(after.tasks[0].trials) == 33
    assert not set(first.asked[2:]) & set(again.asked)
    assert after.tuned_s is not None and before.tuned_s is not None
    assert after.tuned_s <= before.tuned_s


def test_the_budget_goes_to_what_is_not_known(store: Journal) -> None:
    settings: dict[str, Any] = {"strategy": "random", "cost_model": "random"}
    known, fresh = (Task(matmul(n, f"m{n}"), HARDWARE, **settings) for n in (64, 32))
    run(store, 8)
    Tuner([known, fresh], InEnvironment(HERE), Budget(trials=12), batch=4, reuse=Reuse(store)).run()
    assert (known.spent, fresh.spent) == (0, 12)
    assert known.tuned and known.best_is_known and not fresh.best_is_known


@pytest.mark.parametrize(
    ("there", "reason"),
    [
        ({**HERE, "tvm": "0.26"}, "tvm is 0.26 there and 0.27 here"),
        ({**HERE, "llvm": "19"}, "llvm is 19 there and None here"),
        (
            {"tvm": "0.27", "policy": MeasurePolicy(passes_off=("nan",)).to_json()},
            "policy.passes_off is ['nan'] there and [] here",
        ),
        ({"tvm": "0.27", "policy": MeasurePolicy(workers=1, workspace_bytes=8).to_json()}, ""),
        ({**HERE, "python": "3.10", "elapsed_s": 3.0, "fixed_addresses": False}, ""),
    ],
)
def test_what_fits_and_why_not(there: Mapping[str, Any], reason: str) -> None:
    assert misfit(there, HERE) == reason


def test_what_does_not_fit_is_a_warm_start(
    store: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    first = run(store, 24, measurer=InEnvironment({**HERE, "tvm": "0.26"}))
    again = InEnvironment(HERE)
    with caplog.at_level(logging.INFO, logger="foretune"):
        second = run(store, 8, measurer=again, seed=9)
    best = first.tasks[0].best
    assert best is not None and best.key in again.asked[2:6], "tried first"
    assert len(second.tasks[0].trials) == 8
    assert told(second)["fitting"] == 0 and told(second)["suggested"] == 8
    assert told(second)["missed"] == {"tvm is 0.26 there and 0.27 here": 25 + 2}
    assert "do not fit: tvm is 0.26 there" in caplog.text


def test_another_processor_is_a_warm_start_and_another_kind_a_miss(store: Journal) -> None:
    run(store, 8)
    other = replace(HARDWARE, name="another")
    assert told(run(store, 4, target=other))["suggested"] == 8
    (reason,) = told(run(store, 4, target=other))["missed"]
    assert reason == "measured for another target, processor or number of threads"


def test_what_others_measured_is_a_suggestion(store: Journal) -> None:
    run(store, 8)
    theirs = [replace(r, origin="metaschedule") for r in store.records() if r.is_counted]
    with Journal(store.path.with_name("imported.jsonl")) as imported:
        imported.write([matmul(), HARDWARE, *theirs])
        result = run(imported, 8)
    assert (told(result)["fitting"], told(result)["suggested"]) == (0, 8)
    assert len(result.tasks[0].trials) == 8


def slow_if_known(known: set[str]) -> FormulaMeasurer:
    """A machine on which the schedules of a store are slower than the default."""

    def answer(candidate: Candidate) -> Measurement:
        if candidate.key in known:
            return Measurement(Status.OK, (1.0,) * 3, (True,) * 3)
        return ok(candidate)

    return InEnvironment(HERE, answer=answer)


def test_a_stale_entry_makes_nothing_slower_and_is_tuned_after_all(store: Journal) -> None:
    first = run(store, 8)
    known = {r.candidate_key for r in store.records() if r.is_counted}
    second = run(store, 8, measurer=slow_if_known(known))
    assert len(second.tasks[0].trials) == 8
    assert not told(second)["enough"] and not told(second)["best"]
    assert second.tuned_s is not None and second.tuned_s < 1.0
    assert second.tasks[0].best != first.tasks[0].best


def test_a_tie_that_falls_the_other_way_costs_no_trial(store: Journal) -> None:
    """A stored best that was hardly faster than the default schedule, and is hardly slower now."""

    def machine(default_s: float) -> FormulaMeasurer:
        def answer(candidate: Candidate) -> Measurement:
            default = not candidate.sketch.variables and not candidate.sketch.is_untuned
            seconds = default_s if default else 1e-2 if candidate.sketch.is_untuned else 1e-3
            return Measurement(Status.OK, (seconds,) * 3, (True,) * 3)

        return InEnvironment(HERE, answer=answer)

    assert run(store, 8, measurer=machine(1.03e-3)).tasks[0].tuned
    second = run(store, 8, measurer=machine(0.98e-3))
    assert second.tasks[0].trials == () and told(second)["enough"]
    assert not second.tasks[0].tuned and second.tuned_s == pytest.approx(0.98e-3)


def test_a_known_schedule_that_fails_now_is_out(store: Journal) -> None:
    known = run(store, 8).tasks[0].best
    assert known is not None

    def answer(candidate: Candidate) -> Measurement:
        return Measurement(Status.WRONG_OUTPUT) if candidate.key == known.key else ok(candidate)

    second = run(store, 8, measurer=InEnvironment(HERE, answer=answer))
    assert second.tasks[0].best not in (None, known)


def test_nothing_unproven_is_best_when_ctrl_c_comes_early(store: Journal) -> None:
    run(store, 8)

    class Interrupted(InEnvironment):
        def compare(self, candidates: Sequence[Candidate]) -> list[Measurement]:
            raise KeyboardInterrupt

    result = run(store, 8, measurer=Interrupted(HERE))
    assert result.interrupted and not result.tasks[0].tuned
    assert result.chosen and not result.best


def test_a_default_that_won_is_known_to_win(store: Journal) -> None:
    def answer(candidate: Candidate) -> Measurement:
        best = not candidate.sketch.variables and not candidate.sketch.is_untuned
        return Measurement(Status.OK, (1e-6 if best else seconds_of(candidate),) * 3, (True,) * 3)

    assert not run(store, 8, measurer=InEnvironment(HERE, answer=answer)).tasks[0].tuned
    second = run(store, 8, measurer=InEnvironment(HERE, answer=answer))
    assert second.tasks[0].trials == () and told(second)["enough"]
    assert second.tuned_s == pytest.approx(1e-6)


def test_a_default_that_nothing_came_near_is_known_to_win_however_few_trials_there_were(
    store: Journal,
) -> None:
    """The light tasks of a network get a trial or two, and no comparison."""

    def answer(candidate: Candidate) -> Measurement:
        best = not candidate.sketch.variables and not candidate.sketch.is_untuned
        return Measurement(Status.OK, (1e-6 if best else 1e-2,) * 3, (True,) * 3)

    settings: dict[str, Any] = {"strategy": "random", "cost_model": "random"}
    for expected in ((2, 2), (0, 0)):
        tasks = [Task(matmul(n, f"m{n}"), HARDWARE, **settings) for n in (32, 64)]
        for task in tasks:
            task.baselines.leave_untuned()
        reuse = Reuse(store)
        budget = Budget(trials=64, patience=1)
        Tuner(tasks, InEnvironment(HERE, answer=answer), budget, batch=1, reuse=reuse).run()
        assert tuple(task.spent for task in tasks) == expected
        assert any(task.confirmed for task in tasks) == (expected == (0, 0)), "proven again"
        assert not any(task.tuned for task in tasks)


def test_only_what_ran_and_was_checked_is_kept(store: Journal) -> None:
    measurer = InEnvironment(HERE)

    def answer(candidate: Candidate) -> Measurement:
        if len(measurer.asked) % 2:
            return ok(candidate)
        return Measurement(Status.CRASH, message="SIGSEGV")

    measurer.answer = answer
    run(store, 12, measurer=measurer)
    assert store.records() and all(r.measurement.ok for r in store.records())
    assert UNTUNED not in {r.origin for r in store.records()}
    assert list(store.workloads()) == [matmul().key]
    assert list(store.hardware()) == [HARDWARE.key]
    before = len(store)
    unchecked = {**HERE, "policy": MeasurePolicy(check_output=False).to_json()}
    run(store, 4, measurer=InEnvironment(unchecked))
    assert len(store) == before


def test_a_run_that_goes_on_does_not_take_its_own_records_for_known(
    store: Journal, tmp_path: Path
) -> None:
    run(store, 8, tmp_path / "work")
    measurer = InEnvironment(HERE)
    after = run(store, 12, tmp_path / "work", measurer)
    assert len(after.tasks[0].trials) == 12
    assert len(measurer.asked) == 4
    assert told(after)["fitting"] == 0


def test_what_a_killed_run_could_not_write_is_written_when_it_goes_on(
    store: Journal, tmp_path: Path
) -> None:
    run(None, 8, tmp_path / "work")
    run(store, 8, tmp_path / "work")
    with Journal(tmp_path / "work" / JOURNAL, read_only=True) as journal:
        untuned = next(r.candidate_key for r in journal.records() if r.origin == UNTUNED)
        expected = [r for r in journal.records() if r.candidate_key != untuned]
    assert store.records() == expected


class Failing(Journal):
    """A store on a disk that is full for a while."""

    full = True
    tried = 0

    def write(self, entries: Iterable[Entry]) -> None:
        self.tried += 1
        if self.full:
            raise RecordError("cannot write 'the store': No space left on device: free some")
        super().write(entries)


def test_a_store_that_cannot_be_written_is_one_warning_and_loses_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Failing(tmp_path / "store.jsonl") as store:
        result = run(store, 12, tmp_path / "work")
        assert result.tasks[0].tuned
        assert result.reused is not None and result.reused["unwritten"] == 13 + 1
        (warning,) = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
        assert "No space left" in warning
        assert f"foretune db merge STORE {tmp_path / 'work'}" in warning
        assert store.tried == 2, "after the first of three rounds, and at the end"
        store.full = False
        assert store.records() == []
        run(store, 12, tmp_path / "work")
        assert len(store) == 13 + 1


def test_a_store_that_cannot_be_read_is_one_warning(
    store: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    class Away(Journal):
        def records(self, *_: Any, **__: Any) -> list[Record]:
            raise RecordError("cannot reach 'the store'")

    run(store, 8)
    with Away(store.path) as away:
        assert len(run(away, 8).tasks[0].trials) == 8
    assert [r.levelname for r in caplog.records].count("WARNING") == 1


def test_without_a_store_nothing_is_said() -> None:
    result = run(None, 4)
    assert result.reused is None and result.to_json()["reused"] is None


def test_the_name_of_a_store_is_none(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="store='none': open it with"):
        foretune.tune("matmul:16x16x16", trials=1, work_dir=tmp_path / "w", store="none")  # type: ignore[arg-type]
