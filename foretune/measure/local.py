"""Measuring on this machine, in long-lived child processes.

Builds run in all children at once; timing runs in one child at a time while the others rest. The
two alternate in windows of candidates: all of a window are built, then one after the other is
checked and timed by the child that holds it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from foretune.errors import BadInputError
from foretune.hardware import Hardware, why_not_here
from foretune.measure._children import Children, by_worker
from foretune.measure._jobs import Job, Stage
from foretune.measure._protocol import BUILDER
from foretune.measure._windows import JobMeasurer
from foretune.measure.policy import MeasurePolicy

_WINDOW_PER_WORKER = 8
_PAUSE_S = 0.02
_WAIT_SHARE = 0.05


class LocalMeasurer(JobMeasurer):
    """Builds, checks and times candidates in child processes on this machine.

    Child processes end when the thread that made the measurer ends: keep that thread alive.

    Args:
        hardware: What candidates are compiled for; its kind decides the device.
        policy: Deadlines, budgets, tolerances.
        builder: ``"module:function"`` run in the child: candidate -> TVM runtime module or
            callable.
        shares_files: Whether children open what outputs are compared with by its path; otherwise
            it is sent to them, as to workers that see other files.

    Raises:
        BadInputError: Kernels for ``hardware`` cannot run on this machine.
        ForetuneError: Child processes cannot be started (here or in the methods that need them).
    """

    def __init__(
        self,
        hardware: Hardware,
        policy: MeasurePolicy | None = None,
        builder: str = BUILDER,
        shares_files: bool = True,
    ) -> None:
        require_device(hardware)
        policy = policy or MeasurePolicy()
        self._children = Children(hardware, policy, builder, shares_files)
        window = policy.window or _WINDOW_PER_WORKER * self._children.count
        super().__init__(hardware, policy, self._children, window)
        self._waited_s = 0.0

    def _finish_window(
        self, fresh: Sequence[Job], noisy: Sequence[Job], best: dict[str, float]
    ) -> Iterator[None]:
        """See ``JobMeasurer``: first all are built, then one after the other is read."""
        children = self._children
        while any(job.stage is not Stage.READ and not job.done for job in fresh):
            while children.dispatch(fresh):
                children.pump(building=True)
                yield
            children.rest()
            for job in by_worker(fresh, Stage.BUILT):
                self._check_and_read(job, best)
                self._decide(job, best)
                yield
        for job in by_worker(noisy, Stage.READ):
            if not self._is_hopeless(job, best):
                self._read_again(job)
            self._decide(job, best)
            yield
        yield

    def _read_in_turn(self, jobs: Sequence[Job], turn: int) -> None:
        """See ``JobMeasurer``."""
        children = self._children
        while children.dispatch(jobs):
            children.pump(building=True)
        children.rest()
        if turn >= self.policy.compare_rounds:
            self._await_quiet(jobs)
        for job in by_worker(jobs, Stage.BUILT, Stage.READ):
            if job.checked:
                children.run(job, "read", count=1)
            else:
                self._check_and_read(job, {}, count=1)

    def environment(self) -> dict[str, Any]:
        """See ``JobMeasurer.environment``.

        ``measurement_version`` is ``policy.MEASUREMENT_VERSION``; ``fixed_addresses`` says whether
        children could be started without address-space randomisation.
        """
        return {**super().environment(), "fixed_addresses": self._children.fixed_addresses}

    def _check_and_read(
        self, job: Job, best: Mapping[str, float], count: int | None = None
    ) -> None:
        if self._may_run(job):
            self._children.run(job, "run", **self._run_fields(job, best, count))
            self._doubt(job)

    def _read_again(self, job: Job) -> None:
        job.rereads += 1
        canary = self._children.canary(job)
        if canary is not None and canary > self._children.floor.limit:
            return  # what disturbed the first readings goes on, often for tens of seconds
        before = self.costs.run_s
        self._children.run(job, "read", count=None)
        self._reread_s += self.costs.run_s - before

    def _await_quiet(self, jobs: Sequence[Job]) -> None:
        """Waits a little for the machine to become quiet before readings that cannot be put off.

        Over the measurer's life waiting is bounded by its share of the time, too: a machine that
        is never quiet must not be waited for again and again.
        """
        children = self._children
        held = by_worker(jobs, Stage.READ)
        if not held:
            return
        children.rest()
        began = time.monotonic()
        allowed = _WAIT_SHARE * self.costs.active_s - self._waited_s
        until = began + min(self.policy.quiet_wait_s, allowed)
        while time.monotonic() < until:
            canary = children.canary(held[0])
            if canary is None or canary <= children.floor.limit:
                break
            with self.costs.active():
                time.sleep(_PAUSE_S)
        self._waited_s += time.monotonic() - began


def require_device(hardware: Hardware) -> None:
    """Refuses hardware that kernels cannot be measured for on this machine.

    Raises:
        BadInputError: It is not here; the message says why.
    """
    reason = why_not_here(hardware)
    if reason is not None:
        raise BadInputError(f"target {hardware.name!r} cannot be measured here: {reason}")
