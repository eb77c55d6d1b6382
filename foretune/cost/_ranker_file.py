"""Files of trained rankers: which ranker reads one, and under which schema."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from foretune import _model_file
from foretune._arrays import Array
from foretune._model_file import Arrays, check
from foretune.errors import RecordError

SCHEMA = "foretune.ranker/1"


def write_model(
    path: Path, ranker_name: str, meta: Mapping[str, Any], arrays: Mapping[str, Array]
) -> None:
    """Writes a ranker; see ``foretune._model_file.write_model``.

    Args:
        path: The file; its folder must exist.
        ranker_name: The name by which ``foretune.cost.rankers`` finds the class that reads it.
        meta: A JSON object: configuration, feature versions, scales...
        arrays: Weights by name.

    Raises:
        RecordError: The file cannot be written.
    """
    _model_file.write_model(path, {**meta, "schema": SCHEMA, "ranker": ranker_name}, arrays)


def read_model(path: Path, ranker: str = "") -> tuple[dict[str, Any], Arrays]:
    """Reads what ``write_model`` wrote: the meta data, ``"ranker"`` among them, and the arrays.

    Args:
        path: The file.
        ranker: The name of the ranker that it must hold; empty: any.

    Raises:
        RecordError: The file cannot be read, is not such a file, or holds another ranker.
        VersionMismatchError: Written under another schema.
    """
    meta, arrays = _model_file.read_model(path, "a trained ranker")
    check(path, meta, schema=SCHEMA)
    if ranker and meta.get("ranker") != ranker:
        raise RecordError(
            f"{path} must hold the ranker {ranker!r}, but holds {meta.get('ranker')!r}: "
            "load it by that name"
        )
    return meta, arrays


def read_name(path: Path) -> str:
    """The name of the ranker in a file; its arrays are left alone.

    Raises:
        RecordError: The file cannot be read, is not such a file, or does not say.
        VersionMismatchError: Written under another schema.
    """
    meta = _model_file.read_meta(path, "a trained ranker")
    check(path, meta, schema=SCHEMA)
    name = meta.get("ranker")
    if not isinstance(name, str):
        raise RecordError(f"{path} does not say which ranker it holds: train it again")
    return name
