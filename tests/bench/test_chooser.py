"""``python -m benchmarks``: which results of the long benchmarks there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import __main__ as chooser


def test_results_that_are_there_are_shown_and_those_that_are_not_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "docs" / "results"
    results.mkdir(parents=True)
    (results / "retest.md").write_text("# Retest, made up\n", encoding="utf-8")
    monkeypatch.setattr(chooser, "RESULTS", results)
    monkeypatch.setattr(chooser, "SHORT", {})
    chooser.main([])
    printed = capsys.readouterr().out
    assert "# Retest, made up" in printed
    assert "docs/results/search64.md is missing" in printed
    assert "docs/results/networks.md is missing" in printed
    assert "docs/results/retest.md is missing" not in printed
