"""The scripts of ``make bench``, with tiny settings or made-up figures."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path

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


def test_reading_programs_is_timed_without_a_model(hardware: Hardware) -> None:
    timed = model_speed.scorers(["random"], hardware)
    assert list(timed) == ["cost model random", model_speed.PROGRAMS]
    candidates = model_speed.Unscored("matmul:64x64x64", hardware).take(4)
    assert [rows.shape[1] for rows in timed[model_speed.PROGRAMS](candidates)] == [164] * 4


@pytest.mark.slow
def test_model_speed_judges_the_slowest_workload() -> None:
    rows = [
        {"model": "m (default)", "workload": "a", "batch": 64, "cold": [0.5], "warm": [0.1]},
        {"model": "m (default)", "workload": "b", "batch": 64, "cold": [2.0], "warm": [0.1]},
        {"model": "quick", "workload": "a", "batch": 64, "cold": [0.5], "warm": [0.1]},
        {"model": "quick", "workload": "b", "batch": 64, "cold": [], "warm": []},
    ]
    where = {"hardware": {"name": "n"}, "command": "c", "began": "then"}
    run = {"rows": rows, "conditions": where}
    told = model_speed.section({"runs": [run, run]})
    assert "takes 1.25 ms" in told.answer and "2.00 on the slowest" in told.answer
    assert "1 of 2 models" in told.answer and "`c` on n, then" in told.details
    lines = {line.split("|")[1].strip(): line for line in told.table.splitlines()}
    assert "1.250 (2.000)" in lines["m (default)"] and "0.500 (0.500)" in lines["quick"]
