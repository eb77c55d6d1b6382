"""The scripts of ``make bench``, with tiny settings or made-up figures."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import (
    model_speed,
    results,
    sources,
)
from foretune.hardware import Hardware
from foretune.space import Candidate

pytestmark = pytest.mark.slow


def test_a_table_lines_up() -> None:
    lines = results.table(["a", "bb"], [["xyz", "1"]]).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[1].startswith("|--")


def test_the_hash_of_code_looks_at_what_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)

    def code(name: str, text: str) -> str:
        (tmp_path / f"{name}.py").write_text(text)
        importlib.invalidate_caches()
        return sources.code_of(name, within=("cost",))

    first = code("made_up_1", '"""Text."""\ndef f(x):\n    """More."""\n    return x + 1\n')
    other = code("made_up_2", "def f(x):\n    return x + 1  # why\n")
    changed = code("made_up_2", "def f(x):\n    return x + 2\n")
    following = code("made_up_2", "import foretune.cost.random\n")
    plain = code("made_up_2", "import foretune.space.decision\n")
    # Neither comments nor where a module lies count.
    assert first == other != changed
    assert len({other, changed, following, plain}) == 4
    assert code("made_up_2", "def f(x):\n\n    return (x + 1)\n") == other


# Speed of models


def test_no_candidate_is_timed_cold_twice(hardware: Hardware) -> None:
    source = model_speed.Unscored("matmul:64x64x64", hardware)
    calls: list[list[str]] = []

    def scorer(candidates: Sequence[Candidate]) -> None:
        calls.append([candidate.key for candidate in candidates])

    found = model_speed.time_batches(scorer, source, 64)
    assert len(found["cold"]) == len(found["warm"]) == 3
    assert calls[0] == calls[1] and calls[2] == calls[3]
    cold = [*calls[0], *calls[2], *calls[4]]
    assert len(set(cold)) == len(cold) == 3 * 64


def test_model_speed_judges_the_slowest_workload() -> None:
    rows = [
        {"model": "m", "workload": "a", "batch": 64, "cold": [0.5], "warm": [0.1]},
        {"model": "m", "workload": "b", "batch": 64, "cold": [2.0], "warm": [0.1]},
        {"model": "quick", "workload": "a", "batch": 64, "cold": [0.5], "warm": [0.1]},
        {"model": "quick", "workload": "b", "batch": 64, "cold": [], "warm": []},
    ]
    body = model_speed._body(rows)
    lines = {line.split("|")[1].strip(): line for line in body.splitlines() if "|" in line}
    assert "1.250 (2.000)" in lines["m"] and "not met" in lines["m"]
    assert "0.500 (0.500)" in lines["quick"] and "not met" not in lines["quick"]


def test_a_goal_of_candidates_a_second_is_judged_by_the_slowest_workload() -> None:
    rows = [
        {"model": model, "workload": workload, "processes": processes, "rate": rate * processes}
        for model, rates in (
            (model_speed.label("world"), {"a": 4000.0, "b": 9000.0}),
            (model_speed.PROGRAMS, {"a": 70.0, "b": 90.0}),
        )
        for processes in (1, 2)
        for workload, rate in rates.items()
    ]
    text = model_speed._rates_body(rows)
    lines = {line.split("|")[1].strip(): line for line in text.splitlines() if "|" in line}
    assert "6,500 (4,000)" in lines["cost model world"]
    assert "13,000 (8,000)" in lines["cost model world"]
    assert "80 (70)" in lines[model_speed.PROGRAMS]
    (goal,) = [line for line in text.splitlines() if line.startswith("- Goal")]
    assert "one process 4,000, not met; 2 processes 8,000, met" in goal
    # Without the model that has a goal there is none.
    others = [row for row in rows if row["model"] == model_speed.PROGRAMS]
    assert "Goal" not in model_speed._rates_body(others)


def test_a_rate_is_of_what_was_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(model_speed, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def takes(seconds: float) -> Callable[[Sequence[Candidate]], None]:
        def score(_batch: Sequence[Candidate]) -> None:
            now[0] += seconds

        return score

    batches: Any = [[None] * 10] * 3
    assert model_speed.rate(takes(0.5), batches) == pytest.approx(30 / 1.5)
    # Who takes long is not asked again.
    assert model_speed.rate(takes(4.0), batches) == pytest.approx(10 / 4.0)


def test_reading_programs_is_timed_without_a_model(hardware: Hardware) -> None:
    timed = model_speed.scorers([], ["random"], hardware)
    assert list(timed) == ["cost model random", model_speed.PROGRAMS]
    candidates = model_speed.Unscored("matmul:64x64x64", hardware).take(4)
    assert [rows.shape[1] for rows in timed[model_speed.PROGRAMS](candidates)] == [164] * 4


@pytest.mark.slow
def test_processes_that_score_at_once_are_added_up(hardware: Hardware) -> None:
    names, workloads = ["random", model_speed.PROGRAMS], ["matmul:64x64x64", "matmul:32x64x64"]
    found = model_speed.rates(names, workloads, hardware, 2, batch=8)
    assert [(row["model"], row["workload"], row["processes"]) for row in found] == [
        (model_speed.label(name), workload, 2) for name in names for workload in workloads
    ]
    assert all(row["rate"] > 0 for row in found)


def test_model_speed_refuses_other_batches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        model_speed.main(["--batches", "7"])
    assert "1, 64, 512" in capsys.readouterr().err


def test_model_speed_refuses_no_processes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        model_speed.main(["--processes", "0"])
    assert "processes >= 1 must hold, but got 0" in capsys.readouterr().err
