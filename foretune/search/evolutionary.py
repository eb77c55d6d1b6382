"""Evolutionary search guided by a cost model, made for few trials.

Idea: the first batch is spread over the sketches and, where the prior can tell, over programs that
suit the machine. From then on each batch is bred in a few generations from the fastest candidates
measured and from fresh random ones; the model ranks the children, and the best of them, thinned
for diversity, are proposed together with a few random ones.

Symbols: ``n`` candidates are asked for, ``scored_per_ask * n`` are scored by the model per ask,
``epsilon`` of the proposals are random.

Source: the evolutionary search of Ansor (Zheng et al., OSDI 2020, section 5.1) as MetaSchedule runs
it. Deviations: selection is by rank, because scores of a ranking model are any real numbers; the
population is tens instead of thousands and starts from measured candidates, because scoring reads
the program (milliseconds), and a tuning run has tens to hundreds of trials, not thousands.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune.errors import BadInputError
from foretune.measure import Status
from foretune.search._base import Strategy
from foretune.search._sampling import FreshSampler
from foretune.search.random import DRAWS_PER_CANDIDATE

if TYPE_CHECKING:
    from foretune.cost import CostModel
    from foretune.records import Record
    from foretune.space import Candidate, Space


@dataclass(frozen=True)
class EvolutionConfig:
    """How a batch is bred.

    Attributes:
        scored_per_ask: Candidates scored by the model per candidate asked for.
        generations: Rounds of breeding per ask.
        elites: Measured candidates that breed.
        crossover: Share of the children with two parents.
        fresh: Share of the first generation that is random instead of bred.
        epsilon: Share of the proposals that is random.
        warmup: Candidates measured in this space before the model is asked.
        prior: Whether the first batch prefers programs that suit the machine.
    """

    scored_per_ask: float = 4.0
    generations: int = 2
    elites: int = 8
    crossover: float = 0.25
    fresh: float = 0.25
    epsilon: float = 0.1
    warmup: int = 8
    prior: bool = True

    def __post_init__(self) -> None:
        for name in ("crossover", "fresh", "epsilon"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise BadInputError(
                    f"evolutionary: 0 <= {name} <= 1 must hold, but got {getattr(self, name)}"
                )
        for name in ("scored_per_ask", "generations", "elites", "warmup"):
            if getattr(self, name) < 1:
                raise BadInputError(
                    f"evolutionary: {name} >= 1 must hold, but got {getattr(self, name)}"
                )


class Evolutionary(Strategy):
    """Breeds candidates from the fastest measured ones; the model decides which are worth a trial.

    Args:
        space: Where candidates come from.
        model: Who scores them; ignored while it is not ready.
        rng: The only source of randomness.
        options: Fields of ``EvolutionConfig``.
    """

    def __init__(
        self, space: Space, model: CostModel, rng: np.random.Generator, **options: Any
    ) -> None:
        super().__init__(space, model, rng)
        unknown = set(options) - set(EvolutionConfig.__dataclass_fields__)
        if unknown:
            raise BadInputError(
                f"evolutionary has no option {sorted(unknown)[0]!r}: "
                f"choose from {', '.join(EvolutionConfig.__dataclass_fields__)}"
            )
        self.config = EvolutionConfig(**options)
        self._sampler = FreshSampler(space, rng)
        self._sketches = {sketch.key for sketch in space.sketches}
        self._measured: dict[str, tuple[float, Candidate]] = {}

    def ask(self, n: int) -> list[Candidate]:
        """Up to ``n`` candidates; fewer when the space (or its legal part) is exhausted."""
        if len(self._measured) < self.config.warmup or not self.model.ready:
            chosen = self._explore(n)
        else:
            chosen = self._exploit(n)
        if len(chosen) < n:
            chosen += self._random(n - len(chosen), chosen)
        return self._sampler.propose(chosen)

    def tell(self, records: Sequence[Record]) -> None:
        """Adds what ran to the parents; what failed is only never proposed again."""
        self._sampler.mark(records)
        for record in records:
            seconds = record.measurement.best_s
            ran = record.measurement.status in (Status.OK, Status.CUT_SHORT)
            if record.candidate is None or not ran or seconds is None:
                continue
            if record.candidate.sketch.key in self._sketches:
                self._measured[record.candidate_key] = (seconds, record.candidate)

    def _random(self, n: int, beside: Sequence[Candidate]) -> list[Candidate]:
        draws = self._sampler.stream(DRAWS_PER_CANDIDATE * n, [c.key for c in beside])
        return self._sampler.legal(n, draws)

    def _explore(self, n: int) -> list[Candidate]:
        """A spread first batch: the sketches in turn."""
        pool = self._sampler.unseen(8 * n)
        by_sketch: dict[str, list[Candidate]] = {}
        for candidate in pool:
            by_sketch.setdefault(candidate.sketch.key, []).append(candidate)
        queues = [by_sketch[key] for key in sorted(by_sketch)]
        turns = [
            q[i] for i in range(max(map(len, queues), default=0)) for q in queues if i < len(q)
        ]
        return self._sampler.legal(n, turns)

    def _exploit(self, n: int) -> list[Candidate]:
        config = self.config
        elites = [c for _, c in sorted(self._measured.values(), key=lambda m: (m[0], m[1].key))]
        elites = elites[: config.elites]
        per_generation = math.ceil(config.scored_per_ask * n / config.generations)
        scored: dict[str, tuple[float, Candidate]] = {}
        parents = elites
        for generation in range(config.generations):
            fresh = round(config.fresh * per_generation) if generation == 0 else 0
            children = self._sampler.unseen(fresh, scored)
            children += self._breed(parents, per_generation - len(children), scored, children)
            self._score(children, scored)
            ranked = sorted(scored.values(), key=lambda m: (-m[0], m[1].key))
            parents = [c for _, c in ranked[: config.elites]] + elites
        ranked = sorted(scored.values(), key=lambda m: (-m[0], m[1].key))
        guided = n - round(config.epsilon * n)
        return [c for _, c in ranked[:guided]]

    def _breed(
        self,
        parents: Sequence[Candidate],
        n: int,
        scored: dict[str, tuple[float, Candidate]],
        others: Sequence[Candidate],
    ) -> list[Candidate]:
        """Up to ``n`` new distinct children; earlier parents are likelier (rank-based)."""
        weights = 1.0 / (1.0 + np.arange(len(parents)))
        weights /= weights.sum()
        known = {c.key for c in others}
        children: list[Candidate] = []
        for _ in range(8 * n):
            if len(children) >= n:
                break
            parent = parents[int(self.rng.choice(len(parents), p=weights))]
            if self.rng.random() < self.config.crossover:
                other = parents[int(self.rng.choice(len(parents), p=weights))]
                child = self.space.crossover(parent, other, self.rng)
            else:
                child = self.space.mutate(parent, self.rng)
            if child.key in known or child.key in scored or not self._sampler.is_new(child):
                continue
            known.add(child.key)
            children.append(child)
        return children

    def _score(
        self, children: Sequence[Candidate], scored: dict[str, tuple[float, Candidate]]
    ) -> None:
        prediction = self.model.predict(children)
        for child, score in zip(children, prediction.score, strict=True):
            if np.isnan(score):
                self._sampler.illegal.add(child.key)
            else:
                scored[child.key] = (float(score), child)
