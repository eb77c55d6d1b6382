"""Per-store features that are read once: kept in memory, or in a folder where one is given.

Making a program and reading its stores takes milliseconds. Training in several folds, and a cost
model of several parts, ask for the same programs again and again. ``source`` says where rows come
from: ``"programs"``; ``"formulas"`` (``foretune.symbolic.formulas``), which make programs only
where they are not certain; or ``"formulas_only"``, which are close there. Rows of each are kept
apart.

A folder holds one file per workload and target, named by these and the version of the features, so
that another version never meets old rows. A file that cannot be read is a miss. Processes that
share a folder add to its files in turns.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from filelock import FileLock

from foretune._arrays import Array, Float32Array
from foretune._files import write_bytes
from foretune.errors import BadInputError, MissingDependencyError, RecordError, unknown_name
from foretune.features.memory import Memory
from foretune.features.stores._columns import FEATURE_VERSION, PER_STORE
from foretune.features.stores._extract import extract_per_store

if TYPE_CHECKING:
    from foretune.space import Candidate

Extractor = Callable[[Sequence[Any]], "Sequence[Array | None]"]
"""Candidates to rows of features per candidate, None for one that cannot be applied."""

SOURCES = ("programs", "formulas", "formulas_only")
"""Where per-store features can be read."""

_REMEMBERED_BYTES = 64 << 20
"""Rows kept in memory per process: thousands of programs, a few KB each."""
_ILLEGAL = -1


_memories: dict[str, Memory[Float32Array | None]] = {
    source: Memory(_REMEMBERED_BYTES) for source in SOURCES
}


def require_source(owner: str, source: str) -> None:
    """Refuses what is not one of ``SOURCES``, or cannot be used here.

    Args:
        owner: Whose it is to be, for messages.
        source: Its name.

    Raises:
        BadInputError: It is not one.
        MissingDependencyError: It is formulas, and PyTorch is not installed.
    """
    if source not in SOURCES:
        raise unknown_name(f"source of per-store features of {owner}", source, SOURCES)
    if source != "programs" and importlib.util.find_spec("torch") is None:
        raise MissingDependencyError(
            f"{owner} with features from {source!r} needs PyTorch, which is not installed: install "
            "it with `pip install 'foretune[torch]'`, or choose 'programs'"
        )


def program_rows(
    programs: Sequence[Any], folder: Path | None = None, source: str = "programs"
) -> list[Float32Array | None]:
    """Per-store features of programs.

    Args:
        programs: Each with its ``candidate`` (``foretune.dataset.Program``).
        folder: Where they are kept, for other processes too; in memory if None.
        source: One of ``SOURCES``. Formulas do not know whether post-processors accept a program
            and give rows where they do not.

    Returns:
        For each program float32 of shape (stores, 164), or None if it cannot be applied.

    Raises:
        BadInputError: A program has no candidate: others measured it, and it cannot be rebuilt.
        RecordError: The folder cannot be written.
    """
    missing = sum(program.candidate is None for program in programs)
    if missing:
        raise BadInputError(
            f"per-store features need programs that can be rebuilt, but {missing} of "
            f"{len(programs)} have actions only: choose a ranker that reads actions, for example "
            "'gbdt_actions' or 'tlp'"
        )
    return candidate_rows([program.candidate for program in programs], folder, source)


def candidate_rows(
    candidates: Sequence[Candidate], folder: Path | None = None, source: str = "programs"
) -> list[Float32Array | None]:
    """``program_rows`` of candidates."""
    wanted = {candidate.key: candidate for candidate in candidates}
    known: dict[str, Float32Array | None] = {}
    if folder is None:
        memory = _memories[source]
        known = {key: memory[key] for key in wanted if key in memory}
        known |= _extract({key: c for key, c in wanted.items() if key not in known}, source)
        memory.remember(known)
    else:
        for path, group in _files(wanted, folder, source):
            stored = read_rows(path)
            made = _extract({key: c for key, c in group.items() if key not in stored}, source)
            if made:
                add_rows(path, made)
            known |= {**stored, **made}
    return [known[candidate.key] for candidate in candidates]


def _extract(candidates: Mapping[str, Candidate], source: str) -> dict[str, Float32Array | None]:
    if not candidates:
        return {}
    if source == "programs":
        rows = extract_per_store(list(candidates.values()))
    else:
        # Needs PyTorch, which is optional.
        from foretune.features.stores.formulas import extract_batch

        rows = extract_batch(list(candidates.values()), approximate=source == "formulas_only")
    return {
        key: None if row is None else row.astype(np.float32)
        for key, row in zip(candidates, rows, strict=True)
    }


def _files(
    candidates: Mapping[str, Candidate], folder: Path, source: str
) -> Iterator[tuple[Path, dict[str, Candidate]]]:
    """The file of each workload and target, and its candidates by key."""
    groups: dict[tuple[str, str], dict[str, Candidate]] = {}
    for key, candidate in candidates.items():
        group = groups.setdefault((candidate.workload.key, candidate.hardware.target), {})
        group[key] = candidate
    for (workload, target), group in groups.items():
        text = f"{workload}/{target}/{FEATURE_VERSION}"
        if source != "programs":
            text += f"/{source}"
        name = hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
        yield folder / f"{name}.npz", group


def read_rows(path: Path) -> dict[str, Float32Array | None]:
    """What ``add_rows`` kept in a file: key -> rows, None for an illegal program; empty if none."""
    try:
        with np.load(path, allow_pickle=False) as file:
            keys, counts, rows = file["keys"].tolist(), file["counts"], file["rows"]
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error):
        return {}
    ends = np.cumsum(np.maximum(counts, 0)).tolist()
    return {
        key: None if count == _ILLEGAL else rows[end - count : end]
        for key, count, end in zip(keys, counts.tolist(), ends, strict=True)
    }


def add_rows(path: Path, made: Mapping[str, Float32Array | None]) -> None:
    """Adds rows to a file, beside what other processes have put there since it was read.

    Args:
        path: The file; its folder is made.
        made: By key, float32 of shape (rows, columns), all of one width; None: an illegal program.

    Raises:
        RecordError: It cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock")):
            _write(path, {**read_rows(path), **made})
    except OSError as error:
        raise RecordError(
            f"features cannot be kept in {path.parent} ({error.strerror}): make room or choose "
            "another folder"
        ) from error


def _write(path: Path, programs: Mapping[str, Float32Array | None]) -> None:
    legal = [rows for rows in programs.values() if rows is not None]
    counts = [_ILLEGAL if rows is None else len(rows) for rows in programs.values()]
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        keys=np.array(list(programs)),
        counts=np.array(counts),
        rows=np.concatenate(legal) if legal else np.zeros((0, PER_STORE), np.float32),
    )
    write_bytes(path, buffer.getvalue())
