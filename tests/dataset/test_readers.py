"""What all readers have in common: formats, archives, and that nothing is used in silence."""

from __future__ import annotations

import gzip
import io
import json
import math
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune.dataset import Program
from foretune.dataset.readers import FORMATS, Reading, names_of, read
from foretune.dataset.readers._gathering import Gathering, SkipLine, Task, device_of, mean_seconds
from foretune.errors import BadInputError, RecordError
from tests.evaluate.support import ansor_line

DATA = Path(__file__).parent / "data"
ANSOR = (DATA / "ansor.json").read_bytes()
TASK = Task("w", "a workload", "dense", "device", "a test")


def _balanced(reading: Reading) -> bool:
    return reading.lines == reading.records + sum(reading.skipped.values())


def _tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "found"),
    [("ansor.json", "ansor"), ("autotvm.json", "autotvm"), ("kernel_tuner.json", "kernel_tuner")],
)
def test_the_format_is_found_out_by_content(name: str, found: str, tmp_path: Path) -> None:
    packed = tmp_path / "whatever.bin"
    packed.write_bytes(gzip.compress((DATA / name).read_bytes()))
    for path in (DATA / name, packed):
        reading = read(path)
        assert reading.format == found
        assert reading.groups
        assert _balanced(reading)


def test_every_format_is_listed() -> None:
    assert FORMATS == (
        "ansor", "autotvm", "kernel_tuner", "metaschedule", "miopen", "tenset",
    )  # fmt: skip


def test_a_folder_an_archive_and_a_compressed_archive_read_alike(tmp_path: Path) -> None:
    folder = tmp_path / "k80"
    (folder / "deep").mkdir(parents=True)
    (folder / "README").write_text("Logs of a GPU.\n\nTwo lines of text.\n")
    (folder / "deep" / "a.log").write_bytes(ANSOR)
    (folder / "deep" / "b.json.gz").write_bytes(gzip.compress(ANSOR))
    files = {
        "README": (folder / "README").read_bytes(),
        "deep/a.log": ANSOR,
        "deep/b.json.gz": (folder / "deep" / "b.json.gz").read_bytes(),
    }
    archive = tmp_path / "k80.tar"
    archive.write_bytes(_tar(files))
    packed = tmp_path / "k80.tar.gz"
    packed.write_bytes(gzip.compress(archive.read_bytes()))
    readings = [read(path) for path in (folder, archive, packed)]
    for reading in readings:
        assert reading.skipped == {"duplicate": 5, "not JSON": 2}
        assert [len(group) for group in reading.groups] == [3, 2]
        assert {group.hardware for group in reading.groups} == {"k80"}
        assert reading.groups[0].source.endswith("deep/a.log")
        assert _balanced(reading)


def test_what_was_left_out_is_said_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    path.write_bytes(ANSOR + b"torn {\n" + b'{"another": "tool"}\n' + b"\n  \n" + b"{}\n")
    reading = read(path)
    assert reading.text == (
        "ansor: 8 lines, 5 records (4 valid) in 2 groups; skipped 3 (not a record of this format: "
        "2, not JSON: 1)"
    )
    assert "\n" not in read(DATA / "ansor.json").text
    assert "skipped" not in read(DATA / "ansor.json").text


@pytest.mark.parametrize("keep", [0.3, 0.9, 0.999])
def test_a_truncated_archive_is_an_error_whatever_was_read(keep: float, tmp_path: Path) -> None:
    whole = gzip.compress(_tar({"a.log": ANSOR, "b.log": ANSOR}))
    path = tmp_path / "log.tar.gz"
    path.write_bytes(whole[: int(len(whole) * keep)])
    with pytest.raises(RecordError, match=r"log\.tar\.gz cannot be read"):
        read(path)


def test_a_truncated_compressed_log_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "log.json.gz"
    path.write_bytes(gzip.compress(ANSOR)[:-12])
    with pytest.raises(RecordError, match="cannot be read"):
        read(path, format="ansor")
    (tmp_path / "cache.json.gz").write_bytes(
        gzip.compress((DATA / "kernel_tuner.json").read_bytes())[:-12]
    )
    with pytest.raises(RecordError, match="cannot be read"):
        read(tmp_path / "cache.json.gz", format="kernel_tuner")


def test_an_archive_that_ends_within_a_header_or_at_a_file_is_an_error(tmp_path: Path) -> None:
    """Python's own reader takes both for the end."""
    first = len(_tar({"a.log": ANSOR}).rstrip(b"\0"))
    boundary = -(-first // 512) * 512
    whole = _tar({"a.log": ANSOR, "b.log": ANSOR})
    path = tmp_path / "log.tar"
    for end in (boundary, boundary + 100):
        path.write_bytes(whole[:end])
        with pytest.raises(RecordError, match="cannot be read"):
            read(path, format="ansor")
    damaged = bytearray(whole)
    damaged[boundary : boundary + 200] = b"x" * 200
    path.write_bytes(damaged)
    with pytest.raises(RecordError, match="cannot be read"):
        read(path, format="ansor")


def test_what_is_no_measurement_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="there is no file or folder"):
        read(tmp_path / "nowhere.json")
    for name, content in [("empty.json", b""), ("text.json", b"hello\n[1, 2]\n{}\n"), ("x", b"\0")]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(BadInputError, match="ansor, autotvm, kernel_tuner"):
            read(tmp_path / name)
    (tmp_path / "folder").mkdir()
    with pytest.raises(BadInputError, match="can be recognised"):
        read(tmp_path / "folder")
    with pytest.raises(BadInputError, match="unknown format 'tensor'"):
        read(DATA / "ansor.json", format="tensor")


def test_a_format_that_is_named_but_wrong_gives_no_group(tmp_path: Path) -> None:
    reading = read(DATA / "ansor.json", format="autotvm")
    assert reading.groups == []
    assert reading.skipped == {"not a record of this format": 5}
    (tmp_path / "empty.json").touch()
    empty = read(tmp_path / "empty.json", format="ansor")
    assert (empty.groups, empty.skipped, empty.lines) == ([], {}, 0)


def test_a_limit_leaves_out_what_is_beyond_it_and_counts_it() -> None:
    reading = read(DATA / "ansor.json", limit_per_group=2)
    assert [len(group) for group in reading.groups] == [2, 2]
    assert reading.skipped == {"beyond the limit per group": 1}
    assert _balanced(reading)
    whole = read(DATA / "ansor.json", limit_per_group=3)
    assert [len(group) for group in whole.groups] == [3, 2]
    with pytest.raises(BadInputError, match="limit_per_group is at least 2"):
        read(DATA / "ansor.json", limit_per_group=1)


def _kept(path: Path, seed: int = 0) -> list[int]:
    """Which programs of a search a limit of 20 keeps: 0 was measured first."""
    reading = read(path, limit_per_group=20, seed=seed)
    (group,) = reading.groups
    assert len(group) == 20
    assert _balanced(reading)
    return [round((1 - s) * 1e4) for s in group.seconds.tolist()]


def test_a_limit_draws_from_the_whole_of_a_search(tmp_path: Path) -> None:
    """Searches go from bad to good: the first programs would be the worst."""
    lines = [ansor_line(0, step, 1 - 1e-4 * step) for step in range(200)]
    path = tmp_path / "log.json"
    path.write_text("".join(lines))
    drawn = [_kept(path, seed) for seed in range(20)]
    assert _kept(path) == drawn[0], "the same seed"
    assert len(set(map(tuple, drawn))) == 20, "another seed"
    assert all(kept == sorted(kept) for kept in drawn), "in the order of appearance"
    assert all(min(kept) < 100 <= max(kept) for kept in drawn)
    # Of 400 draws, about as many from each tenth of the search.
    assert all(20 <= n <= 60 for n in np.histogram(np.concatenate(drawn), 10, (0, 200))[0])
    path.write_text("".join(reversed(lines)))
    assert _kept(path) == drawn[0][::-1], "whatever the order"


@settings(deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 9), st.sampled_from([math.nan, 1.0, 2.0, 3.0]))),
    limit=st.integers(2, 5),
)
def test_a_limit_keeps_programs_with_all_their_measurements(
    rows: list[tuple[int, float]], limit: int
) -> None:
    def groups(limit: int | None) -> dict[str, float]:
        gathering = Gathering(limit)
        for key, seconds in rows:
            gathering.take(gathering.add, TASK, key, Program(configuration={"k": key}), seconds)
        found = gathering.groups({"device": "d"})
        assert sum(map(len, found)) + gathering.skipped.total() == len(rows)
        return {p.key: s for g in found for p, s in zip(g.programs, g.seconds, strict=True)}

    whole, kept = groups(None), groups(limit)
    assert len(kept) <= limit
    for key, seconds in kept.items():
        assert np.array_equal(seconds, whole[key], equal_nan=True)


def test_records_of_two_devices_never_mix(tmp_path: Path) -> None:
    path = tmp_path / "both.json"
    path.write_bytes(ANSOR + ANSOR.replace(b"sm_37", b"sm_80"))
    reading = read(path)
    assert {g.hardware for g in reading.groups} == {"both/cuda-sm_37", "both/cuda-sm_80"}
    assert len(reading.groups) == 4
    assert not reading.skipped
    assert len({g.workload for g in reading.groups}) == 2
    assert {g.hardware for g in read(path, hardware="lab").groups} == {
        "lab/cuda-sm_37",
        "lab/cuda-sm_80",
    }
    assert {g.hardware for g in read(DATA / "ansor.json", hardware="K80").groups} == {"K80"}


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["a/log.json"], ["log"]),
        (["a/log.json", "b/other.tar.gz"], ["log", "other"]),
        (["a/log.json", "b/log.json.gz", "c.json"], ["a/log", "b/log", "c"]),
        (["x/a/log.json", "y/a/log.json", "y/b/log.json"], ["x/a/log", "y/a/log", "b/log"]),
        (["a/log.json", "a/log.json.gz"], ["log.json", "log.json.gz"]),
        (["a/k80", "a/k80.tar.gz", "b/k80"], ["a/k80", "k80.tar.gz", "b/k80"]),
        (["a/log.json", "a/log.json"], ["log", "log"]),
    ],
)
def test_files_go_by_their_names_as_far_as_these_differ(
    tmp_path: Path, paths: list[str], names: list[str]
) -> None:
    assert names_of([tmp_path / path for path in paths]) == names


@given(st.lists(st.lists(st.sampled_from(["a", "b", "a.json"]), min_size=1, max_size=4)))
def test_no_two_files_have_one_name(parts: list[list[str]]) -> None:
    paths = [Path("/", *each) for each in parts]
    names = names_of(paths)
    assert len(set(names)) == len(set(paths))
    for path, name in zip(paths, names, strict=True):
        assert str(path).removesuffix(".json").endswith(name.removesuffix(".json"))


def test_groups_that_teach_nothing_are_left_out_and_counted() -> None:
    gathering = Gathering()
    failed = Task("failed", "all failed", "dense", "device", "a test")
    lone = Task("lone", "one record", "dense", "device", "a test")
    rows = [(TASK, 1, 1.0), (TASK, 2, math.nan), (failed, 1, math.nan), (failed, 2, math.nan)]
    for task, key, seconds in [*rows, (lone, 1, 1.0)]:
        gathering.take(gathering.add, task, key, Program(actions=()), seconds)
    (group,) = gathering.groups({"device": "d"})
    assert (group.workload, group.kind, group.hardware) == ("w", "dense", "d")
    assert gathering.skipped == {"empty group": 2, "group with one record": 1}
    assert gathering.lines == 5


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([math.nan, 1.0, 2.0, 3.0]))))
def test_of_a_program_measured_twice_the_lowest_seconds_count(
    rows: list[tuple[int, float]],
) -> None:
    gathering = Gathering()
    for key, seconds in rows:
        gathering.take(gathering.add, TASK, key, Program(configuration={"k": key}), seconds)
    groups = gathering.groups({"device": "d"})
    assert sum(map(len, groups)) + gathering.skipped.total() == len(rows)
    for group in groups:
        for program, seconds in zip(group.programs, group.seconds, strict=True):
            assert program.configuration is not None
            own = [s for key, s in rows if key == program.configuration["k"]]
            best = np.nanmin(own) if not np.isnan(own).all() else math.nan
            assert np.array_equal(seconds, best, equal_nan=True)


@pytest.mark.parametrize(
    ("costs", "seconds"),
    [([0.5], 0.5), ([1, 3], 2.0), ([1e10], math.nan), ([0.1, 1e10], math.nan)],
)
def test_seconds_are_the_mean_and_sentinels_are_failures(costs: Any, seconds: float) -> None:
    assert mean_seconds(costs, failed=False) == pytest.approx(seconds, nan_ok=True)
    assert math.isnan(mean_seconds(costs, failed=True))


@pytest.mark.parametrize("costs", [[0.0], [-1.0], [math.nan], [math.inf], [0.1, 0], [10**400]])
def test_seconds_that_are_not_positive_and_finite_are_left_out(costs: Any) -> None:
    with pytest.raises(SkipLine, match="seconds not positive and finite"):
        mean_seconds(costs, failed=False)


@pytest.mark.parametrize("costs", [None, [], 0.1, ["0.1"], [None], [True], {"a": 1}])
def test_seconds_that_are_no_numbers_are_damage(costs: Any) -> None:
    with pytest.raises(SkipLine, match="damaged record"):
        mean_seconds(costs, failed=False)


@pytest.mark.parametrize(
    ("target", "cores", "device"),
    [
        ("cuda -keys=cuda,gpu -arch=sm_80", -1, "cuda-sm_80"),
        ("llvm -keys=cpu ", 16, "llvm-16"),
        ("llvm -model=unknown -mcpu=core-avx2", 0, "llvm-core-avx2"),
        ("cuda -model=1080ti -arch=sm_61", 0, "cuda-1080ti"),
        ('{"kind": "llvm", "mcpu": "znver4", "num-cores": 8}', 0, "llvm-znver4-8"),
        ({"kind": "cuda", "arch": "sm_80"}, 0, "cuda-sm_80"),
    ],
)
def test_a_target_says_what_it_can_of_the_device(target: Any, cores: int, device: str) -> None:
    assert device_of(target, cores) == device


@pytest.mark.parametrize("target", ["", " ", "{}", None, 3, ["llvm"], {"arch": "sm_80"}])
def test_what_is_no_target_is_damage(target: Any) -> None:
    with pytest.raises(SkipLine, match="damaged record"):
        device_of(target)


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_no_line_breaks_a_reader(tmp_path_factory: pytest.TempPathFactory, noise: bytes) -> None:
    path = tmp_path_factory.mktemp("noise") / "log.json"
    path.write_bytes(ANSOR + b"\n" + noise)
    for format in ("ansor", "autotvm"):
        assert _balanced(read(path, format=format))


@settings(deadline=None)
@given(data=st.data())
def test_no_change_of_a_record_breaks_a_reader(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Any part of a record may be anything: the record is used or counted."""
    name = data.draw(st.sampled_from(["ansor", "autotvm"]))
    record = json.loads((DATA / f"{name}.json").read_text().splitlines()[0])
    odd = st.sampled_from(
        [None, True, -1, 0, 1e300, "", "x", [], {}, [[]], {"a": [1]}, [None, []], 10**30]
    )
    parent: Any = record
    while True:
        keys = list(parent) if isinstance(parent, dict) else list(range(len(parent)))
        at = data.draw(st.sampled_from(keys))
        if isinstance(parent[at], (dict, list)) and parent[at] and data.draw(st.booleans()):
            parent = parent[at]
            continue
        parent[at] = data.draw(odd)
        break
    path = tmp_path_factory.mktemp("odd") / "log.json"
    path.write_text(json.dumps(record) + "\n" + (DATA / f"{name}.json").read_text())
    assert _balanced(read(path, format=name))


def test_reading_needs_no_tvm() -> None:
    code = (
        "import sys; from foretune.dataset.readers import read; "
        f"read({str(DATA / 'ansor.json')!r}); read({str(DATA / 'kernel_tuner.json')!r}); "
        "sys.exit('tvm' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
