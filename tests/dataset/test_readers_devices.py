"""Which device a log is of: by what the caller, the records and the file's name say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from foretune.dataset.readers import read
from foretune.dataset.readers._gathering import sheets_of
from foretune.hardware import device, read_devices

DATA = Path(__file__).parent / "data"


def _log(path: Path, *targets: str) -> Path:
    lines = (DATA / "autotvm.json").read_text().splitlines()
    made = []
    for target in targets:
        for line in lines:
            record = json.loads(line)
            record["input"][0] = target
            made.append(json.dumps(record))
    path.write_text("\n".join(made))
    return path


def _key(path: Path, **options: object) -> str | None:
    (found,) = {g.device.key if g.device else None for g in read(path, **options).groups}  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize(
    ("target", "key"),
    [
        ("llvm -keys=cpu -model=i7-3770", "i7-3770"),
        ("llvm -keys=cpu -mcpu=cortex-a76 -num-cores=4", "cortex-a76"),
        ('{"kind": "llvm", "model": "epyc-7452", "num-cores": 8}', "epyc-7452"),
        ("cuda -arch=sm_37", "k80"),
        ("rocm -mcpu=gfx906", "mi50"),
        ("cuda -arch=sm_80", None),
        ("llvm -mcpu=skylake-avx512", None),
        ("llvm -num-cores=8", None),
        ("cuda -model=unknown", None),
        ("llvm -model=k80", None),
    ],
)
def test_a_target_names_its_device_where_it_is_unambiguous(
    target: str, key: str | None, tmp_path: Path
) -> None:
    assert _key(_log(tmp_path / "log.json", target)) == key


def test_a_file_names_the_device_where_the_target_does_not(tmp_path: Path) -> None:
    assert _key(_log(tmp_path / "gpu-gtx1650.jsonl", "cuda -arch=sm_75")) == "gtx1650"
    assert _key(_log(tmp_path / "T4.jsonl", "cuda -arch=sm_75"), name="lab/T4") == "t4"
    assert _key(_log(tmp_path / "k80.json", "llvm -num-cores=8")) is None, "of another kind"
    several = read(_log(tmp_path / "a100.json", "cuda -arch=sm_80", "cuda -arch=sm_37"))
    assert {g.device.key if g.device else None for g in several.groups} == {None, "k80"}


def test_what_the_caller_says_comes_first(tmp_path: Path) -> None:
    path = _log(tmp_path / "k80.json", "cuda -arch=sm_80")
    assert _key(path, hardware="A100") == "a100"
    assert _key(_log(path, "llvm -model=i7-3770"), hardware="ryzen-3700x") == "ryzen-3700x"


def test_a_file_of_devices_names_what_the_table_does_not(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text(json.dumps({"run/cuda-sm_86": {"same_as": "rtx3080"}}))
    mine = read_devices(tmp_path / "mine.json")
    log = _log(tmp_path / "run.json", "cuda -arch=sm_86", "cuda -arch=sm_37")
    found = {g.hardware: g.device.key if g.device else None for g in read(log, devices=mine).groups}
    assert found == {"run/cuda-sm_86": "rtx3080", "run/cuda-sm_37": "k80"}


def test_models_see_the_machine_of_a_log_through_the_table(tmp_path: Path) -> None:
    bare = read(_log(tmp_path / "bare.json", "llvm -model=i7-3770")).groups[0]
    tuned = read(_log(tmp_path / "tuned.json", "llvm -model=i7-3770 -mattr=+avx")).groups[0]
    assert bare.machine is not None and tuned.machine is not None
    assert (bare.machine.threads, bare.machine.l3_bytes) == (4, 8 << 20)
    assert (bare.machine.simd_bits, tuned.machine.simd_bits) == (128, 256)


def test_a_device_that_is_named_exactly_is_looked_up_as_it_is() -> None:
    sheets = sheets_of({"NVIDIA A100-PCIE-40GB": "A"}, None, exact=True, devices=None)
    assert sheets == {"NVIDIA A100-PCIE-40GB": device("a100")}
    assert sheets_of({"some": "a100"}, None, exact=True, devices=None) == {"some": device("a100")}
