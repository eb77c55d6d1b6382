"""Weights that know what they were trained on.

Beside ``FILE.npz`` lies ``FILE.json``: which data, which workloads, which command and versions. By
it a trained ranker is never judged on what it has seen without anybody noticing.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretune._code import code_fingerprint, commit
from foretune._files import write_json
from foretune.errors import BadInputError, RecordError, VersionMismatchError, listed
from foretune.evaluate.data import keep_judgeable
from foretune.evaluate.exclusions import refuse_excluded
from foretune.evaluate.families import computation_of
from foretune.evaluate.fingerprints import fingerprint
from foretune.evaluate.splits import VALIDATION_SHARE, carve

if TYPE_CHECKING:
    from foretune.cost import Ranker
    from foretune.dataset import Group

SCHEMA = "foretune.weights/1"
_PACKAGES = ("foretune", "numpy", "apache-tvm", "xgboost-cpu", "torch")
_ADDED = {"data_fingerprint", "code_fingerprint", "commit", "scores"}
"""What early files do not say."""


@dataclass(frozen=True)
class Provenance:
    """Where a trained ranker comes from.

    Attributes:
        ranker: Its name.
        options: Options that differ from its defaults.
        seed: What seeded its training and the choice of validation workloads.
        command: The command that trains it anew; empty where there was none.
        data: Paths of the data.
        hardware: Keys of the hardware it learned from.
        groups, programs: How many it learned from.
        validation_groups: How many it stopped early by.
        skipped: Reason to the number of records or groups left out.
        training_workloads: Keys of the workloads it learned from.
        validation_workloads: Keys of those it stopped early by: seen as well.
        training_signatures: What all of these compute, epilogues aside, where their programs are
            known: seen with any epilogue.
        train_s: Seconds of training.
        versions: Package to version.
        date: When, in UTC.
        digest: Of the file with the weights.
        data_fingerprint: Of the groups it learned from and stopped by; empty in early files, as
            what follows.
        code_fingerprint: Of the package's code, and of packages that parts of the ranker are from.
        commit: Of the checkout it ran in; None where there was none.
        scores: Where a language model gave scores to learn from, what became of the questions;
            empty else.
    """

    ranker: str
    options: Mapping[str, Any]
    seed: int
    command: str
    data: Sequence[str]
    hardware: Sequence[str]
    groups: int
    programs: int
    validation_groups: int
    skipped: Mapping[str, int]
    training_workloads: Sequence[str]
    validation_workloads: Sequence[str]
    training_signatures: Sequence[str]
    train_s: float
    versions: Mapping[str, str]
    date: str
    digest: str = ""
    data_fingerprint: str = ""
    code_fingerprint: str = ""
    commit: str | None = None
    scores: Mapping[str, Any] = field(default_factory=dict)

    def seen(self, groups: Sequence[Group]) -> list[Group]:
        """Those groups whose workload it has seen, on whatever hardware, with whatever epilogue."""
        known = {*self.training_workloads, *self.validation_workloads}
        signatures = set(self.training_signatures)
        return [g for g in groups if g.workload in known or computation_of(g) in signatures]

    def refuse_seen(self, groups: Sequence[Group], path: Path) -> None:
        """Refuses groups of workloads that the ranker has seen.

        Raises:
            BadInputError: There are such groups.
        """
        known = self.seen(groups)
        if known:
            seen = sorted({group.name for group in known})
            raise BadInputError(
                f"{path} was trained on workloads of this data ({listed(seen, 5)}; "
                f"{len(known)} of {len(groups)} groups): give other data, leave them out with "
                "--exclude, or take the flattered figures with --allow-seen"
            )

    def to_json(self) -> dict[str, Any]:
        """The ``foretune.weights/1`` object."""
        return {"schema": SCHEMA, **asdict(self)}


def provenance_path(weights: Path) -> Path:
    """``FILE.json`` beside ``FILE.npz``."""
    return weights.with_suffix(".json")


def check_output(path: Path) -> None:
    """Refuses a place for weights before any data is read.

    Raises:
        BadInputError: It is no ``.npz`` file, or the file of its provenance is something else.
    """
    if path.suffix != ".npz":
        raise BadInputError(f"weights are a .npz file, but got {path}: name it {path.stem}.npz")
    beside = provenance_path(path)
    if beside.exists() and not _is_provenance(beside):
        raise BadInputError(
            f"what {path} is trained on goes into {beside}, but that file is something else: move "
            "it away, or give the weights another name"
        )


def _is_provenance(path: Path) -> bool:
    """Whether ``train`` wrote it, under this or another schema."""
    try:
        schema = json.loads(path.read_text(encoding="utf-8"))["schema"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return str(schema).startswith(SCHEMA.partition("/")[0] + "/")


def train(
    ranker: Ranker,
    groups: Sequence[Group],
    path: str | Path,
    *,
    name: str = "",
    options: Mapping[str, Any] | None = None,
    seed: int = 0,
    command: str = "",
    data: Sequence[str] = (),
    skipped: Mapping[str, int] | None = None,
    validation: float = VALIDATION_SHARE,
) -> Provenance:
    """Trains a ranker on all groups but a few held out for early stopping, and saves it.

    Args:
        ranker: To be trained; seeded with ``seed`` by the caller.
        groups: The data. Groups without two different times are left out and counted.
        path: ``FILE.npz``; its provenance goes into ``FILE.json``.
        name: What ``foretune.cost.rankers`` calls the ranker.
        options: Options it was made with.
        seed: Chooses the validation workloads.
        command: The command line, to be noted.
        data: Where the groups are from, to be noted.
        skipped: What reading the data left out, to be noted.
        validation: Share of the workloads that is held out.

    Raises:
        BadInputError: ``path`` is no ``.npz`` file, its ``FILE.json`` is something else, there is
            nothing to learn from, or groups that are kept for evaluation are among the data.
        RecordError: A file cannot be written.
    """
    path = Path(path)
    check_output(path)
    kept, few = keep_judgeable(groups)
    if not kept:
        raise BadInputError(
            f"none of {len(groups)} groups has two programs with different seconds: "
            "there is nothing to learn from"
        )
    refuse_excluded(kept)
    learned, held = carve(kept, validation, seed)
    started = time.perf_counter()
    ranker.fit(learned, held)
    provenance = Provenance(
        ranker=name,
        options=dict(options or {}),
        seed=seed,
        command=command,
        data=tuple(data),
        hardware=tuple(sorted({group.hardware for group in learned})),
        groups=len(learned),
        programs=sum(len(group) for group in learned),
        validation_groups=len(held),
        skipped={**(skipped or {}), **few},
        training_workloads=tuple(sorted({group.workload for group in learned})),
        validation_workloads=tuple(sorted({group.workload for group in held})),
        training_signatures=tuple(sorted({computation_of(group) for group in kept} - {""})),
        train_s=time.perf_counter() - started,
        versions=_versions(),
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        data_fingerprint=fingerprint([*learned, *held]),
        code_fingerprint=code_fingerprint(*ranker.modules),
        commit=commit(),
        scores=dict(ranker.status),
    )
    return _save(ranker, provenance, path)


def _save(ranker: Ranker, provenance: Provenance, path: Path) -> Provenance:
    # Were this interrupted, weights without provenance would be left, which are not trusted; old
    # provenance beside new weights would be.
    provenance_path(path).unlink(missing_ok=True)
    ranker.save(path)
    provenance = replace(provenance, digest=_digest(path))
    write_json(provenance_path(path), provenance.to_json())
    return provenance


def read_provenance(weights: str | Path) -> Provenance:
    """What a file of weights was trained on.

    Raises:
        BadInputError: There is no provenance beside the weights, or it is of other weights.
        RecordError: It cannot be read.
        VersionMismatchError: It was written under another schema.
    """
    weights = Path(weights)
    path = provenance_path(weights)
    if not path.is_file():
        raise BadInputError(
            f"nothing says what {weights} was trained on, because {path} is missing: put it back, "
            "or train again with `foretune train`"
        )
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        schema = held.pop("schema")
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise RecordError(f"{path} cannot be read ({error!r}): train again") from error
    if schema != SCHEMA:
        raise VersionMismatchError(
            f"{path}: schema must be {SCHEMA!r}, but is {schema!r}: train again"
        )
    known = Provenance.__dataclass_fields__.keys()
    lacking = known - _ADDED - held.keys()
    if lacking:
        raise RecordError(f"{path} lacks {', '.join(sorted(lacking))}: train again")
    for name in ("training_workloads", "validation_workloads", "training_signatures"):
        if not isinstance(held[name], list):
            raise RecordError(f"{path}: {name} must be a list, but is {held[name]!r}: train again")
    provenance = Provenance(**{name: held[name] for name in known & held.keys()})
    if provenance.digest != _digest(weights):
        raise BadInputError(
            f"{path} describes other weights than {weights}: put back what lay beside it, or train "
            "again with `foretune train`"
        )
    return provenance


def _digest(path: Path) -> str:
    try:
        return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
    except OSError as error:
        raise RecordError(
            f"{path} cannot be read ({error.strerror}): give a file that `foretune train` wrote"
        ) from error


def _versions() -> dict[str, str]:
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
