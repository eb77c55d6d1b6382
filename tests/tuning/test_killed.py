"""The tuner killed with SIGKILL at random moments, and two tuners on one journal."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from foretune.records import Journal
from foretune.tuning import JOURNAL
from tests import ROOT

CHILD = [sys.executable, "-m", "tests.tuning.tuning_child"]


def start(work_dir: Path, trials: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*CHILD, str(work_dir), str(trials)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )


def kill_again_and_again(work_dir: Path, times: int, seed: int) -> None:
    """Kills while it starts (the first of five times) or up to 0.2 s after its first record."""
    rng = random.Random(seed)
    acknowledged: set[str] = set()
    for round_ in range(times):
        child = start(work_dir, 100_000)
        assert child.stdout is not None
        first = ""
        if round_ % 5:
            first = child.stdout.readline()
            assert first, "the tuner ended before its first record"
            time.sleep(rng.uniform(0, 0.2))
        else:
            time.sleep(rng.uniform(0, 1.5))
        child.kill()
        output, _ = child.communicate()
        lines = [line for line in (first + output).splitlines(keepends=True)]
        # The last line may be torn by the kill.
        whole = [line.split() for line in lines if line.endswith("\n")]
        acknowledged |= {key for origin, key in whole if origin == "random"}
        if not (work_dir / JOURNAL).exists():
            continue
        with Journal(work_dir / JOURNAL) as journal:
            keys = Counter(r.candidate_key for r in journal.records() if r.is_counted)
        assert acknowledged <= set(keys), "a committed record is lost"
        assert not [k for k, count in keys.items() if count > 1], "a trial was spent twice"
    assert len(acknowledged) > times


@pytest.mark.parametrize("kills", [6, pytest.param(50, marks=pytest.mark.slow)])
def test_kill_9_at_random_moments_loses_no_record_and_repeats_no_trial(
    tmp_path: Path, kills: int
) -> None:
    with ThreadPoolExecutor(2) as pool:
        runs = [
            pool.submit(kill_again_and_again, tmp_path / str(seed), kills // 2, seed)
            for seed in range(2)
        ]
    for run in runs:
        run.result()


def test_two_tuners_on_one_journal_share_its_trials(tmp_path: Path) -> None:
    children = [start(tmp_path, 60) for _ in range(2)]
    outputs = [child.communicate(timeout=120)[0] for child in children]
    assert [child.returncode for child in children] == [0, 0]
    acknowledged = Counter(line.split()[1] for out in outputs for line in out.splitlines())
    with Journal(tmp_path / JOURNAL) as journal:
        records = journal.records()
        assert journal.skipped == []
    assert Counter(r.candidate_key for r in records) == acknowledged
    trials = Counter(r.candidate_key for r in records if r.is_counted)
    assert all(count == 1 for count in trials.values()), "a trial was spent twice"
    assert 60 <= len(trials) <= 60 + 4, "at most one batch more than the budget"
