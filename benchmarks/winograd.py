"""``python -m benchmarks.winograd``: algorithms of convolutions as deployed, with their errors.

A network of equal layers (3 x 3, bias, ReLU) with weights of their own, so that weights come from
memory as in a network; each algorithm's kernels are tuned with the same number of trials, the
networks take turns. Errors are those of one layer, beside float64. A shape whose result is in
``--runs`` already is not measured again.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks._convolutions import im2col_seconds
from benchmarks.results import conditions, publish, read_json, say, table
from foretune.bench import write_json
from foretune.errors import BadInputError

_TITLE = "Algorithms of convolutions"
_SEED = 0
SHAPES: dict[str, tuple[tuple[int, ...], int]] = {
    "ResNet 56": ((56, 56), 64),
    "ResNet 28": ((28, 28), 128),
    "ResNet 14": ((14, 14), 256),
    "ResNet 7": ((7, 7), 512),
    "VGG 224": ((224, 224), 64),
    "R3D 16x56": ((16, 56, 56), 64),
    "SSD 38": ((38, 38), 512),
    "U-Net 128": ((128, 128), 16),
}
"""Extents and channels, as many in as out."""

_WEIGHTS_BYTES = 48 << 20
_MOST_LAYERS = 24

Array = npt.NDArray[Any]


def _weights(extents: Sequence[int], channels: int, layers: int) -> list[tuple[Array, Array]]:
    rng = np.random.default_rng(_SEED)
    shape = (*(3 for _ in extents), channels, channels)
    scale = math.sqrt(2 / math.prod(shape[:-1]))
    return [
        (
            (rng.standard_normal(shape) * scale).astype("float32"),
            rng.standard_normal(channels).astype("float32") * np.float32(0.1),
        )
        for _ in range(layers)
    ]


def network(extents: Sequence[int], channels: int, layers: int) -> Any:
    """A model of equal layers, channels last, that takes standard normal numbers."""
    from foretune import _tvm
    from foretune.workload import Model, TensorSpec

    relax = _tvm.tvm.relax
    letters = "DHW"[-len(extents) :]
    convolution = getattr(relax.op.nn, f"conv{len(extents)}d")
    spec = TensorSpec("x", (1, *extents, channels), "float32")
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(spec.shape, spec.dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            y: Any = x
            for weight, bias in _weights(extents, channels, layers):
                y = builder.emit(
                    convolution(
                        y,
                        relax.const(weight),
                        padding=[1] * 2 * len(extents),
                        data_layout=f"N{letters}C",
                        kernel_layout=f"{letters}IO",
                    )
                )
                y = builder.emit(relax.op.nn.relu(builder.emit(relax.op.add(y, relax.const(bias)))))
            result = builder.emit_output(y)
        builder.emit_func_output(result)
    example = np.random.default_rng(_SEED + 1).standard_normal(spec.shape).astype("float32")
    return Model("layers", builder.get(), (spec,), (TensorSpec("y", *_of(spec)),), (example,))


def _of(spec: Any) -> tuple[tuple[int, ...], str]:
    return spec.shape, spec.dtype


def exact(data: Array, extents: Sequence[int], channels: int) -> Array:
    """The first layer in float64."""
    import torch

    ((weight, bias),) = _weights(extents, channels, 1)
    functional = torch.nn.functional
    convolution = functional.conv2d if len(extents) == 2 else functional.conv3d
    x = torch.from_numpy(np.moveaxis(data.astype("float64"), -1, 1).copy())
    kernel = torch.from_numpy(np.moveaxis(weight.astype("float64"), (-1, -2), (0, 1)).copy())
    found = convolution(x, kernel, torch.from_numpy(bias.astype("float64")), padding=1).relu()
    return np.moveaxis(found.numpy(), 1, -1)


def measure(name: str, hardware: Any, trials: int, rounds: int, folder: Path) -> dict[str, Any]:
    """Tunes, times and judges all algorithms of one shape; artifacts go to ``folder``."""
    from foretune.graph import Artifact, compile_model, extract
    from foretune.measure import LocalMeasurer
    from foretune.tuning import tune

    extents, channels = SHAPES[name]
    own = 4 * channels**2 * 3 ** len(extents)
    layers = max(2, min(_MOST_LAYERS, math.ceil(_WEIGHTS_BYTES / own)))
    model, single = network(extents, channels, layers), network(extents, channels, 1)
    right = exact(single.examples[0], extents, channels)
    artifacts, found = {}, {}
    with LocalMeasurer(hardware) as measurer:
        for algorithm in ("direct", "winograd2", "winograd4"):
            plan = dict.fromkeys(extract(single, hardware).plan["algorithms"], algorithm)
            try:
                extraction = extract(single, hardware, plan={"algorithms": plan})
            except BadInputError:
                continue  # its error is too large for so many channels
            (workload,) = extraction.workloads
            result = tune(
                workload, target=hardware, trials=trials, seed=_SEED, measurer=measurer
            ).tasks[0]
            assert result.best is not None
            best = {workload.key: result.best}
            one = compile_model(single, hardware, best, extraction).run(single.examples)[0]
            deep = dict.fromkeys(extract(model, hardware).plan["algorithms"], algorithm)
            whole = extract(model, hardware, plan={"algorithms": deep})
            built = compile_model(model, hardware, best, whole)
            artifacts[algorithm] = Artifact.load(built.save(folder / f"{algorithm}.so"))
            found[algorithm] = {
                "kernel_s": result.best_s,
                "kernel_flops": workload.flops,
                "error": float(np.abs(one - right).max() / np.abs(right).max()),
            }
            say(f"{name} {algorithm}: {found[algorithm]}")
    readings: dict[str, list[float]] = {algorithm: [] for algorithm in artifacts}
    for _ in range(rounds):
        for algorithm, artifact in artifacts.items():
            readings[algorithm] += [s / layers for s in artifact.time(model.examples, 1)]
    for algorithm, each in readings.items():
        found[algorithm]["seconds"] = each
    return {
        "name": name,
        "layers": layers,
        "trials": trials,
        "ended": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "algorithms": found,
    }


def _taken(name: str, hardware: Any) -> str:
    from foretune.graph import extract

    plan = extract(network(*SHAPES[name], 1), hardware).plan["algorithms"]
    (choice,) = plan.values()
    return str(choice)


def _row(result: dict[str, Any]) -> list[str]:
    extents, channels = SHAPES[result["name"]]
    row = [result["name"], "x".join(map(str, (*extents, channels)))]
    found = result["algorithms"]
    direct = np.array(found["direct"]["seconds"])
    for algorithm in ("direct", "winograd2", "winograd4"):
        if algorithm in found:
            seconds = np.array(found[algorithm]["seconds"])
            faster = np.median(direct / seconds)
            more = "" if algorithm == "direct" else f" ({faster:.2f}x)"
            row.append(f"{np.median(seconds) * 1e3:.3f}{more}")
        else:
            row.append("")
    errors = [f"{each['error']:.1e}" for each in found.values()]
    return [*row, " / ".join(errors), result["chosen"], str(result["trials"])]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.winograd", description=__doc__)
    parser.add_argument("--runs", type=Path, required=True, metavar="DIR")
    parser.add_argument("--shapes", default=",".join(SHAPES), metavar="NAME,...")
    parser.add_argument("--trials", type=int, default=96, metavar="N")
    parser.add_argument("--rounds", type=int, default=20, metavar="N")
    parser.add_argument("--im2col", action="store_true", help="the products of patches, too")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    from foretune.hardware import probe

    where, hardware = conditions("winograd", [_SEED], probe()), probe()
    options.runs.mkdir(parents=True, exist_ok=True)
    for name in options.shapes.split(","):
        file = options.runs / f"{'_'.join(name.split())}.json"
        if not file.exists():
            with tempfile.TemporaryDirectory() as folder:
                found = measure(name, hardware, options.trials, options.rounds, Path(folder))
            write_json(file, found)
    patches = options.runs / "im2col" / "seconds.json"
    if options.im2col and not patches.exists():
        patches.parent.mkdir(exist_ok=True)
        write_json(patches, im2col_seconds(hardware, options.trials))
    results = [read_json(file) for file in sorted(options.runs.glob("*.json"))]
    for result in results:
        result["chosen"] = _taken(result["name"], hardware)
    data = {"shapes": results, "im2col": read_json(patches) if patches.exists() else []}
    publish("winograd", _TITLE, _body(data), data, where.end(), options.write)


def _body(data: dict[str, Any]) -> str:
    header = ["layer", "extents and channels", "direct, ms", "F(2x2), ms", "F(4x4), ms",
              "largest errors", "taken", "trials"]  # fmt: skip
    parts = [
        "Milliseconds of one layer (3 x 3, or 3 x 3 x 3, with bias and ReLU) in a network of such "
        "layers with weights of their own; in brackets how many times faster than direct, in the "
        "median of rounds in turn. The direct kernel and the product of each algorithm were tuned "
        "with the same number of trials. Errors of one layer, over the largest output, beside "
        "float64, in the order of the columns. Taken: what the pass `algorithms` takes by itself. "
        "Shapes are measured one by one (`ended` in the JSON), so that speeds are to be compared "
        "within a row; what is said below of the machine is of when the page was written.",
        "",
        table(header, [_row(result) for result in data["shapes"]]),
    ]
    if data["im2col"]:
        columns = ("direct_s", "patches_s", "product_s")
        rows = [
            [each["name"], *(f"{each[c] * 1e3:.3f}" for c in columns), str(each["trials"])]
            for each in data["im2col"]
        ]
        parts += [
            "",
            "A product with a matrix of patches (im2col): milliseconds of kernels on warm caches, "
            "the direct one beside writing the patches and the product with them. It is no choice "
            "of the pass.",
            "",
            table(["layer", "direct", "patches", "product", "trials"], rows),
        ]
    return "\n".join(parts)


if __name__ == "__main__":
    main()
