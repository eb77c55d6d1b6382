"""The child process: applies, compiles, checks and times candidates, one request after another.

Its only input is the request pipe, its only output the reply pipe; standard output is discarded,
because candidate code may print. It dies with its parent, even when the parent is killed.
"""

from __future__ import annotations

import errno
import gc
import importlib
import json
import pickle
import tempfile
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import astuple, dataclass
from typing import IO, TYPE_CHECKING, Any

from foretune._child import (
    tells_of_no_memory,
)
from foretune._files import write_all
from foretune.measure._base import Status
from foretune.measure._layout import (
    addresses_are_fixed,
    give_back_freed_memory,
)
from foretune.measure._protocol import WorkerConfig, frame, load_candidate, read_frame

if TYPE_CHECKING:
    from foretune.measure._buffers import Buffers
    from foretune.measure.timing import Reading, Stopwatch
    from foretune.space import Candidate

_KEPT_WORKLOADS = 4
# A first call takes at most this much longer than a warm one, if it takes a while at all.
_COLD_FACTOR = 3.0


def compile_candidate(candidate: Candidate, without: Collection[str] = ()) -> Any:
    """Applies and compiles a candidate; returns TVM's executable.

    Args:
        candidate: What is built.
        without: Names of passes that do not run before code is generated.
    """
    from foretune import _tvm, codegen

    hardware = candidate.hardware
    finished = codegen.finish(candidate.schedule().mod, hardware, without)
    # Arguments are arrays of the workload. Code that checks them takes 12 to 30 ms to build, of 100
    # to 300 in all; the kernel behind it is the same to the bit.
    with _tvm.tvm.transform.PassContext(config={"tirx.disable_assert": True}):
        return _tvm.tvm.compile(finished.module, hardware.code_target())


def build(candidate: Candidate, without: Collection[str] = ()) -> Any:
    """Applies and compiles a candidate for this process; returns a TVM runtime module.

    Args:
        candidate: What is built.
        without: Names of passes that do not run before code is generated.
    """
    module = compile_candidate(candidate, without).jit()
    # LLVM generates the machine code when the function is first looked up: here, where builds run
    # in parallel, and not where candidates are timed one by one.
    module["main"]
    return module


def is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or tells_of_no_memory(str(error))


def one_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[-1] if lines else ""
    return f"{type(error).__name__}: {text}"[:500]


def _why_no_reference(error: BaseException) -> str:
    text = one_line(error)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{text}: its output goes to a temporary file, set TMPDIR to where there is room"
    return text


@dataclass
class Loaded:
    """A built program; ``seconds`` and ``buffers`` are set once it was checked."""

    program: Any
    workload: str
    seconds: float = 0.0
    buffers: Buffers | None = None


class WorkerLoop:
    """Carries out one request after another.

    Args:
        config: The parent's first message.
        reply_fd: Where answers go.
        watch: Times programs; None in a child that only builds.
    """

    def __init__(self, config: WorkerConfig, reply_fd: int, watch: Stopwatch | None) -> None:
        self._config = config
        self._reply_fd = reply_fd
        self._sketches: dict[str, Any] = {}
        self._programs: dict[int, Loaded] = {}
        self._buffers: OrderedDict[tuple[str, str | None], Buffers] = OrderedDict()
        self._contents: dict[str, IO[bytes]] = {}
        module, _, name = config.builder.partition(":")
        self._build: Callable[..., Any] = getattr(importlib.import_module(module), name)
        off = config.policy.passes_off
        self._options = {"without": off} if off else {}
        self._own_watch = watch

    @property
    def _watch(self) -> Stopwatch:
        assert self._own_watch is not None, "a child that only builds times nothing"
        return self._own_watch

    def prepare(self) -> None:
        """Does what takes memory once, before memory is limited."""
        self.do_canary(0, 1)

    def hello(self) -> None:
        """Says that it is ready."""
        self.reply(hello=True, fixed_addresses=addresses_are_fixed())

    def reply(self, **fields: Any) -> None:
        """Answers the parent."""
        write_all(self._reply_fd, frame(json.dumps(fields).encode()))

    def serve(self, request_fd: int) -> None:
        """Carries out requests until the pipe closes."""
        while True:
            data = read_frame(request_fd)
            if data is None:
                return
            request = pickle.loads(data)
            if "id" in request:
                self.reply(id=request["id"], begun=True)
            operation = getattr(self, "do_" + request.pop("op"))
            fields = operation(**request)
            if fields is not None:
                self.reply(**fields)

    def do_define(self, name: str, data: bytes) -> None:
        self._sketches[name] = pickle.loads(data)

    def do_content(self, number: int, data: bytes) -> None:
        """Keeps what outputs are compared with, under the path ``"content:NUMBER"``."""
        file = tempfile.TemporaryFile(prefix="foretune-")  # noqa: SIM115
        file.write(zlib.decompress(data))
        file.flush()
        self._contents[f"content:{number}"] = file

    def do_forget(self, number: int) -> None:
        """Frees what ``content`` brought."""
        self._contents.pop(f"content:{number}").close()

    def _opened(self, path: str | None) -> str | None:
        file = self._contents.get(path or "")
        return path if file is None else f"/proc/self/fd/{file.fileno()}"

    def do_drop(self, ids: list[int]) -> None:
        for number in ids:
            self._programs.pop(number, None)
        gc.collect(0)

    def do_canary(self, id: int, count: int) -> dict[str, Any]:
        before = self._watch.canary_s
        from foretune._tvm import calling_from_a_free_core

        with calling_from_a_free_core():
            canaries = [self._watch.canary() for _ in range(count)]
        return {"id": id, "canaries": canaries, "canary_s": self._watch.canary_s - before}

    def do_reference(
        self, id: int, candidate: bytes, path: str | None, as_written: bool
    ) -> dict[str, Any]:
        """Computes what outputs are compared with, into a file; without a path answers with it."""
        from foretune.measure._buffers import compute_reference
        from foretune.measure._reference import parts

        hardware = self._config.hardware
        # What builds for elsewhere may itself be elsewhere, on another processor.
        here = hardware.has_cores and not hardware.place and not self._config.linker
        target: Any = hardware.tvm_target() if here else "llvm"
        try:
            workload = load_candidate(candidate, self._sketches).workload
            if path is not None:
                return {
                    "id": id,
                    "error": "",
                    **compute_reference(workload, target, path, as_written),
                }
            with tempfile.NamedTemporaryFile(prefix="foretune-") as file:
                fields = compute_reference(workload, target, file.name, as_written)
                for part in parts(file.name):
                    self.reply(id=id, more=True, part=part)
            return {"id": id, "error": "", **fields}
        except Exception as error:  # foreign program: whatever it raises is the answer
            return {"id": id, "error": _why_no_reference(error)}

    def do_build(self, id: int, candidate: bytes) -> dict[str, Any]:
        began = time.perf_counter()
        try:
            loaded = load_candidate(candidate, self._sketches)
            self._programs[id] = Loaded(self._build(loaded, **self._options), loaded.workload.key)
        except Exception as error:  # foreign code: whatever it raises is the candidate's result
            status = Status.OUT_OF_MEMORY if is_out_of_memory(error) else Status.COMPILE_ERROR
            return {
                "id": id,
                "status": status.value,
                "message": one_line(error),
                "seconds": time.perf_counter() - began,
            }
        return {"id": id, "status": "ok", "seconds": time.perf_counter() - began}

    def _buffers_for(self, key: str, signature: dict[str, Any], path: str | None) -> Buffers:
        from foretune.measure._buffers import Buffers
        from foretune.measure.gate import Signature

        # A reference that is computed again is in another file.
        known = key, path
        if known not in self._buffers:
            while len(self._buffers) >= _KEPT_WORKLOADS:
                self._buffers.popitem(last=False)
            self._buffers[known] = Buffers(
                Signature.from_json(signature),
                self._opened(path),
                key,
                self._watch.device,
                self._config.policy.cold_weights,
                self._config.policy.workspace_bytes or 0,
            )
        self._buffers.move_to_end(known)
        return self._buffers[known]

    def do_run(self, id: int, **arguments: Any) -> dict[str, Any]:
        """Checks a program that was built and reads its time. Arguments as ``_check_and_read``."""
        return self._timed(id, lambda: self._check_and_read(id, **arguments))

    def do_read(self, id: int, count: int | None) -> dict[str, Any]:
        """Reads the time of a program that was checked before, and checks it again."""
        return self._timed(id, lambda: self._read(id, count))

    def _timed(self, id: int, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        from foretune._tvm import calling_from_a_free_core

        # What a compilation freed must not become a workspace, at whatever place it lies.
        give_back_freed_memory()
        began, canary_began = time.perf_counter(), self._watch.canary_s
        try:
            with calling_from_a_free_core():
                fields = work()
        except Exception as error:  # foreign code: whatever it raises is the candidate's result
            self._consider(error)
            status = Status.OUT_OF_MEMORY if is_out_of_memory(error) else Status.RUN_ERROR
            fields = {"status": status.value, "message": one_line(error)}
        canary_s = self._watch.canary_s - canary_began
        run_s = time.perf_counter() - began - canary_s
        return {"id": id, "run_s": run_s, "canary_s": canary_s, **fields}

    def _consider(self, error: Exception) -> None:
        """Raises where what a program seemed to raise is not its own."""

    def _check_and_read(
        self,
        id: int,
        signature: dict[str, Any],
        path: str | None,
        cut_s: float | None,
        floor_s: float,
        count: int | None,
    ) -> dict[str, Any]:
        watch, loaded = self._watch, self._programs[id]
        buffers = self._buffers_for(loaded.workload, signature, path)
        max_error = None
        buffers.poison()
        seconds, first = watch.first_call(loaded.program, buffers.tensors)
        if path is not None:
            verdict = buffers.judge()
            max_error = verdict.max_error
            if not verdict.right:
                return {"status": Status.WRONG_OUTPUT.value, "message": verdict.message}
        loaded.seconds, loaded.buffers = seconds, buffers
        if cut_s is not None and seconds > cut_s:
            cut = self._cut(loaded, cut_s, floor_s, first)
            if cut is not None:
                return {"status": "cut_short", "readings": _rows([cut]), "max_error": max_error}
        best_s = None if cut_s is None else cut_s / self._config.policy.cut_factor
        return {"max_error": max_error, **self._read(id, count, best_s, first)}

    def _cut(
        self, loaded: Loaded, cut_s: float, floor_s: float, first: Reading | None
    ) -> Reading | None:
        """The one reading of a program that is too slow to be worth more; None if it is not."""
        from foretune.measure.timing import Reading

        watch, buffers = self._watch, loaded.buffers
        assert buffers is not None
        before = watch.canary() if first is None else first.before
        # In a slow episode everything is slow: what counts is the time it would take in quiet.
        limit = cut_s * max(1.0, before / floor_s)
        if first is not None:
            return first if first.seconds > limit else None
        if loaded.seconds < _COLD_FACTOR * limit or loaded.seconds < watch.cold_start_s:
            warm = watch.warm(loaded.program, buffers.turns, loaded.seconds, buffers.prepare)
            loaded.seconds = min(loaded.seconds, warm)
        if loaded.seconds <= limit:
            return None
        return Reading(loaded.seconds, before, watch.canary())

    def _read(
        self,
        id: int,
        count: int | None,
        best_s: float | None = None,
        first: Reading | None = None,
    ) -> dict[str, Any]:
        loaded = self._programs[id]
        buffers = loaded.buffers
        assert buffers is not None
        read = self._watch.readings(
            loaded.program, buffers.turns, loaded.seconds, buffers.prepare, count, best_s, first
        )
        loaded.seconds = min(reading.seconds for reading in read)
        if buffers.judged_after_timing and read != [first]:
            # What was timed is checked as well: a race may come out right once.
            verdict = buffers.judge(timed=True)
            if not verdict.right:
                return {"status": Status.WRONG_OUTPUT.value, "message": verdict.message}
        return {"status": "ok", "readings": _rows(read)}


def _rows(readings: Sequence[Reading]) -> list[list[float]]:
    return [list(astuple(reading)) for reading in readings]
