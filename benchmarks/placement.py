"""What a timing depends on besides the program: where its buffers lie, and where its threads run.

Three parts. *Distances* times one kernel whose output starts at various distances from its input,
modulo a page. *Threads* times a multiply-add and an exchange of data between threads in turns, for
a while: on a virtual machine the exchange shows the host moving the virtual processors closer
together and further apart. *Processes* compiles random candidates in several processes, once with
memory laid out as in foretune's measurement processes and once as it comes, and reads them in
turns: what differs between processes then is not the program.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import mmap
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.results import ROOT, conditions, publish, say, table
from foretune import _child, _tvm
from foretune.errors import BadInputError, ForetuneError
from foretune.hardware import Hardware
from foretune.measure import MeasurePolicy
from foretune.measure._layout import (
    fixed_addresses,
    give_back_freed_memory,
    give_large_allocations_own_pages,
    host_tensor,
)
from foretune.measure._turns import InTurn
from foretune.measure._worker import build
from foretune.measure.gate import Signature, make_inputs
from foretune.measure.timing import Stopwatch, entry
from foretune.space import Candidate, Space
from foretune.workload import Workload, load_input

DISTANCES = (0, 64, 128, 256, 512, 1024, 2048)
WORKLOADS = ("matmul_512", "conv2d_3x3", "depthwise_3x3", "softmax")
LAID_OUT, AS_IT_COMES = "laid out alike", "as it comes"
LAYOUTS = (AS_IT_COMES, LAID_OUT)
_TITLE = "Timings and placement"
_SEED = 0
_COLUMNS = 32768
_DEPTH = 128
_EXCHANGES = 4
_CALLS = 10
_PAUSE_S = 0.05
_EPISODE = 1.5
_DIFFERS = 1.1
# Until the threads of the process that was read before have stopped spinning.
_SETTLE_S = 0.005


def _kernel(outputs: list[Any], inputs: list[Any], hardware: Hardware) -> Any:
    """Compiles element-wise stages and reductions over ``k``: rows in parallel, 16 lanes."""
    function = _tvm.tvm.te.create_prim_func([*inputs, outputs[-1]])
    schedule = _tvm.Schedule(_tvm.IRModule({"main": function.with_attr("global_symbol", "main")}))
    for stage in outputs:
        block = schedule.get_sblock(stage.op.name)
        row, column, *reduced = schedule.get_loops(block)
        schedule.reorder(row, *reduced, column)
        _, lanes = schedule.split(column, [None, 16])
        schedule.vectorize(lanes)
        schedule.parallel(row)
        for axis in reduced:
            schedule.decompose_reduction(block, axis)
    return _tvm.tvm.compile(schedule.mod, hardware.tvm_target()).jit()["main"]


def multiply_add(hardware: Hardware) -> Any:
    """``c[i, j] = sum_k a[i, j] * 0.5``: a row per thread, arrays of 128 KiB a row."""
    te = _tvm.tvm.te
    a = te.placeholder((hardware.threads, _COLUMNS), name="a")
    k = te.reduce_axis((0, _DEPTH), name="k")
    c = te.compute(a.shape, lambda i, j: te.sum(a[i, j] * 0.5, axis=k), name="c")
    return _kernel([c], [a], hardware)


def exchange(hardware: Hardware) -> Any:
    """Each thread reads what its neighbour wrote in the stage before."""
    te = _tvm.tvm.te
    a = te.placeholder((hardware.threads, _COLUMNS), name="a")
    stages: list[Any] = []
    for number in range(_EXCHANGES):

        def of_the_neighbour(i: Any, j: Any) -> Any:
            source = stages[-1] if stages else a
            return source[te.indexmod(i + 1, hardware.threads), j] * 0.5

        stages.append(te.compute(a.shape, of_the_neighbour, name=f"stage_{number}"))
    return _kernel(stages, [a], hardware)


def place(region: Any, offset: int, shape: tuple[int, int]) -> Any:
    """A tensor of ones at a byte offset of a page-aligned region."""
    size = int(np.prod(shape)) * 4
    array = np.frombuffer(region, np.uint8)[offset : offset + size].view(np.float32).reshape(shape)
    array[:] = 1.0
    return _tvm.tvm.runtime.from_dlpack(array)


def lowest(program: Any, tensors: list[Any], calls: int) -> float:
    """Seconds of the fastest of several calls."""
    readings = []
    for _ in range(calls):
        began = time.perf_counter()
        program(*tensors)
        readings.append(time.perf_counter() - began)
    return min(readings)


def time_distances(hardware: Hardware, rounds: int) -> dict[str, list[float]]:
    """Bytes between output and input, modulo a page, to seconds of the multiply-add per round."""
    shape = (hardware.threads, _COLUMNS)
    region = _pages(hardware)
    half = len(region) // 2
    first, program = place(region, 0, shape), multiply_add(hardware)
    seconds: dict[str, list[float]] = {str(distance): [] for distance in DISTANCES}
    with _tvm.calling_from_a_free_core():
        for _ in range(rounds):
            for distance in DISTANCES:
                output = place(region, half + distance, shape)
                seconds[str(distance)].append(lowest(program, [first, output], _CALLS))
    return seconds


def time_threads(hardware: Hardware, seconds: float) -> list[tuple[float, float, float]]:
    """Seconds since the start, of the multiply-add and of the exchange, again and again."""
    shape = (hardware.threads, _COLUMNS)
    region = _pages(hardware)
    tensors = [place(region, 0, shape), place(region, len(region) // 2, shape)]
    programs = (multiply_add(hardware), exchange(hardware))
    series = []
    began = time.perf_counter()
    with _tvm.calling_from_a_free_core():
        while time.perf_counter() - began < seconds:
            at = time.perf_counter() - began
            fma_s, exchange_s = (lowest(program, tensors, _CALLS) for program in programs)
            series.append((at, fma_s, exchange_s))
            time.sleep(_PAUSE_S)
    return series


def _pages(hardware: Hardware) -> mmap.mmap:
    """Private, as memory from an allocator is."""
    size = 4 * hardware.threads * _COLUMNS * 4
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def sample(names: Sequence[str], hardware: Hardware, count: int) -> list[Candidate]:
    """``count`` random candidates of each workload, always the same ones."""
    found: list[Candidate] = []
    for name in names:
        workload = load_input(name)
        assert isinstance(workload, Workload), f"{name} is a model: name a single tensor program"
        space = Space.generate(workload, hardware)
        found += space.sample(np.random.default_rng(_SEED), count)
    return found


def time_processes(
    candidates: Sequence[Candidate], processes: int, rounds: int
) -> dict[str, list[list[float]]]:
    """Layout to the lowest reading of each candidate in each of its processes, in seconds.

    Candidates that do not compile are left out.
    """
    threads = candidates[0].hardware.threads
    with contextlib.ExitStack() as stack:
        path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "candidates"
        path.write_bytes(pickle.dumps(list(candidates)))
        children = {
            layout: [stack.enter_context(_process(layout, threads, path)) for _ in range(processes)]
            for layout in LAYOUTS
        }
        built = [_answer(process) for group in children.values() for process in group]
        everywhere = [all(found) for found in zip(*built, strict=True)]
        numbers = [number for number, compiled in enumerate(everywhere) if compiled]
        say(f"{len(numbers)} of {len(candidates)} candidates compiled in {len(built)} processes")
        best = {layout: np.full((len(candidates), processes), np.inf) for layout in LAYOUTS}
        for _ in range(rounds):
            for number in numbers:
                for which in range(processes):
                    for layout in LAYOUTS:
                        seconds = _ask(children[layout][which], number)
                        best[layout][number, which] = min(best[layout][number, which], seconds)
    return {layout: best[layout][numbers].tolist() for layout in LAYOUTS}


@contextlib.contextmanager
def _process(layout: str, threads: int, path: Path) -> Iterator[subprocess.Popen[str]]:
    alike = layout == LAID_OUT
    with fixed_addresses() if alike else contextlib.nullcontext():
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.placement", "child", layout, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=_child.environment(
                threads,
                PYTHONHASHSEED="0" if alike else "random",
                # Threads that poll after their last kernel would slow the next process.
                TVM_THREAD_POOL_SPIN_COUNT="2000",
            ),
            start_new_session=True,
        )
    try:
        yield process
    finally:
        _child.kill_group(process)
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def _ask(process: subprocess.Popen[str], number: int) -> float:
    assert process.stdin is not None
    time.sleep(_SETTLE_S)
    with contextlib.suppress(BrokenPipeError):  # the answer says so, too
        process.stdin.write(f"{number}\n")
        process.stdin.flush()
    return float(_answer(process))


def _answer(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise ForetuneError("a process of this benchmark ended early: its last words are above")
    return json.loads(line)


def child(layout: str, path: str) -> None:
    """Compiles the candidates of a file, then reads the one whose number comes in, line by line."""
    # Whatever compiling prints must not look like an answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if layout == LAID_OUT:
        give_large_allocations_own_pages()
    candidates: list[Candidate] = pickle.loads(Path(path).read_bytes())
    watch = Stopwatch(candidates[0].hardware, MeasurePolicy())
    watch.canary()  # starts the threads, which then are bound to their cores
    programs = [_built(candidate) for candidate in candidates]
    tensors: dict[str, list[Any]] = {}
    print(json.dumps([program is not None for program in programs]), file=answers, flush=True)
    for line in sys.stdin:
        number = int(line)
        workload = candidates[number].workload
        if workload.key not in tensors:
            inputs = make_inputs(Signature.of(workload), workload.key)
            tensor = host_tensor if layout == LAID_OUT else _tvm.tvm.runtime.tensor
            tensors[workload.key] = [tensor(array) for array in inputs]
        if layout == LAID_OUT:
            give_back_freed_memory()
        seconds = _read(watch, programs[number], tensors[workload.key])
        print(json.dumps(seconds), file=answers, flush=True)


def _built(candidate: Candidate) -> Any:
    try:
        return build(candidate)
    except Exception as error:  # foreign code: what it cannot compile is left out
        print(f"{candidate.key} does not compile: {error}", file=sys.stderr)
        return None


def _read(watch: Stopwatch, program: Any, tensors: list[Any]) -> float:
    with _tvm.calling_from_a_free_core():
        first = watch.call(entry(program), tensors)
        (reading,) = watch.readings(
            program, InTurn([[tensor] for tensor in tensors]), first, count=1
        )
    return reading.seconds


def require_threads(hardware: Hardware) -> None:
    """Raises BadInputError where kernels of this process would get fewer threads than they need."""
    if not hardware.has_cores or hardware.threads < 2:
        raise BadInputError(
            f"this benchmark needs a processor with two threads or more, not {hardware.name!r} "
            f"with {hardware.threads}: run it on another machine"
        )
    threads = _tvm.tvm.runtime.num_threads()
    if threads < hardware.threads:
        raise BadInputError(
            f"this benchmark needs {hardware.threads} threads in TVM's pool, but it has {threads}: "
            "run it in a process of its own, in which no kernel has run"
        )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="of distances")
    parser.add_argument("--seconds", type=float, default=60.0, help="of threads")
    parser.add_argument("--workloads", default=",".join(WORKLOADS), help="of processes")
    parser.add_argument("--candidates", type=int, default=5, help="of each workload")
    parser.add_argument("--processes", type=int, default=5, help="of each layout")
    parser.add_argument("--readings", type=int, default=5, help="of a candidate in each process")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    where = conditions("placement", [_SEED])
    hardware = where.hardware
    # TVM's default is half of the cores; the pool reads this when it starts.
    os.environ["TVM_NUM_THREADS"] = str(hardware.threads)
    require_threads(hardware)
    distances = time_distances(hardware, options.rounds)
    say("distances timed")
    series = time_threads(hardware, options.seconds)
    say("threads timed")
    candidates = sample(options.workloads.split(","), hardware, options.candidates)
    processes = time_processes(candidates, options.processes, options.readings)
    result = {"distances": distances, "series": series, "processes": processes}
    publish("placement", _TITLE, _body(result), result, where.end(), options.write)


def _body(result: dict[str, Any]) -> str:
    parts = (
        _distances_body(result["distances"]),
        _threads_body(np.array(result["series"])),
        _processes_body(result["processes"]),
    )
    return "\n\n".join(parts)


def _distances_body(seconds: dict[str, list[float]]) -> str:
    rows = []
    for distance, readings in seconds.items():
        ratios = np.array(readings) / np.array(seconds["0"])
        low, median, high = np.percentile(ratios, [5, 50, 95])
        rows.append([distance, f"{np.median(readings) * 1e6:.0f}", f"{median:.2f}",
                     f"{low:.2f} to {high:.2f}"])  # fmt: skip
    header = ["bytes between output and input, modulo a page", "us", "ratio to 0", "5 % to 95 %"]
    return (
        f"{table(header, rows)}\n\nOne kernel, its output at another place of the page; in turns, "
        f"each reading the lowest of {_CALLS} calls."
    )


def _threads_body(series: Any) -> str:
    rows = []
    for name, column in (("multiply-add", 1), ("exchange between threads", 2)):
        ratios = series[:, column] / np.percentile(series[:, column], 5)
        rows.append([name, *(f"{mark:.2f}" for mark in np.percentile(ratios, [25, 50, 75, 95]))])
    far = series[:, 2] > _EPISODE * np.percentile(series[:, 2], 5)
    switches = int(np.count_nonzero(far[1:] != far[:-1]))
    return (
        table(["over its 5th percentile, at percentile", "25", "50", "75", "95"], rows)
        + f"\n\n{len(series)} pairs of readings over {series[-1, 0]:.0f} s; the exchange took more "
        f"than {_EPISODE} times its 5th percentile in {far.mean():.0%} of them, and changed sides "
        f"{switches} times."
    )


def _processes_body(processes: dict[str, list[list[float]]]) -> str:
    rows = []
    for layout, seconds in processes.items():
        readings = np.array(seconds)
        ratios = readings.max(axis=1) / readings.min(axis=1)
        differ = int(np.count_nonzero(ratios > _DIFFERS))
        rows.append([layout, str(len(ratios)), str(differ), f"{np.median(ratios):.2f}",
                     f"{ratios.max():.2f}"])  # fmt: skip
    header = ["memory", "candidates", "differ by more than 10 %", "median ratio", "largest ratio"]
    count = len(next(iter(processes.values()))[0])
    return (
        f"{table(header, rows)}\n\nThe same candidates compiled in {count} processes of each kind "
        "and read in turns; ratios are between the slowest and the fastest process, by the lowest "
        "reading in each."
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        child(*sys.argv[2:])
    else:
        main()
