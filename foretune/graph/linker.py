"""The C++ compiler that links programs: of this machine, or of another architecture."""

from __future__ import annotations

import shutil
import subprocess

from foretune import _tvm
from foretune.errors import MissingDependencyError
from foretune.hardware import foreign_triple


def linker_for(target: str) -> str:
    """The compiler that links what is compiled for a target.

    For another architecture that is the one that ``CXX`` names, if it is one for it, or what its
    Debian package is called: ``aarch64-linux-gnu-g++``.

    Args:
        target: As ``Hardware.target`` has it.

    Raises:
        MissingDependencyError: There is none, or the one that is named cannot be run.
    """
    triple = foreign_triple(target)
    named: str | None = _tvm.get_cc()
    if not triple:
        if named is None:
            raise MissingDependencyError(
                "an artifact is linked by a C++ compiler, and there is none: apt install g++"
            )
        if shutil.which(named) is None:
            raise MissingDependencyError(
                f"an artifact is linked by the C++ compiler that CXX or CC names, and {named!r} "
                "cannot be run: name another one, or unset them and apt install g++"
            )
        return named
    machine = triple.partition("-")[0]
    if named is not None and _machine_of(named) == machine:
        return named
    usual = f"{machine}-linux-gnu-g++"
    for name in (f"{triple}-g++", usual, f"{triple}-clang++"):
        if shutil.which(name) is not None:
            return name
    raise MissingDependencyError(
        f"code for {triple} is linked by a C++ compiler for it, and neither CXX names one nor is "
        f"there {usual}: apt install g++-{machine.replace('_', '-')}-linux-gnu, or set CXX"
    )


def _machine_of(compiler: str) -> str:
    """The architecture that a compiler is for; empty where it does not say."""
    try:
        told = subprocess.run(
            [compiler, "-dumpmachine"], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return told.stdout.strip().partition("-")[0]
