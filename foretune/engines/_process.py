"""The parent's side: one child process per engine, and the files that children read."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from foretune import _child
from foretune._child import environment, how_it_ended, kill_group, signal_group
from foretune.engines._names import ARTIFACT
from foretune.engines._serve import STATES_FILE, load_arrays, save_arrays
from foretune.engines._stateless import stateless
from foretune.errors import BadInputError, MissingDependencyError

if TYPE_CHECKING:
    from foretune._arrays import Array
    from foretune.graph import Artifact
    from foretune.workload import Model

AnArtifact: TypeAlias = "Artifact | str | os.PathLike[str]"
"""A compiled artifact, or the path of a saved one."""

_ANSWER_S = 600.0
_PACKAGES = {
    "eager": ("torch", "torch"),
    "inductor": ("torch", "torch"),
    "onnxruntime": ("onnxruntime", "onnxruntime"),
    "openvino": ("openvino", "openvino"),
}


class Workspace:
    """Files that children read: the model in each engine's own format, written once.

    Args:
        folder: Where they are written.
        model: The network.
        artifacts: By name; every other name stands for an engine.
        inputs: What every child is given.
    """

    def __init__(
        self,
        folder: Path,
        model: Model,
        artifacts: Mapping[str, AnArtifact],
        inputs: Sequence[Array],
    ) -> None:
        self.folder = folder
        self._model = model
        self._artifacts = dict(artifacts)
        save_arrays(folder / "inputs.npz", inputs)

    def engine_of(self, name: str) -> str:
        """What runs under a name: the name itself, or the engine of artifacts."""
        return ARTIFACT if name in self._artifacts else name

    def file(self, name: str, suffix: str) -> Path:
        """A file of one child; an artifact's name may hold what a file's may not."""
        known = list(self._artifacts)
        stem = f"artifact{known.index(name)}" if name in known else name
        return self.folder / f"{stem}{suffix}"

    def path_for(self, name: str) -> Path:
        """The file that an engine loads.

        Raises:
            BadInputError: The model has no form that this engine can run.
        """
        if name in self._artifacts:
            return self._library(name)
        return self._torch() if name in ("eager", "inductor") else self._onnx()

    def _library(self, name: str) -> Path:
        artifact = self._artifacts[name]
        if isinstance(artifact, (str, os.PathLike)):
            return Path(artifact).resolve()
        return artifact.save(self.file(name, ".so"))

    def _torch(self) -> Path:
        from foretune.workload import TorchSource

        source = self._model.source
        if not isinstance(source, TorchSource):
            raise BadInputError("needs a PyTorch input: this model did not come from PyTorch")
        path = self.folder / "model.torch"
        if not path.exists():
            _write_torch(path, source, self._model.name)
        return path

    def _onnx(self) -> Path:
        from foretune.workload import OnnxSource, TorchSource
        from foretune.workload.model import write_onnx

        source = self._model.source
        if isinstance(source, OnnxSource):
            if not source.changed:
                return Path(source.path)
            path = self.folder / "model.onnx"
            if not path.exists():
                write_onnx(source.proto(), path)
            return path
        if not isinstance(source, TorchSource):
            raise BadInputError("needs a PyTorch or ONNX input: this model has neither")
        path = self.folder / "model.onnx"
        if not path.exists():
            _export_onnx(path, source)
        return path


def _write_torch(path: Path, source: Any, name: str) -> None:
    """The module by pickle where that works, else the exported program."""
    from foretune.workload.model import without_leaf_warning

    with without_leaf_warning():
        try:
            path.write_bytes(_pickled(source))
        except Exception:  # a module may refuse to be pickled in any way
            _export(path, source, name)


def _pickled(source: Any) -> bytes:
    """The module and its arguments, and the path on which this process finds their classes.

    Classes of an input file are pickled by value: a child cannot import that file by name.
    """
    import cloudpickle

    from foretune.workload import INPUT_PREFIX

    payload = {"module": source.module, "args": source.args, "kwargs": source.kwargs}
    files = [module for name, module in sys.modules.items() if name.startswith(INPUT_PREFIX)]
    with source.importable(), contextlib.ExitStack() as stack:
        for file in files:
            cloudpickle.register_pickle_by_value(file)
            stack.callback(cloudpickle.unregister_pickle_by_value, file)
        found = {"path": list(sys.path), "states": source.states}
        return pickle.dumps({**found, "payload": cloudpickle.dumps(payload)})


def _export(path: Path, source: Any, name: str) -> None:
    import torch

    from foretune.workload.importers.torch import exported

    try:
        program = exported(source, name)
        states = {STATES_FILE: json.dumps(source.states)}
        torch.export.save(program, str(path), extra_files=states)
    except Exception as error:  # torch.export raises anything the model's own code may raise
        path.unlink(missing_ok=True)
        raise BadInputError(
            "needs a module that can be pickled or exported, and this one cannot "
            f"({_first_line(error)}): make torch.export.export(module, inputs, strict=False) pass"
        ) from error


def _export_onnx(path: Path, source: Any) -> None:
    import torch

    from foretune.workload.model import without_leaf_warning

    try:
        import onnxscript  # noqa: F401
    except ImportError:
        raise MissingDependencyError(
            "exporting PyTorch to ONNX needs onnxscript: pip install onnx onnxscript"
        ) from None
    module, args, kwargs = source.module, source.args, source.kwargs
    if source.states:
        module, args, kwargs = stateless(source), (source.args, source.kwargs, source.start()), {}
    try:
        with source.importable(), contextlib.redirect_stdout(sys.stderr), without_leaf_warning():
            torch.onnx.export(
                module,
                args,
                str(path),
                kwargs=kwargs or None,
                dynamo=True,
                verbose=False,
            )
    except Exception as error:  # the exporter raises anything the model's own code may raise
        path.unlink(missing_ok=True)
        raise BadInputError(
            f"PyTorch could not export this model to ONNX: {_first_line(error)}"
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


class Child:
    """One engine in its own process, which is stopped while it has nothing to do.

    Its threads would go on spinning, and take cores and memory from the one that is being timed.
    """

    def __init__(self, name: str, process: subprocess.Popen[str], log: Path, out: Path) -> None:
        self.name = name
        self._process = process
        self._log = log
        self._out = out

    @classmethod
    @contextlib.contextmanager
    def start(cls, name: str, workspace: Workspace, threads: int) -> Iterator[Child]:
        """Starts an engine and waits until it has loaded, compiled and run the model once."""
        if name in _PACKAGES:
            module, package = _PACKAGES[name]
            if importlib.util.find_spec(module) is None:
                raise MissingDependencyError(f"{name} is not installed: pip install {package}")
        path = workspace.path_for(name)
        log, out = workspace.file(name, ".log"), workspace.file(name, ".npz")
        variables = environment(threads, **dict.fromkeys(_THREAD_VARIABLES, str(threads)))
        inputs, engine = workspace.folder / "inputs.npz", workspace.engine_of(name)
        arguments = [engine, str(path), str(inputs), str(out), str(threads), str(os.getpid())]
        with log.open("w") as stderr:
            process = _child.start(
                [sys.executable, "-m", "foretune.engines._serve", *arguments],
                variables,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        child = cls(name, process, log, out)
        try:
            child._receive()
            child._stop()
            yield child
        finally:
            child.close()

    def outputs(self) -> list[Array]:
        """Outputs of the engine for the inputs of the comparison."""
        return load_arrays(self._out)

    def time(self) -> float:
        """Seconds of one call, the median of one round."""
        assert self._process.stdin is not None
        self._signal(signal.SIGCONT)
        try:
            self._process.stdin.write("time\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._died() from None
        seconds = float(self._receive()["seconds"])
        self._stop()
        return seconds

    def close(self) -> None:
        """Ends the process."""
        kill_group(self._process)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def _stop(self) -> None:
        self._signal(signal.SIGSTOP)

    def _signal(self, number: int) -> None:
        """To the engine and all that it has started."""
        signal_group(self._process, number)

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        answer = _read_line(self._process, _ANSWER_S)
        if not answer:
            raise self._died()
        message: dict[str, Any] = json.loads(answer)
        if "error" in message:
            raise BadInputError(f"{self.name}: {message['error']}")
        return message

    def _died(self) -> BadInputError:
        code = self._process.wait()
        text = self._log.read_text(errors="replace")
        lines = [line for line in text.splitlines() if line.strip()]
        return BadInputError(
            f"{self.name} ended, {how_it_ended(code)}: {lines[-1] if lines else ''}"
        )


def _read_line(process: subprocess.Popen[str], seconds: float) -> str:
    """One line of a child, or an empty string when it ended or ``seconds`` passed."""
    assert process.stdout is not None
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    try:
        return process.stdout.readline()
    finally:
        timer.cancel()


# Read by other runtimes when they are loaded, before any of this package's code could run.
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
