"""The child's side: load one engine, then time a round for every line of standard input.

Started as ``python -m foretune.engines._serve``; answers are lines of JSON on standard output.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune.engines._names import ARTIFACT

if TYPE_CHECKING:
    from foretune.workload.model import Array

_READING_S, _READING_CALLS = 0.05, 3

Runner = Callable[[], list[Any]]


def _load_foretune(path: str, inputs: list[Array], _threads: int) -> Runner:
    from foretune.graph import Artifact

    return Artifact.load(path).prepare(inputs)


def _load_torch(path: str, inputs: list[Array]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    import zipfile

    import torch

    from foretune.workload import TorchSource

    if zipfile.is_zipfile(path):
        program = torch.export.load(path)
        args, kwargs = program.example_inputs
        source = TorchSource(program.module(), tuple(args), dict(kwargs))
    else:
        import pickle

        payload = pickle.loads(Path(path).read_bytes())
        source = TorchSource(payload["module"], payload["args"], payload["kwargs"])
    args, kwargs = source.bind(inputs)
    return source.module, args, kwargs


def _torch_runner(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Runner:
    import torch
    from torch.utils import _pytree as pytree

    def run() -> list[Any]:
        with torch.no_grad():
            outputs = module(*args, **kwargs)
        tensors = [t for t in pytree.tree_leaves(outputs) if isinstance(t, torch.Tensor)]
        if any(t.is_cuda for t in tensors):
            torch.cuda.synchronize()  # a call returns before a GPU has computed anything
        return tensors

    return run


def _load_eager(path: str, inputs: list[Array], threads: int) -> Runner:
    import torch

    torch.set_num_threads(threads)
    return _torch_runner(*_load_torch(path, inputs))


def _load_inductor(path: str, inputs: list[Array], threads: int) -> Runner:
    import torch

    torch.set_num_threads(threads)
    module, args, kwargs = _load_torch(path, inputs)
    return _torch_runner(torch.compile(module), args, kwargs)


def load_onnxruntime(path: str, inputs: list[Array], threads: int) -> Runner:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feed = dict(zip([i.name for i in session.get_inputs()], inputs, strict=True))
    return lambda: list(session.run(None, feed))


def _load_openvino(path: str, inputs: list[Array], threads: int) -> Runner:
    import openvino

    core = openvino.Core()
    shapes = {n: list(array.shape) for n, array in enumerate(inputs)}
    network = core.read_model(path)
    network.reshape(shapes)
    # OpenVINO rounds to bfloat16 on processors that have it, which would compare other arithmetic.
    compiled = core.compile_model(
        network,
        "CPU",
        {
            "INFERENCE_NUM_THREADS": threads,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",
        },
    )
    request = compiled.create_infer_request()
    feed = dict(enumerate(inputs))

    def run() -> list[Any]:
        result = request.infer(feed)
        return [result[n] for n in range(len(compiled.outputs))]

    return run


_LOADERS: dict[str, Callable[[str, list[Array], int], Runner]] = {
    ARTIFACT: _load_foretune,
    "eager": _load_eager,
    "inductor": _load_inductor,
    "onnxruntime": load_onnxruntime,
    "openvino": _load_openvino,
}


def serve(arguments: Sequence[str]) -> None:
    """The life of a child: load, run once, then time one call per line of standard input."""
    from foretune.workload.model import without_leaf_warning

    name, path, inputs_file, out, threads = arguments
    # Whatever a runtime prints must not land between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(message: Mapping[str, Any]) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    try:
        with without_leaf_warning():
            inputs = load_arrays(Path(inputs_file))
            run = _LOADERS[name](path, inputs, int(threads))
            run()
            outputs = [_as_numpy(value) for value in run()]
        save_arrays(Path(out), outputs)
    except Exception as error:  # a foreign runtime refuses a model with whatever it likes
        lines = str(error).strip().splitlines() or [""]
        answer({"error": f"{type(error).__name__}: {lines[0][:300]}"})
        return
    answer({"ready": True})
    for _line in sys.stdin:
        answer({"seconds": _reading(run)})


def _reading(run: Runner) -> float:
    """Median seconds of the calls of one round, after a call that wakes the thread pool."""
    run()
    seconds: list[float] = []
    while sum(seconds) < _READING_S or len(seconds) < _READING_CALLS:
        begin = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - begin)
    return float(np.median(seconds))


def save_arrays(path: Path, arrays: Sequence[Array]) -> None:
    """Writes arrays in order."""
    named: dict[str, Any] = {f"a{n:04d}": array for n, array in enumerate(arrays)}
    np.savez(path, **named)


def load_arrays(path: Path) -> list[Array]:
    """Reads what ``save_arrays`` wrote."""
    with np.load(path) as file:
        return [file[key] for key in sorted(file.files)]


def _as_numpy(value: Any) -> Array:
    if hasattr(value, "detach"):  # a tensor of PyTorch, wherever it is
        value = value.detach().cpu()
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value)


if __name__ == "__main__":
    serve(sys.argv[1:])
