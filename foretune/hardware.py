"""The hardware a workload is tuned for: a TVM target plus numeric factors."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretune._tvm import Target


@dataclass(frozen=True)
class Hardware:
    """A target and what is known about the machine behind it.

    Attributes:
        name: Processor model, as the system reports it.
        target: TVM target as a JSON object in text, for example ``{"kind": "llvm", ...}``.
        threads: Threads a kernel runs on: the cores of the affinity mask, or fewer if asked.
        simd_bits: Width of one vector register in bits (0 for a GPU).
        l1_bytes, l2_bytes, l3_bytes: Data cache sizes per core (L3: shared). 0 if unknown.
        peak_gflops: Measured fp32 peak of all ``threads``, in 1e9 operations/s. 0 if not measured.
        bandwidth_gbs: Measured memory bandwidth of all ``threads``, in 1e9 bytes/s. 0 likewise.
        gpu: GPU figures (multiprocessors, warp, shared memory...); empty for a CPU.
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

    @property
    def key(self) -> str:
        """16 hex digits: hash of name, target and threads (not of measured, noisy figures)."""
        text = json.dumps([self.name, json.loads(self.target), self.threads], sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    @property
    def kind(self) -> str:
        """Target kind: ``"llvm"``, ``"cuda"``..."""
        return str(json.loads(self.target)["kind"])

    def tvm_target(self) -> Target:
        """The TVM target object."""
        from foretune._tvm import Target

        return Target(json.loads(self.target))

    def to_json(self) -> dict[str, Any]:
        """A JSON object; ``from_json`` reverses it."""
        return {"key": self.key, **asdict(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Hardware:
        """Reads what ``to_json`` wrote."""
        return cls(**{k: v for k, v in data.items() if k != "key"})
