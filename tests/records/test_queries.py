"""Questions about records."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from foretune.hardware import Hardware
from foretune.measure import Status
from foretune.records import (
    CONFIRM,
    UNTUNED,
    Journal,
    Record,
    TimeSplit,
    add_missing,
    best_of_each,
    counts_by_status,
    failure_messages,
    fastest,
    merge,
    print_info,
    spent_trials,
    time_split,
    top,
)
from foretune.workload import Workload
from tests.records.support import record

CRASHED = record(8, status=Status.CRASH, best_s=None, message="signal 11\ndetails")


def test_top_ranks_candidates_by_their_fastest_ok_record() -> None:
    slow, fast, again = (
        record(0, best_s=3e-3),
        record(1, best_s=1e-3),
        record(2, candidate="c0", best_s=2e-3),
    )
    cut = record(3, best_s=1e-4, status=Status.CUT_SHORT)
    assert top([slow, fast, again, cut, CRASHED]) == [fast, again]
    assert top([slow, fast, again], 1) == [fast]
    assert top([CRASHED]) == []
    assert fastest([]) is None


def test_a_confirmed_value_counts_more_than_a_lucky_one() -> None:
    lucky = record(0, best_s=1.0e-3)
    confirmed = record(1, candidate="c0", best_s=1.4e-3, origin=CONFIRM)
    other = record(2, best_s=1.2e-3)
    assert top([lucky, confirmed, other]) == [confirmed, other], "confirmed ones come first"
    assert top([lucky, confirmed, record(3, candidate="c0", best_s=1.1e-3)]) == [confirmed]
    confirmed_again = record(4, candidate="c0", best_s=1.5e-3, origin=CONFIRM)
    assert top([confirmed, confirmed_again]) == [confirmed_again]


def test_only_the_last_comparison_counts_as_confirmed() -> None:
    def compared(candidate: str, best_s: float, time: float) -> Record:
        return replace(record(candidate=candidate, best_s=best_s, origin=CONFIRM), time=time)

    yesterday = [compared("a", 0.5e-3, 1.0), compared("b", 0.6e-3, 1.0)]
    today = [compared("a", 2.0e-3, 2.0), compared("c", 1.5e-3, 2.0)]
    trial = record(candidate="d", best_s=0.7e-3)
    assert top([*yesterday, trial, *today]) == [today[1], today[0], yesterday[1], trial]


def test_a_candidate_once_seen_wrong_is_never_best() -> None:
    fast = record(0, best_s=1e-3)
    wrong = record(1, candidate="c0", status=Status.WRONG_OUTPUT, best_s=None)
    slow = record(2, best_s=2e-3)
    assert fastest([fast, wrong, slow]) == slow
    assert fastest([wrong, fast, slow]) == slow
    crashed = record(3, candidate="c0", status=Status.CRASH, best_s=None, origin=CONFIRM)
    assert fastest([fast, crashed, slow]) == slow


def test_the_untuned_program_and_confirmations_are_no_trials() -> None:
    records = [record(0), CRASHED, record(1, origin=UNTUNED), record(2, origin=CONFIRM)]
    assert spent_trials(records) == 2


def test_a_candidate_is_one_trial_however_often_it_was_measured() -> None:
    """By two tuners that share a journal, or in lines that stand twice."""
    again = record(5, candidate="c0")
    assert spent_trials([record(0), record(0), again, record(0, hardware="g")]) == 2


def test_failures_are_counted_by_kind_and_message() -> None:
    records = [record(0), CRASHED, CRASHED, record(1, status=Status.TIMEOUT, best_s=None)]
    assert counts_by_status(records) == {Status.OK: 1, Status.TIMEOUT: 1, Status.CRASH: 2}
    assert failure_messages(records) == [(Status.CRASH, "signal 11", 2)]


def test_time_is_split_into_building_running_and_what_failed() -> None:
    assert time_split([record(0), CRASHED]) == TimeSplit(build_s=1.0, run_s=0.5, failed_s=0.75)


def test_best_of_each_pair_of_workload_and_hardware(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        records = [
            record(0, workload="b"),
            record(1, workload="a", best_s=2e-3),
            record(2, workload="a", best_s=1e-3),
            record(3, workload="a", hardware="g"),
            record(4, workload="c", status=Status.CRASH, best_s=None),
        ]
        journal.extend(records)
        assert best_of_each(journal) == [records[0], records[2], records[3]]


def test_merging_adds_what_is_missing_and_only_once(tmp_path: Path) -> None:
    hardware = Hardware("cpu", '{"kind": "llvm"}', threads=2)
    workload = Workload("mm", "0" * 16, "{}", 1e6)
    with Journal(tmp_path / "one") as one, Journal(tmp_path / "two") as two:
        one.extend([record(0), record(1)])
        two.extend([record(1), record(2), record(2)])  # a line that stands twice
        two.add_hardware(hardware)
        two.add_workload(workload)
        assert merge(one, two) == 1
        assert merge(one, two) == 0
        assert one.records() == [record(0), record(1), record(2)]
        assert list(one.workloads()) == [workload.key]
        assert one.hardware() == {hardware.key: hardware}
        assert add_missing(one, [record(2), record(3)]) == 1


def test_info_names_workloads_counts_and_reasons(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with Journal(path) as journal:
        journal.add_workload(Workload("[bold]mm", "w", "{}", 2e6))
        journal.extend([record(0), CRASHED, record(1, workload="unknown")])
    with path.open("ab") as file:
        file.write(b"garbage\n")
    out = io.StringIO()
    print_info(Journal(path), Console(file=out, width=120))
    text = out.getvalue()
    assert "3 records, 3 trials, 1 workloads" in text
    assert "[bold]mm" in text
    assert "unknown" in text
    assert "2.0" in text  # GFLOP/s: 2e6 operations in 1 ms
    assert "1 x crash: signal 11" in text
    assert "line 5: not a journal line" in text


def test_info_of_an_empty_journal(tmp_path: Path) -> None:
    out = io.StringIO()
    print_info(Journal(tmp_path / "j"), Console(file=out))
    assert "0 records" in out.getvalue()
