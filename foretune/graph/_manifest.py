"""The manifest of an artifact: what its JSON file must hold, and that its files belong to it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from foretune import _tvm
from foretune.errors import BadInputError, VersionMismatchError
from foretune.graph._sample import sample_file
from foretune.workload import TensorSpec

SCHEMA = "foretune.artifact/1"

_KINDS: dict[str, type[object]] = {
    "name": str,
    "target": str,
    "threads": int,
    "inputs": list,
    "outputs": list,
    "parameters": list,
    "versions": dict,
    "sha256": str,
}


def tensor_to_json(spec: TensorSpec) -> dict[str, Any]:
    """A JSON object."""
    return {"name": spec.name, "shape": list(spec.shape), "dtype": spec.dtype}


def tensor_from_json(entry: Mapping[str, Any]) -> TensorSpec:
    """What ``tensor_to_json`` wrote."""
    shape = tuple(int(extent) for extent in entry["shape"])
    return TensorSpec(str(entry["name"]), shape, str(entry["dtype"]))


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    state = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            state.update(block)
    return state.hexdigest()


def read_manifest(library: Path) -> dict[str, Any]:
    """The manifest beside a library, with every field that loading needs.

    Raises:
        BadInputError: A file is missing, or the manifest is damaged.
        VersionMismatchError: Another schema, or another version of TVM.
    """
    file = library.with_suffix(".json")
    for path in (library, file):
        if not path.is_file():
            raise BadInputError(f"{path} is missing: an artifact is NAME.so with its NAME.json")
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{file} is no JSON ({error}): compile the artifact again") from error
    if not isinstance(manifest, dict) or manifest.get("schema") != SCHEMA:
        schema = manifest.get("schema") if isinstance(manifest, dict) else None
        raise VersionMismatchError(
            f"{file} must have schema {SCHEMA!r}, but has {schema!r}: compile the artifact again"
        )
    _check_fields(file, manifest)
    if manifest["versions"] != _tvm.versions():
        raise VersionMismatchError(
            f"{library} was compiled by {manifest['versions']}, but this is {_tvm.versions()}: "
            "compile it again, or install that version"
        )
    return manifest


def check_files(library: Path, manifest: Mapping[str, Any]) -> None:
    """Refuses a library or parameters other than those the manifest was written for.

    TVM itself reads truncated parameters without complaint.

    Raises:
        BadInputError: A file is missing or its SHA-256 differs.
    """
    expected = {library: manifest["sha256"]}
    if manifest["parameters"] or manifest.get("states"):
        expected[library.with_suffix(".params")] = manifest.get("parameters_sha256")
    if "sha256" in (manifest.get("sample") or {}):
        expected[sample_file(library)] = manifest["sample"]["sha256"]
    for path, wanted in expected.items():
        if not path.is_file():
            raise BadInputError(f"{path} is missing: copy all files of the artifact together")
        if digest(path) != wanted:
            raise BadInputError(
                f"{path} is not the file its manifest describes (sha256 differs): compile the "
                "artifact again, or copy all files of the artifact together"
            )


def _check_fields(file: Path, manifest: Mapping[str, Any]) -> None:
    for key, kind in _KINDS.items():
        if key not in manifest:
            raise BadInputError(f"{file} lacks {key!r}: compile the artifact again")
        if not isinstance(manifest[key], kind):
            raise _damaged(file, key, manifest[key])
    if manifest["threads"] < 1:
        raise _damaged(file, "threads", manifest["threads"])
    for key in ("parameters", "states"):
        names = manifest.get(key, [])
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise _damaged(file, key, names)
    if manifest.get("states", []) != _last(manifest["inputs"], len(manifest.get("states", []))):
        raise _damaged(file, "states", manifest["states"])
    if not _is_sample(manifest.get("sample"), len(manifest["outputs"])):
        raise _damaged(file, "sample", manifest["sample"])
    for key in ("inputs", "outputs"):
        try:
            for entry in manifest[key]:
                tensor_from_json(entry)
        except (KeyError, TypeError, ValueError) as error:
            raise _damaged(file, key, manifest[key]) from error
    try:
        _tvm.Target(dict(json.loads(manifest["target"])))
    # TVM raises RuntimeError, ValueError or TypeError, depending on what it does not like.
    except (RuntimeError, TypeError, ValueError) as error:
        raise _damaged(file, "target", manifest["target"]) from error


def _last(entries: list[Any], count: int) -> list[Any]:
    """Names of the last tensors of a list."""
    last = entries[len(entries) - count :] if count <= len(entries) else []
    return [entry.get("name") if isinstance(entry, dict) else None for entry in last]


def _is_sample(entry: Any, outputs: int) -> bool:
    if entry is None:
        return True
    if not isinstance(entry, dict) or "sha256" not in entry:
        return isinstance(entry, dict)
    tolerance = entry.get("tolerance")
    if not isinstance(entry.get("judged_by", ""), str):
        return False
    return all(
        isinstance(numbers, list)
        and len(numbers) == outputs
        and all(isinstance(number, (int, float)) for number in numbers)
        for numbers in (tolerance, entry.get("steps", tolerance))
    )


def _damaged(file: Path, key: str, value: object) -> BadInputError:
    return BadInputError(
        f"{file}: {key!r} cannot be {repr(value)[:80]}: compile the artifact again"
    )
