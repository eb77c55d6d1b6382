"""Kernels of plans: each is scheduled without a trial, built once, and called by name.

What a plan's network consists of are kernels of other plans, but for a few. A kernel is known by
its program (the workload's key), and has one schedule: the one that the pretrained cost model
expects to be the fastest of the space's starts and of a random pool. It is a shared library in the
work folder, so that a process that starts again does not build it again.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune import codegen, cost
from foretune._arrays import FloatArray
from foretune.errors import BadInputError, IllegalCandidateError, last_line
from foretune.graph import as_workload
from foretune.space import Space, default_schedule, is_scheduled

if TYPE_CHECKING:
    from foretune._tvm import IRModule
    from foretune.cost import CostModel
    from foretune.hardware import Hardware
    from foretune.space import Candidate
    from foretune.workload import Workload

logger = logging.getLogger(__name__)

Scheduler = Callable[["Workload"], "Candidate | None"]
"""The schedule of a workload; None where it has none but the default one."""

KERNELS = "kernels"
"""The folder of kernels in the place of a network."""
_POOL = 256
"""Random candidates that the model looks at, beside the starts."""
_LEGAL_AMONG = 16
"""How many of the best are tried to be applied."""
_PREFIX = "foretune.plans."
_BEGUN, _PLAIN = ".begun", ".plain"


def forget_begun(folder: Path) -> None:
    """Forgets which kernels were being built when a process was stopped on purpose.

    A build that ended its process has the default schedule the next time; one that was stopped has
    done nothing wrong.
    """
    for file in folder.glob(f"*{_BEGUN}"):
        file.unlink(missing_ok=True)


def first_proposals(hardware: Hardware) -> Scheduler:
    """What the pretrained default proposes first, before anything is measured.

    Args:
        hardware: What kernels are for.
    """
    model = cost.create(cost.DEFAULT_MODEL, rng=0, hardware=hardware)
    return lambda workload: proposed_first(workload, hardware, model)


def proposed_first(
    workload: Workload, hardware: Hardware, model: CostModel[Candidate]
) -> Candidate | None:
    """The schedule that a cost model thinks best of a workload's starts and of a random pool.

    Args:
        workload: The program; the pool is drawn by its key.
        hardware: What it is for.
        model: Who judges.

    Returns:
        None where TVM makes no space for the program, or nothing of it can be applied.
    """
    try:
        space = Space.generate(workload, hardware)
    except BadInputError as error:
        logger.warning("%s keeps its default schedule (%s)", workload.name, error)
        return None
    rng = np.random.default_rng(int(workload.key, 16))
    pool = list(dict.fromkeys([*space.starts, *space.sample(rng, _POOL)]))
    ranked = _best_first(pool, model.predict(pool).score)
    nearer = ranked[: model.abilities.closer]
    if nearer:
        ranked = _best_first(nearer, model.look(nearer))
    for candidate in ranked[:_LEGAL_AMONG]:
        with contextlib.suppress(IllegalCandidateError):
            candidate.apply()
            return candidate
    return None


def _best_first(candidates: Sequence[Candidate], scores: FloatArray) -> list[Candidate]:
    order = np.argsort(-np.nan_to_num(scores, nan=-np.inf), kind="stable")
    return [candidates[at] for at in order.tolist()]


class Kernels:
    """Kernels that were built, registered in this process by name.

    Args:
        hardware: What they run on.
        folder: Keeps them for further processes.
        schedule: Says how a workload is scheduled; ``first_proposals`` if None.
        begins: Called before a kernel is built, which may take long.
        without: Names of passes that do not run.

    Attributes:
        built: How many were built here; others were found in the folder.
    """

    def __init__(
        self,
        hardware: Hardware,
        folder: Path,
        schedule: Scheduler | None = None,
        begins: Callable[[], None] = lambda: None,
        without: Collection[str] = (),
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._hardware = hardware
        self._folder = folder
        self._schedule = schedule
        self._begins = begins
        self._without = without
        self._modules: dict[str, Any] = {}
        self._plain: set[str] = set()
        self.built = 0

    def symbols(self, kernels: Mapping[str, Any]) -> dict[str, str]:
        """The name under which each kernel is registered, built if it is not.

        Args:
            kernels: Tensor programs by name, as ``foretune.graph.kernels_of`` gives them.
        """
        return {name: self._symbol(name, function) for name, function in kernels.items()}

    def plain(self, symbols: Mapping[str, str]) -> int:
        """How many of these have the default schedule, because no other one could be built.

        Args:
            symbols: What ``symbols`` gave.
        """
        return len(self._plain.intersection(symbols.values()))

    def _symbol(self, name: str, function: Any) -> str:
        from foretune import _tvm

        workload = as_workload(function, name)
        key = workload.key
        if key not in self._modules:
            self._modules[key] = self._module(workload, is_scheduled(function))
            _tvm.register_function(_PREFIX + key, self._modules[key]["main"])
            if (self._folder / f"{key}{_PLAIN}").exists():
                self._plain.add(_PREFIX + key)
        return _PREFIX + key

    def _module(self, workload: Workload, scheduled: bool) -> Any:
        from foretune import _tvm

        library = self._folder / f"{workload.key}.so"
        if not library.is_file():
            self._build(workload, scheduled, library)
        return _tvm.tvm.runtime.load_module(str(library))

    def _build(self, workload: Workload, scheduled: bool, library: Path) -> None:
        """Writes a library. A build that ended its process is not tried again as it was."""
        self._begins()
        begun = library.with_suffix(_BEGUN)
        plain = begun.exists()
        begun.touch()
        try:
            if scheduled:
                self._write(workload.module, library)
            elif plain or not self._proposed(workload, library):
                schedule = default_schedule(workload.module["main"], self._hardware)
                library.with_suffix(_PLAIN).touch()
                self._write(schedule.mod, library)
        finally:
            begun.unlink(missing_ok=True)
        self.built += 1

    def _proposed(self, workload: Workload, library: Path) -> bool:
        """Writes the library of the proposed schedule, where there is one that compiles."""
        if self._schedule is None:
            self._schedule = first_proposals(self._hardware)
        candidate = self._schedule(workload)
        if candidate is None:
            return False
        try:
            self._write(candidate.apply(), library)
        except Exception as error:  # TVM raises what it likes
            logger.warning(
                "%s keeps its default schedule (%s)", workload.name, last_line(error, 160)
            )
            return False
        return True

    def _write(self, module: IRModule, library: Path) -> None:
        from foretune import _tvm

        finished = codegen.finish(module, self._hardware, self._without).module
        executable = _tvm.tvm.compile(finished, self._hardware.code_target())
        # Complete or not there at all, also for a process that is killed here.
        partial = library.with_name(f"{library.stem}.{os.getpid()}.so")
        executable.export_library(str(partial))
        partial.replace(library)
