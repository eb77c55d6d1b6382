"""``python -m benchmarks``: the table has every benchmark and page, and runs what is named."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import __main__ as chooser
from benchmarks.results import ROOT

#: what no benchmark writes
PROSE = {"README", "earlier"}


def test_the_table_has_every_benchmark_and_no_other() -> None:
    scripts = {
        path.stem
        for path in (ROOT / "benchmarks").glob("*.py")
        if path.stem != "__main__" and "\ndef main(" in path.read_text(encoding="utf-8")
    }
    assert set(chooser.BENCHMARKS) == scripts


def test_every_page_belongs_to_one_benchmark() -> None:
    there = {path.stem for path in chooser.RESULTS.glob("*.md")} - PROSE
    owned = [page for row in chooser.BENCHMARKS.values() for page in row.pages]
    assert sorted(owned) == sorted(there)


def test_a_named_benchmark_runs_with_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[list[str]] = []
    monkeypatch.setitem(sys.modules, "benchmarks.throughput", SimpleNamespace(main=given.append))
    chooser.main(["throughput", "--write", "--seeds", "3"])
    assert given == [["--write", "--seeds", "3"]]


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(SystemExit, match=r"unknown benchmark 'speed'.*throughput"):
        chooser.main(["speed"])


def test_pages_that_are_missing_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "networks.md").write_text("# made up\n", encoding="utf-8")
    monkeypatch.setattr(chooser, "RESULTS", tmp_path)
    monkeypatch.setattr(chooser, "ROOT", tmp_path)
    monkeypatch.setattr(chooser, "SHORT", ())
    chooser.main([])
    printed = capsys.readouterr().out
    assert "networks.md\n" in printed
    assert "models.md is missing" in printed
