"""A data sheet's text to an entry of a file of devices, proposed by a language model for review.

The model fills the schema of ``FACTORS``; nothing it writes is taken on trust. Every figure must be
a number in its range, and is looked for in the text itself:

=========== ======================================================================================
literal     the figure stands there, in a line that speaks of it
converted   it follows from one there: another unit (GHz, MiB, TFLOP/s), or so much per core or
            unit times their number
not found   neither: from the model's memory, or made up
=========== ======================================================================================

A proposal is a text to be read, corrected and given with ``--devices``; no table is written to.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from foretune.errors import BadInputError
from foretune.hardware import DEVICES_SCHEMA, FACTORS, Device, Factor, find_device

if TYPE_CHECKING:
    from foretune.llm import Message, Session

LITERAL, CONVERTED, NOT_FOUND = "literal", "converted", "not found"
KINDS = ("cpu", "gpu")

_LONGEST_SHEET = 60_000
"""Characters of a sheet that are shown to a model."""
_LONGEST_ANSWER = 1 << 16
_MOST_OBJECTS = 100
"""Places in an answer where an object is looked for."""
_LONGEST_QUOTE = 160
_TRIES = 2
_NUMBER = re.compile(r"(?<![\w.,])\d+(?:,\d{3})*(?:\.\d+)?(?![\d.]*\d)")
_SPEAKS = {
    "cores": r"\bcores?\b",
    "threads": r"\bthreads?\b",
    "simd_fp32_lanes": r"\bsimd|\bavx|\bvector|\blanes?\b|\bneon\b|\bsve\b",
    "simd_fp32_lanes_of_the_compiled_code": r"\blanes?\b|\bvector|\bcompiled\b",
    "fp32_flop_per_cycle_per_core": r"\bflops?\b|\bper (cycle|clock)|/(cycle|clock)\b|\bfma\b",
    "l1d_kib_per_core": r"\bl1",
    "l2_kib": r"\bl2\b",
    "l3_kib": r"\bl3\b|\bsmart cache\b|\blast.level\b|\bcache\b",
    "units": r"\bsms?\b|\bsmx\b|\bmultiprocessors?\b|\bcompute units?\b|\bcus?\b",
    "fp32_lanes": r"\bcuda cores?\b|\bstream processors?\b|\blanes?\b|\bshad(er|ing)",
    "warp": r"\bwarp|\bwavefront",
    "registers_kib_per_unit": r"\bregisters?\b",
    "shared_kib_per_unit": r"\bshared\b|\blds\b|\blocal data",
    "l1_kib_per_unit": r"\bl1",
    "max_threads_per_unit": r"\bthreads?\b",
    "max_threads_per_block": r"\bthreads?\b",
    "last_level_cache_mib": r"\binfinity\b|\blast.level\b|\bcache\b",
    "base_mhz": r"\bbase\b|\bclock|\bfrequency\b|\bhz\b|[mg]hz\b",
    "boost_mhz": r"\bboost\b|\bturbo\b|\bclock|\bfrequency\b|[mg]hz\b",
    "memory_gb_per_s": r"\bbandwidth\b|[gt]b/s|\bmemory\b",
    "peak_fp32_gflops": r"\bflops?\b|flop/s|\bfp32\b|\bsingle.precision\b|\bpeak\b",
}
"""What a line that a figure is taken from speaks of."""
_UNITS = (
    (r"mhz", {"ghz": 1e3}),
    (r"kib", {"kb": 1.0, "mb": 1024.0, "mib": 1024.0, "gb": 1024.0**2, "bytes?": 1 / 1024}),
    (r"mib", {"mb": 1.0, "gb": 1024.0, "kb": 1 / 1024, "kib": 1 / 1024}),
    (r"bytes/s", {"tb/s": 1e3, "mb/s": 1e-3}),
    (r"operations/s", {"tflops?": 1e3, "tflop/s": 1e3, "teraflops?": 1e3, "mflops?": 1e-3}),
)
"""Unit of a factor, and others with how many of it one of them is."""


_SUMMED = {factor.name for factor in FACTORS if "KiB" in factor.unit} | {"fp32_lanes"}
"""Factors that a data sheet may give per core or unit instead of in all, or the other way."""


@dataclass(frozen=True)
class Figure:
    """One number of a proposal.

    Attributes:
        name: Of the factor.
        value: In the factor's unit.
        found: ``LITERAL``, ``CONVERTED`` or ``NOT_FOUND``.
        quote: The line of the text that it stands in; empty where it was not found.
    """

    name: str
    value: float
    found: str
    quote: str


@dataclass(frozen=True)
class Proposal:
    """What a model made of a data sheet.

    Attributes:
        key: For the entry.
        name: What the device is sold as, in the model's words.
        kind: ``"cpu"`` or ``"gpu"``.
        figures: Those that may be right, in the order of ``FACTORS``.
        rejected: Name and reason of what cannot be.
        missing: Required factors that are not among the figures.
        known: The device of the table that goes by this name, if there is one.
        source: For the entry.
        cut: Whether the model saw the beginning of the text only.
    """

    key: str
    name: str
    kind: str
    figures: tuple[Figure, ...]
    rejected: tuple[tuple[str, str], ...]
    missing: tuple[str, ...]
    known: Device | None
    source: str
    cut: bool

    @property
    def device(self) -> Device | None:
        """The device as proposed; None while a required factor is missing."""
        if self.missing:
            return None
        return Device.from_json(self.key, self._entry())

    def to_json(self) -> dict[str, Any]:
        """A file of devices with this entry; what is missing stands there as null."""
        return {"schema": DEVICES_SCHEMA, "devices": {self.key: self._entry()}}

    def _entry(self) -> dict[str, Any]:
        unfounded = [figure.name for figure in self.figures if figure.found == NOT_FOUND]
        note = f"not in the text: {', '.join(unfounded)}" if unfounded else ""
        return {
            "name": self.name,
            "kind": self.kind,
            **dict.fromkeys(self.missing),
            **{figure.name: figure.value for figure in self.figures},
            "source": self.source,
            "note": note,
        }


def propose(text: str, session: Session, origin: str = "a data sheet") -> Proposal:
    """Asks a model what a data sheet says, and checks what it answers against the text.

    Args:
        text: Of the data sheet.
        session: With the model.
        origin: Where the text is from, for the entry's source.

    Raises:
        BadInputError: There is no text, the model does not answer, or nothing in its answers is an
            entry of a device.
    """
    if not text.strip():
        raise BadInputError(f"{origin} holds no text: give the text of a data sheet")
    messages = _question(text[:_LONGEST_SHEET])
    wrong = ""
    for _ in range(_TRIES):
        again = [{"role": "user", "content": f"That was no use: {wrong}. Answer again."}]
        asked = session.submit([*messages, *(again if wrong else [])])
        answer = session.wait(asked)
        if answer is None:
            raise BadInputError(
                f"the language model {session.name} gave no answer "
                f"({session.why_unanswered or 'no reason given'}): check its address, or write the "
                "entry by hand (docs/devices.md)"
            )
        try:
            read = _read(answer.text)
        except ValueError as error:
            wrong = str(error)
            session.judge(asked, answer, usable=False)
            continue
        session.judge(asked, answer, usable=True)
        source = f"proposed by {session.name} from {origin}, to be reviewed"
        return _proposal(read, text, source)
    raise BadInputError(
        f"nothing that the language model {session.name} answered can be used ({wrong}): take a "
        "larger one, or write the entry by hand (docs/devices.md)"
    )


def _question(text: str) -> list[Message]:
    lines = [
        f"- {factor.name} ({factor.unit}; {' and '.join(factor.kinds)})"
        for factor in FACTORS
        if factor.name != "simd_fp32_lanes_of_the_compiled_code"
    ]
    system = (
        "You read data sheets of processors. Answer with one JSON object and nothing else: "
        '{"name": what it is sold as, "kind": "cpu" or "gpu", and the factors below that are of '
        "its kind}. Values are plain numbers in the unit given. What the text does not say is "
        "null: never guess. KiB are 1024 bytes, GB/s and GFLOP/s powers of ten. Of a board with "
        "several dies, give one die throughout.\n" + "\n".join(lines)
    )
    return [
        {"role": "system", "content": system},
        {"role": "user", "content": f"The data sheet:\n\n{text}"},
    ]


def _read(answer: str) -> dict[str, Any]:
    """The entry in an answer, whatever is around it.

    Raises:
        ValueError: There is none; says why.
    """
    largest: dict[str, Any] = {}
    for value in _objects(answer[:_LONGEST_ANSWER]):
        if len(value) > len(largest):
            largest = value
    if not largest:
        raise ValueError("there is no JSON object in the answer")
    entry = {str(name).strip(): value for name, value in largest.items()}
    kind = str(entry.get("kind") or "").strip().lower()
    if kind not in KINDS:
        kinds = {k for f in FACTORS if f.name in entry and len(f.kinds) == 1 for k in f.kinds}
        kind = kinds.pop() if len(kinds) == 1 else ""
    if not kind:
        raise ValueError('the object does not say its kind, "cpu" or "gpu"')
    names = {factor.name for factor in FACTORS if kind in factor.kinds}
    if not any(entry.get(name) is not None for name in names):
        raise ValueError(f"the object holds no factor of a {kind}")
    return {**entry, "kind": kind}


def _objects(text: str) -> Iterator[dict[str, Any]]:
    decoder = json.JSONDecoder()
    at = text.find("{")
    for _ in range(_MOST_OBJECTS):
        if at < 0:
            return
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            if isinstance(value, dict):
                yield value
        at = text.find("{", end)


def _proposal(entry: Mapping[str, Any], text: str, source: str) -> Proposal:
    kind = str(entry["kind"])
    factors = {factor.name: factor for factor in FACTORS if kind in factor.kinds}
    values: dict[str, float] = {}
    rejected = []
    for name, given in entry.items():
        if name in ("name", "kind") or given is None:
            continue
        try:
            values[name] = _value(factors.get(name), given)
        except ValueError as reason:
            rejected.append((name[:_LONGEST_QUOTE], str(reason)))
    count = values.get("cores" if kind == "cpu" else "units")
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    figures = tuple(
        Figure(name, values[name], *_found(factor, values[name], count, lines))
        for name, factor in factors.items()
        if name in values
    )
    name = " ".join(str(entry.get("name") or "").split())[:_LONGEST_QUOTE] or "device"
    key = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "device"
    missing = tuple(f.name for f in factors.values() if f.required and f.name not in values)
    return Proposal(
        key,
        name,
        kind,
        figures,
        tuple(rejected),
        missing,
        find_device(name),
        source,
        len(text) > _LONGEST_SHEET,
    )


def _value(factor: Factor | None, given: Any) -> float:
    """
    Raises:
        ValueError: It cannot be the factor's value; says why.
    """
    if factor is None:
        raise ValueError("not in the schema")
    if isinstance(given, str):
        given = given.replace(",", "").strip()
    try:
        value = math.nan if isinstance(given, bool) else float(given)
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if not math.isfinite(value):
        raise ValueError("no number")
    if not factor.low <= value <= factor.high:
        raise ValueError(f"{value:g} is outside of {factor.low:g} to {factor.high:g} {factor.unit}")
    return int(value) if value == int(value) else value


def _found(
    factor: Factor, value: float, count: float | None, lines: Sequence[str]
) -> tuple[str, str]:
    """How a figure stands in the text, and where."""
    speaking = [line for line in lines if re.search(_SPEAKS[factor.name], line, re.IGNORECASE)]
    for line in speaking:
        if any(number == value and not other for number, other in _numbers(factor, line)):
            return LITERAL, line[:_LONGEST_QUOTE]
    for line in speaking:
        scales = [1.0]
        if count and factor.name in _SUMMED:
            scales += [count, 1 / count]
        for number, other in _numbers(factor, line):
            times = other or 1.0
            if any(math.isclose(number * times * scale, value, rel_tol=1e-3) for scale in scales):
                return CONVERTED, line[:_LONGEST_QUOTE]
    return NOT_FOUND, ""


def _numbers(factor: Factor, line: str) -> Iterator[tuple[float, float | None]]:
    """Numbers of a line, and how many of the factor's unit one of the unit behind them is.

    None where that unit is the factor's own, or none that is known.
    """
    others = next((scale for unit, scale in _UNITS if unit in factor.unit.lower()), {})
    for match in _NUMBER.finditer(line):
        behind = line[match.end() : match.end() + 12].lstrip(" -").lower()
        times = next((t for name, t in others.items() if re.match(rf"{name}\b", behind)), None)
        yield float(match[0].replace(",", "")), None if times == 1.0 else times
