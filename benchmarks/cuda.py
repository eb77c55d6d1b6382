"""A GPU: kernels and whole networks tuned on it, beside PyTorch on the same GPU.

``python -m benchmarks cuda --write`` on a machine with an NVIDIA GPU (docs/gpu.md says what it
needs). Every job runs in a process of its own with a time limit, and one that fails does not stop
the next; what each gave is in the work directory as soon as there is something.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.pages import Section, publish
from benchmarks.results import conditions, say, table
from foretune.hardware import probe

KERNELS = ("matmul:1024x1024x1024", "conv2d_3x3", "attention_qk")
NETWORKS = ("mobilenet_v2", "resnet50", "vit_b_32")
_MARGIN_S = 120.0


def _job(options: argparse.Namespace, kind: str, name: str, seconds: float) -> dict[str, Any]:
    """Runs one job in a child; its result, or why there is none."""
    folder = options.work_dir
    stem = name.replace(":", "-")
    file = folder / f"{stem}.result.json"
    command = [sys.executable, "-m", "benchmarks.cuda", "--one", kind, name, "--time", str(seconds),
               "--work-dir", str(folder), "--rounds", str(options.rounds)]  # fmt: skip
    command += ["--workers", str(options.workers)] if options.workers else []
    command += ["--inductor"] if options.inductor else []
    say(" ".join(command[2:]))
    began, fault = time.perf_counter(), ""
    with (folder / f"{stem}.log").open("wb") as log:
        try:
            ended = subprocess.run(
                command, check=False, stdout=log, stderr=log, timeout=seconds + options.margin
            )
            fault = "" if ended.returncode == 0 else f"exit status {ended.returncode}"
        except subprocess.TimeoutExpired as error:
            fault = f"longer than {error.timeout:.0f} s"
    found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    say(f"{name}: {fault or 'done'} after {time.perf_counter() - began:.0f} s")
    return {**found, "fault": fault, "wall_s": time.perf_counter() - began}


def _one(options: argparse.Namespace) -> None:
    from benchmarks._cuda.kernel import run_kernel
    from benchmarks._cuda.network import run_network

    kind, name = options.one
    if kind == "network":
        run_network(name, options.time, options.work_dir, options.rounds, options.inductor)
        return
    stem = name.replace(":", "-")
    file, work = (options.work_dir / f"{stem}.{end}" for end in ("result.json", "work"))
    found = run_kernel(name, options.time, options.workers, options.rounds, work)
    file.write_text(json.dumps(found, indent=1), encoding="utf-8")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", default=",".join(KERNELS))
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--time", type=float, default=60.0, help="seconds for each kernel")
    parser.add_argument("--network-time", type=float, default=120.0, help="for each network")
    parser.add_argument("--margin", type=float, default=_MARGIN_S, help="beyond the time, of a job")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--inductor", action="store_true", help="torch.compile as well")
    parser.add_argument("--work-dir", type=Path, default=Path("foretune-work/cuda"))
    parser.add_argument("--one", nargs=2, metavar=("KIND", "NAME"), help=argparse.SUPPRESS)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    options.work_dir.mkdir(parents=True, exist_ok=True)
    if options.one:
        _one(options)
        return
    where = conditions("cuda", [0], probe("cuda"))
    results: dict[str, Any] = {"kernels": {}, "networks": {}}
    for name in filter(None, options.kernels.split(",")):
        results["kernels"][name] = _job(options, "kernel", name, options.time)
    for name in filter(None, options.networks.split(",")):
        results["networks"][name] = _job(options, "network", name, options.network_time)
    publish("cuda", section, results, where.end(), options.write)


def section(data: dict[str, Any]) -> Section:
    """Kernels beside PyTorch's of the same work, and networks beside PyTorch."""
    kernels = [
        [name, *(_us(found, side) for side in ("foretune", "untuned", "pytorch")), _rate(found),
         str(found.get("trials", "-")), found["fault"] or _worst(found)]
        for name, found in data["kernels"].items()
    ]  # fmt: skip
    sides = ("foretune", "default", "default, no graph", "eager", "eager, graph", "inductor")
    networks = [
        [name, *(_ms(found, side) for side in sides), _proof(found), found["fault"] or "-"]
        for name, found in data["networks"].items()
    ]
    header = ["kernel", "foretune, µs", "dlight, µs", "PyTorch, µs", "TFLOP/s", "trials", "error"]
    other = ["network", *(f"{side}, ms" for side in sides), "error", "fault"]
    gains = {
        name: gain
        for name, found in (data["kernels"] | data["networks"]).items()
        if (gain := _gain(found))
    }
    faster = [name for name in data["kernels"] if gains.get(name, 0.0) > 1]
    told = ", ".join(f"{name} {gain:.2f}" for name, gain in gains.items())
    return Section(
        "Does it work on an NVIDIA GPU?",
        f"**Yes: {len(faster)} of {len(kernels)} kernels are faster than PyTorch's** on the same "
        f"GPU. Times as fast as PyTorch, networks as the fastest way to run it: {told}.",
        "\n\n".join(
            part
            for part in (
                table(header, kernels) if kernels else "",
                table(other, networks) if networks else "",
            )
            if part
        ),
        "All fp32, TF32 off in PyTorch, cuDNN's fastest convolution chosen by itself. Medians of "
        "rounds in turn. dlight: TVM's fixed rules for GPUs, what counts as untuned there. Error "
        "of kernels: norm of the difference to float64 over the norm of the result; of networks: "
        "what the product's own proof compared. Kernels by the device's clock, many calls in a "
        "row; networks by wall time of a call that returns when the device is done.",
    )


def _gain(found: dict[str, Any]) -> float:
    """How many times as fast as the fastest of PyTorch's; 0 where one was not timed."""
    theirs = [_median(found, side) for side in ("pytorch", "eager", "eager, graph", "inductor")]
    ours = _median(found, "foretune") or _median(found, "default")
    ran = [seconds for seconds in theirs if seconds]
    return min(ran) / ours if ran and ours else 0.0


def _median(found: dict[str, Any], side: str) -> float | None:
    timed = found.get("timed", {}).get(side)
    return None if timed is None else float(timed["median_s"])


def _us(found: dict[str, Any], side: str) -> str:
    seconds = _median(found, side)
    return "-" if seconds is None else f"{seconds * 1e6:.1f}"


def _ms(found: dict[str, Any], side: str) -> str:
    seconds = _median(found, side)
    return "-" if seconds is None else f"{seconds * 1e3:.3f}"


def _rate(found: dict[str, Any]) -> str:
    seconds = _median(found, "foretune")
    return "-" if not seconds else f"{found['flops'] / seconds / 1e12:.1f}"


def _worst(found: dict[str, Any]) -> str:
    error = found.get("relative_errors", {}).get("foretune")
    return "-" if error is None else f"{error:.1e}"


def _proof(found: dict[str, Any]) -> str:
    error = ((found.get("tune") or {}).get("network") or {}).get("max_relative_error")
    return "-" if error is None else f"{error:.1e}"


if __name__ == "__main__":
    main()
