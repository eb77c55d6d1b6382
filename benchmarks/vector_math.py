"""``python -m benchmarks.vector_math``: functions as polynomials beside the C library.

Each function of numbers that are like a network's, and of numbers thirty times as large, where
libraries take other ways. Vectors of the machine's width, one thread; the sides take turns. Errors
are in units in the last place of float32, beside float64.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.results import conditions, publish, say, table

_TITLE = "Vector mathematics"
_ROWS, _COLUMNS = 4096, 64
_SEED = 0
_WIDER = 30

Array = npt.NDArray[Any]
_Of = Callable[[Array], Array]


def _functions() -> dict[
    str, tuple[Callable[..., Any], Callable[[Array], Array], Callable[[Array], Array]]
]:
    """Name to what is compiled, the right values, and what is done to normal numbers first."""
    from scipy import special

    from foretune import _tvm

    tirx = _tvm.tvm.tirx

    def number(value: float) -> Any:
        return tirx.const(value, "float32")

    def same(x: Array) -> Array:
        return x

    def gelu(x: Any) -> Any:
        return x * number(0.5) * (number(1) + tirx.erf(x * number(math.sqrt(0.5))))

    scale, cube = (float(np.float32(v)) for v in (math.sqrt(2 / math.pi), 0.044715))

    def gelu_tanh(x: Any) -> Any:
        inner = number(scale) * (x + number(cube) * tirx.pow(x, number(3)))
        return number(0.5) * x * (number(1) + tirx.tanh(inner))

    return {
        "exp": (tirx.exp, np.exp, same),
        "log": (tirx.log, np.log, np.abs),
        "log1p": (tirx.log1p, np.log1p, np.abs),
        "tanh": (tirx.tanh, np.tanh, same),
        "sigmoid": (tirx.sigmoid, special.expit, same),
        "erf": (tirx.erf, special.erf, same),
        "sin": (tirx.sin, np.sin, same),
        "cos": (tirx.cos, np.cos, same),
        "power 3": (lambda x: tirx.pow(x, number(3)), lambda x: x**3, same),
        "power 1.7": (
            lambda x: tirx.pow(x, number(1.7)),
            lambda x: np.power(x, float(np.float32(1.7))),
            np.abs,
        ),
        "silu": (lambda x: x * tirx.sigmoid(x), lambda x: x * special.expit(x), same),
        "gelu (erf)": (gelu, lambda x: x * special.ndtr(x), same),
        "gelu (tanh)": (
            gelu_tanh,
            lambda x: x * special.expit(2 * scale * (x + cube * x**3)),
            same,
        ),
    }


def _compiled(element: Callable[..., Any], hardware: Any, ours: bool) -> Any:
    from foretune import _tvm, codegen

    tvm = _tvm.tvm
    x = tvm.te.placeholder((_ROWS, _COLUMNS), "float32", name="x")
    y = tvm.te.compute((_ROWS, _COLUMNS), lambda *at: element(x[at]), name="y")
    schedule = tvm.s_tir.Schedule(tvm.te.create_prim_func([x, y]))
    _, column = schedule.get_loops(schedule.get_sblock("y"))
    schedule.vectorize(schedule.split(column, [None, hardware.simd_bits // 32])[1])
    without = [] if ours else ["vector-math"]
    module = codegen.finish(schedule.mod, hardware, without).module
    return tvm.compile(module, hardware.code_target()).jit()["main"]


def _units(actual: Array, exact: Array) -> float:
    with np.errstate(over="ignore"):
        units = np.spacing(np.abs(exact.astype("float32"))).astype("float64")
    return float((np.abs(actual.astype("float64") - exact) / units).max())


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.vector_math", description=__doc__)
    parser.add_argument("--rounds", type=int, default=30, metavar="N")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    from foretune import _tvm
    from foretune.hardware import probe

    where, hardware = conditions("vector_math", [_SEED]), probe(threads=1)
    tensor = _tvm.tvm.runtime.tensor
    normal = np.random.default_rng(_SEED).standard_normal((_ROWS, _COLUMNS)).astype("float32")
    rows, data = [], []
    for name, (element, exact, change) in _functions().items():
        given = change(normal)
        right = exact(given.astype("float64"))
        sides = {side: _compiled(element, hardware, side == "ours") for side in ("ours", "libm")}
        buffers = {
            key: [tensor(numbers), tensor(np.zeros_like(given))]
            for side in sides
            for key, numbers in ((side, given), (f"{side}, wide", given * np.float32(_WIDER)))
        }
        readings: dict[str, list[float]] = {key: [] for key in buffers}
        for _ in range(options.rounds):
            for key, arrays in buffers.items():
                function = sides[key.partition(",")[0]]
                began = time.perf_counter()
                function(*arrays)
                readings[key].append((time.perf_counter() - began) / given.size * 1e9)
        ours, libm = (np.array(readings[side]) for side in ("ours", "libm"))
        ratios = np.quantile(libm / ours, [0.5, 0.1, 0.9])
        wider = [
            np.median(np.array(readings[f"{side}, wide"]) / np.array(readings[side]))
            for side in sides
        ]
        errors = {side: _units(buffers[side][1].numpy(), right) for side in sides}
        rows.append(
            [
                name,
                f"{np.median(ours):.2f}",
                f"{np.median(libm):.2f}",
                f"{ratios[0]:.1f} [{ratios[1]:.1f}, {ratios[2]:.1f}]",
                f"{errors['ours']:.1f}",
                f"{errors['libm']:.1f}",
                *(f"{ratio:.2f}" for ratio in wider),
            ]
        )
        data.append({"function": name, "readings_ns": readings, "units": errors})
        say(" ".join(rows[-1]))
    header = ["function", "polynomial, ns", "C library, ns", "faster", "error", "its error",
              "of large numbers", "its"]  # fmt: skip
    body = "\n".join(
        [
            "Nanoseconds of one number, one thread, numbers of the standard normal distribution "
            "(without sign for `log` and `power 1.7`), vectors of "
            f"{hardware.simd_bits} bits. Median of {options.rounds} rounds in turn; ratios with "
            "their 10th and 90th percentile. Errors are the largest, in units in the last place: "
            "those of GELU are where its sum cancels. Of large numbers: the time with numbers "
            f"{_WIDER} times as large, among them those whose results are denormal, over the time "
            "with these.",
            "",
            table(header, rows),
        ]
    )
    publish("vector_math", _TITLE, body, {"functions": data}, where.end(), options.write)


if __name__ == "__main__":
    main()
