"""Live progress, on a terminal and in a log file."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from foretune.report import TuneProgress
from tests.report.support import network


def _task(name: str, spent: int = 0, best_s: float | None = None, weight: int = 1) -> Any:
    return SimpleNamespace(
        workload=SimpleNamespace(key=name, name=name, weight=weight, flops=1e8),
        hardware=SimpleNamespace(peak_gflops=200.0),
        spent=spent,
        default_s=4e-3,
        best_s=best_s,
        status="",
    )


def _budget(trials: int | None = None, seconds: float | None = None) -> Any:
    return SimpleNamespace(trials=trials, seconds=seconds)


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def out() -> io.StringIO:
    return io.StringIO()


def test_a_log_file_gets_a_line_now_and_then(out: io.StringIO) -> None:
    clock = Clock()
    progress = TuneProgress(Console(file=out, width=40), every_s=10.0, clock=clock)
    tasks = [_task("a"), _task("b")]
    progress.start(tasks, _budget(trials=100))
    progress.phase("measuring the untuned programs")
    for spent in range(1, 31):
        clock.now += 1.0
        progress.update(_task("a", spent, 1e-3), spent, clock.now)
    progress.finish()
    lines = out.getvalue().splitlines()
    assert lines[:2] == ["tuning 2 tasks", "measuring the untuned programs"]
    assert lines[2].startswith("10 of 100 trials in 10 s")
    assert "about 1 min 30 s left" in lines[2]
    assert "a: best 1.00 ms, 100 GFLOP/s, 50 % of peak" in lines[2]
    assert len(lines) == 6
    assert lines[-1].startswith("done: 30 of 100 trials")
    assert "\x1b" not in out.getvalue()


def test_the_proof_is_told_with_what_it_took_and_the_original_beside(out: io.StringIO) -> None:
    clock = Clock()
    progress = TuneProgress(Console(file=out, width=40), clock=clock)
    clock.now = 12.34
    told = SimpleNamespace(to_json=network, inputs=2, max_abs_error=3e-6)
    progress.proved(told)  # type: ignore[arg-type]
    assert out.getvalue() == (
        "proved: equal to the original within 3e-06 on 2 inputs after 12.3 s; default 640 ms, "
        "original (ONNX Runtime) 40.0 ms\n"
    )


def test_what_the_strategy_has_to_say_is_shown(out: io.StringIO) -> None:
    progress = TuneProgress(Console(file=out, width=40), every_s=0.0)
    task = _task("a", 1, 1e-3)
    task.status = "language model: 3 calls"
    progress.start([task], _budget(trials=9))
    progress.update(task, 1, 1.0)
    assert "; language model: 3 calls; a: best" in out.getvalue()


def test_a_terminal_gets_a_table_that_marks_the_task_at_work(out: io.StringIO) -> None:
    console = Console(file=out, width=100, height=12, force_terminal=True)
    progress = TuneProgress(console)
    progress.start([_task(f"task{i}", weight=i) for i in range(30)], _budget(seconds=60.0))
    progress.update(_task("task0", 3, 1e-3, weight=0), 3, 20.0)
    console.print(progress._render())
    progress.finish()
    shown = out.getvalue()
    assert "task29" in shown
    assert "task10" not in shown
    marked = [line for line in shown.splitlines() if "▸" in line]
    assert any("task0" in line and "1.00 ms" in line for line in marked)
    assert "about 40 s left" in shown
    assert "more tasks)" in shown


def test_a_resumed_run_estimates_from_its_own_trials(out: io.StringIO) -> None:
    progress = TuneProgress(Console(file=out))
    progress.start([_task("a")], _budget(trials=100))
    assert progress.left_s() is None
    progress.update(_task("a", 50, 1e-3), 50, 1000.0)
    assert progress.left_s() is None
    progress.update(_task("a", 60, 1e-3), 60, 1020.0)
    assert progress.left_s() == pytest.approx(80.0)


def test_what_earlier_runs_spent_is_told_and_counts(out: io.StringIO) -> None:
    progress = TuneProgress(Console(file=out, width=200))
    progress.start([_task("a")], _budget(trials=64, seconds=90.0))
    progress.resumed(64, 30.0)
    assert progress.left_s() == pytest.approx(60.0)
    progress.finish()
    lines = out.getvalue().splitlines()
    assert lines[1] == "resuming: 64 trials spent earlier count (--fresh starts anew)"
    assert lines[-1].startswith("done: 64 of 64 trials in 30 s")


def test_a_run_that_resumes_nothing_says_nothing(out: io.StringIO) -> None:
    progress = TuneProgress(Console(file=out, width=200))
    progress.start([_task("a")], _budget(trials=64))
    progress.resumed(0, 0.0)
    assert "resuming" not in out.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
def test_why_a_run_ended_early_is_told(out: io.StringIO, terminal: bool) -> None:
    progress = TuneProgress(Console(file=out, width=200, force_terminal=terminal))
    progress.start([_task("a")], _budget(trials=64))
    progress.stopped("every task stopped: its space is exhausted")
    progress.finish()
    assert "every task stopped: its space is exhausted" in out.getvalue()


def test_the_nearer_of_two_limits_counts(out: io.StringIO) -> None:
    progress = TuneProgress(Console(file=out))
    progress.start([_task("a")], _budget(trials=1000, seconds=30.0))
    progress.update(_task("a", 1), 1, 1.0)
    progress.update(_task("a", 2), 2, 2.0)
    assert progress.left_s() == pytest.approx(28.0)


def test_an_unknown_latency_is_not_summed(out: io.StringIO) -> None:
    clock = Clock()
    progress = TuneProgress(Console(file=out, width=200), clock=clock)
    unknown = _task("a")
    unknown.default_s = None
    progress.start([unknown, _task("b")], _budget(trials=10))
    progress.finish()
    assert "sum of kernels –" in out.getvalue()


def test_latencies_that_became_known_meanwhile_are_shown(out: io.StringIO) -> None:
    progress = TuneProgress(Console(file=out, width=200))
    waiting = _task("a")
    waiting.default_s = None
    progress.start([waiting, _task("b")], _budget(trials=10))
    waiting.default_s = 1e-3
    progress.update(_task("b", 1, 2e-3), 1, 1.0)
    progress.finish()
    assert "sum of kernels 3.00 ms" in out.getvalue()
