"""A user's terminal shows our words; what libraries say is for ``--verbose``."""

from __future__ import annotations

import subprocess
import sys

import pytest

from foretune import _child, cli

_COMMAND = """
import logging, os, sys, warnings
import foretune.cli as cli
from foretune import _tvm
from foretune.hardware import _peak


def command(args):
    # TVM's own log, from C++: LLVM has no such processor.
    target = _tvm.Target({{"kind": "llvm", "mcpu": "nope"}})
    _tvm.tvm.get_global_func("target.llvm_get_cpu_archlist")(target)
    warnings.warn("of a library")
    warnings.warn_explicit("of our own", UserWarning, _peak.__file__, 1)
    logging.getLogger("torch.onnx").warning("a library's log")
    logging.getLogger("foretune.tuning").warning("our log")
    os.write(2, b"something else from C\\n")
    print("progress", file=sys.stderr)
    {end}


parser = cli._parser
def with_one_more():
    made = parser()
    made.set_defaults(command=command)
    made._subparsers._group_actions[0].required = False
    return made
cli._parser = with_one_more
sys.exit(cli.main({arguments}))
"""


def run(*arguments: str, end: str = "return 0") -> subprocess.CompletedProcess[str]:
    code = _COMMAND.format(arguments=list(arguments), end=end)
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=_child.environment(1),
        timeout=120,
    )


def test_only_our_words_are_shown() -> None:
    done = run()
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        "foretune: WARNING: of our own",
        "foretune: WARNING: our log",
        "progress",
        "something else from C",
    ]


def test_all_is_shown_where_it_is_asked_for() -> None:
    shown = run("--verbose").stderr
    for words in (": Error: Using LLVM", "of a library", "of our own", "a library's log", "our log",
                  "something else from C", "progress"):  # fmt: skip
        assert words in shown


def test_an_error_comes_last_and_standard_error_is_as_before() -> None:
    done = run(end="from foretune.errors import BadInputError; raise BadInputError('no good')")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "foretune: no good"


def test_a_process_that_dies_inside_says_so() -> None:
    done = run(end="os.abort()")
    assert done.returncode < 0
    assert "Aborted" in done.stderr


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(36, "File name too long", "x" * 5000), "cannot be used (File name too long)"),
        (PermissionError(13, "Permission denied", "secret.onnx"), "'secret.onnx' cannot be used"),
        (MemoryError("Unable to allocate 29.1 TiB"), "not enough memory (Unable to allocate 29.1"),
    ],
)
def test_what_the_system_refuses_is_one_line(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    told: str,
) -> None:
    def refused(_args: object) -> int:
        raise error

    monkeypatch.setattr("foretune.cli._show._strategies", refused)
    assert cli.main(["strategies"]) == 2
    shown = capsys.readouterr().err
    assert told in shown
    assert shown.count("\n") == 1
    assert len(shown) < 300
