"""``python -m benchmarks.panels``: constant weights in panels beside plain ones.

Each case is one layer of a well-known network, taken through foretune's passes once as they are,
once without panels and, where it has one or three spatial axes, also without another layout. Each
side is tuned with the same number of trials. Then the kernels are called in turn: with one set of
weights (warm), and with so many sets in turn that the last cache holds none of them (cold), as in a
network, which reads each of its weights once in a call.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.results import conditions, publish, read_json, say, table
from foretune.bench import write_json
from foretune.hardware import Hardware

_TITLE = "Weights in panels"
_SEED = 0
_CACHES = 3
"""Sets of weights in turn hold so many times what the last cache does."""
_CACHE = 32 << 20
"""Bytes of a last cache of unknown size."""
_ROUNDS, _ROUNDS_S = 200, 3.0
_DIRECT = ("algorithms",)
"""Passes that are switched off: a convolution has to stay one kernel."""
_STATES = ("warm", "cold")
_PLAIN, _PANELS, _FIRST = "plain", "panels", "channels first"


@dataclass(frozen=True)
class Case:
    """One layer.

    Attributes:
        name: The network, and which.
        layer: Its name in ``torch.nn``.
        data: Shape of its input.
        arguments: What the layer is made of.
        options: The same by name.
    """

    name: str
    layer: str
    data: tuple[int, ...]
    arguments: tuple[int, ...]
    options: tuple[tuple[str, int], ...] = ()

    @property
    def sides(self) -> tuple[str, ...]:
        """What is compared."""
        moved = self.layer in ("Conv1d", "Conv3d")
        return (_PANELS, _PLAIN, *((_FIRST,) if moved else ()))


_PADDED = (("padding", 1),)
_DOUBLED = (("stride", 2), ("padding", 1))
CASES = (
    Case("GPT-2, head, one token", "Linear", (1, 768), (768, 50257)),
    Case("BERT, a tenth of the head", "Linear", (128, 768), (768, 3053)),
    Case("BERT, 768 to 3072", "Linear", (128, 768), (768, 3072)),
    Case("ResNet-50, classifier", "Linear", (1, 2048), (2048, 1000)),
    Case("YOLO, head", "Conv2d", (1, 512, 26, 26), (512, 255, 1)),
    Case("FCN, head", "Conv2d", (1, 512, 28, 28), (512, 21, 1)),
    Case("ResNet, 56x56x64", "Conv2d", (1, 64, 56, 56), (64, 64, 3), _PADDED),
    Case("ResNet, 14x14x256", "Conv2d", (1, 256, 14, 14), (256, 256, 3), _PADDED),
    Case("ResNet, 7x7x512", "Conv2d", (1, 512, 7, 7), (512, 512, 3), _PADDED),
    Case("wav2vec 2.0, 799 places", "Conv1d", (1, 512, 1599), (512, 512, 3), (("stride", 2),)),
    Case("R3D-18, 2x7x7x512", "Conv3d", (1, 512, 2, 7, 7), (512, 512, 3), _PADDED),
    Case("DCGAN, to 16x16x256", "ConvTranspose2d", (1, 512, 8, 8), (512, 256, 4), _DOUBLED),
    Case("DETR, boxes", "Linear", (100, 256), (256, 4)),
    Case("DCGAN, to 64x64x3", "ConvTranspose2d", (1, 64, 32, 32), (64, 3, 4), _DOUBLED),
)


class Kernel:
    """The tuned kernel of a side, with sets of buffers.

    Args:
        case: The layer.
        side: How its weights lie.
        hardware: What it is tuned for.
        trials: Candidates, at most.
        seconds: Of tuning, at most.
    """

    def __init__(
        self, case: Case, side: str, hardware: Hardware, trials: int, seconds: float
    ) -> None:
        from foretune import _tvm, codegen, tune

        workload = _workload(case, side, hardware)
        tuned = tune(workload, target=hardware, trials=trials, time_s=seconds, seed=_SEED)
        (task,) = tuned.tasks
        if tuned.interrupted:
            raise KeyboardInterrupt
        if task.best is None:
            raise RuntimeError(f"{case.name}, {side}: no candidate could be measured")
        self.trials = len(task.trials)
        module = codegen.finish(task.best.apply(), hardware).module
        self._program = _tvm.tvm.compile(module, hardware.code_target()).jit()["main"]
        self._sets = _buffers(workload.module["main"].params, hardware)
        self._next = 0

    def warm(self) -> float:
        """Seconds of a call with the weights of the call before it, which is not timed."""
        self._program(*self._sets[0])
        return self._timed(0)

    def cold(self) -> float:
        """Seconds of a call with the weights that were used longest ago."""
        self._next = (self._next + 1) % len(self._sets)
        return self._timed(self._next)

    def _timed(self, which: int) -> float:
        began = time.perf_counter()
        self._program(*self._sets[which])
        return time.perf_counter() - began


def _workload(case: Case, side: str, hardware: Hardware) -> Any:
    """The heaviest workload of a layer."""
    import torch

    from foretune.graph import extract
    from foretune.workload import from_object

    torch.manual_seed(_SEED)
    options = {"bias": False, **dict(case.options)}
    module = getattr(torch.nn, case.layer)(*case.arguments, **options).eval()
    model = from_object((module, (torch.randn(case.data),)), case.name, case.name)
    if side == _FIRST:
        return extract(model, hardware, [*_DIRECT, "layouts", "packed-weights"]).workloads[0]
    # Nothing is packed for vectors of no known width, by whatever pass.
    seen = replace(hardware, simd_bits=0) if side == _PLAIN else hardware
    return extract(model, seen, _DIRECT).workloads[0]


def _buffers(parameters: Any, hardware: Hardware) -> list[list[Any]]:
    """Arguments of a kernel in large pages; its second ones, the weights, are many."""
    from foretune import _tvm
    from foretune.graph._memory import together

    shapes = [tuple(int(extent) for extent in p.shape) for p in parameters]
    if len(shapes) != 3:
        raise RuntimeError(f"a layer must have one kernel of three buffers, but has {shapes}")
    sets = -(-_CACHES * (hardware.l3_bytes or _CACHE) // (4 * math.prod(shapes[1])))
    names = ["data", "result", *(f"weight {at}" for at in range(max(2, sets)))]
    rng = np.random.default_rng(_SEED)
    of_name = {"data": shapes[0], "result": shapes[2]}
    made = together(
        {
            name: _tvm.tvm.runtime.tensor(
                rng.standard_normal(of_name.get(name, shapes[1]), "float32")
            )
            for name in names
        }
    )
    return [[made["data"], made[name], made["result"]] for name in names[2:]]


def measure(case: Case, hardware: Hardware, trials: int, seconds: float) -> dict[str, Any]:
    """Readings of all sides of a case in turn, as a JSON object."""
    kernels = {side: Kernel(case, side, hardware, trials, seconds) for side in case.sides}
    readings: dict[str, dict[str, list[float]]] = {}
    for state in _STATES:
        calls: dict[str, Callable[[], float]] = {
            side: getattr(kernel, state) for side, kernel in kernels.items()
        }
        found: dict[str, list[float]] = {side: [] for side in calls}
        began = time.perf_counter()
        for at in range(_ROUNDS):
            if at > 10 and time.perf_counter() - began > _ROUNDS_S:
                break
            for side, call in calls.items():
                found[side].append(call())
        readings[state] = found
    counts = {side: kernel.trials for side, kernel in kernels.items()}
    return {"case": case.name, "trials": counts, "readings_s": readings}


def _row(result: dict[str, Any]) -> list[str]:
    cells = [result["case"]]
    for state in _STATES:
        of = {side: np.array(found) for side, found in result["readings_s"][state].items()}
        cells.append(f"{np.median(of[_PANELS]) * 1e3:.3f}")
        for side in (_PLAIN, _FIRST):
            if side not in of:
                cells.append("")
                continue
            middle, low, high = np.quantile(of[side] / of[_PANELS], [0.5, 0.1, 0.9])
            cells.append(f"{middle:.2f} [{low:.2f}, {high:.2f}]")
    return cells


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.panels", description=__doc__)
    parser.add_argument("--trials", type=int, default=64, metavar="N")
    parser.add_argument("--seconds", type=float, default=45.0, help="of tuning of each side")
    parser.add_argument(
        "--runs", type=Path, metavar="DIR", help="where cases are kept that need no second run"
    )
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)

    where = conditions("panels", [_SEED])
    os.environ["TVM_NUM_THREADS"] = str(where.hardware.threads)
    results = []
    for case in CASES:
        kept = options.runs / f"{case.name}.json" if options.runs else None
        if kept is not None and kept.exists():
            results.append(read_json(kept))
            continue
        results.append(measure(case, where.hardware, options.trials, options.seconds))
        if kept is not None:
            kept.parent.mkdir(parents=True, exist_ok=True)
            write_json(kept, results[-1])
        say(" | ".join(_row(results[-1])))
    header = ["layer"]
    for state in _STATES:
        header += [f"{state}, ms", "plain", "channels first"]
    body = "\n".join(
        [
            "Milliseconds of a kernel with its weights in panels, and how many times as long the "
            "others take in the same round: medians, ratios with their 10th and 90th percentile. "
            f"At most {options.trials} trials and {options.seconds:.0f} s of tuning a side, "
            f"seed {_SEED}. Warm: the same weights again. Cold: sets of weights in turn that hold "
            f"{_CACHES} times what the last cache does. Panels have up to "
            f"{where.hardware.simd_bits // 32} columns.",
            "",
            table(header, [_row(result) for result in results]),
        ]
    )
    publish("panels", _TITLE, body, {"cases": results}, where.end(), options.write)


if __name__ == "__main__":
    main()
