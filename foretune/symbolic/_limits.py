"""What post-processors will refuse a GPU program for, as expressions of its decisions."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass

from foretune.symbolic._nodes import Buffer, Load, walk
from foretune.symbolic._program import Store, SymbolicProgram
from foretune.symbolic._scalar import Scalar

_VECTOR_BYTES = 16
"""What TVM's VerifyGPUCode allows on CUDA, whatever the target says."""


@dataclass(frozen=True)
class Limit:
    """A size that has to stay between two numbers.

    Attributes:
        name: What is limited, for messages.
        value: The size, at least 1.
        low, high: The numbers, both allowed.
    """

    name: str
    value: Scalar
    low: float
    high: float


def limits(program: SymbolicProgram) -> tuple[Limit, ...]:
    """The limits of a program: threads, shared memory and vectors of a CUDA one.

    Nothing on CPUs, where all candidates are legal. The limit of a tile's last factor belongs to
    its variable. Virtual threads have no limit: TVM accepts 128 of them.
    """
    hardware = program.sketch.hardware
    if not hardware.limits_threads:
        return ()
    target = json.loads(hardware.target)
    every = [each for store in program.stores for each in _of_store(program, store, target)]
    room = float(target.get("max_shared_memory_per_block", math.inf))
    for buffers in _by_kernel(program).values():
        shared = program.algebra.number(0)
        for buffer in buffers:
            shape = program.allocations[buffer].shape
            shared = shared + program.algebra.product(shape) * buffer.bytes
        every.append(Limit("bytes of shared memory", shared.maximum(1), 1, room))
    return tuple({(each.name, each.value.key, each.low): each for each in every}.values())


def _by_kernel(program: SymbolicProgram) -> dict[int, dict[Buffer, None]]:
    """The buffers in shared memory of each kernel, by the number of its first loop of threads."""
    buffers: dict[int, dict[Buffer, None]] = {}
    for store in program.stores:
        kernel = next((level.loop for level in store.levels if level.thread), -1)
        loads = (node.buffer for node in walk(store.value) if isinstance(node, Load))
        for buffer in (store.target, *loads):
            if buffer.scope.startswith("shared"):
                buffers.setdefault(kernel, {})[buffer] = None
    return buffers


def _of_store(program: SymbolicProgram, store: Store, target: dict[str, object]) -> Iterator[Limit]:
    algebra = program.algebra
    threads = algebra.product(x.extent for x in store.levels if x.thread.startswith("threadIdx"))
    most, warp = target.get("max_threads_per_block"), target.get("thread_warp_size")
    least = float(str(warp or 1)) if store.whole_warps else 1.0
    yield Limit("threads", threads, least, float(str(most or math.inf)))
    for level in store.levels:
        starts = algebra.all_of([level.head, level.vector])
        lanes = starts.choose(level.length, 1) * store.target.bytes
        if lanes.constant is None:
            yield Limit("bytes of a vector", lanes, 1, _VECTOR_BYTES)
