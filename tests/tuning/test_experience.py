"""What earlier runs found, for a new one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from foretune import cli
from foretune.errors import BadInputError
from foretune.measure import Measurement, Status
from foretune.records import CONFIRM, Journal, Trial
from foretune.tuning import tune
from foretune.tuning.experience import experience
from foretune.tuning.work_dir import JOURNAL
from tests.space import programs
from tests.space.test_recipe import product


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """A work directory with eight trials of a product, one of which failed."""
    space = product(64, 128, 96)
    with Journal(tmp_path / JOURNAL) as journal:
        journal.add_workload(space.workload)
        journal.add_hardware(space.hardware)
        for at, candidate in enumerate(space.sample(np.random.default_rng(0), 8)):
            seconds = 1e-3 * (1 + at / 100)
            status = Status.WRONG_OUTPUT if at == 0 else Status.OK
            measured = Measurement(status, (seconds, seconds), (True, True))
            journal.append(Trial.of(candidate, measured, "evolutionary", {}))
    return tmp_path


def test_fast_schedules_and_records_of_an_earlier_run_are_known(earlier: Path) -> None:
    known = experience(programs.CPU, [earlier])
    assert len(known.records) == 8
    fastest = known.records[1].candidate
    other = product(48, 160, 96)
    before = experience(programs.CPU).portfolio.suggest(other, 32)
    told = known.portfolio.suggest(other, 32)
    assert {c.key for c in told} - {c.key for c in before}
    # What failed is no schedule to be moved, and the fastest comes first for its own program.
    assert known.portfolio.suggest(product(64, 128, 96), 1) == [fastest]


def test_what_failed_beside_others_is_no_schedule_to_be_moved(earlier: Path) -> None:
    space = product(64, 128, 96)
    with Journal(earlier / JOURNAL) as journal:
        first = journal.records()[1]
        crashed = Measurement(Status.CRASH, message="signal 11")
        journal.append(replace(first, measurement=crashed, origin=CONFIRM, time=first.time + 60))
        journal.append(first)  # a line that stands twice
    known = experience(programs.CPU, [earlier])
    assert len(known.records) == 8
    assert known.portfolio.suggest(space, 1) == [known.records[2].candidate]


def test_what_was_measured_elsewhere_teaches_no_model(earlier: Path) -> None:
    known = experience(programs.space("matmul").hardware, [earlier])
    assert known.records
    narrow = replace(programs.CPU, name="another processor")
    known = experience(narrow, [earlier])
    assert not known.records and len(known.portfolio)


def test_what_is_about_to_be_emptied_is_not_learned_from(earlier: Path) -> None:
    space = product(64, 128, 96)
    before = sorted(earlier.iterdir())
    with pytest.raises(BadInputError, match="another directory than --work-dir"):
        tune(
            space.workload, target=space.hardware, trials=4, learn_from=[earlier],
            work_dir=earlier, fresh=True,
        )  # fmt: skip
    assert sorted(earlier.iterdir()) == before


def test_a_directory_without_a_journal_is_refused(tmp_path: Path) -> None:
    space = product(64, 128, 96)
    with pytest.raises(BadInputError, match="holds no journal"):
        tune(space.workload, target=space.hardware, trials=4, learn_from=[tmp_path])


def test_what_was_learned_from_other_places_is_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places: list[Path] = []

    def far_enough(*_args: object, work_dir: Path, **_options: object) -> None:
        places.append(work_dir)
        raise BadInputError("far enough")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("foretune.tuning.tune", far_enough)
    monkeypatch.setattr("foretune.cli._tune.probe_hardware", lambda *_args: programs.CPU)
    for earlier in ("runs/a/work", "runs/b/work", "./runs/a/work", str(tmp_path / "runs/b/work")):
        given = ["tune", "softmax", "--trials", "4", "--store", "none", "--learn-from", earlier]
        assert cli.main(given) == 2
    assert places[0] != places[1] and places[:2] == places[2:]
