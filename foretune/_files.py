"""Writing result files so that nobody ever reads half of one."""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from foretune.errors import BadInputError, RecordError


def cache_directory(environment: Mapping[str, str]) -> Path | None:
    """Where what can be made again is kept, by the rules of XDG; None for a user without a home.

    ``$XDG_CACHE_HOME/foretune``, or ``~/.cache/foretune``. It need not be there yet.
    """
    named = Path(environment.get("XDG_CACHE_HOME") or "")
    if not named.is_absolute():  # The rules have relative paths ignored.
        try:
            named = Path.home() / ".cache"
        except RuntimeError:
            return None
    return named / "foretune"


def write_text(path: Path, text: str) -> None:
    """``write_bytes`` of a text in UTF-8."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Writes a file beside its place and renames it: a reader sees the old one or the new one.

    Raises:
        RecordError: Full disk, missing permission...; the old file, if any, is untouched.
    """
    # A name of its own for every call: processes that share a work directory write its files, too.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            # Renamed first and written later, a file would be empty after a power failure.
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise RecordError(
            f"{path} cannot be written ({error.strerror}): make room or choose another place"
        ) from error
    finally:
        # Gone already unless something went wrong, an interrupt for example.
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_all(fd: int, data: bytes) -> None:
    """Writes to a blocking file descriptor until everything is written.

    Raises:
        OSError: It cannot be written to.
    """
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def no_temporary_files(error: OSError) -> BadInputError:
    """The error for a folder of temporary files that is full or cannot be written."""
    return BadInputError(
        f"no temporary files can be written ({error.strerror or error}): make room, or set TMPDIR "
        "to a folder that has some"
    )


def write_json(path: Path, data: Any) -> None:
    """The same with a JSON object. NaN and infinities, which JSON has not, become null."""
    write_text(path, json_text(data))


def json_text(data: Any) -> str:
    """The text that ``write_json`` writes."""
    return json.dumps(_finite(data), indent=1, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
