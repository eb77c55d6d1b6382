"""The arrays of one workload inside a child process: snapshot, expected results, live tensors."""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._arrays import Array
from foretune.measure._layout import host_tensors
from foretune.measure._locality import in_cache_order
from foretune.measure._turns import InTurn
from foretune.measure.gate import (
    Parameter,
    Signature,
    Tolerance,
    Verdict,
    judge,
    make_inputs,
    poison,
    tolerances,
)

if TYPE_CHECKING:
    from foretune.workload import Workload

_log = logging.getLogger(__name__)

_ALIGNMENT = 64
# Twice the last cache of common processors, and more than a core has for itself on any.
_FARTHEST_BYTES = 64 << 20
_MOST_COPIES = 256


def compute_reference(
    workload: Workload, target: Any, path: str, as_written: bool = False
) -> dict[str, Any]:
    """Runs the untuned program on the gate's inputs and writes all its buffers to a file.

    Args:
        workload: The program.
        target: A CPU target: the reference is computed on the host whatever the device is.
        path: File to write, readable by every child.
        as_written: Whether in the program's own order of loops, not in one that caches like.

    Returns:
        JSON-able: ``signature``, ``seconds`` of one call, and whether it ran ``as_written``.
    """
    from foretune import _tvm

    signature = Signature.of(workload)
    program = None if as_written else _in_cache_order(workload, target)
    as_written = program is None
    if program is None:
        program = _tvm.tvm.compile(workload.module, target).jit()["main"]
    arrays, seconds = _run_reference(program, signature, workload.key, positive=False)
    broken = _count_broken(signature, arrays)
    if broken:
        again, seconds = _run_reference(program, signature, workload.key, positive=True)
        if _count_broken(signature, again) < broken:
            arrays = again
    with Path(path).open("r+b") as file:
        for array in arrays:
            file.seek(-(-file.tell() // _ALIGNMENT) * _ALIGNMENT)
            file.write(np.ascontiguousarray(array).tobytes())
    return {"signature": signature.to_json(), "seconds": seconds, "as_written": as_written}


def _in_cache_order(workload: Workload, target: Any) -> Callable[..., Any] | None:
    """The untuned program, compiled in another order of loops; None if it stays as written."""
    from foretune import _tvm

    module = in_cache_order(workload.module)
    if module is None:
        return None
    try:
        compiled: Callable[..., Any] = _tvm.tvm.compile(module, target).jit()["main"]
    except Exception as error:  # foreign program: as it is written it may compile
        _log.debug("the untuned program is run as written: %s", error)
        return None
    return compiled


def _run_reference(
    program: Callable[..., Any], signature: Signature, key: str, positive: bool
) -> tuple[list[Array], float]:
    from foretune._tvm import tvm

    tensors = [tvm.runtime.tensor(array) for array in make_inputs(signature, key, positive)]
    began = time.perf_counter()
    program(*tensors)
    seconds = time.perf_counter() - began
    after = [tensor.numpy() for tensor in tensors]
    before = make_inputs(signature, key, positive)
    # An "inout" buffer is needed twice: as it was and as it became.
    starts = [
        array
        for parameter, array in zip(signature.parameters, before, strict=True)
        if parameter.role == "inout"
    ]
    return after + starts, seconds


def _count_broken(signature: Signature, arrays: Sequence[Array]) -> int:
    return sum(
        int(np.count_nonzero(~np.isfinite(array)))
        for parameter, array in zip(signature.parameters, arrays, strict=False)
        if parameter.role != "input" and array.dtype.kind == "f"
    )


def _map_file(path: str, layout: Sequence[tuple[tuple[int, ...], str]]) -> list[Array]:
    data = np.memmap(path, np.uint8, mode="r")
    offset, arrays = 0, []
    for shape, dtype in layout:
        offset = -(-offset // _ALIGNMENT) * _ALIGNMENT
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        arrays.append(np.asarray(data[offset : offset + size]).view(dtype).reshape(shape))
        offset += size
    return arrays


class Buffers:
    """Arguments for the candidates of one workload, and what they must hold after a call.

    On the host parameters are there many times, so that each call finds them as far away as a call
    in the network does: cold ones by what the network reads of weights and results in between,
    others by what it keeps of its intermediate results.

    Args:
        signature: The workload's parameters.
        path: What ``compute_reference`` wrote; None where outputs are not checked.
        key: The workload's key, the seed of the inputs where there is no file.
        device: Where the tensors live.
        cold: Whether to keep such copies of cold parameters.
        workspace: Bytes of intermediate results that the network keeps; 0 for no such copies of
            the other parameters.

    Attributes:
        tensors: The arguments that are checked.
        turns: Those that are timed, a set for each call.
    """

    def __init__(
        self,
        signature: Signature,
        path: str | None,
        key: str,
        device: Any,
        cold: bool = True,
        workspace: int = 0,
    ) -> None:
        from foretune._tvm import tvm

        self._signature = signature
        self._host = str(device).startswith("cpu")
        self._expected: list[Array] | None = None
        self._allowed: list[Tolerance] = []
        if path is None:
            self._starts = make_inputs(signature, key)
        else:
            parameters = signature.parameters
            changed = [p for p in parameters if p.role == "inout"]
            arrays = _map_file(path, [(p.shape, p.dtype) for p in [*parameters, *changed]])
            self._expected = arrays[: len(parameters)]
            self._allowed = tolerances(signature, self._expected)
            starts = iter(arrays[len(parameters) :])
            self._starts = [
                next(starts) if p.role == "inout" else a
                for p, a in zip(parameters, self._expected, strict=True)
            ]
        if not self._host:
            arrays = [np.ascontiguousarray(array) for array in self._starts]
            self.tensors = [tvm.runtime.tensor(array, device) for array in arrays]
            self._views, copies = None, [[tensor] for tensor in self.tensors]
        else:
            copies = self._on_host(
                copies_of_cold(signature) if cold else 1, copies_of_others(signature, workspace)
            )
            self.tensors = [each[0] for each in copies]
            self._views = [np.from_dlpack(tensor) for tensor in self.tensors]
        self._further = [each[1:] for each in copies]
        self.turns = InTurn(copies)

    def _on_host(self, cold: int, others: int) -> list[list[Any]]:
        """Of each parameter its copies, one or more.

        Args:
            cold, others: How many there are of the cold parameters, and of the others.
        """
        counts = [cold if at in self._signature.cold else others for at in range(len(self._starts))]
        wanted = [a for a, count in zip(self._starts, counts, strict=True) for _ in range(count)]
        tensors = iter(host_tensors(wanted))
        return [list(itertools.islice(tensors, count)) for count in counts]

    @property
    def prepare(self) -> Callable[[], None] | None:
        """What to call before each reading: None where calls do not depend on one another."""
        changed = any(p.role == "inout" for p in self._signature.parameters)
        return self._restore_changed if changed else None

    @property
    def judged_after_timing(self) -> bool:
        """Whether many calls in a row leave what one call does, and that is known."""
        return self._expected is not None and self.prepare is None

    def _restore_changed(self) -> None:
        for index, parameter in enumerate(self._signature.parameters):
            if parameter.role == "inout":
                self._store(index, self._starts[index])

    def poison(self) -> None:
        """Makes every output wrong and every changed buffer as it was."""
        self._restore_changed()
        for index, parameter in enumerate(self._signature.parameters):
            if parameter.role != "output":
                continue
            expected = None if self._expected is None else self._expected[index]
            if self._views is not None:
                poison(self._views[index], expected)
            else:
                self._store(index, poison(np.empty(parameter.shape, parameter.dtype), expected))

    def _store(self, index: int, array: Array) -> None:
        if self._views is not None:
            np.copyto(self._views[index], array)
        else:
            self.tensors[index].copyfrom(array)

    def judge(self, timed: bool = False) -> Verdict:
        """Compares the tensors with what they must hold; restores inputs that were overwritten.

        Args:
            timed: Whether those of the last timed call, not ``tensors``.
        """
        assert self._expected is not None
        if self._views is None:
            actual = [t.numpy() for t in self.tensors]
        else:
            actual = [np.from_dlpack(t) for t in self.turns.last] if timed else self._views
        verdict = judge(self._signature, actual, self._expected, self._allowed)
        if not verdict.right:
            for index, parameter in enumerate(self._signature.parameters):
                if parameter.role != "input":
                    continue
                self._store(index, self._starts[index])
                for copy in self._further[index]:
                    np.copyto(np.from_dlpack(copy), self._starts[index])
        return verdict


def copies_of_cold(signature: Signature) -> int:
    """How many copies of its cold parameters a workload needs, for them to be cold.

    One where they are as large as what lies between two calls, or than any cache.
    """
    parameters = [signature.parameters[at] for at in signature.cold]
    return _copies(parameters, signature.between_bytes)


def copies_of_others(signature: Signature, workspace: int) -> int:
    """How many copies of its other parameters a workload needs, to be spread over a workspace.

    One where a call changes one of them: it needs what it was.
    """
    others = [p for at, p in enumerate(signature.parameters) if at not in signature.cold]
    if any(parameter.role == "inout" for parameter in others):
        return 1
    return min(_MOST_COPIES, _copies(others, workspace))


def _copies(parameters: Sequence[Parameter], distance: int) -> int:
    size = sum(math.prod(p.shape) * np.dtype(p.dtype).itemsize for p in parameters)
    far = min(distance, _FARTHEST_BYTES)
    return max(1, -(-far // size)) if size else 1
