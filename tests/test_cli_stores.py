"""``foretune tune --store``: what one run found, the next one knows, whichever way it is named."""

from __future__ import annotations

import argparse
import ast
import functools
import itertools
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import benchmarks
from foretune import cli, tuning
from foretune.cli import _stores
from foretune.records import BoundedStore, Journal
from tests.records.support import record
from tests.test_cli import PRIM_FUNC
from tests.tuning.support import spare_compiling
from tests.tuning.test_reuse import HERE, InEnvironment


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where to run: measurements come from a formula, and the user's cache is in here."""
    spare_compiling(monkeypatch)
    measured = functools.partial(tuning.tune, measurer=InEnvironment(HERE))
    monkeypatch.setattr(tuning, "tune", measured)
    monkeypatch.delenv("FORETUNE_STORE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(PRIM_FUNC)
    return tmp_path


def tune(*options: str, trials: int = 4) -> dict[str, Any]:
    """The result of a run that starts from an empty work directory."""
    result = Path("tune.json")
    arguments = [
        "tune",
        "mine.py:matmul",
        "--trials",
        str(trials),
        "--fresh",
        "--json",
        "tune.json",
    ]
    assert cli.main([*arguments, *options]) == 0
    data: dict[str, Any] = json.loads(result.read_text())
    return data


def own(folder: Path) -> Path:
    return folder / "cache" / "foretune" / "store.jsonl"


def test_the_second_run_knows_what_the_first_one_found(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = tune()
    assert len(first["tasks"][0]["trials"]) == 4
    assert first["reused"]["store"] == str(own(folder))
    second = tune("--work-dir", "elsewhere")
    assert second["tasks"][0]["trials"] == []
    assert second["reused"]["tasks"][0]["best"] is True
    assert second["tuned_s"] == first["tuned_s"]
    assert "1 of 1 tasks needed no trial" in capsys.readouterr().out


def test_none_leaves_the_users_store_alone(folder: Path) -> None:
    assert tune("--store", "none")["reused"] is None
    assert not own(folder).exists()


def test_another_file_is_used_where_it_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune("--store", "team.jsonl")
    assert tune("--store", "team.jsonl")["tasks"][0]["trials"] == []
    monkeypatch.setenv("FORETUNE_STORE", str(folder / "team.jsonl"))
    assert tune()["tasks"][0]["trials"] == []
    monkeypatch.setenv("FORETUNE_STORE", "none")
    assert tune()["reused"] is None
    assert not own(folder).exists()


def test_verbose_says_why_an_entry_is_not_used(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = functools.partial(tuning.tune, measurer=InEnvironment({**HERE, "tvm": "0.26"}))
    with monkeypatch.context() as patch:
        patch.setattr(tuning, "tune", older)
        tune()
    with caplog.at_level("INFO", logger="foretune"):
        assert len(tune()["tasks"][0]["trials"]) == 4
    assert "do not fit: tvm is 0.26 there and 0.27 here" in caplog.text


def test_a_users_store_that_cannot_be_used_stops_nothing(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "cache").write_text("a file")
    assert len(tune()["tasks"][0]["trials"]) == 4
    warnings = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert len(warnings) == 1 and "nothing is reused from earlier runs" in warnings[0]


def test_damaged_lines_of_a_store_are_skipped(folder: Path) -> None:
    tune()
    with own(folder).open("ab") as file:
        file.write(b"garbage\n")
    assert tune()["tasks"][0]["trials"] == []


def _newer(path: Path) -> None:
    body = b'{"foretune":2,"kind":"record","data":{}'
    path.write_bytes(body + b',"crc":"%08x"}\n' % zlib.crc32(body))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--store", "newer.jsonl"], "at most 1, but got 2"),
        (["--store", "note.txt"], "not a foretune journal"),
        (["--store", "."], "the path is a directory"),
        (["--store", "same.jsonl", "--json", "same.jsonl"], "--json"),
        (["--store", "run/journal.jsonl", "--work-dir", "run"], "--work-dir"),
    ],
)
def test_a_named_store_that_cannot_be_used_is_refused_before_the_first_trial(
    folder: Path, capsys: pytest.CaptureFixture[str], options: list[str], told: str
) -> None:
    _newer(folder / "newer.jsonl")
    (folder / "note.txt").write_text("something else\n")
    assert cli.main(["tune", "mine.py:matmul", "--trials", "4", *options]) == 2
    err = capsys.readouterr().err
    assert told in err and err.count("\n") == 1
    assert not (folder / "foretune-work").exists()


def test_the_place_of_a_users_store_follows_the_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _stores.own_path({"XDG_CACHE_HOME": "/c"}) == Path("/c/foretune/store.jsonl")
    monkeypatch.setenv("HOME", str(tmp_path))
    home = tmp_path / ".cache" / "foretune" / "store.jsonl"
    assert _stores.own_path({}) == _stores.own_path({"XDG_CACHE_HOME": "relative"}) == home


def test_a_users_store_is_merged_and_looked_into_like_any_journal(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with BoundedStore(own(folder)) as store:
        store.append(record(0))
    assert cli.main(["db", "merge", "all.jsonl", str(own(folder))]) == 0
    with Journal(folder / "all.jsonl", read_only=True) as merged:
        assert merged.records() == [record(0)]
    assert cli.main(["db", "info", str(own(folder))]) == 0
    assert "1 records" in capsys.readouterr().out


def test_no_other_command_reads_or_writes_a_store() -> None:
    commands = next(a for a in cli._parser()._actions if isinstance(a, argparse._SubParsersAction))
    having = [
        name
        for name, parser in commands.choices.items()
        if any("--store" in action.option_strings for action in parser._actions)
    ]
    assert having == ["tune"]


def _command_lines(source: str) -> Iterator[list[object]]:
    """The words, as far as they stand there, of each list and each call of ``foretune``."""
    for node in ast.walk(ast.parse(source)):
        words: list[ast.expr] = []
        if isinstance(node, ast.List):
            words = node.elts
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "foretune":
            words = node.args
        yield [word.value for word in words if isinstance(word, ast.Constant)]


def test_benchmarks_tune_without_a_store() -> None:
    """Of every benchmark that starts ``foretune tune``; ``foretune.tune`` has none by itself."""
    found = {}
    for file in sorted(Path(benchmarks.__file__).parent.rglob("*.py")):
        lines = list(_command_lines(file.read_text(encoding="utf-8")))
        if any("tune" in words for words in lines):
            pairs = {pair for words in lines for pair in itertools.pairwise(words)}
            found[file.name] = ("--store", "none") in pairs
    assert found == dict.fromkeys(["network.py", "runs.py"], True)
