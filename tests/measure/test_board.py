"""Code for 64-bit Arm: compiled and linked here, executed in an emulator, checked and timed there.

The device is ``board/server.cc``, a TVM RPC server in C++ on the runtime of TVM's own package for
that architecture, in qemu's emulation of a process. Needs ``apt install g++-aarch64-linux-gnu
qemu-user`` and, once, pip's index.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from foretune import _tvm, cli
from foretune.errors import BadInputError
from foretune.hardware import Hardware, foreign_triple, preset
from foretune.measure import RemoteMeasurer, Status, parse_devices, place_of
from foretune.space import Space
from tests.measure.farm import free_port, wait_for
from tests.measure.misbehaviour import Trick, TrickSketch
from tests.measure.policies import OpenPolicy
from tests.measure.programs import conv2d, gelu, matmul, softmax
from tests.measure.remote_tricks import BUILDER

pytestmark = [pytest.mark.machine, pytest.mark.slow]

_COMPILER, _EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
_ROOT = "/usr/aarch64-linux-gnu"
_TARGET = "raspberry-pi-5"
POLICY = OpenPolicy(
    budget_s=0.02, max_rereads=0, cut_factor=1e6, compare_rounds=2, compare_extra_rounds=0
)


def _require(package: str, there: bool) -> None:
    if not there:
        needed = os.environ.get("FORETUNE_REQUIRE", "").split(",")
        assert package not in needed, f"FORETUNE_REQUIRE names {package}, which is not installed"
        pytest.skip(f"apt install {package}")


@pytest.fixture(scope="module")
def runtime(pytestconfig: pytest.Config) -> Path:
    """TVM's runtime and headers for 64-bit Arm, out of its packages; kept between runs."""
    _require("g++-aarch64-linux-gnu", shutil.which(_COMPILER) is not None)
    _require("qemu-user", shutil.which(_EMULATOR) is not None)
    versions = _tvm.versions()
    assert pytestconfig.cache is not None
    place = pytestconfig.cache.mkdir(f"aarch64-{versions['tvm']}-{versions['tvm_ffi']}")
    if not (place / "complete").exists():
        _download(place, versions)
    return place


def _download(place: Path, versions: dict[str, str]) -> None:
    platforms = [f"--platform=manylinux_2_{minor}_aarch64" for minor in (17, 24, 27, 28)]
    wanted = [f"apache-tvm=={versions['tvm']}", f"apache-tvm-ffi=={versions['tvm_ffi']}"]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:",
         "-d", str(place), *platforms, *wanted],
        capture_output=True, text=True, timeout=250,
    )  # fmt: skip
    if done.returncode != 0:
        pytest.skip(f"pip download apache-tvm for aarch64: {done.stderr.strip()[-200:]}")
    for wheel in place.glob("*.whl"):
        with zipfile.ZipFile(wheel) as package:
            for name in package.namelist():
                if name.startswith("tvm_ffi/include/") or name in (
                    "tvm/lib/libtvm_runtime.so",
                    "tvm_ffi/lib/libtvm_ffi.so",
                ):
                    package.extract(name, place)
        wheel.unlink()
    (place / "complete").touch()


@pytest.fixture(scope="module")
def board(runtime: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an emulated device of two threads."""
    folder = tmp_path_factory.mktemp("board")
    libraries = [runtime / "tvm/lib", runtime / "tvm_ffi/lib"]
    source = Path(__file__).parent / "board" / "server.cc"
    subprocess.run(
        [_COMPILER, "-std=c++17", "-O1", f"-I{runtime / 'tvm_ffi/include'}", str(source),
         "-o", str(folder / "server"), *(f"-L{each}" for each in libraries),
         "-Wl,--no-as-needed", "-ltvm_runtime", "-ltvm_ffi",
         *(f"-Wl,-rpath,{each}" for each in libraries)],
        check=True, timeout=120,
    )  # fmt: skip
    port = free_port()
    (folder / "uploads").mkdir()
    facts = {"machine": "aarch64", "tvm": _tvm.versions()["tvm"], "cpu": "emulated", "threads": 2}
    server = subprocess.Popen(
        [_EMULATOR, "-L", _ROOT, str(folder / "server"), str(port), str(folder / "uploads"),
         json.dumps(facts)],
        env={**os.environ, "TVM_NUM_THREADS": "2"},
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    try:
        wait_for(port)
        yield f"rpc://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def hardware_at(url: str) -> Hardware:
    return dataclasses.replace(preset(_TARGET, threads=2), place=place_of(parse_devices([url])))


def test_candidates_are_compiled_for_arm_and_right_there(
    board: str, rng: np.random.Generator
) -> None:
    hardware = hardware_at(board)
    assert foreign_triple(hardware.target)
    programs = (matmul(48), matmul(48, "int32"), conv2d(), softmax(), gelu())
    candidates = [
        c for program in programs for c in Space.generate(program, hardware).sample(rng, 2)
    ]
    with RemoteMeasurer(hardware, parse_devices([board]), POLICY) as measurer:
        results = dict(measurer.measure(candidates))
        (baseline,) = measurer.environment()["devices"].values()
        compared = measurer.compare(candidates[:2])
    assert baseline["machine"] == "aarch64" and baseline["cpu"] == "emulated"
    assert set(results) == set(candidates)
    for candidate, result in results.items():
        assert result.ok, (candidate.workload.name, result)
    assert [result.ok for result in compared] == [True, True]


def test_a_wrong_program_and_a_crash_on_arm_are_told_apart(board: str) -> None:
    sketch = TrickSketch(matmul(32), hardware_at(board))
    wanted = [Trick(sketch, mode) for mode in ("good", "writes_nothing", "crashes")]
    with RemoteMeasurer(sketch.hardware, parse_devices([board]), POLICY, BUILDER) as measurer:
        results = dict(measurer.measure(wanted))  # type: ignore[arg-type]
    statuses = [results[trick].status for trick in wanted]  # type: ignore[index]
    assert statuses == [Status.OK, Status.WRONG_OUTPUT, Status.CRASH]


def test_another_target_than_the_device_is_one_line(board: str) -> None:
    here = dataclasses.replace(hardware_at(board), target='{"kind": "llvm"}', name="this machine")
    with pytest.raises(BadInputError, match=r"'this machine' is code for .* is aarch64: give --"):
        RemoteMeasurer(here, parse_devices([board]), POLICY)


def test_tune_from_a_program_to_a_library_for_the_device(
    board: str, runtime: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    library = tmp_path / "kernel.so"
    command = ["tune", "layernorm_mean", "--device", board, "--target", _TARGET, "--threads", "2",
               "--trials", "3", "--strategy", "random", "--work-dir", str(tmp_path / "work"),
               "-o", str(library), "--json", str(tmp_path / "result.json")]  # fmt: skip
    assert cli.main(command) == 0
    told = json.loads((tmp_path / "result.json").read_text())
    assert told["hardware"]["place"] == place_of(parse_devices([board]))
    assert told["tasks"][0]["best_s"] > 0 and told["artifact"] == str(library)
    header = library.read_bytes()[:20]
    assert header[:4] == b"\x7fELF" and header[18:20] == b"\xb7\x00", "64-bit Arm"
    assert capsys.readouterr().err.count("Traceback") == 0
