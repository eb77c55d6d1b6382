"""Files of trained rankers: which ranker reads one, and under which schema."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt

from foretune import _model_file
from foretune._model_file import Arrays, check

SCHEMA = "foretune.ranker/1"


def write_model(
    path: Path, ranker_name: str, meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]
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


def read_model(path: Path) -> tuple[dict[str, Any], Arrays]:
    """Reads what ``write_model`` wrote: the meta data, ``"ranker"`` among them, and the arrays.

    Raises:
        RecordError: The file cannot be read or is not such a file.
        VersionMismatchError: Written under another schema.
    """
    meta, arrays = _model_file.read_model(path, "a trained ranker")
    check(path, meta, schema=SCHEMA)
    return meta, arrays
