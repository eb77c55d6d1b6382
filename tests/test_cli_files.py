"""No command writes a file twice, nor over what it reads: refused before anything runs."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from foretune import cli
from foretune.cli import _files
from foretune.errors import BadInputError

BEFORE = b"{}"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("net.onnx", "net.py", "w.npz", "a.so", "a.json", "a.params", "llm.jsonl", "x.npz",
                 "log.json"):  # fmt: skip
        Path(name).write_bytes(BEFORE)
    Path("run").mkdir()
    for name in ("journal.jsonl", "tune.json", "llm.jsonl"):
        (Path("run") / name).write_bytes(BEFORE)
    Path("link.json").symlink_to("net.onnx")
    Path("folder").symlink_to(".")
    return tmp_path


TUNE = ["tune", "net.onnx", "--trials", "1"]
BENCH = ["bench", "--workloads", "net.py:f,mm", "--trials", "1"]
OVER_ONE_ANOTHER = [
    [*TUNE, "-o", "one.so", "--json", "one.json"],
    [*TUNE, "-o", "one.so", "--json", "one.params"],
    [*TUNE, "-o", "one.so", "--json", "one.so"],
    [*TUNE, "-o", "one.so", "--json", "one.sample.npz"],
    [*TUNE, "-o", "one.so", "--json", "./new/../one.json"],
    [*TUNE, "-o", "one.so", "--json", "folder/one.json"],
    [*TUNE, "-o", "run/tune.so", "--work-dir", "run"],
    [*TUNE, "--json", "run/journal.jsonl", "--work-dir", "folder/run"],
    [*TUNE, "--json", "new", "-o", "new/one.so"],
    [*TUNE, "--json", "new", "--work-dir", "new"],
    ["collect", "--workloads", "mm", "--work-dir", "run", "--pack", "-o", "folder/run"],
    ["graph", "collect", "--work-dir", "run", "--pack", "-o", "folder/run"],
]
OVER_AN_INPUT = [
    [*TUNE, "--json", "net.onnx"],
    [*TUNE, "--json", "folder/net.onnx"],
    [*TUNE, "--json", "link.json"],
    ["tune", "net.py:make", "--trials", "1", "--json", "net.py"],
    [*TUNE, "--strategy", "gradient", "--option", "weights=w.npz", "--json", "w.npz"],
    [*TUNE, "--strategy", "gradient:weights=w.npz", "--json", "w.npz"],
    [*TUNE, "--cost-model", "w.npz", "--json", "w.npz"],
    [*TUNE, "--llm", "llm.jsonl", "--strategy", "mcts", "--json", "llm.jsonl"],
    [*BENCH, "--strategies", "random", "--json", "net.py"],
    [*BENCH, "--strategies", "evolutionary+w.npz@4", "--json", "w.npz"],
    [*BENCH, "--strategies", "random", "--cost-models", "gbdt,w.npz", "--json", "w.npz"],
    ["compare", "net.onnx", "--artifact", "a.so", "--json", "net.onnx"],
    ["compare", "net.onnx", "--artifact", "a.so", "--json", "a.json"],
    ["compare", "net.onnx", "--artifact", "a.so", "--json", "a.params"],
    ["run", "a.so", "--inputs", "x.npz", "-o", "x.npz"],
    [*TUNE, "--store", "net.onnx"],
    [*TUNE, "--store", "run/journal.jsonl", "--work-dir", "run"],
    [*TUNE, "--store", "s.jsonl", "--json", "s.jsonl"],
    ["report", "run", "-o", "run/tune.json"],
    ["explain", "run", "--json", "run/tune.json"],
    ["explain", "run", "--json", "run/journal.jsonl"],
    ["explain", "a.so", "--json", "a.json"],
    ["explain", "net.onnx", "--json", "net.onnx"],
    ["hardware", "--extract", "log.json", "--llm", "llm.jsonl", "-o", "log.json"],
    ["hardware", "--devices", "a.json", "--json", "a.json"],
    ["report", "run", "-o", "run/journal.jsonl"],
    ["db", "best", "run", "--json", "run/journal.jsonl"],
    ["train", "gbdt", "--data", "x.npz", "-o", "x.npz"],
    ["train", "gbdt", "--data", "log.json", "-o", "log.npz"],
    ["eval", "w.npz", "--data", "log.json", "--json", "log.json"],
    ["eval", "w.npz", "--data", "log.json", "--json", "w.npz"],
    ["graph", "train", "--data", "x.npz", "-o", "x.npz"],
    ["graph", "eval", "published", "--data", "x.npz", "--json", "x.npz"],
    ["graph", "eval", "w.npz", "--data", "x.npz", "--json", "w.npz"],
    ["graph", "rank", "x.npz", "--weights", "w.npz", "--json", "x.npz"],
]


@pytest.mark.parametrize("arguments", [*OVER_ONE_ANOTHER, *OVER_AN_INPUT], ids=" ".join)
def test_outputs_in_one_place_are_refused_and_nothing_is_touched(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    known = {path: path.read_bytes() for path in here.rglob("*.*") if path.is_file()}
    assert cli.main(arguments) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert any(words in told for words in ("as well", "would overwrite", "no folder", "move it"))
    for path, content in known.items():
        assert path.read_bytes() == content


def _paths_written() -> Iterator[tuple[str, str]]:
    """Every option of every command that takes a file to write, by its name."""

    def walk(parser: argparse.ArgumentParser, name: str) -> Iterator[tuple[str, str]]:
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for word, inner in action.choices.items():
                    yield from walk(inner, f"{name} {word}".strip())
            elif action.dest in ("json", "output"):
                yield name, action.option_strings[-1]

    yield from walk(cli._parser(), "")


def test_every_command_that_writes_a_file_is_tried_here() -> None:
    tried = {
        (" ".join(words[:2]) if words[0] in ("db", "graph") else words[0], option)
        for words in (*OVER_ONE_ANOTHER, *OVER_AN_INPUT)
        for option in ("--json", "--output")
        if option in words or (option == "--output" and "-o" in words)
    }
    assert set(_paths_written()) - tried == set()


def test_what_shares_a_folder_is_no_conflict(here: Path) -> None:
    _files.check_files(
        {"-o": [Path("run/one.so"), Path("run/one.json")], "--json": Path("run/result.json")},
        {"INPUT": [here / "net.onnx"], "a catalog name": Path("matmul")},
    )


def test_capitals_tell_files_apart_where_the_file_system_does(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = {"-o": Path("ONE.json"), "--json": Path("one.json")}
    if not os.path.exists(str(here).swapcase()):
        _files.check_files(both)
    monkeypatch.setattr(_files, "_ignores_capitals", lambda path: True)
    with pytest.raises(BadInputError, match="as well"):
        _files.check_files(both)


@pytest.mark.parametrize("name", ["x" * 300, "a\0b.json", "run/tune.json/below.json", "run"])
def test_what_can_be_no_file_is_bad_input(here: Path, name: str) -> None:
    with pytest.raises(BadInputError, match="cannot be written"):
        _files.check_files({"--json": Path(name)})
