"""Which C++ compiler links for which target."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from foretune.errors import MissingDependencyError
from foretune.graph import linker_for
from foretune.hardware import foreign_triple, probe

RISC = json.dumps({"kind": "llvm", "mtriple": "riscv64-linux-gnu"})


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Makes compilers, which say what they are for, the only programs there are."""
    monkeypatch.setenv("PATH", str(tmp_path))
    for variable in ("CXX", "CC"):
        monkeypatch.delenv(variable, raising=False)

    def make(name: str, machine: str) -> str:
        file = tmp_path / name
        file.write_text(f"#!/bin/sh\necho {machine}\n")
        file.chmod(0o755)
        return str(file)

    return make


def test_only_another_architecture_is_foreign() -> None:
    assert foreign_triple(probe().target) == ""
    assert foreign_triple(RISC) == "riscv64-linux-gnu"
    assert foreign_triple('{"kind": "cuda", "arch": "sm_86"}') == ""


def test_the_compiler_of_the_usual_name_links_for_another_architecture(
    path: Callable[..., str],
) -> None:
    usual = path("riscv64-linux-gnu-g++", "riscv64-linux-gnu")
    assert shutil.which(linker_for(RISC)) == usual


def test_the_compiler_that_is_named_goes_first_if_it_is_for_the_architecture(
    path: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path("riscv64-linux-gnu-g++", "riscv64-linux-gnu")
    mine = path("mine", "riscv64-unknown-linux-gnu")
    monkeypatch.setenv("CXX", mine)
    assert linker_for(RISC) == mine
    monkeypatch.setenv("CXX", path("here", "x86_64-linux-gnu"))
    assert linker_for(RISC) == "riscv64-linux-gnu-g++"


def test_without_one_the_package_is_named(path: Callable[..., str]) -> None:
    path("g++", "x86_64-linux-gnu")
    with pytest.raises(MissingDependencyError, match=r"apt install g\+\+-riscv64-linux-gnu"):
        linker_for(RISC)
