"""The command line as other programs call it: exit codes, one line on stderr, JSON."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from foretune import cli
from foretune.records import Journal

PRIM_FUNC = """
from tvm import te


def matmul():
    a = te.placeholder((32, 32), name="A")
    b = te.placeholder((32, 32), name="B")
    k = te.reduce_axis((0, 32), name="k")
    c = te.compute((32, 32), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return te.create_prim_func([a, b, c])


def raises():
    raise ValueError("my own fault")


def number():
    return 3
"""


BFLOAT16 = """
from tvm import te


def add():
    a = te.placeholder((32,), name="A", dtype="bfloat16")
    return te.create_prim_func([a, te.compute((32,), lambda i: a[i] + a[i], name="B")])
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(PRIM_FUNC)
    return path


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    try:
        code = cli.main(arguments)
    except SystemExit as stop:
        code = int(stop.code or 0)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


BAD = [
    (["tune", "nowhere.onnx", "--trials", "4"], "nowhere.onnx"),
    (["tune", "DIR/junk.onnx", "--trials", "4"], "junk.onnx"),
    (["tune", "DIR/junk.pt2", "--trials", "4"], "junk.pt2"),
    (["tune", "resnet5000", "--trials", "4"], "resnet50"),
    (["tune", "DIR/mine.py:matmull", "--trials", "4"], "matmul"),
    (["tune", "DIR/mine.py:raises", "--trials", "4"], "my own fault"),
    (["tune", "DIR/mine.py:number", "--trials", "4"], "PrimFunc"),
    (["tune", "DIR/mine.py", "--trials", "4"], "mine.py:"),
    (["tune", "DIR/mine.py:matmul", "--trials", "0"], "trials >= 1"),
    (["tune", "DIR/mine.py:matmul", "--trials", "-3"], "trials >= 1"),
    (["tune", "DIR/mine.py:matmul", "--time", "0"], "seconds > 0"),
    (["tune", "DIR/mine.py:matmul", "--time", "nan"], "seconds > 0"),
    (["tune", "DIR/mine.py:matmul", "--time", "inf"], "seconds > 0"),
    (["tune", "DIR/mine.py:matmul", "--trials", "4", "--seed", "-1"], "seed >= 0"),
    (["tune", "DIR/mine.py:matmul", "--trials", "4", "--patience", "0"], "patience >= 1"),
    (["tune", "DIR/mine.py:matmul", "--trials", "many"], "--trials"),
    (["tune", "DIR/mine.py:matmul", "--trials", "4", "--strategy", "luck"], "evolutionary"),
    (["tune", "DIR/mine.py:matmul", "--trials", "4", "--cost-model", "luck"], "gbdt"),
    (["tune", "DIR/mine.py:matmul", "--trials", "4", "--target", "abacus"], "abacus"),
    (["tune", "DIR/mine.py:matmul", "--trials", "4", "--threads", "0"], "threads >= 1"),
    (["tune", "DIR/mine.py:matmul", "--trials", "4", "-o", "artifact.exe"], ".so"),
    (["tune", "DIR/mine.py:matmul", "--trials", "4", "--json", "DIR"], "cannot be written"),
    (["tune", "DIR/mine.py:matmul", "--trials", "4", "--shape", "x=1,a"], "NAME=D,D"),
    (["tune"], "INPUT"),
    (["dance"], "dance"),
    (["report", "DIR"], "tune.json"),
    (["db", "info", "DIR/none"], "no journal"),
    (["compare", "matmul_512", "--artifact", "none.so"], "single workload"),
    (["bench", "--workloads", "matmul_512", "--strategies", "random", "--trials", "0",
      "--json", "DIR/b.json"], "trials >= 1"),
    (["bench", "--workloads", "matmul_512", "--strategies", "luck", "--trials", "4",
      "--json", "DIR/b.json"], "luck"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "told"), BAD, ids=lambda v: " ".join(v)[:60])
def test_bad_input_is_one_clear_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], program: Path, arguments: list[str], told: str
) -> None:
    for name in ("junk.onnx", "junk.pt2"):
        (program.parent / name).write_bytes(b"\x08\x07this is no model" * 20)
    code, _, err = call(capsys, *(a.replace("DIR", str(program.parent)) for a in arguments))
    assert code == 2
    assert told in err
    assert err.count("\n") == 1
    assert "Traceback" not in err


@pytest.mark.parametrize("command", ["workloads", "strategies", "cost-models"])
def test_lists_name_what_there_is(capsys: pytest.CaptureFixture[str], command: str) -> None:
    code, out, _ = call(capsys, command)
    expected = {
        "workloads": ["resnet50", "mobilenet_v2", "conv2d_relu", "llama3_attention"],
        "strategies": ["default", "random", "evolutionary", "metaschedule"],
        "cost-models": ["default", "random", "gbdt"],
    }[command]
    assert code == 0
    assert all(name in out for name in expected)


def foretune(*arguments: str, cwd: Path, **options: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(Path(sys.executable).with_name("foretune")), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        **options,  # type: ignore[call-overload]
    )


def test_tune_end_to_end_then_resume_report_and_db(program: Path) -> None:
    here = program.parent
    arguments = ["tune", "mine.py:matmul", "--trials", "6", "--work-dir", "run",
                 "-o", "matmul.so", "--json", "tune.json"]  # fmt: skip
    child = foretune(*arguments, cwd=here)
    _, err = child.communicate(timeout=240)
    assert child.returncode == 0, err
    data = json.loads((here / "tune.json").read_text())
    assert data["schema"] == "foretune.tune/1"
    assert {"input", "hardware", "strategy", "cost_model", "seed", "elapsed_s", "search_s",
            "build_s", "measure_s", "untuned_s", "tuned_s", "tasks"} <= set(data)  # fmt: skip
    (task,) = data["tasks"]
    assert {"name", "key", "weight", "flops", "untuned_s", "best_s", "trials"} <= set(task)
    assert len(task["trials"]) == 6
    assert {"index", "elapsed_s", "status", "seconds", "best_s"} <= set(task["trials"][0])
    assert data["tuned_s"] <= data["untuned_s"]
    assert (here / "matmul.so").is_file()

    again = foretune(*arguments, cwd=here)
    _, err = again.communicate(timeout=240)
    assert again.returncode == 0, err
    resumed = json.loads((here / "tune.json").read_text())
    assert resumed["tasks"][0]["trials"] == task["trials"], "no trial was spent again"

    for command in (["report", "run"], ["db", "info", "run"], ["db", "best", "run"],
                    ["db", "export", "run", "exported"]):  # fmt: skip
        child = foretune(*command, cwd=here)
        _, err = child.communicate(timeout=120)
        assert child.returncode == 0, err
    assert (here / "run" / "report.html").stat().st_size > 1000
    assert (here / "exported" / "database_tuning_record.json").is_file()


def listen_to_ctrl_c() -> None:
    """A shell in the background, which may have started the tests, ignores it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl_c", "sigterm"])
def test_an_interrupted_run_saves_the_best_so_far_and_exits_with_130(
    program: Path, number: signal.Signals
) -> None:
    here = program.parent
    child = foretune(
        "tune", "mine.py:matmul", "--trials", "100000", "--work-dir", "run", "--json", "out.json",
        "--patience", "100000", cwd=here, preexec_fn=listen_to_ctrl_c,
    )  # fmt: skip
    journal = here / "run" / "journal.jsonl"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and (
        not journal.exists() or journal.read_text().count('"record"') < 5
    ):
        time.sleep(0.2)
    child.send_signal(number)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 130, err
    assert "Traceback" not in err
    data = json.loads((here / "out.json").read_text())
    assert data["interrupted"] is True
    assert data["tasks"][0]["trials"]
    assert data["tuned_s"] is not None
    assert foretune("report", "run", cwd=here).wait(60) == 0


def test_exit_code_3_when_nothing_can_be_measured(program: Path) -> None:
    (program.parent / "odd.py").write_text(BFLOAT16)
    child = foretune("tune", "odd.py:add", "--trials", "2", "--work-dir", "run", cwd=program.parent)
    _, err = child.communicate(timeout=120)
    assert child.returncode == 3, err
    assert "could be measured" in err.splitlines()[-1]
    assert "Traceback" not in err


def limit_file_size() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def test_a_full_disk_ends_the_run_with_one_line(program: Path) -> None:
    child = foretune(
        "tune", "mine.py:matmul", "--trials", "100000", "--work-dir", "run",
        cwd=program.parent, preexec_fn=limit_file_size,
    )  # fmt: skip
    _, err = child.communicate(timeout=240)
    assert child.returncode == 2, err
    assert "journal" in err.splitlines()[-1]
    assert "Traceback" not in err
    with Journal(program.parent / "run" / "journal.jsonl") as journal:
        assert len(journal) > 0, "what was written before is still there"
