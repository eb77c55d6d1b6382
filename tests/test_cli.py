"""The command line as other programs call it: exit codes, one line on stderr, JSON."""

from __future__ import annotations

import io
import json
import logging
import os
import platform
import resource
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from foretune import cli, engines, tuning
from foretune.engines import EngineResult
from foretune.errors import NothingMeasuredError
from foretune.graph import Artifact, compile_workload
from foretune.hardware import Hardware
from foretune.records import Journal
from foretune.tuning import Network, TaskResult, TuneResult
from foretune.workload import Workload, load_input
from tests import ROOT
from tests.llm.server import KEY, Server, always, completion

PRIM_FUNC = """
from tvm import te


def matmul():
    a = te.placeholder((32, 32), name="A")
    b = te.placeholder((32, 32), name="B")
    k = te.reduce_axis((0, 32), name="k")
    c = te.compute((32, 32), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return te.create_prim_func([a, b, c])


def swapped():
    a = te.placeholder((32, 32), name="A")
    b = te.placeholder((32, 32), name="B")
    k = te.reduce_axis((0, 32), name="k")
    c = te.compute((32, 32), lambda i, j: te.sum(b[i, k] * a[k, j], axis=k), name="C")
    return te.create_prim_func([a, b, c])


def raises():
    raise ValueError("my own fault")


def number():
    return 3
"""


ODD = """
from tvm import te, tirx
from tvm.script import tirx as T


def rounded():
    a = te.placeholder((32,), name="A", dtype="bfloat16")
    return te.create_prim_func([a, te.compute((32,), lambda i: a[i] + a[i], name="B")])


def divided():
    a, b = (te.placeholder((32,), name=name, dtype="int32") for name in "AB")
    c = te.compute((32,), lambda i: tirx.truncdiv(a[i], b[i] - 1), name="C")
    return te.create_prim_func([a, b, c])


@T.prim_func(s_tir=True)
def in_place(x: T.Buffer((32,), "float32")):
    for i in range(32):
        with T.sblock("x"):
            at = T.axis.spatial(32, i)
            x[at] = x[at] + T.float32(1)
"""

NETWORK = """
import torch


def make():
    torch.manual_seed(0)
    return torch.nn.Linear(8, 4).eval(), (torch.ones(2, 8),)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(PRIM_FUNC)
    (tmp_path / "odd.py").write_text(ODD)
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
    (["tune", "DIR/mine.py:matmul", "--trials", "4", "--batch", "0"], "batch >= 1"),
    (["tune", "DIR/mine.py:matmul", "--trials", "many"], "--trials"),
    (["tune", "DIR/mine.py:matmul", "--trials", "4", "--strategy", "luck"], "evolutionary"),
    (["tune", "DIR/mine.py:matmul", "--trials", "4", "--cost-model", "luck"], "gbdt"),
    (["tune", "DIR/mine.py:matmul", "--trials", "4", "--target", "abacus"], "abacus"),
    (["tune", "DIR/mine.py:matmul", "--trials", "4", "--threads", "0"], "threads >= 1"),
    (["tune", "DIR/mine.py:matmul", "--trials", "4", "-o", "artifact.exe"], ".so"),
    (["tune", "DIR/mine.py:matmul", "--trials", "4", "--json", "DIR"], "cannot be written"),
    (["tune", "DIR/mine.py:matmul", "--trials", "4", "--shape", "x=1,a"], "NAME=D,D"),
    (["tune", "matmul_512", "--shape", "x=-1,4"], "0 <= D"),
    (["tune", "matmul_512", "--shape", "x=99999999999999999999,4"], "0 <= D"),
    (["tune", "matmul_512", "--shape", "x=1,4", "--shape", "x=2,4"], "one shape"),
    (["tune", "matmul_512", "--target", "llvm -mcpu=znver44"], "did you mean znver4"),
    (["tune", "matmul_512", "--target", '{"kind": "llvm", "mcpu": "nope"}'], "no processor 'nope'"),
    (["tune", "matmul_512", "-o", "/proc/x.so"], "cannot be written"),
    (["tune", "matmul_512", "--llm", "m@ftp://x"], "MODEL@URL"),
    (["tune", "matmul_512", "--llm", "m@"], "MODEL@URL"),
    (["run", ""], "name it *.so"),
    (["db", "info", "DIR/junk.onnx"], "not a foretune journal"),
    (["db", "info", "x" * 5000], "File name too long"),
    (["eval", "gbdt", "--data", "x" * 5000], "File name too long"),
    (["tune", "DIR/odd.py:rounded", "--trials", "4"], "bfloat16"),
    (["tune", "DIR/odd.py:in_place", "--trials", "4", "-o", "DIR/x.so"], "read before it is"),
    (["tune"], "INPUT"),
    (["dance"], "dance"),
    (["report", "DIR"], "tune.json"),
    (["db", "info", "DIR/none"], "no journal"),
    (["compare", "matmul_512", "--artifact", "none.so"], "none.so is missing"),
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
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        **options,  # type: ignore[call-overload]
    )


def test_tune_end_to_end_then_resume_report_and_db(
    program: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
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
    assert data["verified"] is True
    assert data["max_abs_error"] < 1e-3
    again = "foretune tune --fresh --store none --seed 0 "
    assert data["command"] == again + " ".join(arguments[1:])
    assert (here / "matmul.so").is_file()

    monkeypatch.chdir(here)
    code, _, err = call(capsys, *arguments)
    assert code == 0, err
    resumed = json.loads((here / "tune.json").read_text())
    assert resumed["tasks"][0]["trials"] == task["trials"], "no trial was spent again"
    for command in (["report", "run"], ["db", "info", "run"], ["db", "best", "run"],
                    ["db", "export", "run", "exported"]):  # fmt: skip
        code, _, err = call(capsys, *command)
        assert code == 0, err
    assert (here / "run" / "report.html").stat().st_size > 1000
    assert (here / "exported" / "database_tuning_record.json").is_file()


def tune_with_llm(here: Path, llm: str, *options: str) -> tuple[dict[str, Any], str, str]:
    """Six trials of tree search with a language model: result, standard output and error."""
    child = foretune(
        "tune", "mine.py:matmul", "--strategy", "mcts", "--llm", llm, "--trials", "6",
        "--work-dir", "run", "--json", "tune.json", *options, cwd=here,
    )  # fmt: skip
    out, err = child.communicate(timeout=240)
    assert child.returncode == 0, err
    assert "Traceback" not in err
    data = json.loads((here / "tune.json").read_text())
    assert len(data["tasks"][0]["trials"]) == 6
    assert data["tuned_s"] is not None
    return data, out, err


@pytest.mark.slow
def test_a_language_model_takes_part_in_a_real_run(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, other = program.parent, "sk-of-openai-alone"
    monkeypatch.setenv("THEIR_KEY", KEY)
    monkeypatch.setenv("OPENAI_API_KEY", other)
    names = json.dumps({"reasoning": f"r {KEY}", "proposals": [["TileSize"], ["Unroll"]]})
    with Server(always(completion(names, 500, 20))) as server:
        settings = {"model": "tiny", "base_url": server.url, "key_env": "THEIR_KEY",
                    "usd_per_million_prompt": 1000}  # fmt: skip
        (here / "llm.json").write_text(json.dumps(settings))
        data, out, err = tune_with_llm(
            here, "llm.json", "--option", "form=names", "--option", "asked=2"
        )
    told = data["llm"]
    assert told["model"] == "tiny" and told["left_out"] is None
    assert told["calls"] == told["answers"] == len(server.requests) > 0
    assert told["prompt_tokens"] == 500 * told["answers"] and told["seconds"] > 0
    assert told["usd"] == pytest.approx(0.5 * told["answers"])
    assert told["proposals"] > 0 and told["judged"] > 0
    assert data["options"] == {"form": "names", "asked": 2, "proposer": "llm"}
    assert {head["Authorization"] for head in server.headers} == {f"Bearer {KEY}"}
    assert f"language model tiny: calls {told['calls']}" in out
    transcript = (here / "run" / "llm.jsonl").read_text().split("\n")
    kinds = [json.loads(line)["kind"] for line in transcript if line]
    assert kinds == ["run", *["answer"] * told["answers"]]
    assert foretune("report", "run", cwd=here).wait(120) == 0
    assert "Language model" in (here / "run" / "report.html").read_text()
    written = {path: path.read_bytes() for path in here.rglob("*") if path.is_file()}
    assert len(written) > 5
    for secret in (KEY, other):
        assert secret not in out + err
        assert not [path for path, content in written.items() if secret.encode() in content]


def test_warnings_go_where_standard_error_is_when_they_come(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root, display = logging.getLogger(), io.StringIO()
    with monkeypatch.context() as patch:
        # As in a process of its own, where nobody has set up anything.
        patch.setattr(root, "handlers", [])
        patch.setattr(root, "level", root.level)
        assert cli.main(["strategies"]) == 0
        patch.setattr(sys, "stderr", display)
        logging.getLogger("foretune.anywhere").warning("told")
    assert display.getvalue() == "foretune: WARNING: told\n"
    assert "told" not in capsys.readouterr().err


@pytest.mark.slow
def test_a_language_model_that_is_not_there_ends_no_run_and_is_named_once(program: Path) -> None:
    with Server(always(completion("gone"))) as server:
        url = server.url
    data, out, err = tune_with_llm(program.parent, f"tiny@{url}")
    assert data["llm"]["answers"] == 0 and "cannot be reached" in data["llm"]["left_out"]
    said = ("is not asked any more", "answered nothing in this run")
    assert sum(map(err.count, said)) == 1, "once, however short the run is"
    assert "on without it" in err
    assert "the language model was left out" in out


@pytest.mark.slow
def test_the_runs_own_world_is_climbed_where_it_has_a_head(program: Path) -> None:
    from tests.cost.small_world import trained

    here = program.parent
    trained().save(here / "world.npz")
    arguments = ["tune", "mine.py:matmul", "--trials", "4", "--strategy", "gradient",
                 "--cost-model", "world.npz", "--work-dir", "run", "--json", "tune.json",
                 "--option", "guide=world", "--option", "seeds=8",
                 "--option", "steps=4"]  # fmt: skip
    child = foretune(*arguments, cwd=here)
    _, err = child.communicate(timeout=240)
    assert child.returncode == 0 and "evolutionary search proposes" not in err, err
    data = json.loads((here / "tune.json").read_text())
    assert len(data["tasks"][0]["trials"]) == 4 and data["options"]["guide"] == "world"

    beside = ["tune", "mine.py:matmul", "--trials", "4", "--strategy", "gradient", "--work-dir",
              "other", "--option", "weights=world.npz"]  # fmt: skip
    child = foretune(*beside, cwd=here)
    _, err = child.communicate(timeout=120)
    assert child.returncode == 2 and "choose guide='world'" in err
    assert "Traceback" not in err


def listen_to_ctrl_c() -> None:
    """A shell in the background, which may have started the tests, ignores it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


# Ctrl-C ends the run of a network below, on every day.
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGINT, id="ctrl_c", marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, id="sigterm", marks=pytest.mark.slow),
    ],
)
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


@pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="dividing by zero is fatal on x86 only"
)
def test_exit_code_3_when_nothing_can_be_measured(
    program: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(program.parent)
    code, _, err = call(capsys, "tune", "odd.py:divided", "--trials", "2", "--work-dir", "run")
    assert code == 3, err
    assert "could be measured" in err.splitlines()[-1]
    assert "Traceback" not in err


def limit_file_size() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


@pytest.mark.slow
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


def _outcome(source: Any, hardware: Hardware) -> TuneResult:
    """A finished run in which the untuned program of one task was the best."""
    workload = source if isinstance(source, Workload) else load_input("matmul:16x16x16")
    assert isinstance(workload, Workload)
    return TuneResult(
        source=source,
        hardware=hardware,
        tasks=(TaskResult(workload, None, 1e-3, 2e-3, ()),),
        strategy="random",
        cost_model="random",
        seed=0,
        elapsed_s=1.0,
        spent_s={},
    )


@pytest.fixture
def tuned(monkeypatch: pytest.MonkeyPatch, hardware: Hardware) -> None:
    """Tuning takes no time and finds nothing."""
    monkeypatch.setattr("foretune.cli._tune.probe_hardware", lambda *_args, **_options: hardware)
    monkeypatch.setattr(tuning, "tune", lambda source, **_options: _outcome(source, hardware))


@pytest.mark.usefixtures("tuned")
def test_a_kernel_that_computes_something_else_is_not_saved(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, program: Path
) -> None:
    here = program.parent
    arguments = ["tune", f"{program}:matmul", "--trials", "1", "-o", str(here / "m.so"),
                 "--json", str(here / "result.json")]  # fmt: skip
    other = load_input(f"{program}:swapped")
    with monkeypatch.context() as patched:
        patched.setattr(TuneResult, "compile", lambda self: compile_workload(other, self.hardware))
        code, _, err = call(capsys, *arguments)
    assert code == 3
    assert "elements of C are wrong" in err.splitlines()[-1]
    assert "Traceback" not in err
    assert not (here / "m.so").exists()
    assert json.loads((here / "result.json").read_text())["verified"] is False
    code, out, _ = call(capsys, *arguments)
    assert code == 0
    assert "largest difference to the untuned program" in out
    assert (here / "m.so").is_file()


@pytest.fixture
def network(tmp_path: Path) -> str:
    pytest.importorskip("torch")
    path = tmp_path / "net.py"
    path.write_text(NETWORK)
    return f"{path}:make"


@pytest.mark.usefixtures("tuned")
def test_a_tuned_network_that_is_wrong_ends_with_exit_code_3(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    network: str,
    hardware: Hardware,
    tmp_path: Path,
) -> None:
    wrong = Network(inputs=4, fault="it differs from the original: output 'y'", wrong=True)
    outcome = replace(_outcome("net", hardware), network=wrong)
    monkeypatch.setattr(tuning, "tune", lambda _source, **_options: outcome)
    monkeypatch.setattr(TuneResult, "to_json", lambda _self: {**_DATA, "network": wrong.to_json()})
    code, out, err = call(capsys, "tune", network, "--trials", "1", "--json",
                          str(tmp_path / "n.json"))  # fmt: skip
    assert code == 3
    assert "differs from the original: output 'y'" in err.splitlines()[-1]
    assert "the default schedules ship" in out
    assert json.loads((tmp_path / "n.json").read_text())["verified"] is False


_DATA: dict[str, Any] = {
    **dict.fromkeys(("elapsed_s", "search_s", "build_s", "measure_s"), 1.0),
    **{"tasks": [], "untuned_s": 0.0, "tuned_s": 0.0},
}


def tune_network(network: str, *options: str) -> subprocess.Popen[str]:
    folder = Path(network.partition(":")[0]).parent
    return foretune("tune", "net.py:make", "--work-dir", "run", "-o", "net.so", "--json",
                    "out.json", *options, cwd=folder, preexec_fn=listen_to_ctrl_c)  # fmt: skip


def told(child: subprocess.Popen[str], text: str) -> str:
    """What the child says on standard error until ``text`` is in a line of it."""
    assert child.stderr is not None
    said = ""
    for line in child.stderr:
        said += line
        if text in line:
            return said
    raise AssertionError(f"{text!r} was not said: {said}")


def run_saved(network: str) -> None:
    """The artifact that was saved computes what the network does."""
    import torch

    source = load_input(network)
    artifact = Artifact.load(Path(network.partition(":")[0]).with_suffix(".so"))
    inputs = [torch.randn(2, 8, generator=torch.Generator().manual_seed(1)).numpy()]
    (expected,), (actual,) = source.reference(inputs), artifact.run(inputs)
    assert abs(expected - actual).max() < 1e-4


@pytest.mark.slow
def test_a_network_is_proven_tuned_and_timed_as_a_whole(network: str) -> None:
    child = tune_network(network, "--trials", "4")
    out, err = child.communicate(timeout=240)
    assert child.returncode == 0, err
    assert err.index("proved: equal to the original") < err.index("tuning 1 tasks")
    data = json.loads(Path(network.partition(":")[0]).with_name("out.json").read_text())
    whole = data["network"]
    assert whole["original"] == "eager" and whole["shipped"] in ("default", "tuned")
    for name in ("original_s", "default_s", "tuned_s", "proof_s"):
        assert whole[name] > 0
    assert whole["inputs"] > 2 and whole["max_relative_error"] <= whole["tolerance"]
    assert "eager PyTorch" in out.splitlines()[0]
    assert data["verified"] is True
    run_saved(network)


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGINT, id="ctrl_c"),
        pytest.param(signal.SIGKILL, id="killed", marks=pytest.mark.slow),
    ],
)
def test_a_run_that_ends_in_its_first_minute_leaves_the_proven_network(
    network: str, number: signal.Signals
) -> None:
    child = tune_network(network, "--trials", "100000", "--patience", "100000")
    # Ctrl-C counts from the moment that the proof is told; a kill, once the file is written.
    told(child, "proved" if number is signal.SIGINT else "tuning 1 tasks")
    child.send_signal(number)
    _, err = child.communicate(timeout=120)
    assert child.returncode == (130 if number is signal.SIGINT else -number), err
    assert "Traceback" not in err
    run_saved(network)


@pytest.mark.parametrize(("right", "expected"), [(True, 0), (False, 3), (None, 0)])
def test_comparing_a_wrong_artifact_ends_with_exit_code_3(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    network: str,
    right: bool | None,
    expected: int,
) -> None:
    own = EngineResult(1e-3, 1e-3, 1e-3, 0.5, 0.5, within_tolerance=right)
    monkeypatch.setattr(engines, "compare", lambda *_args, **_options: {"foretune": own})
    monkeypatch.setattr(Artifact, "load", lambda _path: SimpleNamespace(manifest={}))
    code, out, err = call(capsys, "compare", network, "--artifact", "net.so")
    assert code == expected
    assert ("foretune computes something else" in out) is (right is False)
    assert ("net.so does not compute what" in err) is (right is False)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("tune NAME --trials 4", "tune --fresh --store none --seed 0 NAME --trials 4"),
        (
            "--verbose tune --fresh NAME --seed 3",
            "--verbose tune --store none --fresh NAME --seed 3",
        ),
        (
            "tune --seed=3 --trials 4 -- NAME",
            "tune --fresh --store none --seed=3 --trials 4 -- NAME",
        ),
    ],
)
@pytest.mark.usefixtures("tuned")
def test_the_command_that_is_noted_starts_anew_with_the_same_seed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, given: str, shown: str
) -> None:
    noted = []

    def note(_source: Any, *, command: str, **_options: Any) -> NoReturn:
        noted.append(command)
        raise NothingMeasuredError("on purpose")

    monkeypatch.setattr(tuning, "tune", note)
    assert call(capsys, *given.replace("NAME", "matmul:8x8x8").split())[0] == 3
    assert noted == ["foretune " + shown.replace("NAME", "matmul:8x8x8")]


@pytest.mark.usefixtures("tuned")
def test_the_batch_is_handed_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[int | None] = []

    def note(_source: Any, *, batch: int | None, **_options: Any) -> NoReturn:
        given.append(batch)
        raise NothingMeasuredError("on purpose")

    monkeypatch.setattr(tuning, "tune", note)
    call(capsys, "tune", "matmul:8x8x8", "--trials", "4", "--batch", "3")
    call(capsys, "tune", "matmul:8x8x8", "--trials", "4")
    assert given == [3, None]


def test_an_onnx_artifact_needs_onnx_runtime_before_anything_is_measured(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    relu_onnx: Path,
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    arguments = ["tune", str(relu_onnx), "--trials", "1", "--work-dir",
                 str(tmp_path / "run"), "-o", str(tmp_path / "relu.so")]  # fmt: skip
    code, _, err = call(capsys, *arguments)
    assert code == 2
    assert "pip install onnxruntime" in err
    assert err.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("failure", "told"),
    [(PermissionError(13, "Permission denied"), "Permission denied"), (None, "tune` again")],
    ids=["unreadable", "no object"],
)
def test_a_result_that_cannot_be_read_is_bad_input(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    failure: OSError | None,
    told: str,
) -> None:
    (tmp_path / "tune.json").write_text("[]")

    def refuse(*_args: Any, **_options: Any) -> NoReturn:
        assert failure is not None
        raise failure

    with monkeypatch.context() as patched:
        if failure is not None:
            patched.setattr(Path, "read_text", refuse)
        code, _, err = call(capsys, "report", str(tmp_path))
    assert code == 2
    assert told in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "command",
    [
        "tune matmul:8x8x8 --trials 1",
        "bench --json JSON --workloads matmul:8x8x8 --strategies random --trials 1",
    ],
)
def test_no_room_for_temporary_files_is_bad_input(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    command: str,
) -> None:
    def nowhere() -> NoReturn:
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    code, _, err = call(capsys, *command.replace("JSON", str(tmp_path / "b.json")).split())
    assert code == 2
    assert "set TMPDIR" in err
    assert err.count("\n") == 1
