"""One network: tuned by the command line, then timed beside PyTorch on the same GPU."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._cuda.device import in_turns, torch_fp32, wall
from benchmarks._networks.runs import without_repeats
from benchmarks.results import read_json
from foretune.errors import ForetuneError
from foretune.graph import Artifact, extract
from foretune.hardware import Hardware, probe
from foretune.tuning.compiled import compile_default
from foretune.workload import Model, load_input

_ENTRY = "from foretune.cli import entry; entry()"


def run_network(
    name: str, seconds: float, folder: Path, rounds: int, inductor: bool
) -> dict[str, Any]:
    """Tunes a network for ``seconds`` and times what ships beside PyTorch.

    What there is so far is written to ``folder/NAME.json`` after each step.
    """
    file, library, tuned = (
        folder / f"{name}{end}" for end in (".result.json", ".so", ".tune.json")
    )
    found: dict[str, Any] = {"name": name}

    def keep(**fields: Any) -> None:
        found.update(fields)
        file.write_text(json.dumps(found, indent=1), encoding="utf-8")

    began = time.perf_counter()
    command = [sys.executable, "-c", _ENTRY, "tune", name, "--target", "cuda", "--time",
               str(seconds), "--seed", "0", "--store", "none", "-o", str(library),
               "--json", str(tuned)]  # fmt: skip
    if seconds > 0:
        ended = subprocess.run(command, check=False, capture_output=True, text=True)
        keep(
            tune_wall_s=time.perf_counter() - began,
            tune_exit=ended.returncode,
            tune_output=(ended.stdout[-3000:], ended.stderr[-3000:]),
        )
    if tuned.exists():
        keep(tune=without_repeats(read_json(tuned)))
    model = load_input(name)
    assert isinstance(model, Model)
    wanted = model.reference(model.examples)
    sides, errors = _torch_sides(model, inductor)
    keep(torch_errors=errors)
    for side, make in (
        ("foretune", lambda: Artifact.load(library)),
        ("default", lambda: _default(model, probe("cuda"))),
        ("default, no graph", lambda: _default(model, probe("cuda"), "cuda-graph")),
    ):
        try:
            artifact = make()
            sides[side] = wall(artifact.prepare(model.examples))
            keep(**{f"error {side}": _error(artifact.run(model.examples), wanted)})
        except (ForetuneError, RuntimeError, ValueError) as error:
            keep(**{f"failed {side}": str(error)[-600:]})
    keep(timed=in_turns(sides, rounds))
    return found


def _default(model: Model, hardware: Hardware, *without: str) -> Artifact:
    return compile_default(model, hardware, extract(model, hardware, without))


def _error(outputs: list[Any], expected: list[Any]) -> float:
    """The largest difference to the original on the CPU, over the largest value there."""
    worst = 0.0
    for got, wanted in zip(outputs, expected, strict=True):
        scale = float(np.max(np.abs(wanted))) or 1.0
        worst = max(worst, float(np.max(np.abs(got - wanted))) / scale)
    return worst


def _torch_sides(
    model: Model, inductor: bool
) -> tuple[dict[str, Callable[[int], float]], dict[str, str]]:
    """PyTorch eager, eager in a CUDA graph, and compiled: those that work."""
    torch = torch_fp32()
    source: Any = model.source
    module = copy.deepcopy(source.module).cuda()
    inputs = [torch.from_numpy(np.array(array)).cuda() for array in model.examples]

    def synced(call: Callable[[], Any]) -> Callable[[], Any]:
        def run() -> None:
            call()
            torch.cuda.synchronize()

        return run

    sides = {"eager": wall(synced(lambda: module(*inputs)))}
    errors: dict[str, str] = {}
    try:
        sides["eager, graph"] = wall(synced(_graph(torch, module, inputs)))
    except Exception as error:  # what PyTorch raises is the result
        errors["eager, graph"] = str(error)[-300:]
    if inductor:
        try:
            compiled = torch.compile(module)
            compiled(*inputs)
            sides["inductor"] = wall(synced(lambda: compiled(*inputs)))
        except Exception as error:  # likewise
            errors["inductor"] = str(error)[-300:]
    return sides, errors


def _graph(torch: Any, module: Any, inputs: list[Any]) -> Callable[[], Any]:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            module(*inputs)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        module(*inputs)
    replay: Callable[[], Any] = graph.replay
    return replay
