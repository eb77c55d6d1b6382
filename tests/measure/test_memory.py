"""How much memory may be used, from files as the system has them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from foretune.measure._memory import usable_memory

_MACHINE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _own(folder: Path, *lines: str) -> Path:
    path = folder / "cgroup"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_without_control_groups_it_is_the_machines(tmp_path: Path) -> None:
    assert usable_memory(tmp_path, tmp_path / "absent") == _MACHINE
    assert usable_memory(tmp_path, _own(tmp_path, "0::/")) == _MACHINE


@pytest.mark.parametrize(
    ("lines", "directory", "file"),
    [
        (["0::/outer/inner"], "outer", "memory.max"),
        (["0::/outer/inner"], "outer/inner", "memory.max"),
        (["0::/"], "", "memory.max"),
        # A container sees its own group as the root, and the host's name for it.
        (["0::/host/name"], "", "memory.max"),
        (["5:cpu:/other", "4:memory:/outer/inner"], "memory/outer", "memory.limit_in_bytes"),
        (["4:memory:/host/name", "0::/"], "memory", "memory.limit_in_bytes"),
    ],
)
def test_the_limit_of_any_enclosing_group_counts(
    tmp_path: Path, lines: list[str], directory: str, file: str
) -> None:
    root = tmp_path / "mounted"
    (root / directory).mkdir(parents=True)
    (root / directory / file).write_text("123456\n")
    assert usable_memory(root, _own(tmp_path, *lines)) == 123456


def test_no_limit_in_either_notation(tmp_path: Path) -> None:
    root = tmp_path / "mounted"
    (root / "memory").mkdir(parents=True)
    (root / "memory.max").write_text("max\n")
    (root / "memory" / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert usable_memory(root, _own(tmp_path, "4:memory:/", "0::/")) == _MACHINE


def test_the_lowest_of_several_limits_counts(tmp_path: Path) -> None:
    inner = tmp_path / "mounted" / "outer" / "inner"
    inner.mkdir(parents=True)
    (inner / "memory.max").write_text("3000\n")
    (inner.parent / "memory.max").write_text("2000\n")
    assert usable_memory(tmp_path / "mounted", _own(tmp_path, "0::/outer/inner")) == 2000
