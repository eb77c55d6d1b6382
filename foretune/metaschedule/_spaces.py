"""Our spaces and records for TVM's tuning contexts."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from foretune import _tvm
from foretune.hardware import Hardware, probe
from foretune.measure import Measurement, Status
from foretune.records import Trial
from foretune.space import Candidate, Space
from foretune.space.trace import plain
from foretune.workload import Workload

if TYPE_CHECKING:
    from foretune._tvm import IRModule, Target


class Spaces:
    """The spaces of the programs that TVM tunes, generated when first seen.

    Args:
        hardware: What is tuned for; made from TVM's target if None.
    """

    def __init__(self, hardware: Hardware | None = None) -> None:
        self._hardware = hardware
        self._spaces: dict[tuple[str, str], Space] = {}

    def of(self, module: IRModule, target: Target) -> Space:
        """The space of a program for a target."""
        workload = _workload(module)
        hardware = self._hardware or hardware_of(target)
        key = (workload.key, hardware.key)
        if key not in self._spaces:
            self._spaces[key] = Space.generate(workload, hardware)
        return self._spaces[key]

    def of_context(self, context: Any) -> Space:
        """The space of a ``TuneContext``."""
        return self.of(context.mod, context.target)


@functools.lru_cache(maxsize=256)
def _workload(module: IRModule) -> Workload:
    return Workload.from_module(module, name="main")


def hardware_of(target: Target) -> Hardware:
    """This machine as TVM's target describes it."""
    options = plain(target.export())
    kept = {k: v for k, v in options.items() if k not in ("keys", "tag") and v not in ("", None)}
    return probe(json.dumps(kept, sort_keys=True))


def record_of(candidate: Candidate, result: Any, origin: str) -> Trial[Candidate]:
    """The record of what a TVM runner reported.

    Args:
        candidate: What was measured.
        result: TVM's ``RunnerResult``.
        origin: Who proposed it.
    """
    if result.run_secs is not None:
        seconds = tuple(float(s) for s in result.run_secs)
        measurement = Measurement(Status.OK, seconds, (True,) * len(seconds))
    else:
        # TVM reports a failed build to the search as a failed run without a type of failure.
        measurement = Measurement(Status.RUN_ERROR, message=str(result.error_msg or "")[-500:])
    return Trial.of(candidate, measurement, origin, {"runner": "metaschedule", **_tvm.versions()})


def records_of(
    candidates: Sequence[Candidate], results: Sequence[Any], origin: str
) -> list[Trial[Candidate]]:
    """One record per candidate, in order."""
    return [record_of(c, r, origin) for c, r in zip(candidates, results, strict=True)]
