"""Convolutions as a product with a matrix of patches (im2col), beside the direct ones."""

from __future__ import annotations

import math
from typing import Any

SHAPES = {
    "stem 7x7, stride 2": ((224, 224), 3, 64, 7, 2, 3),
    "3x3, stride 2": ((56, 56), 128, 128, 3, 2, 1),
    "3x3, 16 channels": ((112, 112), 16, 16, 3, 1, 1),
}
"""Extents, channels in and out, kernel, stride, padding."""


def im2col_seconds(hardware: Any, trials: int) -> list[dict[str, Any]]:
    """Seconds of the direct kernel, of writing the patches, and of the product with them."""
    from foretune import _tvm
    from foretune.graph.extract import as_workload
    from foretune.measure import LocalMeasurer
    from foretune.operators import panels
    from foretune.tuning import tune

    te = _tvm.tvm.te
    lanes = hardware.simd_bits // 32
    found = []
    with LocalMeasurer(hardware) as measurer:
        for name, (extents, inputs, outputs, kernel, stride, padding) in SHAPES.items():
            x = te.placeholder((1, *extents, inputs), "float32", "x")
            w = te.placeholder((outputs // lanes, kernel, kernel, inputs, lanes), "float32", "w")
            direct = panels.convolution(x, w, outputs, [stride] * 2, [padding] * 4, [1, 1])
            places = [(extent + 2 * padding - kernel) // stride + 1 for extent in extents]
            rows = _patches(x, places, kernel, stride, padding)
            terms = inputs * kernel**2
            a = te.placeholder((math.prod(places), terms), "float32", "a")
            b = te.placeholder((outputs // lanes, terms, lanes), "float32", "b")
            programs = {
                "direct_s": [x, w, direct],
                "patches_s": [x, rows],
                "product_s": [a, b, panels.product(a, b, outputs)],
            }
            seconds = {
                part: tune(
                    as_workload(te.create_prim_func(program), part),
                    target=hardware,
                    trials=trials,
                    measurer=measurer,
                )
                .tasks[0]
                .best_s
                for part, program in programs.items()
            }
            found.append({"name": name, **seconds, "trials": trials})
    return found


def _patches(data: Any, places: list[int], kernel: int, stride: int, padding: int) -> Any:
    from foretune import _tvm

    te, topi = _tvm.tvm.te, _tvm.tvm.topi
    inputs = int(data.shape[-1])
    padded = topi.nn.pad(data, [0, padding, padding, 0])
    return te.compute(
        (math.prod(places), inputs * kernel**2),
        lambda place, term: padded(
            0,
            place // places[1] * stride + term // (kernel * inputs),
            place % places[1] * stride + term // inputs % kernel,
            term % inputs,
        ),
        name="patches",
    )
