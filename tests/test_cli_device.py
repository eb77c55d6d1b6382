"""``foretune device serve`` and ``foretune tune --device``, as other programs call them."""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from foretune import cli
from foretune.hardware import usable_cores
from foretune.measure import RemoteMeasurer
from foretune.measure._device import Patience
from foretune.records import Journal
from tests.measure.farm import Serving, free_port

PRIM_FUNC = """
from tvm import te


def matmul():
    a = te.placeholder((32, 32), name="A")
    b = te.placeholder((32, 32), name="B")
    k = te.reduce_axis((0, 32), name="k")
    c = te.compute((32, 32), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return te.create_prim_func([a, b, c])
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    file = tmp_path / "program.py"
    file.write_text(PRIM_FUNC)
    return f"{file}:matmul"


@pytest.fixture(scope="module")
def served() -> Iterator[Serving]:
    serving = Serving("board", own_tracker=free_port())
    yield serving
    serving.end()


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.main(arguments) == 2
    errors = capsys.readouterr().err.strip()
    assert errors.startswith("foretune: ") and "\n" not in errors
    return errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--threads", "0"], "must hold on this machine"),
        (["--threads", str(usable_cores() + 1)], f"<= {usable_cores()}`"),
        (["--start-tracker"], "give one with --key"),
        (["--tracker", "pi", "--key", "pi"], "a tracker reads HOST:PORT"),
        (["--tracker", "me:secret@farm:1", "--key", "pi"], "a tracker reads HOST:PORT"),
        (["--tracker", "farm:9190", "--key", "pi"], "must listen where they reach it"),
        (["--key", "a b"], "a key has letters"),
        (["--host", "0.0.0.0", "--start-tracker", "--key", "pi"], "add --announce"),
        (["--port", "0"], "`0 < port < 65536`"),
    ],
)
def test_serving_refuses_what_cannot_work(
    capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    errors = refused(capsys, "device", "serve", *options)
    assert message in errors and "secret" not in errors


def test_a_port_that_is_taken_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        errors = refused(capsys, "device", "serve", "--port", str(port))
    assert f"127.0.0.1:{port} must be free to listen at" in errors and "--port" in errors


@pytest.mark.slow
def test_serving_says_who_can_reach_it_and_ends_with_all_it_started() -> None:
    tracker = free_port()
    serving = Serving("board", own_tracker=tracker)
    assert serving.lines[0].startswith("listening at 127.0.0.1 only: other machines cannot reach")
    assert f"tracker at 127.0.0.1:{tracker}" in serving.lines[1]
    errors = serving.end(signal.SIGTERM)
    assert serving.process.returncode == 130 and errors == "foretune: interrupted\n"
    for port in (tracker, serving.port):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--device", "rpc://127.0.0.1:1/pi"], "must be described by --target"),
        (["--device", "rpc://127.0.0.1:1/pi", "--target", "host"], "no tracker can be reached at"),
        (["--device", "rpc://127.0.0.1:1", "--target", "host"], "none can be reached at"),
        (["--device", "pi"], "a device reads rpc://"),
        (["--device", "rpc://me:secret@farm:1/pi", "--target", "host"], "no user and no password"),
    ],
)
def test_tuning_refuses_devices_that_lead_nowhere(
    capsys: pytest.CaptureFixture[str],
    program: str,
    tmp_path: Path,
    options: list[str],
    message: str,
) -> None:
    work_dir = tmp_path / "work"
    errors = refused(capsys, "tune", program, "--work-dir", str(work_dir), *options)
    assert message in errors and "secret" not in errors
    assert not (work_dir / "journal.jsonl").exists()


@pytest.mark.machine
def test_tuning_on_a_device_from_the_tracker_to_the_records(
    served: Serving, program: str, tmp_path: Path
) -> None:
    tracker = next(line for line in served.lines if line.startswith("tracker at "))
    url = f"rpc://{tracker.split()[-1]}/board"
    work_dir, result = tmp_path / "work", tmp_path / "result.json"
    command = ["tune", program, "--device", url, "--target", "host", "--threads", "1",
               "--trials", "4", "--strategy", "random", "--work-dir", str(work_dir),
               "--json", str(result), "-o", str(tmp_path / "kernel.so")]  # fmt: skip
    assert cli.main(command) == 0
    told = json.loads(result.read_text())
    assert told["hardware"]["place"] == "board"
    assert told["tasks"][0]["best_s"] > 0 and len(told["tasks"][0]["trials"]) == 4
    (baseline,) = told["environment"]["devices"].values()
    assert baseline["asked"] == url and baseline["canary_s"] > 0
    assert told["verified"] is False and Path(told["artifact"]).exists()
    with Journal(work_dir / "journal.jsonl") as journal:
        records = list(journal.records())
    measured = [record for record in records if record.measurement.ok]
    assert {record.measurement.device for record in measured} == {f"127.0.0.1:{served.port}"}
    assert {record.hardware for record in records} == {told["hardware"]["key"]}
    # The same command has nothing left to do, and knows its records again.
    assert cli.main(command) == 0
    assert len(json.loads(result.read_text())["tasks"][0]["trials"]) == 4


@pytest.mark.slow
@pytest.mark.machine
def test_a_run_that_loses_its_only_device_ends_in_one_line_and_goes_on_later(
    program: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hasty = partial(RemoteMeasurer, patience=Patience(reboot_s=0.5))
    monkeypatch.setattr("foretune.tuning.measurers.RemoteMeasurer", hasty)
    serving = Serving()
    journal, result = tmp_path / "work" / "journal.jsonl", tmp_path / "result.json"
    command = ["tune", program, "--device", f"rpc://127.0.0.1:{serving.port}", "--target", "host",
               "--threads", "1", "--trials", "40", "--batch", "4", "--strategy", "random",
               "--work-dir", str(journal.parent), "--json", str(result)]  # fmt: skip

    def kill_once_something_is_known() -> None:
        while not (journal.exists() and journal.read_text().count('"ok"') >= 4):
            time.sleep(0.02)
        serving.end()

    killer = threading.Thread(target=kill_once_something_is_known, daemon=True)
    killer.start()
    try:
        assert cli.main(command) == 2
        killer.join(30)
        errors = capsys.readouterr().err.splitlines()
        told = [line for line in errors if line.startswith("foretune: no device is left")]
        assert len(told) == 1 and "run the same command again" in told[0]
        kept = journal.read_text().count('"kind":"record"')
        assert 4 <= kept < 40
        serving = Serving(port=serving.port)
        assert cli.main(command) == 0
        assert len(json.loads(result.read_text())["tasks"][0]["trials"]) == 40
    finally:
        serving.end()
