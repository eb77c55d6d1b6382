"""The files of an artifact: moved into place together, read back, refused on another processor."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from foretune import _tvm
from foretune.errors import BadInputError


def artifact_files(library: Path) -> list[Path]:
    """Every file that an artifact may consist of, the manifest last.

    Raises:
        BadInputError: The path has no name.
    """
    if not library.name:
        raise BadInputError(f"an artifact is a shared library: name it *.so, not {str(library)!r}")
    return [library.with_suffix(s) for s in (".so", ".params", ".sample.npz", ".json")]


def is_tuned(library: Path) -> bool:
    """Whether there is an artifact with a tuned operator, as far as its manifest can be read."""
    try:
        manifest = json.loads(library.with_suffix(".json").read_text(encoding="utf-8"))
        return bool(manifest["tuned"])
    except (OSError, ValueError, TypeError, KeyError):
        return False


def publish(folder: Path, library: Path) -> None:
    """Moves complete files into place; until the manifest follows, the old one refuses the rest."""
    for place in artifact_files(library):
        source = folder / place.name
        if source.exists():
            source.replace(place)
        else:
            place.unlink(missing_ok=True)


def load_library(library: Path) -> Any:
    """The code.

    Raises:
        BadInputError: TVM cannot read it.
    """
    try:
        return _tvm.tvm.runtime.load_module(str(library))
    except (RuntimeError, ValueError) as error:
        raise BadInputError(
            f"{library} cannot be loaded ({reason(error)}): compile it again"
        ) from error


def load_parameters(library: Path, manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """Parameters and initial values of states, by name.

    Raises:
        BadInputError: The file cannot be read or lacks one.
    """
    names = [*manifest["parameters"], *manifest.get("states", [])]
    if not names:
        return {}
    file = library.with_suffix(".params")
    try:
        parameters = dict(_tvm.tvm.runtime.load_param_dict_from_file(str(file)).items())
    except (RuntimeError, ValueError) as error:
        raise BadInputError(
            f"{file} cannot be loaded ({reason(error)}): compile it again"
        ) from error
    missing = [name for name in names if name not in parameters]
    if missing:
        raise BadInputError(f"{file} lacks parameter {missing[0]!r}: compile it again")
    return parameters


def reason(error: Exception) -> str:
    """The line of a linker's or TVM's message that says what happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if line != "Compilation error:"]
    return telling[0][:300] if telling else type(error).__name__


def refuse_target(library: Path, manifest: Mapping[str, Any]) -> None:
    """Refuses code for another CPU: it would die from an illegal instruction in a run.

    Raises:
        BadInputError: This processor lacks instructions that the code may use.
    """
    target = json.loads(manifest["target"])
    if target["kind"] != "llvm" or "mcpu" not in target:
        return
    from foretune.hardware import probe

    host = json.loads(probe().target)
    needed, present = _features(target), _features(host)
    missing = sorted(needed - present)
    if missing:
        raise BadInputError(
            f"{library} was compiled for {target['mcpu']}, and this processor lacks "
            f"{', '.join(missing[:6])}: compile it here"
        )


def _features(target: Mapping[str, Any]) -> set[str]:
    features = _tvm.tvm.get_global_func("target.llvm_get_cpu_features")(_tvm.Target(dict(target)))
    return {str(name) for name in features}
