"""Measuring plans: a child process for each network, which the parent looks after.

The child keeps what plans have in common: the network before the first choice, weights that passes
computed, and built kernels. So a plan costs the passes behind the first choice, the compilation of
the calls between kernels, and its readings. A child that crashes or hangs is replaced; the plan it
was busy with has failed.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import pickle
import select
import subprocess
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretune import _child
from foretune._code import code_fingerprint
from foretune._files import write_all, write_bytes
from foretune.errors import BadInputError, last_line
from foretune.graph import require_compiler
from foretune.hardware import Hardware
from foretune.measure import Measurement, Measurer, Status
from foretune.plans.kernels import KERNELS, forget_begun
from foretune.plans.space import PlanCandidate, PlanSpace

if TYPE_CHECKING:
    from foretune.graph import Plan
    from foretune.workload import Model

STEP_TIMEOUT_S = 300.0
"""Seconds between two signs of life of a child: building one kernel, or all readings of a plan."""
LOAD_TIMEOUT_S = 600.0
"""Seconds until a network is loaded and its choices are known."""
_MOST_STARTS = 3
"""Children in a row that may die before the network is loaded, or before a plan is measured."""
_CODE = "from foretune.plans._worker import main; main(*map(int, sys.argv[1:]))"
_BLOCK = 1 << 20
_TOLD = ("stages", "built", "plain", "memory", "unasked", "otherwise")
_MODEL = "model.pickle"


class OutOfTime(Exception):
    """The measurer's deadline came while its child was busy; the child was ended."""


class _Gone(Exception):
    """The child is no more: what its plan's measurement is."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status


class PlanMeasurer(Measurer):
    """Measures plans of one network on this machine.

    Args:
        network: An INPUT, as ``foretune.workload.load_input`` takes it, or a model, which the child
            is given without its original.
        hardware: This machine.
        folder: Keeps the network's graph and its kernels; made if missing.
        space: Its plans, where they are known from an earlier run.
        step_timeout_s: Seconds after which a child that gives no sign of life is ended.
        without: Names of passes that do not run.
        deadline: Of ``time.monotonic``: then the child is ended, whatever it is doing, and
            ``OutOfTime`` raised.

    Attributes:
        space: All plans of the network.
        deadline: See above; may be changed.
        chosen: Key of a plan that was measured to what passes chose in it, as ``--plan`` takes it.
        last: What the child said of the last plan beside its measurement: ``stages`` (seconds by
            name), ``built`` (kernels), ``plain`` (kernels with the default schedule, because no
            other one could be built), ``memory`` (bytes in use), ``process`` (a name that tells the
            child from others), ``unasked`` (indices of decisions that no pass asked for,
            because of its neighbours), ``otherwise`` (operators about which passes decided
            otherwise).

    Raises:
        BadInputError: The network cannot be loaded.
        MissingDependencyError: There is no C++ compiler.
    """

    def __init__(
        self,
        network: str | Model,
        hardware: Hardware,
        folder: Path,
        space: Mapping[str, Any] | None = None,
        step_timeout_s: float = STEP_TIMEOUT_S,
        *,
        without: Collection[str] = (),
        deadline: float = math.inf,
    ) -> None:
        require_compiler()
        folder.mkdir(parents=True, exist_ok=True)
        forget_begun(folder / KERNELS)
        self._network = network
        self._without = sorted(without)
        self._written = None if isinstance(network, str) else _write(network, folder)
        self.deadline = deadline
        self.chosen: dict[str, Plan] = {}
        self._hardware = hardware
        self._folder = folder
        self._known = space
        self._step_timeout_s = step_timeout_s
        self._child: _Child | None = None
        self._gone_in_a_row = 0
        self.last: dict[str, Any] = {}
        self.space = PlanSpace.from_json(self._started()[1])

    def measure(
        self, candidates: Sequence[Any], best_s: Mapping[str, float] | None = None
    ) -> Iterator[tuple[Any, Measurement]]:
        """Yields each plan with its measurement, in the order given; nothing is cut short."""
        del best_s
        for candidate in candidates:
            yield candidate, self._measured([candidate])[0]

    def compare(self, candidates: Sequence[Any]) -> list[Measurement]:
        """Measures plans side by side: all are loaded at once, and their readings take turns.

        Readings of one place in those of several plans are of one round. A child that crashes or
        hangs costs all of them.
        """
        return self._measured(candidates) if candidates else []

    def close(self) -> None:
        """Ends the child, and removes what was written for it. May be called twice."""
        self._end()
        if self._written is not None:
            self._written.unlink(missing_ok=True)

    def _end(self) -> None:
        if self._child is not None:
            self._child.end()
            self._child = None

    def _measured(self, candidates: Sequence[PlanCandidate]) -> list[Measurement]:
        began = time.monotonic()
        child, _ = self._started()
        try:
            child.send({"plans": [list(candidate.decisions) for candidate in candidates]})
            answer = child.answer(self._step_timeout_s, self.deadline)
            if "error" in answer:
                raise BadInputError(str(answer["error"]))
            answers = answer["measured"]
            self._gone_in_a_row = 0
        except _Gone as gone:
            self._end()
            self._gone_in_a_row += 1
            if self._gone_in_a_row >= _MOST_STARTS:
                raise BadInputError(
                    f"a plan must leave its process alive, but {self._gone_in_a_row} in a row did "
                    f"not ({gone}): leave this network out"
                ) from gone
            self.last = {"process": child.name}
            spent = (time.monotonic() - began) / len(candidates)
            return [Measurement(gone.status, build_s=spent, message=str(gone)) for _ in candidates]
        except OutOfTime:
            self._end()
            forget_begun(self._folder / KERNELS)
            raise
        if any(answer["status"] == Status.OUT_OF_MEMORY.value for answer in answers):
            # The next plan need not suffer from what this one left.
            self._end()
        self.last = {k: answers[-1][k] for k in _TOLD if k in answers[-1]}
        self.last["process"] = child.name
        for candidate, answer in zip(candidates, answers, strict=True):
            if "chosen" in answer:
                self.chosen[candidate.key] = answer["chosen"]
        return [_measurement(answer) for answer in answers]

    def _started(self) -> tuple[_Child, Mapping[str, Any]]:
        """The child, with the network loaded, and what it said of the network's plans."""
        if self._child is not None:
            return self._child, self._known or {}
        last = ""
        for _ in range(_MOST_STARTS):
            child = _Child(self._hardware.threads, self._folder / "worker.txt")
            try:
                child.send(self._first())
                answer = child.answer(LOAD_TIMEOUT_S, self.deadline)
            except _Gone as gone:
                child.end()
                last = str(gone)
                if gone.status is Status.TIMEOUT:
                    break
                continue
            except BaseException:
                child.end()
                raise
            if "error" in answer:
                child.end()
                raise BadInputError(str(answer["error"]))
            if answer["code"] != code_fingerprint():
                child.end()
                raise BadInputError(
                    "plans must be measured by the code that this process runs, but the files of "
                    f"{Path(__file__).parents[1]} have changed since it began: start it again"
                )
            self._child, self._known = child, answer["space"]
            return child, answer["space"]
        name = self._network if isinstance(self._network, str) else self._network.name
        raise BadInputError(
            f"the process that loads {name} must end with its plans, but did not ({last}): leave "
            "this network out"
        )

    def _first(self) -> dict[str, Any]:
        """What a child is told before anything else."""
        return {
            "parent": os.getpid(),
            "spec": self._network if isinstance(self._network, str) else None,
            "model": None if self._written is None else str(self._written),
            "without": self._without,
            "hardware": _described(self._hardware),
            "folder": str(self._folder),
            "space": self._known,
        }


def _measurement(answer: Mapping[str, Any]) -> Measurement:
    return Measurement(
        Status(answer["status"]),
        tuple(answer.get("seconds", ())),
        tuple(answer.get("quiet", ())),
        float(answer.get("build_s", 0.0)),
        float(answer.get("run_s", 0.0)),
        str(answer.get("message", "")),
        answer.get("max_error"),
    )


def _write(model: Model, folder: Path) -> Path:
    """A file of a model for the child alone: the original stays here."""
    try:
        data = pickle.dumps(replace(model, source=None))
    except Exception as error:  # TVM's serialisation raises what it likes
        raise BadInputError(
            f"plans are measured in a child process, but {model.name} cannot be handed to one "
            f"({last_line(error)}): choose its plan with --plan instead"
        ) from error
    write_bytes(folder / _MODEL, data)
    return folder / _MODEL


class _Child:
    """One process with its pipes, busy with loading.

    Args:
        threads: That kernels run on.
        output: Takes what it prints.

    Attributes:
        name: Tells it from other children.
    """

    def __init__(self, threads: int, output: Path) -> None:
        self.name = f"{os.getpid()}-{time.monotonic_ns():x}"
        self._output = output
        self._rest = b""
        variables = _child.environment(threads, **_child.STEADY)
        with output.open("wb") as file:
            self._process, self._requests, self._replies = _child.start_piped(
                _CODE, variables, file
            )

    def send(self, message: Mapping[str, Any]) -> None:
        """Writes a request; one that is gone is found out by its answer."""
        with contextlib.suppress(BrokenPipeError):
            write_all(self._requests, json.dumps(message).encode() + b"\n")

    def answer(self, step_s: float, deadline: float) -> dict[str, Any]:
        """The next answer; signs of life on the way give it more time.

        Args:
            step_s: Seconds that it has from one sign of life to the next.
            deadline: What no sign of life moves.

        Raises:
            OutOfTime: The deadline came first.
        """
        step = "starting"
        while True:
            try:
                message = self._message(min(time.monotonic() + step_s, deadline), step, step_s)
            except _Gone as gone:
                if gone.status is Status.TIMEOUT and time.monotonic() >= deadline:
                    raise OutOfTime from gone
                raise
            if "step" not in message:
                return message
            step = str(message["step"])

    def end(self) -> None:
        """Kills it, with all that it started."""
        _child.kill_group(self._process)
        os.close(self._requests)
        os.close(self._replies)

    def _message(self, deadline: float, step: str, limit_s: float) -> dict[str, Any]:
        while b"\n" not in self._rest:
            left = deadline - time.monotonic()
            ready = select.select([self._replies], [], [], max(0.0, left))[0]
            if not ready:
                raise _Gone(Status.TIMEOUT, f"{step} took more than {limit_s:g} s")
            data = os.read(self._replies, _BLOCK)
            if not data:
                raise self._death(step)
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        if not isinstance(message, dict):
            raise _Gone(Status.CRASH, f"{step}: the process wrote into its pipe: {line[:40]!r}")
        return message

    def _death(self, step: str) -> _Gone:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        code = self._process.poll()
        text = _child.last_lines(self._output)
        how = "closed its pipe" if code is None else _child.how_it_ended(code)
        status = Status.OUT_OF_MEMORY if _child.tells_of_no_memory(text) else Status.CRASH
        return _Gone(status, f"{step}: {how} {text[-300:]}".rstrip())


def _described(hardware: Hardware) -> dict[str, Any]:
    return {key: value for key, value in hardware.to_json().items() if key != "key"}
