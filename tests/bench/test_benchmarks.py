"""The scripts of ``make bench``, with tiny settings or made-up figures."""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as chooser
from benchmarks import networks, placement, results, retest, sampling, search64, throughput
from foretune.errors import BadInputError
from foretune.hardware import Hardware, probe


def test_sampling_prints_a_table_and_writes_it_with_its_conditions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    sampling.main(["--workloads", "matmul_512", "--candidates", "50", "--repeats", "1", "--write"])
    printed = capsys.readouterr().out
    assert "matmul_512" in printed
    assert "python -m benchmarks.sampling" in printed
    written = json.loads((tmp_path / "sampling.json").read_text())
    assert written["rows"][0]["candidates"] == 50
    conditions = written["conditions"]
    assert {"hardware", "command", "versions", "machine", "busy_before", "seeds"} <= set(conditions)
    assert (tmp_path / "sampling.md").read_text() in printed


def test_a_table_lines_up() -> None:
    lines = results.table(["a", "bb"], [["xyz", "1"]]).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[1].startswith("|--")


def test_retest_compares_what_both_phases_timed() -> None:
    def reading(seconds: float | None, quiet: bool = True) -> dict[str, Any]:
        return {"status": "ok" if seconds else "timeout", "seconds": seconds, "quiet": quiet}

    first = {"w": {"a": reading(1.0), "b": reading(2.0), "c": reading(None)}}
    second = {"w": {"a": reading(1.0), "b": reading(1.0, quiet=False), "c": reading(1.0)}}
    everything, quiet = retest.CHOICES[retest.OURS].values()
    assert retest.log_ratios(first, second, quiet) == [0.0]
    assert retest.log_ratios(first, second, everything) == pytest.approx([0.0, 0.6931472])


def test_placement_shows_ratios_and_how_often_the_threads_moved() -> None:
    series = [(0.0, 1e-4, 2e-5), (1.0, 1e-4, 6e-5), (2.0, 1e-4, 2e-5), (3.0, 1e-4, 2e-5)]
    distances = {str(d): [2e-4 if d == 64 else 1e-4] * 3 for d in placement.DISTANCES}
    processes = {
        placement.AS_IT_COMES: [[1.0, 2.0], [1.0, 1.2], [1.0, 1.05]],
        placement.LAID_OUT: [[1.0, 1.04], [1.0, 1.0], [1.2, 1.0]],
    }
    body = placement._body({"distances": distances, "series": series, "processes": processes})
    assert "2.00 to 2.00" in body
    assert "25% of them, and changed sides 2 times" in body
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in body.splitlines()]
    assert ["as it comes", "3", "2", "1.20", "2.00"] in cells
    assert ["laid out alike", "3", "1", "1.04", "1.20"] in cells


@pytest.mark.slow
def test_placement_reads_the_same_candidates_in_several_processes() -> None:
    hardware = probe()
    candidates = placement.sample(["matmul_512"], hardware, 2)
    found = placement.time_processes(candidates, processes=2, rounds=1)
    assert set(found) == set(placement.LAYOUTS)
    for seconds in found.values():
        assert 1 <= len(seconds) <= 2
        assert all(len(row) == 2 and all(0 < value < 60 for value in row) for row in seconds)


def test_placement_needs_every_thread() -> None:
    many = replace(probe(), threads=4096)
    with pytest.raises(BadInputError, match=r"4096 threads in TVM.s pool, but it has \d+"):
        placement.require_threads(many)
    with pytest.raises(BadInputError, match="two threads or more"):
        placement.require_threads(replace(probe(), threads=1))


def test_placement_gives_the_pool_every_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    class StopHereError(Exception):
        pass

    def refuse(hardware: Hardware) -> None:
        assert os.environ["TVM_NUM_THREADS"] == str(hardware.threads)
        raise StopHereError

    monkeypatch.setenv("TVM_NUM_THREADS", "1")
    monkeypatch.setattr(placement, "require_threads", refuse)
    with pytest.raises(StopHereError):
        placement.main([])


def test_retest_shows_a_side_that_measured_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    good = {"w": {"a": {"status": "ok", "seconds": 1.0, "quiet": True}}}
    none = {"w": {"a": {"status": "run_error", "seconds": None, "quiet": False}}}
    phase = {"began": 0.0, "ended": 1.0, "readings": {"foretune": good, "metaschedule": none}}
    options = argparse.Namespace(workloads="w", candidates=1, write=False)
    retest._report(phase, phase, results.conditions("retest", [0]), options)
    printed = capsys.readouterr().out
    assert printed.count("| metaschedule") == 1
    assert "Measurements that failed: foretune 0, metaschedule 2." in printed


def test_the_second_phase_refuses_to_come_too_soon(tmp_path: Path) -> None:
    (tmp_path / "first.json").write_text(json.dumps({"ended": 9e12, "readings": {}}))
    with pytest.raises(BadInputError, match="between the phases"):
        retest.main(["second", "--work-dir", str(tmp_path)])


def test_overhead_is_what_neither_compiled_nor_ran() -> None:
    spent = {"build_s": 5.0, "measure_s": 3.0, "canary_s": 1.0, "search_s": 0.5}
    assert throughput.overhead(10.0, spent) == pytest.approx(0.1)


def test_throughput_compares_with_and_without_the_import_trap() -> None:
    runs = [
        {"workload": "w", "side": side, "trials_per_s": rate, "failed": 0, "overhead": 0.05,
         "spent_s": {"build_s": 1.0}}
        for side, rate in zip(throughput.SIDES, (8.0, 1.0, 2.0), strict=True)
    ]  # fmt: skip
    body = throughput._body(runs, argparse.Namespace(workloads="w", trials=64, repeats=1))
    rows = {line.split("|")[1].strip(): line for line in body.splitlines() if "|" in line}
    assert "8.00" in rows["metaschedule"].split("|")[4]
    assert "4.00" in rows["metaschedule, import trap removed"].split("|")[4]
    assert "5.0%" in body


def test_search64_says_what_the_peer_is() -> None:
    run = {"workload": "w", "strategy": "metaschedule", "curve": [[64, 1.0, 1e-3]]}
    result = {
        "runs": [run],
        "failures": [],
        "notes": {"metaschedule": "partly random search"},
        "summary": {"speedup": [], "trials_per_s": [], "over_untuned": []},
    }
    body = search64._body(result)
    assert "partly random search" in body
    assert "1.0000" in body


def test_networks_shows_every_engine() -> None:
    result = {
        "tune": {"elapsed_s": 1200.0, "tasks": [{"trials": [{"best_s": 1.0}] * 7}]},
        "compare": {
            "latency_s": {
                "foretune": {"median": 0.01, "low": 0.009, "high": 0.011},
                "eager": {"median": 0.02, "low": 0.019, "high": 0.021},
            },
            "max_abs_error": 1e-5,
        },
    }
    body = networks._body({"net": {**result, "tune": networks.without_repeats(result["tune"])}})
    assert "10.00 (9.00 to 11.00)" in body
    assert "eager, ms" in body
    assert "| 7 " in body


def test_the_chooser_names_what_it_knows() -> None:
    with pytest.raises(SystemExit, match="throughput"):
        chooser.main(["speed"])


def test_networks_keeps_the_trials_that_improved_and_counts_all() -> None:
    trials = [{"index": i, "best_s": best} for i, best in enumerate((None, 2.0, 2.0, 1.0))]
    (task,) = networks.without_repeats({"tasks": [{"name": "t", "trials": trials}]})["tasks"]
    assert [trial["index"] for trial in task["trials"]] == [1, 3]
    assert task["trial_count"] == 4
