"""Measures what a CPU can do at most: fp32 multiply-adds and memory traffic per second.

Both kernels are compiled by TVM for the target at hand, so that the peak is one its generated code
can reach, and run in a child process whose thread pool has the right size from the start.

Peak: every thread repeats ``x = x * s + 1`` on independent vector accumulators, enough of them to
hide the latency of the multiply-add unit. Bandwidth: ``c[i] = a[i] * s + b[i]`` over arrays larger
than the last cache, counted as three transfers of four bytes an element, as STREAM counts its
triad. Rounds of both alternate, and the best call is the value: a neighbour on a shared machine
only ever takes time away. Where all threads together stay far behind as many times one of them,
some had to share a core all the while, and it is measured again.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import json
import os
import subprocess
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretune import _child
from foretune._files import cache_directory, write_json
from foretune.errors import RecordError

_MEASURE_S = 1.5
_WINDOWS = 3
_PAUSE_S = 0.3
_ALL_OF_ONE = 0.6
"""Of as many times the peak of one thread, what all together reach on a machine that is free; a
single thread runs at a higher clock."""
_PEAK_CALLS = 40
_ONE_CALLS = 4
_TRIAD_CALLS = 2
_STEPS = 200_000
_ACCUMULATORS = 12
_ARRAY_BYTES = 128 * 2**20
_DEADLINE_S = 120
_FILE = "peaks.json"
_SCHEMA = "foretune.peaks/1"
_KEPT_S = 86400.0
_STARTED = Path("/proc/sys/kernel/random/boot_id")
"""Another text after every start of a machine."""
_CHILD = f"{_child.OWN_PATHS}from foretune.hardware._peak import child; child(*sys.argv[1:])"


@dataclass(frozen=True)
class Peaks:
    """Best of many calls: 1e9 fp32 operations/s and 1e9 bytes/s of all threads together."""

    gflops: float
    bandwidth_gbs: float


@functools.lru_cache(maxsize=8)
def measure_peaks(target: str, threads: int, simd_bits: int) -> Peaks:
    """This machine's peaks for a CPU target (JSON text), measured once a day and start of it.

    They are kept in ``peaks.json`` in the user's cache directory, where there is one, unless others
    kept the cores busy all the while. Zeros, with a warning, where the child process that measures
    fails.
    """
    folder = cache_directory(os.environ)
    key = _key(target, threads, simd_bits)
    if folder is None or key is None:
        return _measured(target, threads, simd_bits)[0]
    file = folder / _FILE
    known = _read(file)
    if key in known:
        return known[key][0]
    peaks, free = _measured(target, threads, simd_bits)
    if free:
        _keep(file, {**known, key: (peaks, time.time())})
    return peaks


def _key(target: str, threads: int, simd_bits: int) -> str | None:
    """What peaks depend on, TVM and this start of this machine included; None if unknown."""
    try:
        started = _STARTED.read_text(encoding="ascii").strip()
        tvm = importlib.metadata.version("apache-tvm")
    except (OSError, ValueError, importlib.metadata.PackageNotFoundError):
        return None
    return json.dumps([started, tvm, sorted(os.sched_getaffinity(0)), target, threads, simd_bits])


def _read(file: Path) -> dict[str, tuple[Peaks, float]]:
    """Peaks that were measured within a day, with seconds since the epoch; none if unreadable."""
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
        found = {
            str(key): (Peaks(float(gflops), float(bandwidth_gbs)), float(when))
            for key, (gflops, bandwidth_gbs, when) in kept[_SCHEMA].items()
        }
    except (OSError, ValueError, TypeError, LookupError, AttributeError):
        return {}
    now = time.time()
    return {key: value for key, value in found.items() if 0 <= now - value[1] < _KEPT_S}


def _keep(file: Path, known: dict[str, tuple[Peaks, float]]) -> None:
    """Writes peaks; without a place for them they are measured again the next time."""
    rows = {key: (p.gflops, p.bandwidth_gbs, when) for key, (p, when) in known.items()}
    with contextlib.suppress(OSError, RecordError):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, {_SCHEMA: rows})


def _measured(target: str, threads: int, simd_bits: int) -> tuple[Peaks, bool]:
    """Measures in a child process; zeros, with a warning, where it fails.

    Returns:
        The peaks, and whether every core was free for them.
    """
    command = [sys.executable, "-c", _CHILD, target, str(threads), str(simd_bits)]
    try:
        done = subprocess.run(
            command,
            env=_child.environment(threads),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_DEADLINE_S,
            check=True,
        )
        gflops, bandwidth_gbs, free = json.loads(done.stdout.splitlines()[-1])
        return Peaks(float(gflops), float(bandwidth_gbs)), bool(free)
    except (OSError, subprocess.SubprocessError, ValueError, IndexError, TypeError) as error:
        detail = getattr(error, "stderr", None) or str(error)
        reason = detail.strip().splitlines()[-1] if detail.strip() else type(error).__name__
        warnings.warn(f"peak and bandwidth could not be measured: {reason}", stacklevel=2)
        return Peaks(0.0, 0.0), False


def _peak_source(threads: int, lanes: int) -> str:
    shape = f"({threads}, {_ACCUMULATORS}, {lanes})"
    return f"""
@T.prim_func
def main(s: T.Buffer((1,), "float32"), out: T.Buffer({shape}, "float32")):
    T.func_attr({{"global_symbol": "main", "tirx.noalias": True}})
    for t in T.parallel({threads}):
        acc = T.alloc_buffer(({_ACCUMULATORS}, {lanes}), "float32", scope="local")
        for i in T.unroll({_ACCUMULATORS}):
            for v in T.vectorized({lanes}):
                acc[i, v] = T.float32(0)
        for step in range({_STEPS}):
            for i in T.unroll({_ACCUMULATORS}):
                for v in T.vectorized({lanes}):
                    acc[i, v] = acc[i, v] * s[0] + T.float32(1)
        for i in T.unroll({_ACCUMULATORS}):
            for v in T.vectorized({lanes}):
                out[t, i, v] = acc[i, v]
"""


def _triad_source(threads: int, lanes: int, length: int) -> str:
    rows = length // (threads * lanes)
    shape = f'T.Buffer(({threads}, {rows}, {lanes}), "float32")'
    return f"""
@T.prim_func
def main(a: {shape}, b: {shape}, c: {shape}):
    T.func_attr({{"global_symbol": "main", "tirx.noalias": True}})
    for t in T.parallel({threads}):
        for i in range({rows}):
            for v in T.vectorized({lanes}):
                c[t, i, v] = a[t, i, v] * T.float32(3) + b[t, i, v]
"""


def _run(target_json: str, threads: int, simd_bits: int) -> tuple[Peaks, bool]:
    """Compiles and times both kernels; the child process's whole work.

    Returns:
        The peaks, and whether every core was free for them.
    """
    # TVM would import torch for nothing, which costs two seconds.
    sys.modules["torch"] = None  # type: ignore[assignment]
    import numpy as np

    from foretune import _tvm

    tvm = _tvm.tvm
    target = _tvm.Target(json.loads(target_json))
    lanes = max(simd_bits, 128) // 32
    length = _ARRAY_BYTES // 4 // (threads * lanes) * (threads * lanes)

    def compiled(source: str) -> Any:
        function = tvm.script.from_source(source)
        return tvm.compile(_tvm.IRModule({"main": function}), target).jit()

    device = tvm.cpu(0)

    def array(value: float, *shape: int) -> Any:
        return tvm.runtime.tensor(np.full(shape, value, "float32"), device)

    peak, one = compiled(_peak_source(threads, lanes)), compiled(_peak_source(1, lanes))
    peak_args = (array(0.5, 1), array(0.0, threads, _ACCUMULATORS, lanes))
    one_args = (array(0.5, 1), array(0.0, 1, _ACCUMULATORS, lanes))
    triad = compiled(_triad_source(threads, lanes, length))
    shape = (threads, length // (threads * lanes), lanes)
    triad_args = (array(1.0, *shape), array(2.0, *shape), array(0.0, *shape))
    peak["main"](*peak_args)
    peak_s = one_s = triad_s = float("inf")
    with _tvm.calling_from_a_free_core():
        for window in range(_WINDOWS):
            end = time.monotonic() + _MEASURE_S
            while time.monotonic() < end:
                # Calls are timed one by one: the shorter the reading, the likelier that every core
                # was free for the whole of it.
                timer = peak.time_evaluator("main", device, number=1, repeat=_PEAK_CALLS)
                peak_s = min(peak_s, *timer(*peak_args).results)
                timer = one.time_evaluator("main", device, number=1, repeat=_ONE_CALLS)
                one_s = min(one_s, *timer(*one_args).results)
                timer = triad.time_evaluator("main", device, number=1, repeat=_TRIAD_CALLS)
                triad_s = min(triad_s, *timer(*triad_args).results)
            free = _ALL_OF_ONE * peak_s <= one_s
            if free or window == _WINDOWS - 1:
                break
            time.sleep(_PAUSE_S)
    operations = 2.0 * threads * _ACCUMULATORS * lanes * _STEPS
    return Peaks(operations / peak_s / 1e9, 12.0 * length / triad_s / 1e9), free


def child(target_json: str, threads: str, simd_bits: str) -> None:
    """What the child process runs: measures and prints one line of JSON."""
    peaks, free = _run(target_json, int(threads), int(simd_bits))
    print(json.dumps([peaks.gflops, peaks.bandwidth_gbs, free]))
