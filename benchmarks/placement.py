"""What a timing depends on besides the program: where its buffers lie, and where its threads run.

The first part times one kernel whose output starts at various distances from its input, modulo a
page. The second part times a multiply-add and an exchange of data between threads in turns, for a
while: on a virtual machine the exchange shows the host moving the virtual processors closer
together and further apart.
"""

from __future__ import annotations

import argparse
import mmap
import time
from typing import Any

import numpy as np

from benchmarks.results import conditions, publish, say, table
from foretune import _tvm
from foretune.errors import BadInputError
from foretune.hardware import Hardware

DISTANCES = (0, 64, 128, 256, 512, 1024, 2048)
_TITLE = "Timings and placement"
_PAGE = 4096
_COLUMNS = 32768
_DEPTH = 128
_EXCHANGES = 4
_CALLS = 10
_PAUSE_S = 0.05
_EPISODE = 1.5


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


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="of the second part")
    parser.add_argument("--rounds", type=int, default=20, help="of the first part")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    where = conditions("placement", [])
    hardware = where.hardware
    if hardware.kind != "llvm" or hardware.threads < 2:
        raise BadInputError(
            f"this benchmark needs a processor with two threads or more, not {hardware.name!r} "
            f"with {hardware.threads}: run it on another machine"
        )
    shape = (hardware.threads, _COLUMNS)
    region = mmap.mmap(-1, 4 * hardware.threads * _COLUMNS * 4)
    half = len(region) // 2
    first = place(region, 0, shape)
    seconds: dict[int, list[float]] = {distance: [] for distance in DISTANCES}
    fma, swap = multiply_add(hardware), exchange(hardware)
    with _tvm.calling_from_a_free_core():
        for _ in range(options.rounds):
            for distance in DISTANCES:
                output = place(region, half + distance, shape)
                seconds[distance].append(lowest(fma, [first, output], _CALLS))
        say("distances timed")
        output = place(region, half, shape)
        series = []
        began = time.perf_counter()
        while time.perf_counter() - began < options.seconds:
            at = time.perf_counter() - began
            pair = [lowest(program, [first, output], _CALLS) for program in (fma, swap)]
            series.append((at, *pair))
            time.sleep(_PAUSE_S)
    result = {"distances": {str(key): value for key, value in seconds.items()}, "series": series}
    publish("placement", _TITLE, _body(result), result, where.end(), options.write)


def _body(result: dict[str, Any]) -> str:
    distances = {int(key): np.array(value) for key, value in result["distances"].items()}
    rows = []
    for distance, readings in distances.items():
        ratios = readings / distances[0]
        low, median, high = np.percentile(ratios, [5, 50, 95])
        rows.append([str(distance), f"{np.median(readings) * 1e6:.0f}", f"{median:.2f}",
                     f"{low:.2f} to {high:.2f}"])  # fmt: skip
    header = ["bytes between output and input, modulo a page", "us", "ratio to 0", "5 % to 95 %"]
    series = np.array(result["series"])
    rows_of_series = []
    for name, column in (("multiply-add", 1), ("exchange between threads", 2)):
        ratios = series[:, column] / np.percentile(series[:, column], 5)
        marks = np.percentile(ratios, [25, 50, 75, 95])
        rows_of_series.append([name, *(f"{mark:.2f}" for mark in marks)])
    far = series[:, 2] > _EPISODE * np.percentile(series[:, 2], 5)
    switches = int(np.count_nonzero(far[1:] != far[:-1]))
    return (
        table(header, rows)
        + "\n\nOne kernel, its output at another place of the page; in turns, each reading the "
        f"lowest of {_CALLS} calls.\n\n"
        + table(["over its 5th percentile, at percentile", "25", "50", "75", "95"], rows_of_series)
        + f"\n\n{len(series)} pairs of readings over {series[-1, 0]:.0f} s; the exchange took more "
        f"than {_EPISODE} times its 5th percentile in {far.mean():.0%} of them, and changed sides "
        f"{switches} times."
    )


if __name__ == "__main__":
    main()
