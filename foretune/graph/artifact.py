"""The artifact: a compiled network in three files that needs nothing but TVM to run.

``name.so`` is the code, ``name.params`` the parameters (absent when there are none), ``name.json``
the manifest. To run one in a process that only has TVM::

    import json, os, tvm
    manifest = json.load(open("name.json"))
    os.environ["TVM_NUM_THREADS"] = str(manifest["threads"])
    machine = tvm.relax.VirtualMachine(tvm.runtime.load_module("name.so"), tvm.cpu())
    weights = tvm.runtime.load_param_dict_from_file("name.params")
    output = machine["main"](*inputs, *[weights[n] for n in manifest["parameters"]])

where ``inputs`` are ``tvm.runtime.tensor(array)`` of NumPy arrays.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune import _tvm
from foretune.errors import BadInputError, MissingDependencyError, VersionMismatchError
from foretune.workload import TensorSpec
from foretune.workload.model import Array, leaves

if TYPE_CHECKING:
    from foretune.hardware import Hardware

SCHEMA = "foretune.artifact/1"


class Artifact:
    """A compiled model or kernel.

    Attributes:
        manifest: What the JSON file holds: ``schema, name, target, threads, inputs, outputs,
            parameters, tuned, untuned, versions`` and, once saved, ``sha256``. Callers may add
            keys, for example ``expected_speedup``, before saving.
    """

    def __init__(
        self, executable: Any, parameters: Mapping[str, Any], manifest: dict[str, Any]
    ) -> None:
        self.manifest = manifest
        self._executable = executable
        self._parameters = dict(parameters)
        self._machine: Any = None
        self._weights: list[Any] = []

    @property
    def inputs(self) -> list[TensorSpec]:
        """Specification of each input, in order."""
        return [_from_json(entry) for entry in self.manifest["inputs"]]

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

        Args:
            path: Of the shared library; must end in ``.so``.

        Raises:
            BadInputError: The path has another extension or its folder cannot be written.
            MissingDependencyError: There is no C++ compiler to link with.
        """
        library = Path(path)
        if library.suffix != ".so":
            raise BadInputError(f"an artifact is a shared library: name it *.so, not {library}")
        try:
            library.parent.mkdir(parents=True, exist_ok=True)
            self._export(library)
            if self._parameters:
                _tvm.tvm.runtime.save_param_dict_to_file(
                    self._parameters, str(library.with_suffix(".params"))
                )
            self.manifest["library"] = library.name
            self.manifest["sha256"] = _digest(library)
            library.with_suffix(".json").write_text(
                json.dumps(self.manifest, indent=2) + "\n", encoding="utf-8"
            )
        except OSError as error:
            raise BadInputError(
                f"cannot write {library} ({error.strerror or error}): choose another folder"
            ) from error
        return library

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Artifact:
        """Reads what ``save`` wrote.

        Raises:
            BadInputError: A file is missing or damaged, or the target does not fit this machine.
            VersionMismatchError: It was compiled by another version of TVM or of the schema.
        """
        library = Path(path)
        manifest = _read_manifest(library)
        if _digest(library) != manifest["sha256"]:
            raise BadInputError(
                f"{library} is not the library its manifest describes (sha256 differs): "
                "compile it again, or copy .so, .params and .json together"
            )
        _refuse_target(library, manifest)
        parameters: Mapping[str, Any] = {}
        if manifest["parameters"]:
            file = library.with_suffix(".params")
            if not file.is_file():
                raise BadInputError(f"{file} is missing: copy it together with {library.name}")
            parameters = _tvm.tvm.runtime.load_param_dict_from_file(str(file))
        try:
            module = _tvm.tvm.runtime.load_module(str(library))
        except (OSError, RuntimeError) as error:
            raise BadInputError(f"{library} cannot be loaded: {error}") from error
        return cls(module, parameters, manifest)

    def _export(self, library: Path) -> None:
        if not hasattr(self._executable, "export_library"):
            raise BadInputError(f"an artifact that was loaded is a file already: copy {library}")
        try:
            self._executable.export_library(str(library))
        except (FileNotFoundError, ValueError, RuntimeError) as error:
            raise MissingDependencyError(
                f"linking {library} failed ({str(error).strip().splitlines()[0]}): a C++ compiler "
                "is needed, for example apt install g++"
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


def set_threads(threads: int) -> None:
    """Makes TVM's runtime use this many threads; left alone, it uses half of the processors.

    The size of its pool is read from the environment when the first kernel starts and can only be
    lowered afterwards: where the pool already runs with fewer threads, a warning says so.
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
        "inputs": [_to_json(spec) for spec in inputs],
        "outputs": [_to_json(spec) for spec in outputs],
        "parameters": parameters,
        "tuned": tuned,
        "untuned": untuned,
        "versions": _tvm.versions(),
    }


def _to_json(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "shape": list(spec.shape), "dtype": spec.dtype}


def _from_json(entry: Mapping[str, Any]) -> TensorSpec:
    return TensorSpec(str(entry["name"]), tuple(entry["shape"]), str(entry["dtype"]))


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _read_manifest(library: Path) -> dict[str, Any]:
    for path in (library, library.with_suffix(".json")):
        if not path.is_file():
            raise BadInputError(f"{path} is missing: an artifact is NAME.so with its NAME.json")
    file = library.with_suffix(".json")
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadInputError(f"{file} is no JSON ({error}): compile the artifact again") from error
    if not isinstance(manifest, dict) or manifest.get("schema") != SCHEMA:
        found = manifest.get("schema") if isinstance(manifest, dict) else None
        raise VersionMismatchError(f"{file} must have schema {SCHEMA!r}, but has {found!r}")
    if manifest["versions"] != _tvm.versions():
        raise VersionMismatchError(
            f"{library} was compiled by {manifest['versions']}, but this is {_tvm.versions()}: "
            "compile it again, or install that version"
        )
    return manifest


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
