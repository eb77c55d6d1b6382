"""Files of trained parts: one ``.npz`` each, with a JSON ``meta`` entry and no pickle."""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from foretune._files import write_bytes
from foretune.errors import RecordError, VersionMismatchError

Arrays = dict[str, npt.NDArray[Any]]

_UNREADABLE = (
    OSError,
    EOFError,
    ValueError,
    KeyError,
    TypeError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What NumPy raises on files that are damaged or something else."""


def write_model(path: Path, meta: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """Writes a part so that nobody ever reads half of one.

    Raises:
        RecordError: The file cannot be written.
    """
    buffer = io.BytesIO()
    np.savez_compressed(buffer, meta=np.array(json.dumps(meta)), **arrays)
    write_bytes(path, buffer.getvalue())


def read_model(path: Path) -> tuple[dict[str, Any], Arrays]:
    """Reads what ``write_model`` wrote.

    Raises:
        RecordError: The file cannot be read or is not such a file.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        meta = json.loads(str(arrays.pop("meta")))
        if not isinstance(meta, dict):
            raise ValueError("its meta data are no object")
    except _UNREADABLE as error:
        raise RecordError(f"{path} is not a part of a world model: {error}") from error
    return meta, arrays


def check_schema(meta: Mapping[str, Any], schema: str) -> None:
    """Refuses what this version does not read.

    Raises:
        VersionMismatchError: It was written under another schema, or is something else.
    """
    if meta.get("schema") != schema:
        raise VersionMismatchError(
            f"schema must be {schema!r}, but is {meta.get('schema')!r}: train the model again with "
            "`foretune train`"
        )
