"""A workload small enough for every test, and a measurer that needs no machine."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace

import pytest

from foretune.hardware import Hardware
from foretune.measure import Measurement, Measurer, Status
from foretune.space import Candidate, Space
from foretune.workload import Workload

HARDWARE = Hardware(
    name="test", target='{"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}', threads=2
)


def matmul(n: int = 64, name: str = "matmul") -> Workload:
    """An n x n x n matrix product."""
    from foretune._tvm import tvm

    a = tvm.te.placeholder((n, n), name="A")
    b = tvm.te.placeholder((n, n), name="B")
    k = tvm.te.reduce_axis((0, n), name="k")
    c = tvm.te.compute((n, n), lambda i, j: tvm.te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return Workload.from_module(tvm.te.create_prim_func([a, b, c]), name=name)


def row_sums(rows: int, columns: int) -> Workload:
    """Sums of the rows of a matrix: a space of hundreds of candidates, but of few programs."""
    from foretune._tvm import tvm

    x = tvm.te.placeholder((rows, columns), name="x")
    k = tvm.te.reduce_axis((0, columns), name="k")
    y = tvm.te.compute((rows,), lambda i: tvm.te.sum(x[i, k], axis=k), name="y")
    return Workload.from_module(tvm.te.create_prim_func([x, y]), name="row_sums")


def seconds_of(candidate: Candidate) -> float:
    """A latency that depends on the candidate alone: 1 ms to 2 ms, the untuned program 10 ms."""
    if not candidate.sketch.variables:
        return 1e-2
    digest = hashlib.blake2b(candidate.key.encode(), digest_size=4).digest()
    return 1e-3 * (1 + int.from_bytes(digest, "big") / 2**32)


def ok(candidate: Candidate) -> Measurement:
    """A quiet, correct measurement."""
    seconds = seconds_of(candidate)
    return Measurement(Status.OK, (seconds,) * 3, (True,) * 3, build_s=0.01, run_s=0.01)


def spare_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has ``tune`` make each space once, compile nothing, and explain nothing."""
    once = SimpleNamespace(generate=_generated)
    monkeypatch.setattr("foretune.tuning.prepared.Space", once)
    monkeypatch.setattr("foretune.tuning.proving.refuse_uncompiled", lambda *_: None)
    monkeypatch.setattr("foretune.tuning.run.explained_kernels", lambda *_, **__: [])


_SPACES: dict[tuple[str, str], Space] = {}


def _generated(workload: Workload, hardware: Hardware) -> Space:
    key = (workload.key, hardware.key)
    if key not in _SPACES:
        _SPACES[key] = Space.generate(workload, hardware)
    return _SPACES[key]


class FormulaMeasurer(Measurer):
    """Answers from a formula, at once, and remembers what it was asked."""

    def __init__(self, answer: Callable[[Candidate], Measurement] = ok) -> None:
        self.answer = answer
        self.asked: list[str] = []

    def measure(
        self, candidates: Sequence[Candidate], best_s: Mapping[str, float] | None = None
    ) -> Iterator[tuple[Candidate, Measurement]]:
        for candidate in candidates:
            self.asked.append(candidate.key)
            yield candidate, self.answer(candidate)

    def compare(self, candidates: Sequence[Candidate]) -> list[Measurement]:
        return [self.answer(c) for c in candidates]

    def close(self) -> None:
        pass
