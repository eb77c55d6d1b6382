"""The child's side: load one engine, then time a round for every line of standard input.

Started as ``python -m foretune.engines._serve``; answers are lines of JSON on standard output.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._child import die_with_parent
from foretune.engines._names import ARTIFACT

if TYPE_CHECKING:
    from foretune._arrays import Array
    from foretune.workload import TorchSource

STATES_FILE = "foretune_states.json"
"""Of an exported program: the names of the buffers that it writes."""

_READING_S, _READING_CALLS = 0.05, 3

Runner = Callable[[], list[Any]]

_open = ExitStack()


def _load_foretune(path: str, inputs: list[Array], threads: int) -> Runner:
    from foretune.graph import Artifact

    return Artifact.load(path, threads).prepare(inputs)


def _load_torch(path: str) -> TorchSource:
    import zipfile

    import torch

    from foretune.workload import TorchSource

    if zipfile.is_zipfile(path):
        beside = {STATES_FILE: ""}
        program = torch.export.load(path, extra_files=beside)
        args, kwargs = program.example_inputs
        states = tuple(json.loads(beside[STATES_FILE]))
        return TorchSource(program.module(), tuple(args), dict(kwargs), states)
    import pickle

    found = pickle.loads(Path(path).read_bytes())
    sys.path[:] = [*found["path"], *(place for place in sys.path if place not in found["path"])]
    payload = pickle.loads(found["payload"])
    return TorchSource(payload["module"], payload["args"], payload["kwargs"], found["states"])


def _torch_runner(
    source: TorchSource, inputs: list[Array], module: Callable[..., Any] | None = None
) -> Runner:
    import torch

    # Never closed: what the module's buffers hold does not matter when the child has ended.
    call = _open.enter_context(source.prepare(inputs, module))

    def run() -> list[Any]:
        tensors = call()
        if any(t.is_cuda for t in tensors):
            torch.cuda.synchronize()  # a call returns before a GPU has computed anything
        return tensors

    return run


def _load_eager(path: str, inputs: list[Array], threads: int) -> Runner:
    import torch

    torch.set_num_threads(threads)
    return _torch_runner(_load_torch(path), inputs)


def _load_inductor(path: str, inputs: list[Array], threads: int) -> Runner:
    import torch

    torch.set_num_threads(threads)
    source = _load_torch(path)
    return _torch_runner(source, inputs, torch.compile(source.module))


def _load_onnxruntime(path: str, inputs: list[Array], threads: int) -> Runner:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    feed = {n: np.asarray(a, order="C") for n, a in zip(names, inputs, strict=True)}
    # The first time for its shapes: bound outputs are written in place, as ours are.
    shapes = [getattr(value, "shape", None) for value in session.run(None, feed)]
    if None in shapes:
        return lambda: list(session.run(None, feed))
    binding = session.io_binding()
    for name, array in feed.items():
        binding.bind_cpu_input(name, array)
    for output in session.get_outputs():
        binding.bind_output(output.name, "cpu")
    session.run_with_iobinding(binding)
    for output, value in zip(session.get_outputs(), binding.get_outputs(), strict=True):
        binding.bind_ortvalue_output(output.name, value)

    def run(_held: Any = feed) -> list[Any]:  # a binding keeps places, not arrays
        session.run_with_iobinding(binding)
        return list(binding.get_outputs())

    return run


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
        result = request.infer(feed, share_inputs=True, share_outputs=True)
        return [result[n] for n in range(len(compiled.outputs))]

    return run


_LOADERS: dict[str, Callable[[str, list[Array], int], Runner]] = {
    ARTIFACT: _load_foretune,
    "eager": _load_eager,
    "inductor": _load_inductor,
    "onnxruntime": _load_onnxruntime,
    "openvino": _load_openvino,
}


def serve(arguments: Sequence[str]) -> None:
    """The life of a child: load, run once, then time one call per line of standard input."""
    from foretune.workload.model import without_leaf_warning

    name, path, inputs_file, out, threads, parent = arguments
    die_with_parent(int(parent))
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
        # OpenVINO says in the first line where its code is, and in the next ones what is wrong.
        told = " ".join(str(error).split())
        answer({"error": f"{type(error).__name__}: {told[:300]}"})
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
    """Writes arrays in order, with their element types: NumPy's format lacks bfloat16."""
    named: dict[str, Any] = {
        f"a{n:04d}.{array.dtype.name}": array for n, array in enumerate(arrays)
    }
    np.savez(path, **named)


def load_arrays(path: Path) -> list[Array]:
    """Reads what ``save_arrays`` wrote."""
    from foretune.workload.element_types import element_type

    with np.load(path) as file:
        read = [(file[key], element_type(key.partition(".")[2])) for key in sorted(file.files)]
    return [array.view(kind) if array.dtype.kind == "V" else array for array, kind in read]


def _as_numpy(value: Any) -> Array:
    from foretune.workload.model import from_tensor

    if hasattr(value, "detach"):
        return from_tensor(value)
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value)


if __name__ == "__main__":
    serve(sys.argv[1:])
