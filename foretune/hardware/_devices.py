"""The table of devices, files of further ones, and what logs call them.

``devices.json`` beside this file is the table: one object per device, of the factors of ``FACTORS``
and a few texts (``Device.from_json``). A user's file is written alike, flat or grouped one level::

    {"schema": "foretune-devices-1",
     "devices": {"my-board": {"name": "My Board", "kind": "cpu", "cores": 4, ...,
                              "aliases": ["llvm-myboard"]},
                 "lab-7": {"same_as": "rtx3080"}}}

Names are compared by what is left of them without vendors, trademark signs, clocks and punctuation:
``Intel(R) Core(TM) i7-3770 CPU @ 3.40GHz``, ``cpu-i7-3770`` and ``i7-3770`` are one.
"""

from __future__ import annotations

import difflib
import functools
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from foretune.errors import BadInputError
from foretune.hardware._device import Device

SCHEMA = "foretune-devices-1"
"""Of the table, and of a file that says which it has."""

_TABLE = Path(__file__).with_name("devices.json")
_ASIDE = re.compile(
    r"\(r\)|\(tm\)|\(c\)|\([^)]*\)|@.*$|\b\d+(st|nd|rd|th) gen\b|\b\w+-core processor\b"
    r"|\bwith radeon graphics\b"
)
_VENDORS = frozenset(
    ("amd", "arm", "aws", "core", "cpu", "geforce", "gpu", "instinct", "intel", "nvidia",
     "processor", "tesla")
)  # fmt: skip
_NEAR = 5


class Devices(Mapping[str, Device]):
    """Devices by their keys, found by whatever names they go by.

    Args:
        entries: The devices.
        aliases: Further names to keys.

    Raises:
        BadInputError: One name stands for two devices.
    """

    def __init__(self, entries: Iterable[Device], aliases: Mapping[str, str] | None = None) -> None:
        self._entries = {entry.key: entry for entry in entries}
        self._aliases = dict(aliases or {})
        self._keys: dict[str, str] = {}
        for entry in self._entries.values():
            for name in (entry.key, entry.name):
                self._call(name, entry.key)
        for name, key in self._aliases.items():
            self._call(name, key)

    def _call(self, name: str, key: str) -> None:
        spelled = spelling(name)
        if spelled and self._keys.setdefault(spelled, key) != key:
            raise BadInputError(
                f"a name stands for one device, but {name!r} stands for {self._keys[spelled]!r} "
                f"and {key!r}: call one of them otherwise"
            )

    def __getitem__(self, key: str) -> Device:
        return self._entries[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def to_json(self) -> dict[str, Any]:
        """A file of these devices with their further names; ``read_devices`` reads it."""
        entries = {key: device.to_json() for key, device in self._entries.items()}
        for name, key in self._aliases.items():
            entries[key].setdefault("aliases", []).append(name)
        return {"schema": SCHEMA, "devices": entries}

    def find(self, name: str) -> Device | None:
        """The device of that key, name or alias; None if there is none."""
        key = self._keys.get(spelling(name))
        return None if key is None else self._entries[key]

    def near(self, name: str) -> list[str]:
        """Keys of devices whose names look like this one, the most alike first."""
        alike = difflib.get_close_matches(spelling(name), self._keys, n=2 * _NEAR, cutoff=0.6)
        return list(dict.fromkeys(self._keys[each] for each in alike))[:_NEAR]


def spelling(name: str) -> str:
    """What two names of one device have in common: letters and digits, without vendors."""
    words = re.findall(r"[a-z0-9]+", _ASIDE.sub(" ", name.lower()))
    return "".join(word for word in words if word not in _VENDORS) or "".join(words)


@functools.cache
def known_devices() -> Devices:
    """The table that foretune comes with."""
    return _devices_of(json.loads(_TABLE.read_text(encoding="utf-8")), str(_TABLE), None)


def device_names() -> tuple[str, ...]:
    """The keys of the table, sorted."""
    return tuple(sorted(known_devices()))


def find_device(name: str, extra: Devices | None = None) -> Device | None:
    """The device of that name, of a user's own before those of the table; None if unknown."""
    own = None if extra is None else extra.find(name)
    return own if own is not None else known_devices().find(name)


def device(name: str, extra: Devices | None = None) -> Device:
    """The device of that key, name or alias, or that logs call so.

    Args:
        name: For example ``"i7-3770"``, ``"cpu-i7-3770"``, ``"NVIDIA A100-PCIE-40GB"``.
        extra: Devices that come before those of the table.

    Raises:
        BadInputError: Nothing is called so; names that look alike are listed.
    """
    known = find_device(name, extra)
    if known is not None:
        return known
    near = [key for each in (extra, known_devices()) if each is not None for key in each.near(name)]
    likely = f"did you mean {' or '.join(dict.fromkeys(near))}? " if near else ""
    raise BadInputError(
        f"unknown device {name!r}: {likely}`foretune hardware --devices` lists those that are "
        "known; describe another one in a file and give it with --devices FILE.json"
    )


def read_devices(path: str | os.PathLike[str]) -> Devices:
    """Reads a file of devices.

    What is null is not known. An entry of ``same_as`` alone makes its key a name of another device
    of the file or the table.

    Raises:
        BadInputError: The file is missing or no JSON object, its schema is another, or an entry is
            refused by ``Device``: a required factor is missing, a factor unknown or out of range.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        data = json.loads(text, object_pairs_hook=_once)
    except (OSError, ValueError, RecursionError) as error:
        raise BadInputError(
            f"{path} cannot be read as a JSON file of devices ({error}): give one object with an "
            "entry for each device"
        ) from error
    return _devices_of(data, str(path), known_devices())


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, none of whose keys stands there twice."""
    entries = dict(pairs)
    if len(entries) < len(pairs):
        twice = next(key for key, _ in pairs if sum(key == other for other, _ in pairs) > 1)
        raise ValueError(f"{twice!r} stands there twice")
    return entries


def _devices_of(data: Any, where: str, table: Devices | None) -> Devices:
    """The devices of a file; ``where`` it is stands before what is wrong with it."""
    try:
        return _read(data, table)
    except BadInputError as error:
        raise BadInputError(f"{where}: {error}") from None


def _read(data: Any, table: Devices | None) -> Devices:
    entries = dict(_entries(data))
    devices = {
        key: Device.from_json(key, entry)
        for key, entry in entries.items()
        if "same_as" not in entry
    }
    aliases = {str(a): key for key in devices for a in _aliases(key, entries[key])}
    own = Devices(devices.values(), aliases)
    for key, entry in entries.items():
        if "same_as" in entry:
            other = own.find(str(entry["same_as"]))
            if other is None:
                other = None if table is None else table.find(str(entry["same_as"]))
            if other is None or len(entry) > 1:
                raise BadInputError(
                    "`same_as` names another device and stands alone, but {key!r} is "
                    f"{entry}: give a known device, or its factors"
                )
            devices.setdefault(other.key, other)
            aliases[key] = other.key
    return Devices(devices.values(), aliases)


def _entries(data: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Key and object of each device, of a file that is flat or has groups of them."""
    if isinstance(data, dict) and "schema" in data:
        if data["schema"] != SCHEMA:
            raise BadInputError(
                f"schema is {SCHEMA!r}, but is {data['schema']!r}: use the foretune that "
                "it was written for"
            )
        data = data.get("devices")
    if not isinstance(data, dict) or not data:
        raise BadInputError("the file must hold an object with an entry for each device")
    seen: set[str] = set()
    for key, value in data.items():
        inner = value if _is_group(value) else {key: value}
        for name, entry in inner.items():
            if not isinstance(entry, dict) or not ("kind" in entry or "same_as" in entry):
                raise BadInputError(
                    "an entry is an object that says its kind, cpu or gpu, but "
                    f"{name!r} is {json.dumps(entry)[:60]}: see docs/devices.md"
                )
            if name in seen:
                raise BadInputError(f"a device has one entry, but {name!r} has two")
            seen.add(name)
            yield name, entry


def _is_group(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and bool(value)
        and not {"kind", "same_as"} & value.keys()
        and all(isinstance(entry, dict) for entry in value.values())
    )


def _aliases(key: str, entry: Mapping[str, Any]) -> list[str]:
    aliases = entry.get("aliases") or []
    if not isinstance(aliases, list) or not all(isinstance(each, str) for each in aliases):
        raise BadInputError(f"device {key!r}: aliases is a list of names, but is {aliases!r}")
    return aliases
