"""A fingerprint changes with what it stands for, and with nothing else."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from foretune.evaluate import fingerprints
from tests.evaluate.support import group, several


def test_that_of_data_changes_with_what_a_model_sees() -> None:
    groups = several(3)
    first = groups[0]
    slower = replace(first, seconds=first.seconds * 2)
    changed = [
        groups[::-1],
        groups[:2],
        [replace(first, hardware="other"), *groups[1:]],
        [slower, *groups[1:]],
        [replace(first, seconds=np.where(first.seconds > 2, np.nan, first.seconds)), *groups[1:]],
        [first.subset(range(11, -1, -1)), *groups[1:]],
        [replace(first, programs=group("w", range(1, 13)).programs), *groups[1:]],
        [],
    ]
    found = [fingerprints.fingerprint(each) for each in (groups, *changed)]
    assert len(set(found)) == len(found)
    assert fingerprints.fingerprint(several(3)) == found[0]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package of two files, of which nothing is remembered."""
    folder = tmp_path / "package"
    (folder / "room").mkdir(parents=True)
    (folder / "__init__.py").write_text("A = 1\n")
    (folder / "room" / "b.py").write_text("B = 2\n")
    monkeypatch.setattr(fingerprints, "_package", lambda: folder)
    forget()
    yield folder
    forget()


def forget() -> None:
    fingerprints.code_fingerprint.cache_clear()
    fingerprints.commit.cache_clear()


def now() -> tuple[str, str | None]:
    forget()
    return fingerprints.code_fingerprint(), fingerprints.commit()


def test_that_of_code_changes_with_every_file(package: Path) -> None:
    found = [now()[0], now()[0]]
    (package / "room" / "b.py").write_text("B = 3\n")
    found.append(now()[0])
    (package / "room" / "b.py").rename(package / "b.py")
    found.append(now()[0])
    assert found[0] == found[1] and len(set(found)) == 3
    (package / "weights.npz").write_bytes(b"no code")
    assert now()[0] == found[-1]


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_commit_is_that_of_the_checkout(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*words: str) -> str:
        author = ["-c", "user.name=a", "-c", "user.email=a@b"]
        done = subprocess.run(
            ["git", *author, *words], cwd=package.parent, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    assert now()[1] is None, "installed, not checked out"
    git("init", "-q")
    assert now()[1] is None, "nothing committed"
    git("add", ".")
    git("commit", "-qm", "first")
    git("tag", "-a", "v1", "-m", "a tag")
    head = git("rev-parse", "HEAD")
    assert now()[1] == head
    (package / "room" / "b.py").write_text("B = 4\n")
    assert now()[1] == f"{head}-dirty"
    monkeypatch.setenv("PATH", "")
    assert now()[1] is None, "no git"
