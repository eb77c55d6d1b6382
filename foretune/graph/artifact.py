"""The artifact: a compiled network in three files that needs nothing but TVM to run.

``name.so`` is the code, ``name.params`` the parameters (absent when there are none), ``name.json``
the manifest. docs/formats.md has the code that runs one in a process that only has TVM.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune import _tvm
from foretune.errors import BadInputError, MissingDependencyError
from foretune.graph._manifest import (
    SCHEMA,
    check_files,
    digest,
    read_manifest,
    tensor_from_json,
    tensor_to_json,
)
from foretune.workload import TensorSpec
from foretune.workload.model import Array, leaves

if TYPE_CHECKING:
    from foretune.hardware import Hardware


class Artifact:
    """A compiled model or kernel.

    Attributes:
        manifest: What the JSON file holds: ``schema, name, target, threads, inputs, outputs,
            parameters, tuned, untuned, versions`` and, once saved, ``library``, ``sha256`` and
            ``parameters_sha256``, and ``until`` if the model was cut. Callers may add keys, for
            example ``expected_speedup``, before saving.
    """

    def __init__(
        self, executable: Any, parameters: Mapping[str, Any], manifest: dict[str, Any]
    ) -> None:
        self.manifest = manifest
        self._executable = executable
        self._parameters = dict(parameters)
        self._origin: Path | None = None
        self._machine: Any = None
        self._weights: list[Any] = []

    @property
    def inputs(self) -> list[TensorSpec]:
        """Specification of each input, in order."""
        return [tensor_from_json(entry) for entry in self.manifest["inputs"]]

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Runs once.

        Args:
            inputs: One array per input, of its shape and dtype.

        Returns:
            The outputs, flattened.

        Raises:
            BadInputError: A wrong number, shape or dtype of inputs.
        """
        self._check(inputs)
        return [t.numpy() for t in leaves(self._start()(*self._upload(inputs), *self._weights))]

    def prepare(self, inputs: Sequence[Array]) -> Callable[[], list[Any]]:
        """Uploads inputs once and returns a call that runs on them; its outputs are TVM tensors.

        What is timed when artifacts are compared: no copies between NumPy and TVM.
        """
        self._check(inputs)
        main, device = self._start(), self._device()
        arguments = [*self._upload(inputs), *self._weights]

        def call() -> list[Any]:
            outputs = main(*arguments)
            device.sync()
            return leaves(outputs)

        return call

    def time(self, inputs: Sequence[Array], repeats: int = 10) -> list[float]:
        """Seconds of each of ``repeats`` calls, one after the other, after one warm-up call."""
        call = self.prepare(inputs)
        call()
        readings = []
        for _ in range(repeats):
            begin = time.perf_counter()
            call()
            readings.append(time.perf_counter() - begin)
        return readings

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the shared library, and beside it the parameters and the manifest.

        The files appear when all of them are complete: a failure leaves what was there before.

        Args:
            path: Of the shared library; must end in ``.so``.

        Raises:
            BadInputError: The path has another extension, its folder cannot be written, or linking
                failed.
            MissingDependencyError: There is no C++ compiler to link with.
        """
        library = Path(path)
        if library.suffix != ".so":
            raise BadInputError(f"an artifact is a shared library: name it *.so, not {library}")
        if self._origin is None:
            require_compiler()
        try:
            library.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".foretune-", dir=library.parent) as folder:
                manifest = self._write(Path(folder, library.name))
                _publish(Path(folder), library)
        except OSError as error:
            raise BadInputError(
                f"cannot write {library} ({error.strerror or error}): choose another folder"
            ) from error
        self.manifest.update(manifest)
        return library

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Artifact:
        """Reads what ``save`` wrote.

        Raises:
            BadInputError: A file is missing or damaged, or the target does not fit this machine.
            VersionMismatchError: It was compiled by another version of TVM or of the schema.
        """
        library = Path(path)
        try:
            manifest = read_manifest(library)
            check_files(library, manifest)
            _refuse_target(library, manifest)
            parameters = _load_parameters(library, manifest)
            artifact = cls(_load_library(library), parameters, manifest)
        except OSError as error:
            raise BadInputError(
                f"{library} cannot be read ({error.strerror or error}): check its permissions"
            ) from error
        artifact._origin = library.resolve()
        return artifact

    def _write(self, library: Path) -> dict[str, Any]:
        """Writes all files of the artifact and returns its manifest."""
        if self._origin is None:
            self._link(library)
        else:
            shutil.copyfile(self._origin, library)
        manifest = {
            **self.manifest,
            "library": library.name,
            "sha256": digest(library),
            "parameters_sha256": None,
        }
        if self._parameters:
            file = library.with_suffix(".params")
            # Written by Python, which notices a full disk.
            file.write_bytes(_tvm.tvm.runtime.save_param_dict(self._parameters))
            manifest["parameters_sha256"] = digest(file)
        text = json.dumps(manifest, indent=2) + "\n"
        library.with_suffix(".json").write_text(text, encoding="utf-8")
        return manifest

    def _link(self, library: Path) -> None:
        try:
            self._executable.export_library(str(library))
        except (RuntimeError, ValueError) as error:
            raise BadInputError(
                f"linking {library.name} failed ({_reason(error)}): see whether the C++ compiler "
                f"works and {tempfile.gettempdir()} has room"
            ) from error

    def _device(self) -> Any:
        kind = json.loads(self.manifest["target"])["kind"]
        return _tvm.tvm.device("cpu" if kind == "llvm" else kind, 0)

    def _start(self) -> Any:
        if self._machine is None:
            device = self._device()
            if not device.exist:
                raise BadInputError(
                    f"the artifact was compiled for {self.manifest['target']}, and this machine "
                    "has no such device"
                )
            if device.dlpack_device_type() == _tvm.tvm.cpu().dlpack_device_type():
                set_threads(int(self.manifest["threads"]))
            self._machine = _tvm.tvm.relax.VirtualMachine(self._executable, device)
            names = self.manifest["parameters"]
            self._weights = [self._parameters[name].copyto(device) for name in names]
        return self._machine["main"]

    def _upload(self, inputs: Sequence[Array]) -> list[Any]:
        device = self._device()
        return [_tvm.tvm.runtime.tensor(np.ascontiguousarray(a), device) for a in inputs]

    def _check(self, inputs: Sequence[Array]) -> None:
        specs = self.inputs
        if len(inputs) != len(specs):
            raise BadInputError(f"the artifact takes {len(specs)} inputs, but got {len(inputs)}")
        for array, spec in zip(inputs, specs, strict=True):
            if tuple(array.shape) != spec.shape or str(array.dtype) != spec.dtype:
                raise BadInputError(
                    f"input {spec.name!r} must be {spec.dtype} of shape {spec.shape}, "
                    f"but got {array.dtype} of shape {tuple(array.shape)}"
                )


def require_compiler() -> None:
    """Refuses to go on where ``Artifact.save`` could not link.

    Raises:
        MissingDependencyError: There is no C++ compiler, or the one that is named cannot be run.
    """
    compiler = _tvm.get_cc()
    if compiler is None:
        raise MissingDependencyError(
            "an artifact is linked by a C++ compiler, and there is none: apt install g++"
        )
    if shutil.which(compiler) is None:
        raise MissingDependencyError(
            f"an artifact is linked by the C++ compiler that CXX or CC names, and {compiler!r} "
            "cannot be run: name another one, or unset them and apt install g++"
        )


def set_threads(threads: int) -> None:
    """Makes TVM's runtime use this many threads; left alone, it uses half of the processors.

    The one place below the command line that writes an environment variable: TVM takes the size
    of its pool from ``TVM_NUM_THREADS`` alone, when the first kernel starts, and a pool that runs
    can be lowered but not raised. Where it runs with fewer threads already, a warning says so.
    """
    os.environ["TVM_NUM_THREADS"] = str(threads)
    running = int(_tvm.tvm.get_global_func("runtime.NumThreads")())
    if running > threads:
        _tvm.tvm.get_global_func("runtime.config_threadpool")(1, threads)
    elif running < threads:
        warnings.warn(
            f"TVM already runs with {running} threads in this process, and the artifact wants "
            f"{threads}: load artifacts before running other TVM programs",
            stacklevel=3,
        )


def describe(
    name: str,
    hardware: Hardware,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    *,
    parameters: list[str],
    tuned: list[str],
    untuned: list[str],
) -> dict[str, Any]:
    """The manifest of something just compiled."""
    return {
        "schema": SCHEMA,
        "name": name,
        "target": hardware.target,
        "hardware": {"name": hardware.name, "key": hardware.key},
        "threads": hardware.threads,
        "inputs": [tensor_to_json(spec) for spec in inputs],
        "outputs": [tensor_to_json(spec) for spec in outputs],
        "parameters": parameters,
        "tuned": tuned,
        "untuned": untuned,
        "versions": _tvm.versions(),
    }


def _publish(folder: Path, library: Path) -> None:
    """Moves complete files into place; until the manifest follows, the old one refuses the rest."""
    for suffix in (".so", ".params", ".json"):
        place = library.with_suffix(suffix)
        source = folder / place.name
        if source.exists():
            source.replace(place)
        else:
            place.unlink(missing_ok=True)


def _load_library(library: Path) -> Any:
    try:
        return _tvm.tvm.runtime.load_module(str(library))
    except (RuntimeError, ValueError) as error:
        raise BadInputError(
            f"{library} cannot be loaded ({_reason(error)}): compile it again"
        ) from error


def _load_parameters(library: Path, manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    names = manifest["parameters"]
    if not names:
        return {}
    file = library.with_suffix(".params")
    try:
        parameters = dict(_tvm.tvm.runtime.load_param_dict_from_file(str(file)).items())
    except (RuntimeError, ValueError) as error:
        raise BadInputError(
            f"{file} cannot be loaded ({_reason(error)}): compile it again"
        ) from error
    missing = [name for name in names if name not in parameters]
    if missing:
        raise BadInputError(f"{file} lacks parameter {missing[0]!r}: compile it again")
    return parameters


def _reason(error: Exception) -> str:
    """The line of a linker's or TVM's message that says what happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if line != "Compilation error:"]
    return telling[0][:300] if telling else type(error).__name__


def _refuse_target(library: Path, manifest: Mapping[str, Any]) -> None:
    """A wrong CPU would die from an illegal instruction in the middle of a run."""
    target = json.loads(manifest["target"])
    if target["kind"] != "llvm" or "mcpu" not in target:
        return
    from foretune.hardware import probe

    host = json.loads(probe().target)
    needed, present = _features(target), _features(host)
    missing = sorted(needed - present)
    if missing:
        raise BadInputError(
            f"{library} was compiled for {target['mcpu']}, and this processor lacks "
            f"{', '.join(missing[:6])}: compile it here"
        )


def _features(target: Mapping[str, Any]) -> set[str]:
    features = _tvm.tvm.get_global_func("target.llvm_get_cpu_features")(_tvm.Target(dict(target)))
    return {str(name) for name in features}
