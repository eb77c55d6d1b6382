"""What a strategy needs of a search space, whatever is searched.

Schedules of one program (``foretune.space.Space``), plans of a whole network
(``foretune.plans.PlanSpace``) and the synthetic space of tests are searched by the same strategies.
Strategies that look into decisions (gradient search, language models) need more of a candidate, and
say so. Symbol: C is the type of a space's candidates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    import numpy as np

    from foretune.hardware import Hardware
    from foretune.space.decision import Decision
    from foretune.workload import Workload


class SearchSketch(Protocol):
    """Which decisions a candidate consists of."""

    @property
    def key(self) -> str:
        """Text that is equal exactly when sketches are."""

    @property
    def variables(self) -> Sequence[object]:
        """One per decision."""

    @property
    def size(self) -> int:
        """Number of candidates, or an upper bound of it."""


class SearchCandidate(Protocol):
    """A point of a space: frozen, hashable, cheap."""

    @property
    def sketch(self) -> SearchSketch:
        """What it is a point of."""

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """One per variable of the sketch."""

    @property
    def key(self) -> str:
        """Text that is equal exactly when candidates are, in every process."""

    @property
    def workload(self) -> Workload:
        """What it is a candidate for."""

    @property
    def hardware(self) -> Hardware:
        """Where that runs."""

    def apply(self) -> Any:
        """The program that it stands for; None where there is no program to compare.

        Raises:
            IllegalCandidateError: There is none.
        """

    def to_json(self) -> dict[str, Any]:
        """``{"sketch": key, "decisions": [...]}``, which the space's ``candidate`` reverses."""


C = TypeVar("C", bound=SearchCandidate)
C_co = TypeVar("C_co", bound=SearchCandidate, covariant=True)
C_contra = TypeVar("C_contra", bound=SearchCandidate, contravariant=True)


class SearchSpace(Protocol[C]):
    """Where candidates come from. Draws only from the generators that it is given."""

    @property
    def workload(self) -> Workload:
        """What is searched for."""

    @property
    def hardware(self) -> Hardware:
        """Where that runs."""

    @property
    def sketches(self) -> Sequence[SearchSketch]:
        """At least one."""

    @property
    def size(self) -> int:
        """Number of candidates, or an upper bound of it."""

    @property
    def default(self) -> C | None:
        """What there is without a search; None where there is nothing."""

    @property
    def starts(self) -> Sequence[C]:
        """Candidates that rules say are good, the best first."""

    def sample(self, rng: np.random.Generator, n: int) -> list[C]:
        """Draws up to ``n`` candidates."""

    def mutate(
        self, candidate: C, rng: np.random.Generator, among: Sequence[int] | None = None
    ) -> C:
        """Changes a decision, of those at the indices ``among`` where these are given."""

    def edit(self, candidate: C, changes: Mapping[int, Any], rng: np.random.Generator) -> C:
        """Replaces decisions, by index.

        Raises:
            IllegalCandidateError: One is outside its domain.
        """

    def crossover(self, a: C, b: C, rng: np.random.Generator) -> C:
        """Takes decisions from two parents."""

    def candidate(self, data: Mapping[str, Any]) -> C:
        """Reads what ``SearchCandidate.to_json`` wrote.

        Raises:
            BadInputError: It is none of this space.
            IllegalCandidateError: A decision is outside its domain.
        """
