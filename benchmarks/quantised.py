"""A quantised network beside the floats it was made of: foretune and ONNX Runtime, both of them.

ResNet-50 with random weights under which activations keep their scale, exported to ONNX and
quantised to bytes in QDQ form by ONNX Runtime's own tool, calibrated on random images. foretune
tunes either for the same time through the command line. Then all four run in turn, each in a
process of its own, and what is printed are ratios of readings of the same round.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._networks.figures import interval, ratio
from benchmarks._networks.runs import tuned as tuned_network
from benchmarks.pages import Section, publish
from benchmarks.results import conditions, say, table
from foretune.engines import bootstrap_median
from foretune.engines._process import Child, Workspace
from foretune.hardware import Hardware, integer_product
from foretune.workload import load_input

_IMAGE = (1, 3, 224, 224)
_IMAGES = 8
_PAUSE_S = 0.05
_FORMS = ("floats", "bytes")
_RUNTIMES = ("foretune", "onnxruntime")
_OURS, _THEIRS = "foretune bytes", "onnxruntime bytes"
_RATIOS = (
    ("foretune floats", _OURS),
    ("onnxruntime floats", _THEIRS),
    (_THEIRS, _OURS),
    ("onnxruntime floats", "foretune floats"),
)
# The exact product of the processors where ONNX Runtime's kernels do not saturate.
_VNNI = "dot_16x4_vnni"


def _images(name: str, seed: int) -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    for _ in range(_IMAGES):
        yield {name: rng.standard_normal(_IMAGE).astype("float32")}


def make_networks(folder: Path, seed: int, seven_bits: bool) -> dict[str, Path]:
    """Writes both forms, unless they are there.

    Args:
        folder: Where.
        seed: Of weights and images.
        seven_bits: Whether weights leave one bit, as ONNX Runtime's documentation wants it for
            processors on which its products of bytes saturate.
    """
    files = {form: folder / f"resnet50-{form}-{seed}-{seven_bits}.onnx" for form in _FORMS}
    if all(file.exists() for file in files.values()):
        return files
    import onnx
    import torch
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process
    from transformers.models.resnet import ResNetConfig, ResNetForImageClassification

    from foretune.workload.catalog._definitions import Pick, calibrate, image

    torch.manual_seed(seed)
    module = Pick(ResNetForImageClassification(ResNetConfig(num_labels=1000)), "logits").eval()
    inputs = (image(*_IMAGE[1:]),)
    calibrate(module, inputs)
    exported = folder / "exported.onnx"
    torch.onnx.export(
        module, inputs, str(exported), dynamo=True, opset_version=18, external_data=False
    )
    quant_pre_process(str(exported), str(files["floats"]))
    images = _images(onnx.load(files["floats"]).graph.input[0].name, seed)

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
        def get_next(self) -> dict[str, Any] | None:
            return next(images, None)

    quantization.quantize_static(
        str(files["floats"]),
        str(files["bytes"]),
        Reader(),
        quant_format=quantization.QuantFormat.QDQ,
        per_channel=True,
        reduce_range=seven_bits,
    )
    return files


def _timed(files: dict[str, Path], artifacts: dict[str, Path], options: argparse.Namespace,
           threads: int) -> dict[str, list[float]]:  # fmt: skip
    """Seconds per call in each round, by runtime and form."""
    readings: dict[str, list[float]] = {}
    with contextlib.ExitStack() as stack:
        children = {}
        for form in _FORMS:
            model = load_input(str(files[form]))
            folder = options.work_dir / f"timing-{form}"
            folder.mkdir(parents=True, exist_ok=True)
            inputs = model.draw_inputs(options.seed)
            place = Workspace(folder, model, {"foretune": artifacts[form]}, inputs)
            for runtime in _RUNTIMES:
                child = stack.enter_context(Child.start(runtime, place, threads))
                child.outputs()
                children[f"{runtime} {form}"] = child
        say(f"timing {options.rounds} rounds")
        for _ in range(options.rounds):
            for name, child in children.items():
                time.sleep(_PAUSE_S)
                readings.setdefault(name, []).append(child.time())
    return readings


def run(options: argparse.Namespace, hardware: Hardware) -> dict[str, Any]:
    """Everything that the page shows."""
    options.work_dir.mkdir(parents=True, exist_ok=True)
    product = integer_product(hardware)
    seven_bits = product is None or product.name != _VNNI
    files = make_networks(options.work_dir, options.seed, seven_bits)
    tuned = {
        form: tuned_network(
            str(files[form]),
            options.work_dir / f"{form}-{options.seconds:g}s-{options.seed}",
            options.seconds,
            options.seed,
        )
        for form in _FORMS
    }
    artifacts = {form: artifact for form, (artifact, _) in tuned.items()}
    seconds = _timed(files, artifacts, options, hardware.threads)
    ratios = {
        f"{one} over {other}": ratio(seconds[one], seconds[other], options.seed)
        for one, other in _RATIOS
    }
    return {
        "seconds": seconds,
        "ratios": ratios,
        "product": None if product is None else product.name,
        "seven_bits": seven_bits,
        "tune": {form: result for form, (_, result) in tuned.items()},
    }


def section(data: Mapping[str, Any]) -> Section:
    """Both forms by both runtimes, and ratios of readings of the same round."""
    rows = []
    for name, seconds in data["seconds"].items():
        low, high = bootstrap_median(seconds, 0)
        numbers = (float(np.median(seconds)) * 1e3, low * 1e3, high * 1e3)
        rows.append([name, "{:.2f} ({:.2f} to {:.2f})".format(*numbers)])
    ratios = {name: interval(found) for name, found in data["ratios"].items()}
    tuned = {form: data["tune"][form]["tasks"] for form in _FORMS}
    trials = {form: sum(t["trial_count"] for t in tasks) for form, tasks in tuned.items()}
    bits = "seven bits, because ONNX Runtime's products of eight saturate here"
    return Section(
        "Is a quantised network faster than its floats?",
        f"**ResNet-50 in bytes is {ratios[f'foretune floats over {_OURS}']} times as fast as in "
        f"floats**, and {ratios[f'{_THEIRS} over {_OURS}']} times as fast as ONNX Runtime runs the "
        "same file.",
        table(["runtime and form", "ms per call"], rows),
        "\n\n".join(
            [
                table(["latency", "ratio"], [list(each) for each in ratios.items()]),
                "One image, random weights; bytes are the QDQ form by "
                "`onnxruntime.quantization.quantize_static`, weights per channel with "
                f"{bits if data['seven_bits'] else 'eight bits'}. "
                f"{data['tune']['bytes']['budget']['seconds']:.0f} s of tuning for each: "
                f"{trials['floats']} trials of {len(tuned['floats'])} tasks in floats, "
                f"{trials['bytes']} of {len(tuned['bytes'])} in bytes. The instruction of this "
                f"processor is `{data['product']}`. Ratios are medians of "
                "those within rounds; 95 % intervals from a bootstrap over rounds.",
            ]
        ),
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1200.0, help="of tuning for each form")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work-dir", type=Path, default=Path("foretune-work/quantised"))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    where = conditions("quantised", [options.seed])
    result = run(options, where.hardware)
    publish("quantised", section, result, where.end(), options.write)


if __name__ == "__main__":
    main()
