"""Result files: whole or not there at all, whoever else writes them."""

from __future__ import annotations

import errno
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from foretune._files import write_json, write_text
from foretune.errors import RecordError


def _contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}


def test_what_json_has_not_becomes_null(tmp_path):
    write_json(tmp_path / "a.json", {"x": [float("nan"), float("inf"), 1.5], "y": (1, None)})
    assert json.loads((tmp_path / "a.json").read_text()) == {"x": [None, None, 1.5], "y": [1, None]}


def test_a_writer_that_comes_in_between_disturbs_nobody(tmp_path, monkeypatch):
    path, rename = tmp_path / "tune.json", Path.replace
    waiting = ["theirs"]

    def interrupted(self, target):
        if waiting:
            write_text(path, waiting.pop())
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", interrupted)
    write_text(path, "ours")
    assert _contents(tmp_path) == {"tune.json": "ours"}


def test_writers_side_by_side_leave_one_whole_file(tmp_path):
    path = tmp_path / "tune.json"
    texts = [letter * 200_000 for letter in "abcd"]

    def write(text):
        for _ in range(20):
            write_text(path, text)
            assert path.read_text(encoding="utf-8") in texts

    with ThreadPoolExecutor(len(texts)) as pool:
        for done in [pool.submit(write, text) for text in texts]:
            done.result()
    assert list(_contents(tmp_path)) == ["tune.json"]


@pytest.mark.parametrize("failure", ["full", "interrupted"])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, failure):
    write_text(tmp_path / "tune.json", "old")

    def fail(_descriptor):
        if failure == "full":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", fail)
    expected = RecordError if failure == "full" else KeyboardInterrupt
    with pytest.raises(expected, match="make room" if failure == "full" else None):
        write_text(tmp_path / "tune.json", "new")
    assert _contents(tmp_path) == {"tune.json": "old"}
