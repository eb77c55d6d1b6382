"""A processor by its data sheet: what lets a model judge schedules for machines it never saw.

``Hardware`` is what code is generated for; a ``Device`` is what executes it. Factors are those of
``FACTORS``, with the names and units of the shared file format (``devices.json``). What a data
sheet does not say is left out, and ``value`` says what stands in for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from foretune.errors import BadInputError

CPU, GPU = "cpu", "gpu"
TEXTS = ("name", "kind", "system", "unit", "source", "note", "aliases")
"""What an entry of a file of devices may hold beside factors."""
OF_CORES = ("instruction_set", "neon_pipes", "in_order")
"""What it may say of the cores of a CPU, too. These are no ``FACTORS``: models that were trained on
other devices have no columns for them."""
INSTRUCTION_SETS = ("", "x86_64", "aarch64", "armv7")


@dataclass(frozen=True)
class Factor:
    """One number of a data sheet.

    Attributes:
        name: As in ``devices.json``.
        unit: Of the value.
        kinds: Kinds of devices that have it.
        low, high: Range outside of which an entry is a mistake.
        required: Whether an entry without it is refused.
        typical: What stands in for it where it is not known, by kind; None where it follows from
            others (see ``Device.value``).
    """

    name: str
    unit: str
    kinds: tuple[str, ...]
    low: float
    high: float
    required: bool = False
    typical: float | None = None

    @property
    def whole(self) -> bool:
        """Whether it counts something, so that parts of one are a mistake."""
        return self.unit in ("count", "threads")

    @property
    def rule(self) -> str:
        """What a value must fulfil, in words."""
        kind = ", a whole number" if self.whole else ""
        return f"`{self.low:g} <= {self.name} <= {self.high:g}` ({self.unit}{kind})"

    def allows(self, value: object) -> bool:
        """Whether it can be such a number."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return False
        fits = math.isfinite(value) and self.low <= value <= self.high
        return fits and (not self.whole or value == int(value))


FACTORS: tuple[Factor, ...] = (
    Factor("cores", "count", (CPU,), 1, 1024, required=True),
    Factor("threads", "count", (CPU,), 1, 4096),
    Factor("simd_fp32_lanes", "count", (CPU,), 1, 64, required=True),
    Factor("simd_fp32_lanes_of_the_compiled_code", "count", (CPU,), 1, 64),
    Factor("fp32_flop_per_cycle_per_core", "count", (CPU,), 1, 1024, required=True),
    Factor("l1d_kib_per_core", "KiB", (CPU,), 1, 4096, required=True),
    Factor("l2_kib", "KiB in all", (CPU, GPU), 0, 2**22),
    Factor("l3_kib", "KiB in all", (CPU,), 0, 2**23),
    Factor("units", "count", (GPU,), 1, 1024, required=True),
    Factor("fp32_lanes", "count", (GPU,), 1, 2**17, required=True),
    Factor("warp", "threads", (GPU,), 1, 128, required=True),
    Factor("registers_kib_per_unit", "KiB", (GPU,), 1, 4096, typical=256),
    Factor("shared_kib_per_unit", "KiB", (GPU,), 1, 1024, required=True),
    Factor("l1_kib_per_unit", "KiB", (GPU,), 1, 1024, typical=64),
    Factor("max_threads_per_unit", "threads", (GPU,), 32, 8192, typical=2048),
    Factor("max_threads_per_block", "threads", (GPU,), 32, 8192, typical=1024),
    Factor("last_level_cache_mib", "MiB", (GPU,), 0, 4096, typical=0),
    Factor("base_mhz", "MHz", (CPU, GPU), 50, 10_000),
    Factor("boost_mhz", "MHz", (CPU, GPU), 50, 10_000),
    Factor("memory_gb_per_s", "1e9 bytes/s", (CPU, GPU), 0.1, 20_000),
    Factor("peak_fp32_gflops", "1e9 operations/s", (CPU, GPU), 0.1, 1e7),
)
"""Every factor, in the order of columns."""


@dataclass(frozen=True)
class Device:
    """A processor by its data sheet.

    Attributes:
        key: Short name, for example ``"ryzen-3700x"``.
        name: What it is sold as.
        kind: ``"cpu"`` or ``"gpu"``.
        factors: By the names of ``FACTORS``; what is not known is left out.
        source: Where the figures are from.
        note: What else a reader should know.
        instruction_set: Of a CPU, one of ``INSTRUCTION_SETS``; empty where it is not stated.
        neon_pipes: Vectors of 128 bits that an Arm core with wider ones multiplies and adds in a
            cycle; 0 for as many as fill the wider ones.
        in_order: Whether a core of a whole vector multiply-add per cycle or more issues
            instructions in the order of the program all the same; with less it is taken to do so.

    Raises:
        BadInputError: A required factor is missing, a factor is unknown, or out of its range.
    """

    key: str
    name: str
    kind: str
    factors: Mapping[str, float]
    source: str = ""
    note: str = field(default="", compare=False)
    instruction_set: str = ""
    neon_pipes: float = 0.0
    in_order: bool = False

    def __post_init__(self) -> None:
        if self.kind not in (CPU, GPU):
            raise BadInputError(
                f"device {self.key!r}: kind is 'cpu' or 'gpu', but is {self.kind!r}"
            )
        self._check_cores()
        known = {factor.name: factor for factor in FACTORS if self.kind in factor.kinds}
        for name, value in self.factors.items():
            if name not in known:
                raise BadInputError(
                    f"device {self.key!r} has a factor {name!r}, which a {self.kind} has not: "
                    f"choose from {', '.join(known)}"
                )
            factor = known[name]
            if not factor.allows(value):
                raise BadInputError(
                    f"device {self.key!r}: {factor.rule} must hold, but got {value!r}"
                )
        missing = [f for f in known.values() if f.required and f.name not in self.factors]
        if missing:
            raise BadInputError(
                f"device {self.key!r} lacks the factor {missing[0].name!r}, without which nothing "
                f"can be said of schedules: give it in the file of devices, {missing[0].rule}"
            )

    def _check_cores(self) -> None:
        if self.instruction_set not in INSTRUCTION_SETS:
            raise BadInputError(
                f"device {self.key!r}: instruction_set is one of "
                f"{', '.join(filter(None, INSTRUCTION_SETS))}, but is {self.instruction_set!r}"
            )
        pipes = self.neon_pipes
        if isinstance(pipes, bool) or not isinstance(pipes, (int, float)) or not 0 <= pipes <= 64:
            raise BadInputError(
                f"device {self.key!r}: `0 <= neon_pipes <= 64` must hold, but got {pipes!r}"
            )
        if not isinstance(self.in_order, bool):
            raise BadInputError(
                f"device {self.key!r}: in_order is true or false, but is {self.in_order!r}"
            )
        if not self.has_cores and (self.instruction_set or pipes or self.in_order):
            raise BadInputError(
                f"device {self.key!r}: {', '.join(OF_CORES)} are of a cpu, but this is a gpu"
            )

    @property
    def has_cores(self) -> bool:
        """Whether it is a processor, whose kernels run on cores; else a GPU."""
        return self.kind == CPU

    def value(self, name: str) -> float:
        """A factor, or what stands in for it where the data sheet does not say.

        Clocks stand in for each other (2,000 MHz where neither is known, 1,000 of a GPU), threads
        are cores, lanes of compiled code those of the processor, the second cache 256 KiB a core
        (1 MiB of a GPU), peak is lanes times clock times two, memory a byte per 16 operations.
        """
        if name in self.factors:
            return float(self.factors[name])
        factor = next(f for f in FACTORS if f.name == name and self.kind in f.kinds)
        if factor.typical is not None:
            return factor.typical
        return self._derived(name)

    def _derived(self, name: str) -> float:
        own = self.factors
        if name == "threads":
            return float(own["cores"])
        if name == "simd_fp32_lanes_of_the_compiled_code":
            return float(own["simd_fp32_lanes"])
        if name in ("base_mhz", "boost_mhz"):
            other = "boost_mhz" if name == "base_mhz" else "base_mhz"
            return float(own.get(other, 2000.0 if self.has_cores else 1000.0))
        if name == "l2_kib":
            return 256.0 * own["cores"] if self.has_cores else 1024.0
        if name == "l3_kib":
            return 0.0
        if name == "peak_fp32_gflops":
            per_cycle = (
                own["cores"] * own["fp32_flop_per_cycle_per_core"]
                if self.has_cores
                else 2.0 * own["fp32_lanes"]
            )
            return per_cycle * self.value("boost_mhz") / 1e3
        assert name == "memory_gb_per_s", name
        return self.value("peak_fp32_gflops") / 16.0

    def to_json(self) -> dict[str, Any]:
        """An entry of a file of devices, without its key."""
        return {
            "name": self.name,
            "kind": self.kind,
            **self.factors,
            "source": self.source,
            "note": self.note,
            **{name: getattr(self, name) for name in OF_CORES if getattr(self, name)},
        }

    @classmethod
    def from_json(cls, key: str, entry: Mapping[str, Any]) -> Device:
        """Reads an entry of a file of devices; what is null is not known.

        Raises:
            BadInputError: As for the class, or a text is none.
        """
        factors = {n: v for n, v in entry.items() if n not in (*TEXTS, *OF_CORES) and v is not None}
        texts = {n: entry.get(n) or "" for n in ("name", "kind", "source", "note")}
        wrong = [n for n, text in texts.items() if not isinstance(text, str)]
        if wrong:
            raise BadInputError(f"device {key!r}: {wrong[0]} is text, but is {entry[wrong[0]]!r}")
        return cls(
            key=key,
            name=texts["name"] or key,
            kind=texts["kind"],
            factors=factors,
            source=texts["source"],
            note=texts["note"],
            **{n: entry[n] for n in OF_CORES if entry.get(n) is not None},
        )
