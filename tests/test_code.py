"""A fingerprint of code changes with it, and with nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from foretune import _code


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package of two files, of which nothing is remembered."""
    folder = tmp_path / "package"
    (folder / "room").mkdir(parents=True)
    (folder / "__init__.py").write_text("A = 1\n")
    (folder / "room" / "b.py").write_text("B = 2\n")
    monkeypatch.setattr(_code, "_package", lambda: folder)
    forget()
    yield folder
    forget()


def forget() -> None:
    _code.code_fingerprint.cache_clear()
    _code.commit.cache_clear()


def now() -> tuple[str, str | None]:
    forget()
    return _code.code_fingerprint(), _code.commit()


def test_that_of_code_changes_with_every_file(package: Path) -> None:
    found = [now()[0], now()[0]]
    (package / "room" / "b.py").write_text("B = 3\n")
    found.append(now()[0])
    (package / "room" / "b.py").rename(package / "b.py")
    found.append(now()[0])
    assert found[0] == found[1] and len(set(found)) == 3
    (package / "weights.npz").write_bytes(b"no code")
    assert now()[0] == found[-1]


def test_it_follows_parts_to_their_packages(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, alone = tmp_path / "studies" / "__init__.py", tmp_path / "alone.py"
    other.parent.mkdir()
    for file in (other, alone):
        file.write_text("A = 1\n")
        module = types.ModuleType(file.stem)
        module.__file__ = str(file)
        name = file.parent.name if file is other else file.stem
        monkeypatch.setitem(sys.modules, name, module)
    plain = now()[0]
    assert _code.code_fingerprint("foretune.cost.mlp") == plain
    found = [_code.code_fingerprint("studies.neural"), _code.code_fingerprint("alone")]
    assert len({plain, *found}) == 3
    (other.parent / "neural.py").write_text("B = 2\n")
    (tmp_path / "neighbour.py").write_text("C = 3\n")
    forget()
    assert _code.code_fingerprint("studies.neural") != found[0]
    assert _code.code_fingerprint("alone") == found[1] and now()[0] == plain


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
