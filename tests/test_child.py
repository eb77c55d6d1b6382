"""What child processes get from their parent, and that nothing of them is left."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from foretune import _child


def test_a_child_finds_this_package_from_anywhere(tmp_path: Path) -> None:
    code = "import os, foretune as f; print(f.__file__, os.environ['TVM_NUM_THREADS'], sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=_child.environment(3),
        capture_output=True,
        text=True,
        timeout=60,
    )
    package = Path(_child.__file__).with_name("__init__.py")
    assert done.stdout.splitlines() == [str(package), "3"], done.stderr


def test_the_parents_search_path_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    environment = _child.environment(1, OMP_NUM_THREADS="2")
    assert environment["PYTHONPATH"].split(os.pathsep)[1:] == ["/somewhere"]
    assert environment["OMP_NUM_THREADS"] == "2"


def test_the_descendants_of_a_killed_child_die_too() -> None:
    child = subprocess.Popen(
        ["sh", "-c", "sleep 300 & echo $!; wait"],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert child.stdout is not None
    with child.stdout:
        grandchild = int(child.stdout.readline())
        _child.kill_group(child)
    assert child.returncode is not None
    end = time.monotonic() + 10
    while _runs(grandchild) and time.monotonic() < end:
        time.sleep(0.01)
    assert not _runs(grandchild)
    _child.kill_group(child)


def _runs(pid: int) -> bool:
    """Whether a process is there and not merely waiting for its parent to take notice."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_the_last_lines_are_one_line(tmp_path: Path) -> None:
    output = tmp_path / "output.txt"
    output.write_bytes(b"first\nsecond\n\xff third\nlast\n\n")
    assert _child.last_lines(output) == "second | \ufffd third | last"
