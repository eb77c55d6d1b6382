"""Measurements out of records: deterministic, instant, and the way to compare search strategies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from foretune.errors import BadInputError, NothingMeasuredError
from foretune.measure._base import Measurement, Measurer, Status

if TYPE_CHECKING:
    from foretune.records import Record
    from foretune.space import Candidate

_MISSING = ("error", "run_error")


class ReplayMeasurer(Measurer):
    """Hands out what was measured before, in the order asked.

    Of several records of one candidate the first that worked counts, so that replaying a journal
    that grew meanwhile gives the same.

    Args:
        records: Where measurements come from.
        missing: What a candidate without a record is: ``"error"`` raises, ``"run_error"`` is a
            measurement of that status.

    Raises:
        BadInputError: ``missing`` is neither.
    """

    def __init__(self, records: Iterable[Record], missing: str = "error") -> None:
        if missing not in _MISSING:
            raise BadInputError(
                f"`missing in {_MISSING}` must hold, but got (missing={missing!r}): choose one"
            )
        self._missing = missing
        self._known: dict[tuple[str, str], Measurement] = {}
        for record in records:
            key = (record.workload, record.candidate_key)
            known = self._known.get(key)
            if known is None or (record.measurement.ok and not known.ok):
                self._known[key] = record.measurement

    def measure(
        self, candidates: Sequence[Candidate], best_s: Mapping[str, float] | None = None
    ) -> Iterator[tuple[Candidate, Measurement]]:
        """See ``Measurer.measure``; ``best_s`` changes nothing.

        Raises:
            NothingMeasuredError: A candidate has no record and ``missing`` is ``"error"``.
        """
        for candidate in candidates:
            yield candidate, self._lookup(candidate)

    def compare(self, candidates: Sequence[Candidate]) -> list[Measurement]:
        """The records of these candidates, in the order given. Raises as ``measure``."""
        return [self._lookup(candidate) for candidate in candidates]

    def close(self) -> None:
        """Nothing to end."""

    def environment(self) -> dict[str, Any]:
        """Says that measurements were replayed."""
        return {"measurer": "replay"}

    def _lookup(self, candidate: Candidate) -> Measurement:
        known = self._known.get((candidate.workload.key, candidate.key))
        if known is not None:
            return known
        message = f"no record of candidate {candidate.key} of workload {candidate.workload.name!r}"
        if self._missing == "error":
            raise NothingMeasuredError(
                f"{message}: measure it, or pass missing='run_error' to go on without"
            )
        return Measurement(status=Status.RUN_ERROR, message=message)
