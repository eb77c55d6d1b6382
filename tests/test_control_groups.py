"""Which directories hold the limits of a process, from files as the system has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretune._control_groups import enclosing

ROOT = Path("/groups")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["0::/outer/inner"], ["outer/inner", "outer", ""]),
        (["0::/"], [""]),
        (["4:cpu,cpuacct:/a", "3:memory:/b", "1:name=systemd:/c"], ["cpu/a", "cpu"]),
        (["4:cpuset:/a"], ["cpu", ""]),
        (["4:cpu:/", "0::/d"], ["cpu", "d", ""]),
    ],
)
def test_every_enclosing_group_is_named(tmp_path: Path, lines: list[str], expected: list[str]):
    own = tmp_path / "own"
    own.write_text("\n".join(lines) + "\n")
    assert list(enclosing("cpu", ROOT, own)) == [ROOT / folder for folder in expected]


def test_without_a_word_of_its_groups_it_is_the_roots(tmp_path: Path):
    assert list(enclosing("cpu", ROOT, tmp_path / "absent")) == [ROOT / "cpu", ROOT]
