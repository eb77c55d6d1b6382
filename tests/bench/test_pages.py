"""Pages from readings: what is asked stands first, details behind, and the same gives the same."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import cells, pages, results
from benchmarks.pages import Section
from foretune.hardware import Hardware

WHERE: dict[str, Any] = {
    "command": "python -m benchmarks made_up --write", "seeds": [0], "began": "2026-11-29 08:00:00",
    "ended": "2026-11-29 09:00:00", "busy_before": [], "busy_after": [], "load_before": 0.0,
    "load_after": 0.0, "hardware": {"name": "a processor", "threads": 1, "target": "llvm"},
    "machine": {"memory_gib": 1, "system": "Linux", "python": "3.11"}, "versions": {"numpy": "2"},
}  # fmt: skip


def _section(data: Any) -> Section:
    return Section(
        f"Is {data['what']} fast?",
        f"{data['what']}: 2.0 times (1.5 to 2.5).",
        results.table(["side", "times"], [[data["what"], "2.0"]]),
        "#### Of each seed\n\nmuch",
        lambda axes: pages.curves(axes, {"it": [(8, 2, 1, 3), (16, 3, 2, 4)]}, "trials", "times"),
        "times by trials",
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    monkeypatch.setattr(pages, "PAGES", {"both": {"first": "made_up", "second": "made_up"}})
    monkeypatch.setitem(sys.modules, "benchmarks.made_up", SimpleNamespace(section=_section))
    return tmp_path


def test_a_page_of_two_files_answers_both_before_its_details(folder: Path) -> None:
    for name, what in (("first", "one"), ("second", "another")):
        pages.publish(name, _section, {"what": what, "remarks": [f"{what} was slow"]}, WHERE, True)
    text = (folder / "both.md").read_text(encoding="utf-8")
    assert text.startswith("# Is one fast?\n\none: 2.0 times")
    order = ["## Is another fast?", "## Details", "### Is one fast?", "one was slow", "### Is an"]
    assert [text.index(part) for part in order] == sorted(text.index(part) for part in order)
    assert "![times by trials](first.svg)" in text and (folder / "first.svg").exists()
    assert results.readings_of("second") == {
        "what": "another", "remarks": ["another was slow"], "conditions": WHERE,
    }  # fmt: skip


def test_a_page_drawn_anew_is_the_same(folder: Path) -> None:
    pages.publish("first", _section, {"what": "one"}, WHERE, True)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    pages.draw("both")
    assert before == {path.name: path.read_bytes() for path in folder.iterdir()}


def test_readings_of_no_page_have_one_of_their_own(folder: Path) -> None:
    pages.publish("other", _section, {"what": "one"}, WHERE, True)
    assert (folder / "other.md").exists()


def test_nothing_is_written_unasked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pages.publish("first", _section, {"what": "one"}, WHERE, False)
    assert "# Is one fast?" in capsys.readouterr().out
    assert not any(folder.iterdir())


@pytest.mark.parametrize("argv", [["made_up.py", "--write"], ["__main__.py", "made_up", "--write"]])
def test_the_command_is_the_same_however_it_was_begun(
    argv: list[str], monkeypatch: pytest.MonkeyPatch, hardware: Hardware
) -> None:
    monkeypatch.setattr(sys, "argv", argv)
    found = results.conditions("made_up", [0], hardware)
    assert found.command == "python -m benchmarks made_up --write"


def test_a_cell_is_made_once_for_its_settings(tmp_path: Path) -> None:
    made = []

    def make() -> int:
        made.append(1)
        return len(made)

    for settings in ({"seed": 0}, {"seed": 0}, {"seed": 1}):
        found = cells.Cells(tmp_path, settings).get("a", make, "a")
    assert (found, len(made)) == (2, 2)
