"""The readers on data that others published, where it lies beside the checkout."""

from __future__ import annotations

import gzip
import itertools
import tarfile
from pathlib import Path

import numpy as np
import pytest

from foretune.dataset.readers import Reading, read
from foretune.dataset.readers.ansor import STEPS
from foretune.errors import BadInputError, RecordError
from foretune.records.metaschedule_import import RECORDS, WORKLOADS


def _check(reading: Reading) -> None:
    """What holds for every reading."""
    assert reading.lines == reading.records + sum(reading.skipped.values())
    keys = [group.key for group in reading.groups]
    assert len(set(keys)) == len(keys)
    for group in reading.groups:
        assert len(group) >= 2
        assert group.valid.any()
        assert (group.seconds[group.valid] < 1e6).all()


@pytest.fixture(scope="module")
def k80(tmp_path_factory: pytest.TempPathFactory, shared_data: Path) -> Path:
    """The first two logs of the K80 archive."""
    folder = tmp_path_factory.mktemp("logs") / "k80"
    folder.mkdir()
    with tarfile.open(shared_data / "ansor" / "k80.tar.gz") as archive:
        logs = (member for member in archive if member.name.endswith(".log"))
        for member in itertools.islice(logs, 2):
            content = archive.extractfile(member)
            assert content is not None
            (folder / Path(member.name).name).write_bytes(content.read())
    return folder


def test_two_logs_of_a_k80(k80: Path) -> None:
    reading = read(k80)
    _check(reading)
    assert (reading.format, reading.lines) == ("ansor", 2000)
    assert [group.kind for group in reading.groups] == ["conv2d", "conv2d"]
    assert {group.hardware for group in reading.groups} == {"k80"}
    assert reading.groups[0].workload == '["conv2d_layer",128,1008,21,21,168,1,1,1,0]'
    kinds = {a.kind for g in reading.groups for p in g.programs for a in p.actions}
    assert {"SP", "CHW", "CHR", "PR"} <= kinds <= STEPS


def test_a_truncated_archive_is_refused(tmp_path: Path, shared_data: Path) -> None:
    with (shared_data / "ansor" / "k80.tar.gz").open("rb") as archive:
        (tmp_path / "k80.tar.gz").write_bytes(archive.read(1 << 17))
    with pytest.raises(RecordError, match="cannot be read"):
        read(tmp_path / "k80.tar.gz")


def test_part_of_an_a100_database(tmp_path: Path, shared_data: Path) -> None:
    source = shared_data / "metaschedule-a100-resnet34"
    (tmp_path / f"{WORKLOADS}.gz").write_bytes((source / f"{WORKLOADS}.gz").read_bytes())
    with gzip.open(source / f"{RECORDS}.gz") as file:
        (tmp_path / RECORDS).write_bytes(b"".join(itertools.islice(file, 400)))
    reading = read(tmp_path, hardware="A100")
    _check(reading)
    assert (reading.format, reading.lines) == ("metaschedule", 400)
    assert set(reading.skipped) <= {"duplicate", "empty group", "group with one record"}
    assert {group.hardware for group in reading.groups} == {"A100"}
    assert "conv2d" in {group.kind for group in reading.groups}
    actions = [a for g in reading.groups for p in g.programs for a in p.actions]
    assert {"split", "fuse", "bind", "reorder", "annotate"} <= {a.kind for a in actions}
    loops = {str(a.args[0]) for a in actions if a.kind == "split"}
    named = [n for n in loops if n.startswith("conv2d_nchw.") and "loop" not in n]
    assert named, "loops are called as the program called them"


def test_a_brute_forced_kernel(shared_data: Path) -> None:
    reading = read(shared_data / "kernel-tuner" / "A100.json.gz")
    _check(reading)
    (group,) = reading.groups
    assert (reading.format, len(group), reading.skipped) == ("kernel_tuner", 4362, {})
    assert (group.hardware, group.kind) == ("NVIDIA A100-PCIE-40GB", "conv2d")
    assert group.seconds[0] == pytest.approx(3.8753279224038124e-3)
    assert 0 < int((~group.valid).sum()) < 4362
    assert set(group.programs[0].configuration or ()) >= {"block_size_x", "tile_size_x"}


def test_a_description_of_a_space_is_no_measurement(shared_data: Path) -> None:
    with pytest.raises(BadInputError, match="can be recognised"):
        read(shared_data / "kernel-tuner" / "convolution_milo.json")


@pytest.mark.slow
def test_all_logs_of_a_k80_and_an_mi50(shared_data: Path) -> None:
    k80 = read(shared_data / "ansor" / "k80.tar.gz")
    mi50 = read(shared_data / "ansor" / "mi50.tar.gz")
    for reading, records, groups in ((k80, 93_076, 116), (mi50, 87_640, 112)):
        _check(reading)
        # Beside the logs, the archives hold a licence, a text and a table: 190 lines.
        assert reading.skipped["not JSON"] == 190
        assert reading.lines == records + 190
        # One task of the K80 and six of the MI50 failed throughout.
        assert len(reading.groups) == groups
        assert set(reading.skipped) <= {"not JSON", "duplicate", "empty group"}
        assert {group.kind for group in reading.groups} == {
            "conv2d", "depthwise", "dense", "pool", "reduction", "elementwise"
        }  # fmt: skip
    both = {g.workload for g in k80.groups} & {g.workload for g in mi50.groups}
    assert len(both) == 109, "padding is written alike, so that no task is taken for two"


@pytest.mark.slow
def test_logs_of_several_devices_in_one_archive(shared_data: Path) -> None:
    reading = read(shared_data / "ansor" / "x86-and-microkernels.tar.gz")
    _check(reading)
    assert reading.lines - reading.skipped["not JSON"] == 29_595 + reading.skipped.get(
        "not a record of this format", 0
    )
    devices = {group.hardware.rpartition("/")[2] for group in reading.groups}
    assert {"llvm-8", "cuda-sm_80", "cuda-sm_86"} <= devices


@pytest.mark.slow
def test_a_whole_a100_database(shared_data: Path) -> None:
    reading = read(shared_data / "metaschedule-a100-resnet34")
    _check(reading)
    # All 128 records of a twentieth task failed.
    assert (reading.lines, len(reading.groups)) == (20_089, 19)
    assert reading.skipped.get("empty group") == 128
    assert set(reading.skipped) <= {"duplicate", "empty group"}
    valid = sum(int(group.valid.sum()) for group in reading.groups)
    assert 15_450 - reading.skipped.get("duplicate", 0) <= valid <= 15_450
    kinds = {group.kind for group in reading.groups}
    assert {"conv2d", "pool", "dense", "softmax"} <= kinds
    best = [group.best_s for group in reading.groups]
    assert np.median([b for b in best if b is not None]) < 1e-3
