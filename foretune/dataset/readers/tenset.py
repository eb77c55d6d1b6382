"""TenSet's layout: Ansor logs in one folder per hardware.

::

    dataset/measure_records/k80/*.json          read
    dataset/network_info/*.task.pkl             not read
    dataset/to_measure_programs, test_set...    not read

How often a network has a workload stands in ``network_info`` alone, in pickles of classes that TVM
no longer has; unpickling a file from elsewhere runs whatever it says. So every weight is 1.
"""

from __future__ import annotations

from pathlib import Path

from foretune.dataset.readers import _streams
from foretune.dataset.readers._gathering import Gathering
from foretune.dataset.readers.ansor import Records
from foretune.errors import BadInputError

_RECORDS = "measure_records"


def recognises_folder(path: Path) -> bool:
    """Whether a folder is the data set, its records, or those of one hardware."""
    return bool(_folders(path))


def gather(path: Path, gathering: Gathering) -> None:
    """Reads the logs of the data set, of all its hardware or of one.

    Raises:
        BadInputError: The folder is not laid out like TenSet.
        RecordError: A file cannot be read to its end.
    """
    folders = _folders(path)
    if not folders:
        raise BadInputError(
            f"TenSet has its logs in {_RECORDS}/HARDWARE/*.json, but {path} has none: name the "
            "folder that holds measure_records"
        )
    records = Records(gathering, path)
    for folder in folders:
        hardware = folder.resolve().name
        for file in sorted((*folder.glob("*.json"), *folder.glob("*.json.gz"))):
            within = file.relative_to(path).as_posix()
            for name, line in _streams.lines(file):
                gathering.take(records.add, line, name or within, hardware)


def _folders(path: Path) -> list[Path]:
    """One folder per hardware."""
    if path.is_dir() and path.resolve().parent.name == _RECORDS:
        return [path]
    bases = (path, path / _RECORDS, path / "dataset" / _RECORDS)
    base = next((b for b in bases if b.is_dir() and b.resolve().name == _RECORDS), None)
    return [] if base is None else sorted(folder for folder in base.iterdir() if folder.is_dir())
