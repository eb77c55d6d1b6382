"""A TVM target plus the numeric factors of the machine behind it."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._arrays import FloatArray
from foretune.hardware._device import CPU, GPU, Device

if TYPE_CHECKING:
    from foretune._tvm import Target

FEATURE_VERSION = 1
"""Raised whenever ``FEATURE_COLUMNS`` changes; models refuse another version."""

GPU_FACTORS: tuple[tuple[str, str], ...] = (
    ("multiprocessors", "count"),
    ("warp_size", "threads"),
    ("max_threads_per_block", "threads"),
    ("shared_memory_per_block", "bytes"),
    ("registers_per_block", "count"),
    ("l2_bytes", "bytes"),
    ("clock_mhz", "MHz"),
    ("memory_bytes", "bytes"),
    ("compute_capability", "version"),
)
"""Names and units of the entries of ``Hardware.gpu``."""

FEATURE_COLUMNS: tuple[tuple[str, str], ...] = (
    ("is_gpu", "0 or 1"),
    ("threads", "count"),
    ("simd_bits", "bits"),
    ("l1_bytes", "bytes"),
    ("l2_bytes", "bytes"),
    ("l3_bytes", "bytes"),
    ("peak_gflops", "1e9 operations/s"),
    ("bandwidth_gbs", "1e9 bytes/s"),
    *((f"gpu_{name}", unit) for name, unit in GPU_FACTORS),
)
"""Names and units of the entries of ``Hardware.features()``, in order."""


CODE_LEVEL = 2
"""LLVM's optimisation level for programs of CPUs."""

_PROCESSORS = "llvm"
"""The kind of targets whose programs run on cores."""
_VERIFIED = "cuda"
"""The kind of targets whose programs TVM verifies."""


@functools.lru_cache(maxsize=256)
def _kind_of(target: str) -> str:
    return str(json.loads(target)["kind"])


@dataclass(frozen=True)
class Hardware:
    """A target and what is known about the machine behind it.

    Attributes:
        name: Processor model, as the system reports it.
        target: TVM target as a JSON object in text, for example ``{"kind": "llvm", ...}``.
        threads: Threads a kernel runs on: the cores of the affinity mask, or fewer if asked.
        simd_bits: Width of one vector register in bits (0 for a GPU).
        l1_bytes, l2_bytes, l3_bytes: Data cache sizes per core (L3: shared). 0 if unknown.
        peak_gflops: fp32 peak of all ``threads``, in 1e9 operations/s: measured on a CPU, computed
            from clock and units on a GPU. 0 if unknown.
        bandwidth_gbs: Memory bandwidth of all ``threads``, in 1e9 bytes/s: measured on a CPU, from
            the data sheet in a preset of a GPU. 0 if unknown.
        gpu: GPU figures by the names of ``GPU_FACTORS``; None for a CPU.
        device: Data sheet of the processor where the user gave it; ``device_of`` knows others.
        place: Where kernels run if not on this machine: keys or addresses of devices that are
            reached over RPC. Empty for this machine, and where nothing is to be measured.
    """

    name: str
    target: str
    threads: int
    simd_bits: int = 0
    l1_bytes: int = 0
    l2_bytes: int = 0
    l3_bytes: int = 0
    peak_gflops: float = 0.0
    bandwidth_gbs: float = 0.0
    gpu: Mapping[str, float] | None = None
    device: Device | None = field(default=None, compare=False)
    place: str = ""

    @property
    def key(self) -> str:
        """16 hex digits: hash of name, target, threads and place (not of noisy figures)."""
        place = [self.place] if self.place else []
        text = json.dumps(
            [self.name, json.loads(self.target), self.threads, *place], sort_keys=True
        )
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    @property
    def kind(self) -> str:
        """Target kind: ``"llvm"``, ``"cuda"``... What follows from it is asked below."""
        return _kind_of(self.target)

    @property
    def has_cores(self) -> bool:
        """Whether kernels run on cores of a processor, each thread on one; else on a GPU."""
        return self.kind == _PROCESSORS

    @property
    def device_kind(self) -> str:
        """The kind of device that it is, as data sheets have it: ``"cpu"`` or ``"gpu"``."""
        return CPU if self.has_cores else GPU

    @property
    def runtime_device(self) -> str:
        """What TVM's runtime calls the device that kernels run on: ``"cpu"``, ``"cuda"``..."""
        return "cpu" if self.has_cores else self.kind

    @property
    def limits_threads(self) -> bool:
        """Whether TVM refuses programs for the threads and the memory that their blocks take."""
        return self.kind == _VERIFIED

    def tvm_target(self) -> Target:
        """The TVM target object."""
        from foretune._tvm import Target

        return Target(json.loads(self.target))

    def code_target(self) -> Target:
        """The TVM target that code is generated for: ``tvm_target`` at LLVM's level 2.

        Level 3, TVM's default, unrolls more of what is unrolled already. On scheduled programs that
        takes up to several times as long, and on average they are no faster
        (``docs/results/earlier.md``). A target that names an ``opt-level`` keeps it.
        """
        from foretune._tvm import Target

        attributes = json.loads(self.target)
        own = {"opt-level": CODE_LEVEL} if self.has_cores else {}
        return Target({**own, **attributes})

    def features(self) -> FloatArray:
        """The numeric factors as a vector of shape (len(FEATURE_COLUMNS),), 0 where unknown.

        Columns and units are ``FEATURE_COLUMNS``; values are raw, a model scales them itself.
        """
        gpu = self.gpu or {}
        values = [
            float(self.gpu is not None)
            if name == "is_gpu"
            else gpu.get(name.removeprefix("gpu_"), 0.0)
            if name.startswith("gpu_")
            else getattr(self, name)
            for name, _unit in FEATURE_COLUMNS
        ]
        return np.asarray(values, dtype=np.float64)

    def to_json(self) -> dict[str, Any]:
        """A JSON object; ``from_json`` reverses it."""
        fields = {"key": self.key, **asdict(self)}
        del fields["device"]
        if not self.place:
            del fields["place"]
        if self.device is not None:
            fields["device"] = {"key": self.device.key, **self.device.to_json()}
        return fields

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Hardware:
        """Reads what ``to_json`` wrote."""
        fields = {k: v for k, v in data.items() if k != "key"}
        sheet = fields.pop("device", None)
        if sheet is not None:
            entry = dict(sheet)
            fields["device"] = Device.from_json(str(entry.pop("key")), entry)
        return cls(**fields)
