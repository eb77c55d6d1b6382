"""What the trained parts of a world model share: one file each."""

from __future__ import annotations

import abc
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from foretune._arrays import Array
from foretune._model_file import Arrays, read_model, write_model
from foretune.errors import MissingDependencyError

_Own = TypeVar("_Own", bound="Part")


class Part(abc.ABC):
    """A trained part: as a JSON object and arrays, and as a file."""

    @abc.abstractmethod
    def dump(self) -> tuple[dict[str, Any], Arrays]:
        """All of it as a JSON object and arrays, to be stored in a file of one's own."""

    @classmethod
    @abc.abstractmethod
    def restore(
        cls: type[_Own],
        meta: Mapping[str, Any],
        arrays: Mapping[str, Array],
        *,
        device: str | None = None,
        threads: int | None = None,
    ) -> _Own:
        """What ``dump`` gave becomes a part that answers alike.

        Raises:
            VersionMismatchError: Written under another schema.
            RecordError: Something is missing or does not fit.
            MissingDependencyError: An optional package is not installed.
        """

    def save(self, path: Path) -> None:
        """Writes the part into one file, weights rounded to 16 bits.

        Raises:
            RecordError: The file cannot be written.
        """
        write_model(path, *self.dump())

    @classmethod
    def load(
        cls: type[_Own], path: Path, *, device: str | None = None, threads: int | None = None
    ) -> _Own:
        """Reads what ``save`` wrote.

        Raises:
            RecordError: The file cannot be read or is not such a file.
            VersionMismatchError: Written under another schema.
            MissingDependencyError: An optional package is not installed.
        """
        meta, arrays = read_model(path, "a part of a world model")
        return cls.restore(meta, arrays, device=device, threads=threads)


def require(*packages: str) -> None:
    """Refuses to go on without packages that are optional.

    Raises:
        MissingDependencyError: One of them is not installed.
    """
    for package in packages:
        if importlib.util.find_spec(package) is None:
            extra = "models" if package == "transformers" else "torch"
            raise MissingDependencyError(
                f"the world model needs {package}, which is not installed: "
                f"install it with `pip install 'foretune[{extra}]'`"
            )
