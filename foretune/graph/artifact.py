"""The artifact: a compiled network in a few files that needs nothing but TVM to run.

``name.so`` is the code, ``name.params`` the parameters and the initial values of states (absent
when there are none), ``name.sample.npz`` inputs with the original's outputs (absent without a
sample), ``name.json`` the manifest. docs/formats.md has the code that runs one in a process that
only has TVM, and what holds in a server.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretune import _tvm
from foretune._arrays import Array
from foretune.errors import BadInputError, MissingDependencyError
from foretune.graph._artifact_files import (
    digests_at,
    load_library,
    load_parameters,
    publish,
    publishing,
    reason,
    refuse_target,
    require_free,
    tuned_at,
    withdraw,
)
from foretune.graph._inputs import bind_inputs
from foretune.graph._manifest import (
    SCHEMA,
    check_files,
    digest,
    read_manifest,
    tensor_from_json,
    tensor_to_json,
)
from foretune.graph._memory import together, workspace
from foretune.graph._sample import (
    SAMPLE_BYTES,
    Sample,
    pack_sample,
    read_sample,
    sample_entry,
    sample_file,
)
from foretune.graph._threads import ForkedLock, choose_threads, use_threads
from foretune.graph.linker import linker_for
from foretune.graph.passes.one_function import ENTRY
from foretune.hardware import foreign_triple
from foretune.workload import TensorSpec
from foretune.workload.model import leaves

if TYPE_CHECKING:
    from foretune.hardware import Hardware


class _Machines(threading.local):
    """TVM's virtual machine of the current thread: one must not run twice at once."""

    machine: Any = None
    main: Any = None


class Artifact:
    """A compiled model or kernel.

    Any number of threads may call ``run`` at once: each has a virtual machine and a pool of workers
    of its own, and all share the parameters.

    Attributes:
        manifest: What the JSON file holds: ``schema, name, target, threads, inputs, outputs,
            states, parameters, tuned, untuned, versions`` and, once saved, ``library``, ``sha256``,
            ``parameters_sha256`` and ``sample``; of a model also ``key`` and ``passes_off``, and
            ``until`` if it was cut. Callers may add keys, for example ``expected_speedup``, before
            saving.
        threads: Threads that a call of ``run`` computes on, the caller included.
    """

    def __init__(
        self,
        executable: Any,
        parameters: Mapping[str, Any],
        manifest: dict[str, Any],
        threads: int | None = None,
    ) -> None:
        """Wraps what was compiled.

        Args:
            executable: TVM's.
            parameters: Tensors by name: those of ``manifest["parameters"]``, and the initial value
                of each of ``manifest["states"]``.
            manifest: See the attribute.
            threads: See ``load``.
        """
        self.manifest = manifest
        self.threads = choose_threads(int(manifest["threads"]), threads)
        self._inputs = [tensor_from_json(entry) for entry in manifest["inputs"]]
        self._kind = str(json.loads(manifest["target"])["kind"])
        self._on_cpu = self._kind == "llvm"
        self._executable = executable
        self._library: bytes | None = None
        self._parameters = dict(parameters)
        self._origin: Path | None = None
        self._saved: dict[Path, tuple[Any, ...]] = {}
        self._sample: Sample | None = None
        self._machines = _Machines()
        self._starting = ForkedLock()
        self._on_device: dict[str, Any] | None = None
        self._workspace_size = int(manifest.get("workspace", 0))
        self._weights: list[Any] = []
        self._process = os.getpid()

    @property
    def inputs(self) -> list[TensorSpec]:
        """Specification of each input, in order; the states are the last ones."""
        return list(self._inputs)

    @property
    def outputs(self) -> list[TensorSpec]:
        """Specification of each output, in order; the new states are the last ones."""
        return [tensor_from_json(entry) for entry in self.manifest["outputs"]]

    @property
    def states(self) -> list[str]:
        """Names of the inputs that may be left out: what the network remembers between calls."""
        return [str(name) for name in self.manifest.get("states", [])]

    @property
    def sample(self) -> Sample | None:
        """Inputs and the original's outputs for them, saved beside the artifact; None if not.

        Raises:
            BadInputError: The file cannot be read.
        """
        entry = self.manifest.get("sample") or {}
        if self._sample is None and self._origin is not None and "sha256" in entry:
            file = sample_file(self._origin)
            self._sample = read_sample(file, self.inputs, self.outputs, entry)
        return self._sample

    @sample.setter
    def sample(self, sample: Sample | None) -> None:
        self._sample = sample

    def run(self, inputs: Sequence[Array] | Mapping[str, Array]) -> list[Array]:
        """Runs once.

        Args:
            inputs: One array per input, of its shape and dtype, in order or by name. States may be
                left out, all of them at the end of a sequence, any of a mapping: they start from
                their initial values.

        Returns:
            The outputs, flattened, then the new states: arrays of the caller's own.

        Raises:
            BadInputError: A wrong number, name, shape or dtype of inputs.
        """
        arguments = self._arguments(inputs)
        return [tensor.numpy() for tensor in leaves(self._start()(*arguments))]

    def prepare(
        self, inputs: Sequence[Array] | Mapping[str, Array], entry: str = ""
    ) -> Callable[[], list[Any]]:
        """Uploads inputs once and returns a call that runs on them; its outputs are TVM tensors.

        What is timed when artifacts are compared: no copies between NumPy and TVM. The call belongs
        to the thread that prepared it.

        Args:
            inputs: As for ``run``.
            entry: A function of the library in place of the usual one, with the same parameters.
        """
        arguments = self._arguments(inputs)
        main, device = self._start(), self._device()
        if entry:
            main = self._machines.machine[entry]

        def call() -> list[Any]:
            outputs = main(*arguments)
            device.sync()
            return leaves(outputs)

        return call

    def time(self, inputs: Sequence[Array] | Mapping[str, Array], repeats: int = 10) -> list[float]:
        """Seconds of each of ``repeats`` calls, one after the other, after one warm-up call."""
        call = self.prepare(inputs)
        call()
        readings = []
        for _ in range(repeats):
            begin = time.perf_counter()
            call()
            readings.append(time.perf_counter() - begin)
        return readings

    def link(self) -> None:
        """Generates the machine code now, once for all runs and savings that follow.

        Otherwise the first run generates it in memory, and each saving once more. That costs a
        large network tens of seconds; linking costs a fraction of one. Without a C++ compiler, or
        where libraries may not be loaded from the folder for temporary files, nothing happens.
        """
        if self._library is not None or self._origin is not None or not self._on_cpu:
            return
        if foreign_triple(self.manifest["target"]):
            return
        with (
            contextlib.suppress(BadInputError, MissingDependencyError, OSError),
            tempfile.TemporaryDirectory(prefix="foretune-") as folder,
        ):
            require_compiler()
            library = Path(folder, "network.so")
            self._link(library)
            # It stays mapped when the file is gone.
            self._executable = load_library(library)
            self._library = library.read_bytes()

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the shared library, and beside it the parameters, the sample and the manifest.

        The files appear when all of them are complete: a failure leaves what was there before.

        Args:
            path: Of the shared library; must end in ``.so``.

        Raises:
            BadInputError: The path has another extension, its folder cannot be written, files of
                these names that are no artifact's lie beside it, or linking failed.
            MissingDependencyError: There is no C++ compiler to link with.
        """
        self._save(Path(path), keep_tuned=False)
        return Path(path)

    def save_unless_tuned(self, path: str | os.PathLike[str]) -> Mapping[str, Any] | None:
        """``save``, unless a tuned artifact of the same network, for the same hardware, is there.

        Args:
            path: As for ``save``.

        Returns:
            The manifest of the artifact that was left; None if this one was saved.

        Raises:
            BadInputError, MissingDependencyError: As for ``save``.
        """
        return self._save(Path(path), keep_tuned=True)

    def is_saved_at(self, path: str | os.PathLike[str]) -> bool:
        """Whether what ``save`` wrote is there, and nothing that somebody else wrote since."""
        written = self._saved.get(Path(path).absolute())
        return written is not None and digests_at(Path(path)) == written

    def withdraw(self, path: str | os.PathLike[str]) -> None:
        """Removes what ``save`` wrote, unless something else is there by now."""
        if not self.is_saved_at(path):
            return
        with publishing(Path(path)):
            if self.is_saved_at(path):
                withdraw(Path(path))

    def _save(self, library: Path, keep_tuned: bool) -> Mapping[str, Any] | None:
        if library.suffix != ".so":
            raise BadInputError(f"an artifact is a shared library: name it *.so, not {library}")
        if self._origin is None and self._library is None:
            require_compiler(self.manifest["target"])
        try:
            library.parent.mkdir(parents=True, exist_ok=True)
            with publishing(library):  # What another process has half moved is no stranger's file.
                require_free(library)
            kept = tuned_at(library, self.manifest) if keep_tuned else None
            if kept is not None:
                return kept
            with tempfile.TemporaryDirectory(prefix=".foretune-", dir=library.parent) as folder:
                manifest = self._write(Path(folder, library.name))
                with publishing(library):
                    kept = tuned_at(library, self.manifest) if keep_tuned else None
                    if kept is not None:
                        return kept
                    require_free(library)
                    publish(Path(folder), library)
                    self._saved[library.absolute()] = digests_at(library)
        except OSError as error:
            raise BadInputError(
                f"cannot write {library} ({error.strerror or error}): choose another folder"
            ) from error
        self.manifest.update(manifest)
        return None

    @classmethod
    def load(cls, path: str | os.PathLike[str], threads: int | None = None) -> Artifact:
        """Reads what ``save`` wrote.

        Args:
            path: Of the shared library.
            threads: That a call of ``run`` computes on; when None, as many as it was compiled for,
                but no more than there are cores in the process's CPU mask.

        Raises:
            BadInputError: A file is missing or damaged, the target does not fit this machine, or
                the number of threads does not.
            VersionMismatchError: It was compiled by another version of TVM or of the schema.
        """
        library = Path(path)
        try:
            manifest = read_manifest(library)
            check_files(library, manifest)
            refuse_target(library, manifest)
            parameters = load_parameters(library, manifest)
            artifact = cls(load_library(library), parameters, manifest, threads)
        except OSError as error:
            raise BadInputError(
                f"{library} cannot be read ({error.strerror or error}): check its permissions"
            ) from error
        artifact._origin = library.resolve()
        return artifact

    def _write(self, library: Path) -> dict[str, Any]:
        """Writes all files of the artifact and returns its manifest."""
        if self._origin is not None:
            shutil.copyfile(self._origin, library)
        elif self._library is not None:
            library.write_bytes(self._library)
        else:
            self._link(library)
        manifest = {
            **self.manifest,
            "library": library.name,
            "sha256": digest(library),
            "parameters_sha256": None,
            "sample": self._write_sample(library),
        }
        if self._parameters:
            file = library.with_suffix(".params")
            # Written by Python, which notices a full disk.
            file.write_bytes(_tvm.tvm.runtime.save_param_dict(self._parameters))
            manifest["parameters_sha256"] = digest(file)
        text = json.dumps(manifest, indent=2) + "\n"
        library.with_suffix(".json").write_text(text, encoding="utf-8")
        return manifest

    def _write_sample(self, library: Path) -> dict[str, Any] | None:
        """Writes the sample if there is one that is small enough; the manifest's entry."""
        sample = self.sample
        if sample is None:
            return None
        if sample.nbytes > SAMPLE_BYTES:
            return {"left_out": f"{sample.nbytes} bytes, and at most {SAMPLE_BYTES} are kept"}
        file = sample_file(library)
        file.write_bytes(pack_sample(sample))
        return {"sha256": digest(file), **sample_entry(sample)}

    def _link(self, library: Path) -> None:
        try:
            linker = linker_for(self.manifest["target"])
            self._executable.export_library(str(library), cc=linker)
        except (RuntimeError, ValueError) as error:
            raise BadInputError(
                f"linking {library.name} failed ({reason(error)}): see whether the C++ compiler "
                f"works and {tempfile.gettempdir()} has room"
            ) from error

    def _device(self) -> Any:
        return _tvm.tvm.device("cpu" if self._on_cpu else self._kind, 0)

    def _start(self) -> Any:
        """The entry function, on the current thread's machine and with its number of threads."""
        if self._machines.main is None:
            self._machines.main = self._open()
        if self._on_cpu:
            use_threads(self.threads)
        elif os.getpid() != self._process:
            raise BadInputError(
                "an artifact for a GPU cannot be used in a process that was forked after loading "
                "it: load it in the child, or start processes with the method 'spawn'"
            )
        return self._machines.main

    def _open(self) -> Any:
        """A machine of the current thread, and the parameters on the device if they are not yet."""
        device = self._device()
        if not device.exist:
            raise BadInputError(
                f"the artifact was compiled for {self.manifest['target']}, and this machine "
                "has no such device"
            )
        with self._starting:
            self._upload_parameters(device)
            machine = _tvm.tvm.relax.VirtualMachine(self._executable, device)
        self._machines.machine = machine
        if not self._workspace_size:
            return machine["main"]
        main, memory = machine[ENTRY], workspace(self._workspace_size)
        return lambda *arguments: main(*arguments, memory)

    def _upload_parameters(self, device: Any) -> None:
        if self._on_device is not None:
            return
        if self._on_cpu:
            # One copy serves, which forked processes share.
            self._parameters = self._on_device = together(self._parameters)
        else:
            self._on_device = {n: t.copyto(device) for n, t in self._parameters.items()}
        self._weights = [self._on_device[name] for name in self.manifest["parameters"]]

    def _arguments(self, inputs: Sequence[Array] | Mapping[str, Array]) -> list[Any]:
        """Tensors on the device: inputs, states, parameters."""
        arrays = bind_inputs(inputs, self._inputs, self.states)
        self._start()
        assert self._on_device is not None
        device, tensor = self._device(), _tvm.tvm.runtime.tensor
        uploaded = [
            self._on_device[spec.name] if array is None else tensor(array, device)
            for array, spec in zip(arrays, self._inputs, strict=True)
        ]
        return [*uploaded, *self._weights]


def require_compiler(target: str = '{"kind": "llvm"}') -> None:
    """Refuses to go on where ``Artifact.save`` could not link.

    Args:
        target: What is compiled for, as ``Hardware.target`` has it; this machine if left out.

    Raises:
        MissingDependencyError: There is no C++ compiler, or the one that is named cannot be run.
    """
    linker_for(target)


def describe(
    name: str,
    hardware: Hardware,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    *,
    parameters: list[str],
    tuned: list[str],
    untuned: list[str],
    states: Sequence[str] = (),
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
        "states": list(states),
        "parameters": parameters,
        "tuned": tuned,
        "untuned": untuned,
        "versions": _tvm.versions(),
    }
