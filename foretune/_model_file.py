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

from foretune._arrays import Array
from foretune._files import write_bytes
from foretune.errors import RecordError, VersionMismatchError

Arrays = dict[str, Array]

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


def write_model(path: Path, meta: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Writes a trained part so that nobody ever reads half of one.

    Args:
        path: The file; its folder must exist.
        meta: A JSON object: schema, configuration, feature versions, scales...
        arrays: Weights by name; ``meta`` is taken.

    Raises:
        RecordError: The file cannot be written.
    """
    buffer = io.BytesIO()
    np.savez_compressed(buffer, meta=np.array(json.dumps(meta)), **arrays)  # type: ignore[arg-type]
    write_bytes(path, buffer.getvalue())


def read_model(path: Path, what: str) -> tuple[dict[str, Any], Arrays]:
    """Reads what ``write_model`` wrote: the meta data and the arrays.

    Args:
        path: The file.
        what: What it should be, for the message, for example ``"a trained ranker"``.

    Raises:
        RecordError: The file cannot be read or is not such a file.
    """
    return _read(path, what, with_arrays=True)


def read_meta(path: Path, what: str) -> dict[str, Any]:
    """The meta data alone, as ``read_model`` gives them: no array is unpacked."""
    return _read(path, what, with_arrays=False)[0]


def _read(path: Path, what: str, with_arrays: bool) -> tuple[dict[str, Any], Arrays]:
    try:
        with np.load(path, allow_pickle=False) as file:
            names = file.files if with_arrays else ["meta"]
            arrays = {name: file[name] for name in names}
        meta = json.loads(str(arrays.pop("meta")))
        if not isinstance(meta, dict):
            raise ValueError("its meta data are no object")
    except _UNREADABLE as error:
        raise RecordError(f"{path} is not {what}: {error}") from error
    return meta, arrays


def check(
    what: object, meta: Mapping[str, Any], made_by: str = "foretune train", /, **wanted: Any
) -> None:
    """Refuses a part whose meta data differ from what this version reads.

    Args:
        what: The file, or the part, for the message.
        meta: What ``read_model`` gave.
        made_by: The command that trains it.
        wanted: Entry of the meta data -> the only value that will do.

    Raises:
        VersionMismatchError: An entry differs or is missing.
    """
    for name, value in wanted.items():
        if meta.get(name) != value:
            raise VersionMismatchError(
                f"{what}: {name} must be {value!r}, but is {meta.get(name)!r}: "
                f"train the model again with `{made_by}`"
            )
