"""The child process: makes, checks and times the plans of one network, one after the other.

Requests and replies are lines of JSON on two pipes; standard output is discarded, because kernels
may print. A line ``{"step": ...}`` says that it goes on; when none comes for long, the parent ends
the process. It dies with its parent.
"""

from __future__ import annotations

import gc
import json
import os
import pickle
import resource
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._child import (
    die_with_parent,
    leave_no_core,
    limit_memory,
    memory_in_use,
    tells_of_no_memory,
)
from foretune._code import code_fingerprint
from foretune._files import write_all
from foretune.errors import BadInputError, ForetuneError, last_line
from foretune.hardware import Hardware
from foretune.measure import Status
from foretune.workload import Model, load_input

if TYPE_CHECKING:
    from foretune.plans.links import Walk
    from foretune.plans.network import PlanNetwork
    from foretune.plans.space import PlanCandidate

_LOOKS = 3
_MEMORY_SHARE = 0.9
"""Of the memory that is free when the network is loaded, that its plans may take."""


@dataclass
class _Made:
    """The network of a plan.

    Attributes:
        answer: What is known of it so far, as the parent reads it.
        call: Runs it; None where something is wrong with it.
    """

    answer: dict[str, Any]
    call: Any = None


class _Worker:
    """One network.

    Args:
        reply: File descriptor of the replies.
        given: Says which one: ``spec``, as ``foretune.workload.load_input`` takes it, or ``model``,
            a file that the parent wrote.
        hardware: This machine.
        folder: Keeps kernels.
    """

    def __init__(
        self, reply: int, given: Mapping[str, Any], hardware: Hardware, folder: Path
    ) -> None:
        from foretune.graph import default_tolerance
        from foretune.plans._timing import NetworkWatch
        from foretune.plans.encode import graph_of
        from foretune.plans.files import identity_of, write_graph
        from foretune.plans.kernels import KERNELS, Kernels
        from foretune.plans.network import PlanNetwork
        from foretune.plans.space import PlanSpace

        self._reply = reply
        self.step("loading")
        model = _loaded(given)
        self.step("passes")
        self.network: PlanNetwork = PlanNetwork(model, hardware, given["without"])
        graph = graph_of(self.network.begun.module)
        write_graph(folder, graph)
        identity = identity_of(graph)
        self.step("choices")
        space = given["space"]
        if space is not None and space.get("network") == identity:
            self.space = PlanSpace.from_json(space)
        else:
            self.space = PlanSpace.of(self.network, identity)
        self.offered = {operator.number: operator.table for operator in self.space.sketch.operators}
        self.step("timing")
        self.watch = NetworkWatch(hardware)
        self.kernels = Kernels(
            hardware,
            folder / KERNELS,
            begins=lambda: self.step("kernel"),
            without=given["without"],
        )
        self.tolerance = default_tolerance(model)
        self.expected: list[Any] | None = None
        self.between: int | None = None
        # What is there now stays: looking through it for garbage after each plan takes a while.
        gc.collect()
        gc.freeze()
        limit_memory(int(_MEMORY_SHARE * _available()))

    def send(self, **fields: Any) -> None:
        write_all(self._reply, json.dumps(fields).encode() + b"\n")

    def step(self, name: str) -> None:
        self.send(step=name)

    def measure(self, plans: Sequence[Sequence[int]]) -> list[dict[str, Any]]:
        """The measurements of plans, as a reply has them; their readings take turns.

        Args:
            plans: Decisions of each.
        """
        if self.expected is None:
            self._begin()
        made = [self._made(decisions) for decisions in plans]
        self._read([each for each in made if each.call is not None])
        return [each.answer for each in made]

    def _begin(self) -> None:
        """Runs the default plan, which others are compared with.

        Raises:
            BadInputError: It does not run.
        """
        try:
            call, _ = self._call(self.space.default, {})
            self.expected = _arrays(call())
        except Exception as error:  # foreign code
            raise BadInputError(
                f"the default plan must run, but ended with {type(error).__name__}: "
                f"{last_line(error, 300)}"
            ) from error

    def _made(self, decisions: Sequence[int]) -> _Made:
        """Compiles the network of a plan, and compares its outputs with the default plan's."""
        plan = self.space.candidate({"sketch": self.space.sketch.key, "decisions": decisions})
        stages: dict[str, float] = {}
        began = time.perf_counter()
        built = self.kernels.built
        try:
            call, told = self._call(plan, stages)
        except Exception as error:  # foreign code: whatever it raises is the plan's result
            return _Made(_failed(error, Status.COMPILE_ERROR, time.perf_counter() - began))
        build_s = time.perf_counter() - began
        try:
            result = self._checked(call, stages)
        except Exception as error:
            return _Made(_failed(error, Status.RUN_ERROR, build_s))
        answer = {
            **result,
            "build_s": build_s,
            "run_s": time.perf_counter() - began - build_s,
            **told,
            "built": self.kernels.built - built,
            "memory": memory_in_use()[1],
            "stages": stages,
        }
        return _Made(answer, call if result["status"] == Status.OK.value else None)

    def _read(self, made: Sequence[_Made]) -> None:
        """Times networks; what one of them raises is the result of all."""
        if not made:
            return
        began = time.perf_counter()
        try:
            seconds = [_first_s(each.call) for each in made]
            timed = self.watch.readings([each.call for each in made], seconds)
        except Exception as error:
            for each in made:
                each.answer = _failed(error, Status.RUN_ERROR, each.answer["build_s"])
            return
        spent = (time.perf_counter() - began) / len(made)
        for each, (readings, quiet) in zip(made, timed, strict=True):
            each.answer |= {"seconds": readings, "quiet": quiet}
            each.answer["run_s"] += spent
            each.answer["stages"]["readings"] = spent

    def _call(self, plan: PlanCandidate, stages: dict[str, float]) -> tuple[Any, dict[str, Any]]:
        """A call of the plan's network, and where the passes did not do what it says."""
        from foretune.graph import compile_prebuilt, cut, kernels_of

        network = self.network
        with _timed(stages, "passes"):
            simplified, walk = network.walk(plan.wanted, self._is_offered)
            failed = [report.name for report in simplified.passes if report.failed]
            if failed:
                raise RuntimeError(f"with this plan a pass fails: {', '.join(failed)}")
            # As in the default plan: a kernel must not change because others need more room.
            extraction = cut(simplified, self.between)
        with _timed(stages, "kernels"):
            symbols = self.kernels.symbols(kernels_of(extraction))
        self.step("compiling")
        with _timed(stages, "calls"):
            artifact = compile_prebuilt(network.model, network.hardware, extraction, symbols)
        self.step("running")
        with _timed(stages, "weights"):
            call = artifact.prepare(network.model.examples)
        if self.between is None:
            self.between = extraction.between
        told = {"plain": self.kernels.plain(symbols), "chosen": extraction.plan}
        return call, {**_differences(plan, walk), **told}

    def _is_offered(self, number: int, step: str, path: Any) -> bool:
        return number in self.offered and (step, path) in self.offered[number]

    def _checked(self, call: Any, stages: dict[str, float]) -> dict[str, Any]:
        """Runs a network, and compares its outputs with those of the default plan."""
        from foretune.graph import compare_outputs, output_steps

        model = self.network.model
        assert self.expected is not None
        with _timed(stages, "check"):
            actual = _arrays(call())
            names = [spec.name for spec in model.outputs]
            differences = compare_outputs(self.expected, actual, names, output_steps(model))
            wrong = [d for d in differences if not d.within(self.tolerance)]
            error = max((d.absolute for d in differences), default=0.0)
        if wrong:
            return {
                "status": Status.WRONG_OUTPUT.value,
                "message": wrong[0].describe(self.tolerance),
                "max_error": error if np.isfinite(error) else None,
            }
        return {"status": Status.OK.value, "max_error": error}


def _loaded(given: Mapping[str, Any]) -> Model:
    """The network that the parent names, or has written for this process."""
    if given["model"] is not None:
        written: Model = pickle.loads(Path(given["model"]).read_bytes())
        return written
    model = load_input(given["spec"])
    if not isinstance(model, Model):
        raise BadInputError(
            f"plans are of whole networks, but {given['spec']} is one tensor program: name a "
            "network"
        )
    return model


def _first_s(call: Any) -> float:
    """Seconds of a call, the least of a few: one hiccup must not halve what a reading holds."""
    seconds_of_each = []
    for _ in range(_LOOKS):
        began = time.perf_counter()
        call()
        seconds_of_each.append(time.perf_counter() - began)
    return min(seconds_of_each)


def _differences(plan: PlanCandidate, walk: Walk) -> dict[str, Any]:
    """Decisions that no pass asked for in this plan, and operators decided about otherwise.

    A product whose neighbour has other axes has a transpose behind it, and then nothing else.
    """
    sketch, unasked, otherwise = plan.sketch, [], 0
    for places, operator, path in zip(sketch.places, sketch.operators, plan.paths, strict=True):
        taken = dict(walk.paths.get(operator.number, ()))
        unasked += [places[step] for step, _ in path if step not in taken]
        otherwise += any(dict(path).get(step) != choice for step, choice in taken.items())
    return {"unasked": unasked, "otherwise": otherwise}


@contextmanager
def _timed(stages: dict[str, float], name: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    stages[name] = stages.get(name, 0.0) + time.perf_counter() - began


def _arrays(tensors: list[Any]) -> list[Any]:
    return [tensor.numpy().copy() for tensor in tensors]


def _failed(error: Exception, status: Status, build_s: float) -> dict[str, Any]:
    none = isinstance(error, MemoryError) or tells_of_no_memory(str(error))
    return {
        "status": (Status.OUT_OF_MEMORY if none else status).value,
        "message": f"{type(error).__name__}: {last_line(error, 300)}",
        "build_s": build_s,
    }


def _available() -> int:
    """Bytes of memory that programs may still take, what the system caches included."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return os.sysconf("SC_AVPHYS_PAGES") * resource.getpagesize()


def main(requests: int, replies: int) -> None:
    """Serves one network until its request pipe closes.

    Args:
        requests: File descriptor of lines; the first one says which network.
        replies: Where lines go: ``{"step": ...}``, ``{"error": ...}``, or an answer; the first one
            is ``{"space": ..., "code": ...}``.
    """
    leave_no_core()
    with os.fdopen(requests, "r", encoding="utf-8") as lines:
        first = json.loads(lines.readline())
        die_with_parent(first["parent"])
        try:
            hardware = Hardware.from_json(first["hardware"])
            worker = _Worker(replies, first, hardware, Path(first["folder"]))
        except ForetuneError as error:
            write_all(replies, json.dumps({"error": str(error)}).encode() + b"\n")
            return
        worker.send(space=worker.space.to_json(), code=code_fingerprint())
        for line in lines:
            try:
                worker.send(measured=worker.measure(json.loads(line)["plans"]))
            except BadInputError as error:
                worker.send(error=str(error))
            # Networks and their weights are in cycles, with classes that passes define.
            gc.collect()
