"""Per-store features are read once, in memory or in a folder, whatever happens to the files."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from foretune import _child
from foretune.dataset import Program
from foretune.errors import BadInputError, MissingDependencyError, RecordError
from foretune.features import extract_per_store
from foretune.features.memory import _ENTRY_BYTES, Memory
from foretune.features.stores import cache
from foretune.space import Action, Space
from foretune.workload import Workload
from tests.space.programs import gpu, matmul, space


class Counting:
    """The extractor, counting what it was asked for."""

    def __init__(self):
        self.asked = []

    def __call__(self, candidates):
        self.asked += [candidate.key for candidate in candidates]
        return extract_per_store(candidates, threads=1)


@pytest.fixture
def extract(monkeypatch):
    counting = Counting()
    monkeypatch.setattr(cache, "extract_per_store", counting)
    monkeypatch.setitem(cache._memories, "programs", Memory(64 * 2**20))
    return counting


def drawn(name="matmul", n=6, seed=0):
    return space(name).sample(np.random.default_rng(seed), n)


def programs(candidates):
    return [Program(candidate=candidate) for candidate in candidates]


def same(found, candidates):
    for rows, expected in zip(found, extract_per_store(candidates, threads=1), strict=True):
        assert rows.dtype == np.float32
        np.testing.assert_allclose(rows, expected, rtol=1e-6)


def test_memory_is_asked_first(extract):
    candidates = drawn()
    same(cache.program_rows(programs(candidates)), candidates)
    same(cache.candidate_rows([*candidates[:3], *drawn(seed=1)]), [*candidates[:3], *drawn(seed=1)])
    assert len(extract.asked) == len(set(extract.asked))


def test_formulas_give_the_same_rows_and_make_no_program(extract):
    candidates = drawn()
    found = cache.candidate_rows(candidates, source="formulas")
    assert extract.asked == []
    for rows, expected in zip(found, cache.candidate_rows(candidates), strict=True):
        np.testing.assert_allclose(rows, expected, rtol=1e-5, atol=1e-6)


def test_rows_of_formulas_and_of_programs_have_different_files(extract, tmp_path):
    candidates = drawn()
    cache.candidate_rows(candidates, tmp_path, "formulas")
    cache.candidate_rows(candidates, tmp_path)
    assert len(list(tmp_path.glob("*.npz"))) == 2
    assert len(extract.asked) == len(candidates)


def test_an_unknown_source_is_refused():
    with pytest.raises(BadInputError, match="programs"):
        cache.require_source("a test", "guesses")


def test_formulas_without_pytorch_say_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    cache.require_source("a test", "programs")
    with pytest.raises(MissingDependencyError, match=r"a test .*foretune\[torch\]"):
        cache.require_source("a test", "formulas")


class TestMemory:
    def rows(self, count):
        return np.zeros((count, 164), dtype=np.float32)

    def room_for(self, count):
        return count * (_ENTRY_BYTES + self.rows(1).nbytes)

    def test_it_is_bounded_by_bytes_not_by_programs(self):
        memory = Memory(self.room_for(4))
        for at in range(9):
            memory.remember({str(at): self.rows(1)})
        assert len(memory) == 4 and memory.bytes == self.room_for(4)
        memory.remember({"large": self.rows(3)})
        assert "large" in memory and "8" in memory and "7" not in memory
        assert memory.bytes <= memory.limit

    def test_what_was_used_stays_longer(self):
        memory = Memory(self.room_for(2))
        for key in ("a", "b", "a", "c"):
            memory.remember({key: self.rows(1)})
        assert "a" in memory and "b" not in memory

    def test_another_size_under_the_same_key_is_counted_once(self):
        memory = Memory(self.room_for(9))
        memory.remember({"a": self.rows(5)})
        memory.remember({"a": self.rows(1)})
        assert memory.bytes == self.room_for(1)

    def test_illegal_programs_are_bounded_too(self):
        memory = Memory(10 * _ENTRY_BYTES)
        memory.remember({str(at): None for at in range(100)})
        assert len(memory) == 10

    def test_more_than_it_holds_is_given_but_not_kept(self, extract, monkeypatch):
        monkeypatch.setitem(cache._memories, "programs", Memory(limit=0))
        candidates = drawn(n=9)
        same(cache.candidate_rows(candidates), candidates)
        assert not cache._memories["programs"]

    def test_a_process_keeps_at_most_64_mib(self):
        assert cache._memories["programs"].limit == 64 * 2**20


def test_a_program_asked_for_twice_is_read_once(extract):
    candidates = drawn(n=2)
    found = cache.candidate_rows([*candidates, *candidates])
    assert len(found) == 4 and len(extract.asked) == 2


def test_a_folder_serves_another_process(extract, tmp_path):
    candidates = [*drawn(), *drawn("softmax")]
    same(cache.program_rows(programs(candidates), tmp_path / "rows"), candidates)
    assert not cache._memories["programs"]
    before = len(extract.asked)
    same(cache.program_rows(programs(candidates[::-1]), tmp_path / "rows"), candidates[::-1])
    assert len(extract.asked) == before == len(candidates)
    more = drawn(seed=5)
    every = [*more, *candidates]
    same(cache.program_rows(programs(every), tmp_path / "rows"), every)
    assert len(extract.asked) == len(set(extract.asked))
    assert len(list((tmp_path / "rows").glob("*.npz"))) == 2


@pytest.mark.slow
def test_illegal_programs_stay_illegal(extract, tmp_path):
    here = Space.generate(Workload.from_module(matmul(), "matmul"), gpu())
    candidates = here.sample(np.random.default_rng(1), 30)
    first = cache.candidate_rows(candidates, tmp_path)
    second = cache.candidate_rows(candidates, tmp_path)
    assert any(rows is None for rows in first)
    for a, b in zip(first, second, strict=True):
        assert (a is None and b is None) or np.array_equal(a, b)
    assert len(extract.asked) == len(candidates)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 half a file", b"not a file of ours"])
def test_a_damaged_file_is_a_miss(extract, tmp_path, content):
    candidates = drawn()
    cache.candidate_rows(candidates, tmp_path)
    (path,) = tmp_path.glob("*.npz")
    path.write_bytes(content)
    same(cache.candidate_rows(candidates, tmp_path), candidates)
    assert len(extract.asked) == 2 * len(candidates)
    cache.candidate_rows(candidates, tmp_path)
    assert len(extract.asked) == 2 * len(candidates)


def test_a_truncated_file_is_a_miss(extract, tmp_path):
    candidates = drawn()
    cache.candidate_rows(candidates, tmp_path)
    (path,) = tmp_path.glob("*.npz")
    path.write_bytes(path.read_bytes()[:-200])
    same(cache.candidate_rows(candidates, tmp_path), candidates)


def test_another_version_of_the_features_is_not_read(extract, tmp_path, monkeypatch):
    cache.candidate_rows(drawn(), tmp_path)
    monkeypatch.setattr(cache, "FEATURE_VERSION", 99)
    cache.candidate_rows(drawn(), tmp_path)
    assert len(extract.asked) == 2 * len(drawn())


def test_a_folder_that_cannot_be_written_is_one_clear_line(extract, tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(RecordError, match=r"features cannot be kept .*another folder"):
        cache.candidate_rows(drawn(), tmp_path / "file" / "rows")


def test_programs_of_others_are_refused():
    with pytest.raises(BadInputError, match=r"1 of 2 have actions only.*gbdt_actions"):
        cache.program_rows([*programs(drawn(n=1)), Program(actions=[Action("SP", (1,))])])


def test_nothing_gives_nothing(tmp_path):
    assert cache.program_rows([]) == [] and cache.program_rows([], tmp_path) == []


_WRITER = """
import sys
from pathlib import Path
import numpy as np
from foretune.features.stores import cache

path, me = Path(sys.argv[1]), int(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
for number in range(40):
    rows = np.full((number % 3, cache.PER_STORE), me, np.float32)
    cache.add_rows(path, {f"{me}/{number}": rows, f"{me}/illegal{number}": None})
"""


def test_what_processes_write_at_once_is_all_kept(tmp_path):
    path = tmp_path / "kept" / "rows.npz"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(path), str(me)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=_child.environment(1),
            text=True,
        )
        for me in (1, 2)
    ]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate(timeout=120)
        assert writer.returncode == 0
    kept = cache.read_rows(path)
    assert len(kept) == 2 * 80
    for me in (1, 2):
        for number in range(40):
            assert kept[f"{me}/illegal{number}"] is None
            rows = kept[f"{me}/{number}"]
            assert rows.shape == (number % 3, cache.PER_STORE)
            assert np.all(rows == me)
