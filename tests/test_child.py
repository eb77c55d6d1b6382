"""What child processes get from their parent, and that nothing of them is left."""

from __future__ import annotations

import os
import signal
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


def test_a_child_with_pipes_hears_and_answers(tmp_path: Path) -> None:
    code = """
import os
there, back = map(int, sys.argv[1:])
os.write(back, os.read(there, 9).upper() + os.environ["PYTHONHASHSEED"].encode())
print("complains", file=sys.stderr)
"""
    with (tmp_path / "errors").open("wb") as errors:
        variables = _child.environment(1, **_child.STEADY)
        child, requests, replies = _child.start_piped(code, variables, errors)
    os.write(requests, b"hello")
    assert child.wait(60) == 0
    assert os.read(replies, 9) == b"HELLO0"
    assert os.read(replies, 9) == b"", "its ends are closed here"
    assert (tmp_path / "errors").read_text() == "complains\n"
    os.close(requests)
    os.close(replies)


def test_a_process_without_end_of_memory_fails_alone(tmp_path: Path) -> None:
    code = (
        "from foretune import _child; import os\n"
        "_child.leave_no_core(); _child.limit_memory(1 << 28)\n"
        "try: bytearray(1 << 29)\n"
        "except MemoryError: print('none left')\n"
    )
    assert _child.run([sys.executable, "-c", code], 1, tmp_path / "o", 60.0) == 0
    assert (tmp_path / "o").read_text() == "none left\n"


def test_memory_in_use_is_known_of_processes_that_run() -> None:
    addresses, resident = _child.memory_in_use()
    assert addresses > resident > 1 << 20
    assert _child.memory_in_use(os.getpid())[1] > 1 << 20
    assert _child.memory_in_use(1 << 30) == (0, 0)


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


def test_a_command_is_looked_after_to_its_end(tmp_path: Path) -> None:
    output, seen = tmp_path / "output.txt", []
    code = "import os, time; print(os.environ['TVM_NUM_THREADS']); time.sleep(0.5); exit(7)"
    command = [sys.executable, "-c", code]
    ended = _child.run(command, 3, output, 60.0, lambda: seen.append(1), every_s=0.05)
    assert ended == 7
    assert output.read_text() == "3\n"
    assert seen, "in between it was looked at"
    assert _child.run(["true"], 1, output) == 0


def test_what_a_command_has_started_ends_with_its_time(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    command = ["sh", "-c", f"sleep 300 & echo $! > {pid}; wait"]
    seen: list[bool] = []
    ended = _child.run(command, 1, tmp_path / "o", 2.0, lambda: seen.append(pid.exists()), 0.1)
    assert ended is None
    assert seen[-1], "the grandchild was there"
    grandchild = int(pid.read_text())
    end = time.monotonic() + 10
    while _runs(grandchild) and time.monotonic() < end:
        time.sleep(0.01)
    assert not _runs(grandchild)


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


@pytest.mark.parametrize("number", sorted({*range(1, signal.NSIG), signal.SIGRTMAX}))
def test_every_signal_has_a_name(number: int) -> None:
    name = _child.signal_name(number)
    assert _child.how_it_ended(-number) == f"killed by {name}"
    if name.startswith("SIGRTMIN+"):
        assert signal.SIGRTMIN + int(name.removeprefix("SIGRTMIN+")) == number
    elif name.startswith("SIG"):
        assert getattr(signal, name) == number
    else:
        assert name == f"signal {number}"


def test_an_end_by_a_real_time_signal_is_told() -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGRTMIN + 5)"
    ended = subprocess.run([sys.executable, "-c", code], timeout=60).returncode
    assert _child.how_it_ended(ended) == "killed by SIGRTMIN+5"
    assert _child.how_it_ended(4) == "exit status 4"


_NO_MEMORY = """
import resource, sys
import {module}
size = 1 << 44
resource.setrlimit(resource.RLIMIT_AS, (size, size))
try:
    {attempt}
except Exception as error:
    sys.stderr.write(str(error))
"""


@pytest.mark.parametrize(
    ("module", "attempt"),
    [
        pytest.param("tvm", "tvm.runtime.empty((1 << 45,), 'int8')", marks=pytest.mark.slow),
        ("mmap", "mmap.mmap(-1, 1 << 46)"),
    ],
)
def test_what_the_installed_libraries_say_when_memory_runs_out_is_known(
    module: str, attempt: str
) -> None:
    code = _NO_MEMORY.format(module=module, attempt=attempt)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert _child.tells_of_no_memory(done.stderr), done.stderr
    assert not _child.tells_of_no_memory("no such file: bad input")


def test_a_child_does_not_read_modules_of_the_current_directory(tmp_path):
    (tmp_path / "json.py").write_text("raise SystemExit(7)\n")
    command = [sys.executable, "-c", f"{_child.OWN_PATHS}import json"]
    assert subprocess.run(command, cwd=tmp_path, check=False).returncode == 0
    assert subprocess.run([*command[:2], "import json"], cwd=tmp_path, check=False).returncode == 7


def test_every_child_that_is_given_code_begins_so():
    package = Path(_child.__file__).parent
    spawning = [file for file in package.rglob("*.py") if '"-c"' in file.read_text("utf-8")]
    assert len(spawning) >= 3
    assert all("OWN_PATHS" in file.read_text("utf-8") for file in spawning)
