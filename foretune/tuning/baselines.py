"""What tuning has to beat: the untuned program and the default schedule."""

from __future__ import annotations

from foretune.errors import BadInputError
from foretune.records import DEFAULT, UNTUNED, History, Trial
from foretune.space import Candidate, Space


class Baselines:
    """The candidates of a task that need no search.

    Args:
        space: Of the task.
        history: What was measured of it.

    Attributes:
        without_untuned: Whether the untuned program is not measured: its default schedule is what
            has to be beaten.
    """

    def __init__(self, space: Space, history: History[Trial[Candidate]]) -> None:
        self.without_untuned = False
        self._space = space
        self._history = history
        self._all = {space.untuned.key: (space.untuned, UNTUNED)}
        if space.default is not None:
            self._all.setdefault(space.default.key, (space.default, DEFAULT))

    def include(self, key: str) -> bool:
        """Whether a candidate is one of them, measured or not."""
        return key in self._all

    def must_be_beaten(self, key: str) -> bool:
        """Whether a candidate is one that the best has to beat: no program that is left out."""
        left_out = self.without_untuned and key == self._space.untuned.key
        return self.include(key) and not left_out

    def missing(self) -> list[tuple[Candidate, str]]:
        """What is wanted and was not measured in this environment, with the origin of its record.

        What was compared here was measured, too.
        """
        return [
            (candidate, origin)
            for candidate, origin in self._all.values()
            if not (self.without_untuned and origin == UNTUNED)
            and not self._history.was_measured_here(candidate.key)
        ]

    @property
    def default_known(self) -> bool:
        """Whether the default schedule was measured in this environment, and computes the same."""
        default = self._space.default
        if default is None or self._history.standings.record(default.key) is None:
            return False
        return self._history.was_measured_here(default.key)

    @property
    def have_default(self) -> bool:
        """Whether there is a default schedule beside the untuned program."""
        return len(self._all) > 1

    def leave_untuned(self) -> None:
        """Has the untuned program never measured.

        Raises:
            BadInputError: There is no default schedule, or it is the untuned program.
        """
        if not self.have_default:
            raise BadInputError(
                "a task without its untuned program must have a default schedule, but "
                f"{self._space.workload.name!r} has none: measure the untuned program"
            )
        self.without_untuned = True
