from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import pytest

import foretune
from foretune import search
from foretune.errors import BadInputError, NothingMeasuredError, RecordError
from foretune.measure import Measurement, Status
from foretune.records import Journal, Trial
from foretune.search.random import RandomSearch
from foretune.space import Candidate
from foretune.tuning import JOURNAL, Budget, Task, Tuner, TuneResult, default_work_dir
from foretune.tuning.budget import Outside
from foretune.tuning.events import Silent
from foretune.tuning.prepared import Prepared
from foretune.workload import Model
from tests.tuning.support import HARDWARE, FormulaMeasurer, matmul, ok, seconds_of


def run(
    work_dir: Path | None, measurer: FormulaMeasurer, trials: int, **options: object
) -> TuneResult:
    settings = {"strategy": "random", "cost_model": "random", "batch": 4, **options}
    return foretune.tune(
        matmul(),
        target=HARDWARE,
        trials=trials,
        work_dir=work_dir,
        measurer=measurer,
        **settings,  # type: ignore[arg-type]
    )


def test_spends_exactly_the_trials_allowed_and_finds_the_best_of_them(tmp_path: Path) -> None:
    measurer = FormulaMeasurer()
    result = run(tmp_path, measurer, 10)
    (task,) = result.tasks
    assert len(task.trials) == 10
    assert [t.index for t in task.trials] == list(range(10))
    found = [t.seconds[0] for t in task.trials if t.seconds]
    assert task.best_s == min(found)
    assert result.tuned_s == min(found)
    assert result.untuned_s == pytest.approx(1e-2)
    assert [t.best_s for t in task.trials] == [min(found[: i + 1]) for i in range(10)]


def test_resume_counts_what_was_spent_and_measures_nothing_twice(tmp_path: Path) -> None:
    first, second = FormulaMeasurer(), FormulaMeasurer()
    before = run(tmp_path, first, 9)
    after = run(tmp_path, second, 20)
    assert len(after.tasks[0].trials) == 20
    assert after.tasks[0].trials[:9] == before.tasks[0].trials
    assert len(second.asked) == 11, "the baselines and 9 trials are known already"
    assert not set(first.asked) & set(second.asked)


def test_resuming_a_finished_run_measures_nothing_and_keeps_its_best(tmp_path: Path) -> None:
    before = run(tmp_path, FormulaMeasurer(), 8)
    again = FormulaMeasurer()
    again.compare = None  # type: ignore[assignment]  # nothing is confirmed a second time
    after = run(tmp_path, again, 8)
    assert again.asked == []
    assert after.tuned_s == before.tuned_s


def test_fresh_sets_the_old_journal_aside(tmp_path: Path) -> None:
    run(tmp_path, FormulaMeasurer(), 6)
    result = run(tmp_path, FormulaMeasurer(), 4, fresh=True)
    assert len(result.tasks[0].trials) == 4
    assert (tmp_path / "journal.1.jsonl").is_file()


def test_a_record_is_on_disk_before_it_is_used(tmp_path: Path) -> None:
    journal = Journal(tmp_path / JOURNAL)
    task = Task(matmul(), HARDWARE, strategy="random", cost_model="random")
    seen: list[int] = []

    def told(records: Sequence[Trial[Candidate]]) -> None:
        with Journal(tmp_path / JOURNAL, read_only=True) as reader:
            on_disk = {r.candidate_key for r in reader.records()}
        seen.append(len(records))
        assert {r.candidate_key for r in records} <= on_disk

    task.strategy.tell = told  # type: ignore[method-assign]
    Tuner([task], FormulaMeasurer(), Budget(trials=8), journal=journal, batch=4).run()
    assert seen == [4, 4]


FAILURES = [s for s in Status if s is not Status.OK]


def test_every_kind_of_failure_is_counted_and_the_run_goes_on(tmp_path: Path) -> None:
    measurer = FormulaMeasurer()

    def answer(candidate: Candidate) -> Measurement:
        index = len(measurer.asked)
        if candidate.sketch.variables and index % 2:
            return Measurement(FAILURES[index // 2 % len(FAILURES)], message="as told")
        return ok(candidate)

    measurer.answer = answer
    result = run(tmp_path, measurer, 2 * len(FAILURES) + 2)
    statuses = {t.status for t in result.tasks[0].trials}
    assert statuses >= {s.value for s in FAILURES}
    assert all(t.seconds is None for t in result.tasks[0].trials if t.status != "ok")
    assert result.tuned_s is not None


def test_a_failed_candidate_is_never_the_best(tmp_path: Path) -> None:
    def answer(candidate: Candidate) -> Measurement:
        if candidate.sketch.variables:
            return Measurement(Status.WRONG_OUTPUT, (1e-9,), (True,))
        return ok(candidate)

    result = run(tmp_path, FormulaMeasurer(answer), 8)
    assert result.tuned_s == pytest.approx(1e-2)
    assert result.best == {}
    assert result.untuned_operators == ["matmul"]


def test_a_candidate_seen_to_be_wrong_later_stops_being_the_best() -> None:
    task = Task(matmul(), HARDWARE, strategy="random", cost_model="random")
    task.tell([(task.space.untuned, ok(task.space.untuned))])
    task.tell([(c, ok(c)) for c in task.ask(4)])
    found = task.best
    assert found is not None
    task.tell([(found, Measurement(Status.WRONG_OUTPUT, message="one element off"))])
    assert task.best is not None and task.best != found
    task.tell([(found, ok(found))])
    assert task.best != found, "once wrong, always out"


def test_a_default_schedule_that_nothing_beats_is_what_is_compiled() -> None:
    measurer = FormulaMeasurer()

    def answer(candidate: Candidate) -> Measurement:
        seconds = seconds_of(candidate)
        if not candidate.sketch.variables and candidate.key != untuned.key:
            seconds = 1e-6
        return Measurement(Status.OK, (seconds,), (True,))

    untuned = Task(matmul(), HARDWARE, strategy="random", cost_model="random").space.untuned
    measurer.answer = answer
    result = run(None, measurer, 4)
    assert result.tuned_s == pytest.approx(1e-6)
    assert result.untuned_s == pytest.approx(1e-2)
    assert result.untuned_operators == ["matmul"]
    assert result.best == {}


def test_nothing_valid_at_all_is_an_error_of_its_own() -> None:
    measurer = FormulaMeasurer(lambda _: Measurement(Status.CRASH, message="SIGSEGV"))
    with pytest.raises(NothingMeasuredError, match="4 crash"):
        run(None, measurer, 4)


def test_ctrl_c_keeps_what_was_measured(tmp_path: Path) -> None:
    measurer = FormulaMeasurer()

    def answer(candidate: Candidate) -> Measurement:
        if len(measurer.asked) == 8:
            raise KeyboardInterrupt
        return ok(candidate)

    measurer.answer = answer
    result = run(tmp_path, measurer, 100)
    assert result.interrupted
    assert len(result.tasks[0].trials) == 5, "8 asked, less two baselines and the interrupted one"
    assert result.tuned_s is not None and result.tuned_s < 1e-2
    with Journal(tmp_path / JOURNAL) as journal:
        assert len(journal.records()) == 7


@pytest.mark.parametrize("strategy", ["random", "evolutionary"])
def test_same_seed_same_candidates(strategy: str) -> None:
    runs = []
    for _ in range(2):
        measurer = FormulaMeasurer()
        run(None, measurer, 24, strategy=strategy, cost_model="gbdt", seed=5)
        runs.append(measurer.asked)
    assert runs[0] == runs[1]


def test_a_task_without_improvement_stops_early() -> None:
    task = Task(matmul(), HARDWARE, strategy="random", cost_model="random")
    flat = FormulaMeasurer(lambda c: Measurement(Status.OK, (1e-3,), (True,)))
    Tuner([task], flat, Budget(trials=500, patience=20), batch=4).run()
    assert 20 <= task.spent <= 28


def test_the_budget_is_shared_by_all_tasks() -> None:
    tasks = [
        Task(matmul(n, f"m{n}"), HARDWARE, strategy="random", cost_model="random") for n in (32, 64)
    ]
    Tuner(tasks, FormulaMeasurer(), Budget(trials=30), batch=4).run()
    assert sum(t.spent for t in tasks) == 30
    assert all(t.spent >= 4 for t in tasks)


class Shuffled(FormulaMeasurer):
    """Gives measurements in another order than candidates were given."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.rng = random.Random(seed)
        self.rounds: list[list[str]] = []

    def measure(
        self, candidates: Sequence[Candidate], best_s: Mapping[str, float] | None = None
    ) -> Iterator[tuple[Candidate, Measurement]]:
        self.rounds.append([candidate.key for candidate in candidates])
        order = self.rng.sample(candidates, len(candidates))
        yield from super().measure(order, best_s)


@pytest.mark.parametrize("ahead", [False, True])
def test_the_order_in_which_measurements_come_changes_nothing(ahead: bool) -> None:
    rounds = []
    for seed in (1, 2):
        tasks = [
            Task(matmul(n, f"m{n}"), HARDWARE, strategy="evolutionary", cost_model="gbdt")
            for n in (32, 64)
        ]
        measurer = Shuffled(seed)
        Tuner(tasks, measurer, Budget(trials=44), batch=8, ahead=ahead).run()
        assert sum(task.spent for task in tasks) == 44
        rounds.append(measurer.rounds)
    assert rounds[0] == rounds[1]


def test_the_next_round_is_asked_for_while_one_is_measured() -> None:
    task = Task(matmul(), HARDWARE, strategy="random", cost_model="random")
    events: list[str] = []
    ask, learn = task.strategy.ask, task.strategy.tell

    def asked(n: int) -> list[Candidate]:
        events.append(f"ask {n}")
        return ask(n)

    def told(records: Sequence[Trial[Candidate]]) -> None:
        events.append(f"tell {len(records)}")
        learn(records)

    task.strategy.ask, task.strategy.tell = asked, told  # type: ignore[method-assign]
    Tuner([task], FormulaMeasurer(), Budget(trials=10), batch=4, ahead=True).run()
    assert events == ["ask 4", "ask 4", "tell 4", "ask 2", "tell 4", "tell 2"]
    assert task.spent == 10


def test_a_task_whose_first_round_is_measured_is_not_asked_again_before_the_others() -> None:
    tasks = _tasks([16, 24, 32])
    asked: list[str] = []
    for task in tasks:
        task.strategy.ask = _noting(task.strategy.ask, asked, task.workload.name)  # type: ignore[method-assign]
    Tuner(tasks, FormulaMeasurer(), Budget(trials=24), batch=4, ahead=True).run()
    assert sorted(asked[:3]) == sorted(task.workload.name for task in tasks)
    assert len(asked) == 6


def _noting(
    ask: Callable[[int], list[Candidate]], asked: list[str], name: str
) -> Callable[[int], list[Candidate]]:
    def noted(n: int) -> list[Candidate]:
        asked.append(name)
        return ask(n)

    return noted


def test_an_untuned_program_that_a_strategy_finds_faster_than_the_default_is_tuned() -> None:
    (task,) = _tasks([32])
    untuned = task.space.untuned
    ask = task.strategy.ask
    task.strategy.ask = lambda n: [untuned, *ask(n - 1)]  # type: ignore[method-assign]

    def answer(candidate: Candidate) -> Measurement:
        seconds = 1e-4 if candidate == untuned else 1e-3
        return Measurement(Status.OK, (seconds,) * 3, (True,) * 3)

    Tuner([task], FormulaMeasurer(answer), Budget(trials=4), outside=Outside(proven=True)).run()
    assert task.best == untuned and task.best_s == 1e-4 and task.default_s == 1e-3
    assert task.tuned and task.confirmed


def test_confirmation_decides_between_contenders() -> None:
    """The best of the run turns out slower when both are timed side by side."""
    measurer = FormulaMeasurer()
    task = Task(matmul(), HARDWARE, strategy="random", cost_model="random")

    def compare(candidates: Sequence[Candidate]) -> list[Measurement]:
        slower_first = [3e-3, 1.5e-3, *[2e-3] * (len(candidates) - 3), 9e-3]
        compared.extend(candidates)
        return [Measurement(Status.OK, (s,), (True,)) for s in slower_first]

    compared: list[Candidate] = []
    measurer.answer = lambda c: Measurement(
        Status.OK, (1e-3 * (1 + 0.01 * seconds_of(c)),), (True,)
    )
    measurer.compare = compare  # type: ignore[method-assign]
    Tuner([task], measurer, Budget(trials=8), batch=4).run()
    assert task.best == compared[1]
    assert task.best_s == pytest.approx(1.5e-3)
    assert task.untuned_s == pytest.approx(9e-3)
    assert task.spent == 8, "confirming costs no trial"


@pytest.mark.parametrize("status", [Status.CRASH, Status.OK])
def test_a_comparison_in_which_all_contenders_fail_or_are_disturbed_is_not_the_last(
    status: Status,
) -> None:
    measurer = FormulaMeasurer()
    comparisons: list[Sequence[Candidate]] = []

    def compare(candidates: Sequence[Candidate]) -> list[Measurement]:
        comparisons.append(candidates)
        untuned = candidates[-1]
        disturbed = Measurement(status, (1.0,) if status is Status.OK else (), (True,))
        first = len(comparisons) == 1
        return [disturbed if first and c != untuned else ok(c) for c in candidates]

    task = Task(matmul(), HARDWARE, strategy="random", cost_model="random")
    measurer.compare = compare  # type: ignore[method-assign]
    Tuner([task], measurer, Budget(trials=24), batch=8).run()
    untuned = comparisons[0][-1]
    left = [key for key in measurer.asked if key not in {c.key for c in comparisons[0]}]
    assert left and len(comparisons) == 2
    assert task.best != untuned and task.tuned and task.confirmed


@pytest.mark.parametrize("batch", [0, -4])
def test_a_batch_of_nothing_is_refused(batch: int) -> None:
    task = Task(matmul(), HARDWARE, strategy="random", cost_model="random")
    with pytest.raises(BadInputError, match="batch >= 1"):
        Tuner([task], FormulaMeasurer(), Budget(trials=8), batch=batch)


def test_a_baseline_that_wins_is_not_doubted_for_ever() -> None:
    measurer = FormulaMeasurer()
    comparisons = []

    def compare(candidates: Sequence[Candidate]) -> list[Measurement]:
        comparisons.append(candidates)
        slow = Measurement(Status.OK, (1.0,), (True,))
        return [*(slow for _ in candidates[:-1]), ok(candidates[-1])]

    task = Task(matmul(), HARDWARE, strategy="random", cost_model="random")
    measurer.compare = compare  # type: ignore[method-assign]
    Tuner([task], measurer, Budget(trials=24), batch=8).run()
    assert 1 < len(comparisons) <= 3
    assert task.best == task.space.untuned and not task.tuned


def test_seconds_limit_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])

    def one_second_each(candidate: Candidate) -> Measurement:
        now[0] += 1.0
        return ok(candidate)

    task = Task(matmul(), HARDWARE, strategy="random", cost_model="random")
    tuner = Tuner(
        [task], FormulaMeasurer(one_second_each), Budget(seconds=10, patience=999), batch=4
    )
    tuner.run()
    assert task.spent == 8, "two seconds for the baselines, and 0.7 are kept for confirming"


class Stopwatch:
    """Time that passes only when something is measured."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr("time.perf_counter", lambda: self.now)

    def measurer(self, seconds: float = 1.0) -> FormulaMeasurer:
        """Every measurement takes that long."""

        def answer(candidate: Candidate) -> Measurement:
            self.now += seconds
            return ok(candidate)

        return FormulaMeasurer(answer)


def two_tasks() -> list[Task]:
    return [
        Task(matmul(n, f"m{n}"), HARDWARE, strategy="random", cost_model="random") for n in (32, 64)
    ]


def test_baselines_stop_when_the_time_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    measurer = Stopwatch(monkeypatch).measurer()
    tasks = two_tasks()
    Tuner(tasks, measurer, Budget(seconds=2)).run()
    assert measurer.asked == [c.key for c, _ in two_tasks()[0].baselines.missing()]
    assert tasks[0].best_s == pytest.approx(1e-2)
    assert tasks[1].best_s is None


def untuned_of(n: int) -> Task:
    """A task whose untuned program has 2 n^3 operations."""
    return Task(matmul(n, f"m{n}"), HARDWARE, strategy="random", cost_model="random")


def slow_when_untuned(
    watch: Stopwatch,
    seconds: float,
    untuned: Status = Status.OK,
    default: Status = Status.OK,
) -> FormulaMeasurer:
    """An untuned program takes ``seconds``, and whatever else an instant."""

    def answer(candidate: Candidate) -> Measurement:
        if not candidate.sketch.is_untuned:
            watch.now += 0.01
            if default is not Status.OK and not candidate.sketch.variables:
                return Measurement(default, (), (), build_s=0.0, run_s=0.0)
            return ok(candidate)
        watch.now += seconds
        return Measurement(untuned, (seconds,), (True,), build_s=0.0, run_s=seconds)

    return FormulaMeasurer(answer)


def watch_comparisons(measurer: FormulaMeasurer) -> list[str]:
    """The keys of what is compared from now on."""
    compared: list[str] = []
    answer = measurer.compare

    def compare(candidates: Sequence[Candidate]) -> list[Measurement]:
        compared.extend(c.key for c in candidates)
        return answer(candidates)

    measurer.compare = compare  # type: ignore[method-assign]
    return compared


@pytest.mark.parametrize(("seconds", "asked"), [(10.0, 0), (200.0, 1), (2000.0, 3)])
def test_long_untuned_programs_take_a_small_share_of_the_time(
    monkeypatch: pytest.MonkeyPatch, seconds: float, asked: int
) -> None:
    # 2.1, 4.2 and 17 billion operations: 22 seconds are expected of the first, then 50 and 205.
    tasks = [untuned_of(n) for n in (2048, 1024, 1280)]
    measurer = slow_when_untuned(Stopwatch(monkeypatch), 25.0)
    compared = watch_comparisons(measurer)
    Tuner(tasks, measurer, Budget(seconds=seconds, trials=12)).run()
    untuned = [tasks[at].space.untuned.key for at in (1, 2, 0)]
    assert [key for key in measurer.asked if key in untuned] == untuned[:asked], "smallest first"
    assert not set(untuned) & set(compared), "beyond doubt, or left out"
    assert [task.untuned_s for task in tasks].count(None) == 3 - asked
    assert all(task.tuned and task.confirmed for task in tasks)


def test_an_untuned_program_without_a_default_schedule_to_beat_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = untuned_of(2048)
    measurer = slow_when_untuned(Stopwatch(monkeypatch), 25.0, default=Status.TIMEOUT)
    Tuner([task], measurer, Budget(seconds=60.0, trials=4)).run()
    assert task.untuned_s == 25.0, "15 % of the time are 9 seconds"


def test_an_untuned_program_that_fails_at_once_says_nothing_of_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watch = Stopwatch(monkeypatch)
    slow = slow_when_untuned(watch, 500.0).answer

    def answer(candidate: Candidate) -> Measurement:
        if candidate.sketch.is_untuned and candidate.workload.name == "m1024":
            return Measurement(Status.RUN_ERROR, (), (), build_s=0.1, run_s=0.0)
        return slow(candidate)

    tasks = [untuned_of(n) for n in (1024, 2048)]
    Tuner(tasks, FormulaMeasurer(answer), Budget(seconds=250, trials=8)).run()
    assert sum(task.spent for task in tasks) == 8
    assert tasks[1].untuned_s is None, "171 seconds are expected of it"


def test_a_run_that_goes_on_measures_no_more_untuned_programs_than_it_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Stopwatch(monkeypatch)
    found = []
    for trials in (16, 16, 24):
        tasks = [untuned_of(n) for n in (1024, 1056, 1088, 1120)]
        measurer = slow_when_untuned(watch, 25.0)
        with Journal(tmp_path / JOURNAL) as journal:
            Tuner(tasks, measurer, Budget(seconds=400, trials=trials), journal=journal).run()
        found.append([task.untuned_s for task in tasks])
    assert found == [[25.0, 25.0, None, None]] * 3


def test_what_was_left_out_stays_so_where_the_time_was_spent_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(FormulaMeasurer):
        def compare(self, candidates: Sequence[Candidate]) -> list[Measurement]:
            raise KeyboardInterrupt

    watch = Stopwatch(monkeypatch)
    first = Interrupted(slow_when_untuned(watch, 25.0).answer)
    again = slow_when_untuned(watch, 25.0)
    compared = watch_comparisons(again)
    for measurer in (first, again):
        task = untuned_of(2048)
        with Journal(tmp_path / JOURNAL) as journal:
            tuner = Tuner([task], measurer, Budget(seconds=0.5), journal=journal, batch=4)
            tuner.run()
    assert tuner.interrupted is False
    assert task.space.untuned.key not in [*first.asked, *again.asked, *compared]
    assert compared and task.tuned and task.confirmed


def test_without_a_limit_of_time_all_untuned_programs_are_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tasks = [untuned_of(n) for n in (2048, 1024)]
    measurer = slow_when_untuned(Stopwatch(monkeypatch), 25.0)
    Tuner(tasks, measurer, Budget(trials=8)).run()
    assert [task.untuned_s for task in tasks] == [25.0, 25.0]


@pytest.mark.parametrize("status", [Status.OK, Status.CUT_SHORT])
@pytest.mark.parametrize(("seconds", "rival"), [(20.0, False), (0.5, True)])
def test_an_untuned_program_of_many_seconds_is_not_timed_again(
    monkeypatch: pytest.MonkeyPatch, seconds: float, rival: bool, status: Status
) -> None:
    task = two_tasks()[1]
    measurer = slow_when_untuned(Stopwatch(monkeypatch), seconds, untuned=status)
    compared = watch_comparisons(measurer)
    Tuner([task], measurer, Budget(trials=4)).run()
    assert task.confirmed
    assert (task.space.untuned.key in compared) == rival
    assert task.untuned_s == seconds


def test_a_baseline_left_out_is_compared_with_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Stopwatch(monkeypatch)
    measurer = watch.measurer()
    compared: list[str] = []

    def compare(candidates: Sequence[Candidate]) -> list[Measurement]:
        compared.extend(c.key for c in candidates)
        return [ok(c) for c in candidates]

    measurer.compare = compare  # type: ignore[method-assign]
    task = Task(matmul(), HARDWARE, strategy="random", cost_model="random")
    task.tell([(c, ok(c)) for c in task.ask(4)])
    Tuner([task], measurer, Budget(seconds=1)).run()
    fresh = Task(matmul(), HARDWARE, strategy="random", cost_model="random")
    (untuned, _), (default, _) = fresh.baselines.missing()
    assert measurer.asked == [untuned.key]
    assert {untuned.key, default.key} <= set(compared)
    assert task.tuned and task.confirmed


def test_resuming_counts_the_time_of_confirming_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Stopwatch(monkeypatch)
    elapsed = []
    for _ in range(2):
        task = Task(matmul(), HARDWARE, strategy="random", cost_model="random")
        with Journal(tmp_path / JOURNAL) as journal:
            tuner = Tuner([task], watch.measurer(), Budget(seconds=10), journal=journal, batch=4)
            tuner.run()
        elapsed.append(tuner.spending.elapsed_s)
        assert task.spent == 8
    assert elapsed[0] > 11.5, "two baselines, eight trials, and at least two confirmed"
    assert elapsed[1] == elapsed[0]


def test_a_budget_that_setting_up_spends_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    measurer = Stopwatch(monkeypatch).measurer()
    tuner = Tuner(two_tasks(), measurer, Budget(seconds=5), outside=Outside(began=-6.0))
    with pytest.raises(NothingMeasuredError, match=r"budget of 5 s.*took 6\.0 s.*--time"):
        tuner.run()
    assert measurer.asked == []


def test_the_bests_of_several_tasks_are_confirmed_in_one_comparison() -> None:
    measurer = FormulaMeasurer()
    calls: list[set[str]] = []

    def compare(candidates: Sequence[Candidate]) -> list[Measurement]:
        calls.append({c.workload.name for c in candidates})
        return [ok(c) for c in candidates]

    measurer.compare = compare  # type: ignore[method-assign]
    tasks = two_tasks()
    Tuner(tasks, measurer, Budget(trials=8), batch=4).run()
    assert calls == [{"m32", "m64"}]
    for task in tasks:
        assert task.confirmed and task.best is not None
        assert task.best.workload == task.workload


def test_confirming_goes_on_only_while_there_is_time(monkeypatch: pytest.MonkeyPatch) -> None:
    measurer = Stopwatch(monkeypatch).measurer()
    tasks = [
        Task(matmul(n, f"m{n}"), HARDWARE, strategy="random", cost_model="random")
        for n in (16, 24, 32, 48, 64)
    ]
    for task in tasks:
        task.tell([(c, ok(c)) for c in task.ask(2)])
    tuner = Tuner(tasks, measurer, Budget(seconds=1), outside=Outside(began=-2.0))
    tuner.run()
    assert measurer.asked == []
    assert sum(task.confirmed for task in tasks) == 4, "the first comparison is always made"


def test_a_confirmation_that_fails_is_kept_and_the_candidate_is_out(tmp_path: Path) -> None:
    measurer = FormulaMeasurer()
    compared: list[Candidate] = []

    def compare(candidates: Sequence[Candidate]) -> list[Measurement]:
        compared.extend(candidates)
        wrong = Measurement(Status.WRONG_OUTPUT, message="a race")
        return [wrong, *(ok(c) for c in candidates[1:])]

    measurer.compare = compare  # type: ignore[method-assign]
    result = run(tmp_path, measurer, 12)
    assert result.tasks[0].best != compared[0]
    with Journal(tmp_path / JOURNAL) as journal:
        statuses = [r.measurement.status for r in journal.records() if r.origin == "confirm"]
        assert Status.WRONG_OUTPUT in statuses
        best = journal.best(matmul().key, HARDWARE.key)
    assert best is not None and best.candidate_key != compared[0].key


def test_others_records_teach_and_are_tried_first_but_are_no_trials(tmp_path: Path) -> None:
    donor = Task(matmul(), HARDWARE, strategy="random", cost_model="random", seed=9)
    theirs = donor.ask(8)
    with Journal(tmp_path / JOURNAL) as journal:
        journal.extend([donor.record(c, ok(c), origin="metaschedule") for c in theirs])
    measurer = FormulaMeasurer()
    result = run(tmp_path, measurer, 6)
    assert len(result.tasks[0].trials) == 6, "imported records are not spent trials"
    fastest = min(theirs, key=seconds_of)
    assert fastest.key in measurer.asked, "the best of others is measured here before it counts"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trials": 0}, "trials >= 1"),
        ({"trials": 4, "strategy": "nonsense"}, "unknown strategy 'nonsense'.*evolutionary"),
        ({"trials": 4, "cost_model": "nonsense"}, "unknown cost model 'nonsense'.*gbdt"),
    ],
)
def test_unusable_arguments_are_refused(options: dict[str, object], message: str) -> None:
    trials = options.pop("trials")
    assert isinstance(trials, int)
    with pytest.raises(BadInputError, match=message):
        run(None, FormulaMeasurer(), trials, **options)


@pytest.mark.parametrize(
    ("strategy", "options", "message"),
    [
        ("mcts", {"branching": "many"}, "branching must be int"),
        ("mcts", {"x": 1}, "has an option 'x'"),
        ("mcts:heuristic:branching=4", {"branching": 2}, "leave one of them out"),
        ("mcts", {"proposer": "llm"}, "needs a language model"),
        ("mcts", {"llm": object()}, "no option of a strategy"),
    ],
)
def test_options_are_refused_before_anything_takes_time(
    monkeypatch: pytest.MonkeyPatch, strategy: str, options: dict[str, object], message: str
) -> None:
    def slow(*_args: object, **_options: object) -> NoReturn:
        raise AssertionError("too early")

    for name in ("asked.probe", "proving.prepare", "run.measurer_for"):
        monkeypatch.setattr(f"foretune.tuning.{name}", slow)
    with pytest.raises(BadInputError, match=message):
        foretune.tune("resnet50", strategy=strategy, options=options, trials=4)


def test_what_a_strategy_refuses_is_no_operator_that_stays_untuned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Choosy(RandomSearch):
        """Refuses this very space."""

        def __init__(self, *_args: object, **_options: object) -> None:
            raise BadInputError("not here")

    search.register("choosy", Choosy)
    monkeypatch.setattr(
        "foretune.tuning.proving.prepare",
        lambda *_: Prepared(Model("m", None, (), (), ()), (matmul(),)),
    )
    try:
        with pytest.raises(BadInputError, match="not here"):
            foretune.tune("m", target=HARDWARE, strategy="choosy", trials=4,
                          measurer=FormulaMeasurer())  # fmt: skip
    finally:
        search.unregister("choosy")


def test_threads_that_contradict_the_hardware_are_refused() -> None:
    with pytest.raises(BadInputError, match=r"threads=3.*replace\(hardware, threads=3\)"):
        foretune.tune(matmul(), target=HARDWARE, threads=3, trials=4, measurer=FormulaMeasurer())


def test_inputs_of_one_file_name_have_work_directories_of_their_own() -> None:
    places = {
        default_work_dir(what, HARDWARE, *shapes)
        for what in ("net.onnx", "a/net.onnx", "b/net.onnx")
        for shapes in ((), ("x=1,3,8,8",), ("x=1,3,16,16",))
    }
    assert len(places) == 9
    assert default_work_dir("./a/net.onnx", HARDWARE) == default_work_dir("a/net.onnx", HARDWARE)


def test_long_settings_make_names_that_file_systems_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    until = [f"until={','.join([*(['/model/block/output_0'] * 40), end])}" for end in "ab"]
    places = [default_work_dir("net.onnx", HARDWARE, setting) for setting in until]
    for place in places:
        place.mkdir(parents=True)
        assert place.name.startswith("net.onnx-") and len(place.name) <= 200
    assert len(set(places)) == 2
    assert default_work_dir("net.onnx", HARDWARE, until[0]) == places[0]


def test_a_work_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "taken"
    path.write_text("")
    with pytest.raises(RecordError, match="--work-dir"):
        run(path, FormulaMeasurer(), 4)


def _tasks(sizes: Sequence[int]) -> list[Task]:
    made = [matmul(n, f"matmul_{n}") for n in sizes]
    return [Task(w, HARDWARE, strategy="random", cost_model="random") for w in made]


@pytest.mark.parametrize(("trials", "wanted"), [(16, [2] * 4), (9, [1] * 4), (3, [1, 1, 1, 0])])
def test_few_trials_reach_as_many_tasks_as_they_can(trials: int, wanted: list[int]) -> None:
    tasks = _tasks([16, 24, 32, 48])
    tuner = Tuner(tasks, FormulaMeasurer(), Budget(trials=trials), batch=8)
    tuner.run()
    # What is left after the first look is one task's.
    assert sorted((task.spent for task in tasks), reverse=True)[1:] == wanted[1:]
    assert tuner.spending.trials == trials


def test_little_time_reaches_every_task_before_one_gets_a_batch() -> None:
    tasks = _tasks([16, 24, 32, 48])
    seen: list[int] = []

    class Watching(Silent):
        def update(self, task: Task, spent: int, elapsed_s: float) -> None:
            seen.append(tasks.index(task))

    Tuner(tasks, FormulaMeasurer(), Budget(trials=40, seconds=6), progress=Watching()).run()
    assert sorted(seen[: len(tasks)]) == [0, 1, 2, 3]


def test_where_batches_reach_every_task_each_gets_one() -> None:
    tasks = _tasks([16, 24, 32])
    Tuner(tasks, FormulaMeasurer(), Budget(trials=24), batch=4).run()
    assert all(task.spent >= 4 for task in tasks)


def test_a_network_has_default_schedules_to_beat_and_no_naive_programs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tasks = _tasks([16, 24, 32, 48])
    measurer = Stopwatch(monkeypatch).measurer()
    compared = watch_comparisons(measurer)
    Tuner(tasks, measurer, Budget(seconds=30), outside=Outside(proven=True)).run()
    defaults = [task.space.default.key for task in tasks]
    assert measurer.asked[:4] == defaults, "before the first candidate"
    assert not {task.space.untuned.key for task in tasks} & {*measurer.asked, *compared}
    assert all(task.spent and task.default_s and task.untuned_s is None for task in tasks)


def test_a_network_without_time_is_left_with_what_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tasks = _tasks([16, 24, 32, 48])
    measurer = Stopwatch(monkeypatch).measurer()
    Tuner(tasks, measurer, Budget(seconds=2.5), outside=Outside(proven=True)).run()
    assert 0 < len(measurer.asked) < 4
    assert [task.best_s is not None for task in tasks] == [
        task.space.default.key in measurer.asked for task in tasks
    ]
