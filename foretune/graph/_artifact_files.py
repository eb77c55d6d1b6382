"""The files of an artifact: moved into place together, read back, refused on another processor.

Nothing but an artifact's own files is replaced or removed: those that a manifest of ours names.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock

from foretune import _tvm
from foretune.errors import BadInputError, VersionMismatchError
from foretune.graph._manifest import check_files, read_manifest

_SCHEMAS = "foretune.artifact/"
"""How the schemas of manifests begin, of all versions."""
_LOCK_TIMEOUT_S = 60.0
_IDENTITY = (
    *("key", "name", "until", "inputs", "outputs", "states"),
    *("target", "threads", "passes_off"),
)
"""What the manifests of two artifacts share that stand for each other."""


def artifact_files(library: Path) -> list[Path]:
    """Every file that an artifact may consist of, the manifest last.

    Raises:
        BadInputError: The path has no name.
    """
    if not library.name:
        raise BadInputError(f"an artifact is a shared library: name it *.so, not {str(library)!r}")
    return [library.with_suffix(s) for s in (".so", ".params", ".sample.npz", ".json")]


def require_free(library: Path) -> None:
    """Refuses a place beside which lie files that saving would replace and that are no artifact's.

    The library itself is what the caller named, and may be anything.

    Raises:
        BadInputError: There is such a file.
    """
    own = _own_files(library)
    for place in artifact_files(library)[1:]:
        if os.path.lexists(place) and place not in own:
            raise BadInputError(
                f"saving {library.name} writes {place.name} beside it and replaces an artifact's "
                f"files only, but {place} is none of an artifact: move it, or choose another name"
            )


@contextlib.contextmanager
def publishing(library: Path) -> Iterator[None]:
    """One process at a time changes the files of an artifact."""
    # Whoever waited for a lock whose file is gone by then takes the next one.
    file = library.with_name(f".{library.name}.lock")
    with FileLock(file, timeout=_LOCK_TIMEOUT_S):
        try:
            yield
        finally:
            file.unlink(missing_ok=True)


def publish(folder: Path, library: Path) -> None:
    """Moves complete files into place; until the manifest follows, the old one refuses the rest."""
    own = _own_files(library)
    for place in artifact_files(library):
        source = folder / place.name
        if source.exists():
            source.replace(place)
        elif place in own:
            place.unlink(missing_ok=True)


def withdraw(library: Path) -> None:
    """Removes an artifact: the files that its manifest names."""
    for place in _own_files(library):
        place.unlink(missing_ok=True)


def manifest_at(library: Path) -> dict[str, Any]:
    """The manifest beside a library, of any version; empty where there is none of an artifact."""
    try:
        manifest = json.loads(library.with_suffix(".json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    schema = manifest.get("schema") if isinstance(manifest, dict) else None
    return manifest if isinstance(schema, str) and schema.startswith(_SCHEMAS) else {}


def digests_at(library: Path) -> tuple[Any, ...]:
    """What tells the files of one save from those of another, as the manifest there has it."""
    there = manifest_at(library)
    return there.get("sha256"), there.get("parameters_sha256")


def tuned_at(library: Path, manifest: Mapping[str, Any]) -> dict[str, Any] | None:
    """The manifest of a tuned artifact of the same network, for the same hardware and passes.

    Args:
        library: Where it may lie.
        manifest: Of the network, compiled with whatever schedules.

    Returns:
        None where there is none, or none that can be loaded.
    """
    if "key" not in manifest:
        return None
    there = manifest_at(library)
    if not there.get("tuned") or any(there.get(k) != manifest.get(k) for k in _IDENTITY):
        return None
    try:
        there = read_manifest(library)
        check_files(library, there)
    except (BadInputError, VersionMismatchError, OSError):
        return None
    return there


def _own_files(library: Path) -> list[Path]:
    """The files that a manifest of ours names, itself the last; none where there is none."""
    manifest = manifest_at(library)
    if not manifest:
        return []
    sample = manifest.get("sample")
    named = {
        ".so": True,
        ".params": bool(manifest.get("parameters") or manifest.get("states")),
        ".sample.npz": isinstance(sample, dict) and "sha256" in sample,
        ".json": True,
    }
    return [library.with_suffix(suffix) for suffix, is_named in named.items() if is_named]


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
