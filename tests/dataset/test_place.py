"""A data set that is replaced is there at every moment, whoever is killed meanwhile."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from foretune.dataset import is_dataset, load, read_dataset, write_dataset
from foretune.errors import BadInputError, RecordError
from foretune.evaluate import read_data
from tests.dataset.measured import records, write
from tests.space.programs import space

KILLED = """
import os, sys
from pathlib import Path
from foretune.dataset import write_dataset

renamed, rename = [], Path.rename

def killed_after_one(source, target):
    renamed.append(source)
    if len(renamed) == 2:
        os._exit(9)
    return rename(source, target)

Path.rename = killed_after_one
write_dataset(sys.argv[1], [], [], [], [])
"""
"""Replaces a data set by an empty one, and is gone when the old one has stepped aside."""


@pytest.fixture
def half_done(tmp_path: Path) -> Path:
    """A data set of 17 records of which only hidden directories are left."""
    path = tmp_path / "data"
    matmul, pooling = space("matmul"), space("pooling")
    write(path, [matmul, pooling], records(matmul, 12) + records(pooling, 5))
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], timeout=120)
    assert done.returncode == 9
    names = [each.name for each in tmp_path.iterdir()]
    assert len(names) == 2 and all(name.startswith(".data.") for name in names)
    return path


def test_after_a_kill_the_old_one_is_read_and_put_back_by_the_next(
    half_done: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hidden = sorted(half_done.parent.iterdir())
    with caplog.at_level(logging.WARNING):
        assert sum(map(len, load(half_done))) == 17
    assert f"{half_done} was being replaced" in caplog.text
    assert sum(map(len, read_data([half_done]).groups)) == 17
    assert is_dataset(half_done)
    assert sorted(half_done.parent.iterdir()) == hidden, "readers change nothing"

    matmul = space("matmul")
    write(half_done, [matmul], records(matmul, 3))
    assert [len(group) for group in load(half_done)] == [3]
    assert [each.name for each in half_done.parent.iterdir()] == ["data"]


def test_a_write_that_fails_after_a_kill_leaves_the_old_one_in_its_place(
    half_done: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("foretune.dataset._write._write_files", no_room)
    with pytest.raises(RecordError, match="No space left"):
        write_dataset(half_done, [], [], [], [])
    assert [each.name for each in half_done.parent.iterdir()] == ["data"]
    assert sum(map(len, load(half_done))) == 17


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_an_interrupt_between_the_two_renames_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    path = tmp_path / "data"
    write_dataset(path, [], [], [], [])
    rename = Path.rename

    def interrupted(source: Path, target: Path) -> Path:
        if source.name.endswith(".part"):
            raise error
        return rename(source, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises((KeyboardInterrupt, RecordError)):
        write_dataset(path, [], [], [], [])
    assert [each.name for each in tmp_path.iterdir()] == ["data"]
    assert read_dataset(path).records == []


def test_what_is_left_beside_a_data_set_is_not_taken_for_it(tmp_path: Path) -> None:
    path = tmp_path / "data"
    write_dataset(path, [], [], [], [])
    path.rename(tmp_path / ".data.0123abcd.old")
    path.mkdir()
    assert not is_dataset(path)
    with pytest.raises(BadInputError, match="no data set"):
        load(path)
    assert not is_dataset(tmp_path / "dat")
    write_dataset(path, [], [], [], [])
    assert [each.name for each in tmp_path.iterdir()] == ["data"]


def test_a_data_set_of_a_longer_name_is_another_one(half_done: Path) -> None:
    """What is left of ``data`` is neither read nor deleted as if it were of ``dat`` or ``d``."""
    longer = half_done.parent
    for each in longer.iterdir():
        each.rename(longer / each.name.replace(".data.", ".data.new."))
    before = sorted(longer.iterdir())
    assert not is_dataset(half_done)
    write_dataset(half_done, [], [], [], [])
    assert sorted(longer.iterdir()) == sorted([*before, half_done])
    assert sum(map(len, load(longer / "data.new"))) == 17


def test_an_old_one_that_was_being_deleted_does_not_come_back(tmp_path: Path) -> None:
    path = tmp_path / "data"
    write_dataset(path, [], [], [], [])
    path.rename(tmp_path / ".data.0123abcd.old")
    assert not is_dataset(path)
    write_dataset(path, [], [], [], [])
    assert [each.name for each in tmp_path.iterdir()] == ["data"]
