"""The README's Python examples run as they are printed, and its links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def test_the_readme_opens_with_the_two_commands():
    opening = README.split("##")[0]
    assert "$ make demo" in opening and "$ make test" in opening


@pytest.mark.parametrize(
    "number",
    # The last one is the quickest.
    [
        pytest.param(n, marks=() if n == len(EXAMPLES) - 1 else pytest.mark.slow)
        for n in range(len(EXAMPLES))
    ],
)
def test_examples_run(number, tmp_path):
    if "torch" in EXAMPLES[number]:
        pytest.importorskip("torch")
    script = tmp_path / "example.py"
    script.write_text(EXAMPLES[number], encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_to_files(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)#\s]+)", text)
    missing = [t for t in targets if not t.startswith("http") and not (page.parent / t).exists()]
    assert not missing
