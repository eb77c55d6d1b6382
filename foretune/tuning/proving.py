"""The begin of a run: its INPUT is taken apart, and proven to work before a trial is spent."""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretune.errors import BadInputError
from foretune.hardware import Hardware, why_not_here
from foretune.tuning.asked import Choices, Files
from foretune.tuning.budget import Budget
from foretune.tuning.events import Progress
from foretune.tuning.plan_search import SHARE, Place, TunedPlan
from foretune.tuning.prepared import Prepared, loaded, prepare
from foretune.tuning.proof import Proof
from foretune.workload import Model, Workload

if TYPE_CHECKING:
    from foretune.records import Journal

logger = logging.getLogger(__name__)

_MORE_SHARE = 0.05
"""Share of the time that comparing the proven network on further inputs may take."""


@dataclass(frozen=True)
class Begun:
    """What is tuned.

    Attributes:
        prepared: The INPUT, taken apart.
        proof: That a network works; None where nothing is proven.
        plan: The one that was searched; None where none was.
    """

    prepared: Prepared
    proof: Proof | None = None
    plan: TunedPlan | None = None

    def note(self, journal: Journal) -> None:
        """Keeps how a network was taken apart."""
        extraction = self.prepared.extraction
        if extraction is not None:
            passes = [report.to_json() for report in extraction.passes]
            report = None if self.plan is None else self.plan.report
            journal.add_network(self.prepared.source.name, passes, extraction.plan, report)


@dataclass(frozen=True)
class Proving:
    """Takes an INPUT apart and proves it, with the plan that was given or found.

    Attributes:
        hardware: What it is compiled for.
        choices: About a network as a whole.
        files: Of the run.
        budget: Of the run.
        seed: Of the run.
        began: ``time.perf_counter`` when the run began.
        progress: Who is told; nobody if None.
    """

    hardware: Hardware
    choices: Choices
    files: Files
    budget: Budget
    seed: int
    began: float
    progress: Progress | None = None

    def begin(self, what: Any, journal: Journal | None) -> Begun:
        """Proves what ``foretune.tune`` was given.

        Raises:
            BadInputError: It cannot be taken apart or compiled, or computes something else.
        """
        proving = time.perf_counter()
        planning, plan = self.choices.planning, None
        if planning is not None:
            what = loaded(what)
            plan = planning.known(journal, what)
        if plan is None:
            prepared = prepare(what, self.hardware, self.choices.without, self.choices.plan)
        else:
            prepared = self._as_before(what, plan)
        begun = Begun(prepared, _prove(prepared, self.hardware, proving), plan)
        if begun.proof is not None:
            self._tell(begun.proof)
        if plan is None and isinstance(prepared.source, Model):
            begun = self._planned(begun, prepared.source, journal)
        if begun.plan is not None and begun.proof is not None:
            begun.proof.network = replace(begun.proof.network, plans=begun.plan.report)
        return begun

    def _planned(self, begun: Begun, source: Model, journal: Journal | None) -> Begun:
        """The network with the plan that a search finds, if one is wanted."""
        if self.choices.planning is None:
            return begun
        most_s = left_s = math.inf
        if self.budget.seconds is not None:
            most_s = SHARE * self.budget.seconds
            left_s = self.budget.seconds + self.began - time.perf_counter()
        where = Place(self.files.work_dir, journal, min(most_s, left_s))
        plan = self.choices.planning.run(
            source, self.hardware, where, seed=self.seed, without=self.choices.without
        )
        if plan.plan is None or begun.proof is None:
            return replace(begun, plan=plan)
        return self._replanned(plan, begun.prepared, begun.proof)

    def _as_before(self, what: Any, plan: TunedPlan) -> Prepared:
        """A network with the plan that an earlier run tuned."""
        try:
            return prepare(what, self.hardware, self.choices.without, plan.plan)
        except BadInputError as error:
            raise BadInputError(
                f"a run that is resumed tunes the plan that its journal holds, but that does not "
                f"fit any more: {error}; start anew with --fresh"
            ) from error

    def _replanned(self, plan: TunedPlan, prepared: Prepared, proof: Proof) -> Begun:
        """The network with another plan, proven and told; as it was where that cannot be."""
        began, spent_s = time.perf_counter(), proof.network.proof_s
        try:
            other = prepare(prepared.source, self.hardware, self.choices.without, plan.plan)
            assert other.extraction is not None, "a plan is for a network"
            again = Proof(proof.model, self.hardware, other.extraction, began, spent_s)
            self._tell(again)
            return Begun(other, again, plan)
        except BadInputError as error:
            spent_s += time.perf_counter() - began
            proof.network = replace(proof.network, proof_s=spent_s)
            logger.warning("the plan that was found is not tuned, the default plan is: %s", error)
            refused = plan.refused(f"the plan that was found cannot be proven: {error}")
            return Begun(prepared, proof, refused)

    def _tell(self, proof: Proof) -> None:
        """Says that a network works, compares it on other inputs, saves it; after Ctrl-C at once.

        From the moment that it is said, Ctrl-C leaves the artifact.
        """
        output, fresh, time_s = self.files.output, self.files.fresh, self.budget.seconds
        try:
            if self.progress is not None:
                self.progress.proved(proof.network)
            proof.compare_more(None if time_s is None else _MORE_SHARE * time_s)
            if output is not None:
                proof.save(Path(output), fresh)
        except KeyboardInterrupt:
            if output is not None and proof.saved is None:
                proof.save(Path(output), fresh)
            raise


def _prove(prepared: Prepared, hardware: Hardware, began: float) -> Proof | None:
    """The proof that a model works; of a workload only that it can be compiled.

    Nothing is proven for a device that is not here: its compiler may not be either.

    Raises:
        BadInputError: It cannot be compiled, or what was compiled computes something else.
    """
    source = prepared.source
    here = why_not_here(hardware) is None
    if isinstance(source, Workload):
        if here:
            refuse_uncompiled(source, hardware)
        return None
    if prepared.extraction is None or (not here and not hardware.has_cores):
        return None
    return Proof(source, hardware, prepared.extraction, began)


def refuse_uncompiled(workload: Workload, hardware: Hardware) -> None:
    """Refuses a program that TVM cannot compile as it is.

    Raises:
        BadInputError: It cannot; the message says why.
    """
    from foretune import graph

    for reason in graph.failing_kernels(workload.module, hardware).values():
        raise BadInputError(
            f"workload {workload.name!r} cannot be compiled for this target: TVM says {reason}"
        )
