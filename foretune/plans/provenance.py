"""What measurements of plans stand on: a resumed collection must not mix two kinds of labels.

Other weights schedule kernels otherwise, other code or another compiler builds them otherwise, and
another machine runs them otherwise. All of it is written beside the plans, and its digest into
every record.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import importlib.resources
import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import foretune
from foretune import cost
from foretune._code import code_fingerprint, commit
from foretune._files import write_json
from foretune.errors import BadInputError, RecordError

if TYPE_CHECKING:
    from foretune.hardware import Hardware

_FILE = "made.json"
_PACKAGES = ("numpy", "xgboost-cpu", "torch", "transformers", "onnx")
_FREE = frozenset({"commit"})
"""What is told for people, and may differ."""


@dataclass(frozen=True)
class Provenance:
    """What plans are measured with.

    Attributes:
        of: Name to value: versions, fingerprints of code and weights, hardware, passes left out.
    """

    of: dict[str, Any]

    @property
    def digest(self) -> str:
        """16 hex digits, equal where measurements may be compared."""
        told = {name: value for name, value in self.of.items() if name not in _FREE}
        text = json.dumps(told, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def provenance(hardware: Hardware, without: Collection[str] = (), network: str = "") -> Provenance:
    """What plans are measured with here and now.

    Args:
        hardware: What kernels run on, and on how many threads.
        without: Names of passes that do not run.
        network: The INPUT; where it names a file, what is in the file counts.
    """
    from foretune import _tvm

    return Provenance(
        {
            "foretune": foretune.__version__,
            "code": code_fingerprint(),
            "commit": commit(),
            **_tvm.versions(),
            **_versions(),
            "source": _source(network),
            "weights": _weights(hardware.kind),
            "hardware": hardware.key,
            "threads": hardware.threads,
            "without": sorted(without),
        }
    )


def write_provenance(place: Path, made: Provenance) -> None:
    """Keeps it in the place of a network.

    Raises:
        RecordError: It cannot be written.
    """
    write_json(place / _FILE, made.of)


def require_same(place: Path, made: Provenance) -> None:
    """Refuses to go on where the plans of a network were measured with something else.

    Raises:
        BadInputError: They were.
        RecordError: The file that says so is damaged.
    """
    before = read_provenance(place)
    if before is None or before.digest == made.digest:
        return
    names = {*before.of, *made.of} - _FREE
    differ = sorted(name for name in names if before.of.get(name) != made.of.get(name))
    told = ", ".join(f"{name} {before.of.get(name)} and {made.of.get(name)}" for name in differ)
    raise BadInputError(
        f"plans of one collection must be measured with the same, but those of {place.name} were "
        f"with another ({told}): go on with that, or take another --work-dir"
    )


def read_provenance(place: Path) -> Provenance | None:
    """What the plans of a network were measured with; None where none was.

    Raises:
        RecordError: The file is damaged.
    """
    file = place / _FILE
    if not file.is_file():
        return None
    try:
        read = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(read, dict):
            raise ValueError(f"it holds {type(read).__name__}, not an object")
    except (OSError, ValueError) as error:
        raise RecordError(
            f"{file} must say what plans were measured with, but does not ({error}): delete the "
            f"folder {place.name}, and collect again"
        ) from error
    return Provenance(read)


def _versions() -> dict[str, str]:
    """Of the packages that networks, schedules or choices come from, those that are installed."""
    versions = {}
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def _source(network: str) -> str:
    """A digest of the file that an INPUT names; empty where it names none."""
    path = Path(network.rpartition(":")[0] or network)
    file = path if path.is_file() else Path(network)
    if not network or not file.is_file():
        return ""
    return hashlib.blake2b(file.read_bytes(), digest_size=8).hexdigest()


def _weights(kind: str) -> str:
    """A digest of what schedules kernels; empty where nothing does."""
    name = f"{cost.DEFAULT_MODEL}-{kind}.npz"
    file = importlib.resources.files("foretune.cost") / "weights" / name
    if not file.is_file():
        return ""
    return hashlib.blake2b(file.read_bytes(), digest_size=8).hexdigest()
