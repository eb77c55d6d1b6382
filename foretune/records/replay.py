"""Measurements out of records: deterministic, instant, and the way to compare search strategies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from foretune.errors import BadInputError, NothingMeasuredError
from foretune.measure import Measurement, Measurer, Status
from foretune.records._record import Record
from foretune.records.standings import earliest
from foretune.space.protocol import C

if TYPE_CHECKING:
    from foretune.space import SearchCandidate

_MISSING = ("error", "run_error")


class ReplayMeasurer(Measurer):
    """Hands out what was measured before, in the order asked, of any kind of candidate.

    Of several records of one candidate the earliest that worked counts, so that replaying a journal
    that grew meanwhile gives the same; of one that is out by the rules of
    ``foretune.records.standings``, the earliest that says so. The order of the records does not
    matter.

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
        self._known = {key: each.measurement for key, each in earliest(records).items()}

    def measure(
        self, candidates: Sequence[C], best_s: Mapping[str, float] | None = None
    ) -> Iterator[tuple[C, Measurement]]:
        """See ``Measurer.measure``; ``best_s`` changes nothing.

        Raises:
            NothingMeasuredError: A candidate has no record and ``missing`` is ``"error"``.
        """
        for candidate in candidates:
            yield candidate, self._lookup(candidate)

    def compare(self, candidates: Sequence[SearchCandidate]) -> list[Measurement]:
        """The records of these candidates, in the order given. Raises as ``measure``."""
        return [self._lookup(candidate) for candidate in candidates]

    def close(self) -> None:
        """Nothing to end."""

    def environment(self) -> dict[str, Any]:
        """Says that measurements were replayed."""
        return {"measurer": "replay"}

    def _lookup(self, candidate: SearchCandidate) -> Measurement:
        known = self._known.get((candidate.workload.key, candidate.key))
        if known is not None:
            return known
        message = f"no record of candidate {candidate.key} of workload {candidate.workload.name!r}"
        if self._missing == "error":
            raise NothingMeasuredError(
                f"{message}: measure it, or pass missing='run_error' to go on without"
            )
        return Measurement(status=Status.RUN_ERROR, message=message)
