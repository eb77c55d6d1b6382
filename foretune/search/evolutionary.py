"""Evolutionary search guided by a cost model, made for few trials.

Idea: the first batch is spread over the sketches and prefers schedules that suit the machine, as
far as their decisions tell (``foretune.cost.prior``). From then on each batch is bred in a few
generations from the fastest candidates measured and from fresh random ones; the model ranks the
children, and the best of them, thinned for diversity, are proposed with a few random ones.

Symbols: ``n`` candidates are asked for, ``scored_per_ask * n`` are scored by the model per ask,
``epsilon`` of the proposals are random.

Source: the evolutionary search of Ansor (Zheng et al., OSDI 2020, section 5.1) as MetaSchedule runs
it. Deviations: selection is by rank, because scores of a ranking model are any real numbers; the
population is tens instead of thousands and starts from measured candidates, because scoring reads
the program (milliseconds), and a tuning run has tens to hundreds of trials, not thousands; the
prior thins the children before the model sees them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune.cost.prior import machine_fit
from foretune.errors import BadInputError
from foretune.measure import Status
from foretune.search._base import Strategy
from foretune.search._sampling import FreshSampler
from foretune.search.random import DRAWS_PER_CANDIDATE

if TYPE_CHECKING:
    from foretune.cost import CostModel
    from foretune.records import Record
    from foretune.space import Candidate, Space

_POOL = 16
"""Random candidates drawn for each one kept by the prior."""
_LITTER = 3
"""Children bred for each one that the model scores, where the prior chooses."""
_SUITED_SHARE = 0.75
"""Share of the first batch that the prior chooses; the rest is uniform, in case it is wrong."""
_PRIOR_NOISE = 0.5
"""Spread of the noise added to the prior, in its unit (log2 of a slow-down)."""


@dataclass(frozen=True)
class EvolutionConfig:
    """How a batch is bred.

    Attributes:
        scored_per_ask: Candidates scored by the model per candidate asked for.
        generations: Rounds of breeding per ask.
        elites: Measured candidates that breed.
        crossover: Share of the children with two parents.
        further_mutation: Probability that a mutated child is mutated once more, and so on.
        fresh: Share of the first generation that is random instead of bred.
        epsilon: Share of the proposals that is random.
        warmup: Candidates measured in this space before the model is asked.
        prior: Whether ``machine_fit`` has a say in what is drawn and bred. Off for ablations.
    """

    scored_per_ask: float = 3.0
    generations: int = 2
    elites: int = 8
    crossover: float = 0.25
    further_mutation: float = 0.3
    fresh: float = 0.25
    epsilon: float = 0.1
    warmup: int = 8
    prior: bool = True

    def __post_init__(self) -> None:
        for name in ("crossover", "fresh", "epsilon", "further_mutation"):
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
        """A spread first batch: the sketches in turn, most of it programs that suit the machine."""
        pool = self._sampler.unseen(_POOL * n)
        suited = self._suited(pool, n) if self.config.prior else []
        picked = {c.key for c in suited}
        others = [c for c in pool if c.key not in picked]
        first = self._sampler.legal(round(_SUITED_SHARE * n), _in_turns(suited))
        return first + self._sampler.legal(n - len(first), _in_turns(others))

    def _exploit(self, n: int) -> list[Candidate]:
        """A batch from generations of children, ranked by the model and thinned for diversity."""
        config = self.config
        ranking = sorted(self._measured.values(), key=lambda m: (m[0], m[1].key))
        elites = [c for _, c in ranking[: config.elites]]
        size = math.ceil(config.scored_per_ask * n / config.generations)
        scored: dict[str, Candidate] = {}
        scores: dict[str, float] = {}
        parents = elites
        for generation in range(config.generations):
            children = self._fresh(round(config.fresh * size), scored) if generation == 0 else []
            children += self._breed(parents, size - len(children), {*scored, *_keys(children)})
            self._score(children, scored, scores)
            best = sorted(scored.values(), key=lambda c: (-scores[c.key], c.key))
            # Measured parents stay: a model trained on few programs errs, a measurement does not.
            parents = _alternate(elites, best[: config.elites])
        best = sorted(scored.values(), key=lambda c: (-scores[c.key], c.key))
        # Rounded by chance: a batch of four explores too, now and then. Without the prior, so
        # that what it misjudges everywhere is still seen.
        explored = min(n - 1, int(config.epsilon * n + self.rng.random()))
        guided = self._sampler.legal(n - explored, _spread(best))
        drawn = self._sampler.unseen(explored * DRAWS_PER_CANDIDATE, _keys(guided))
        return guided + self._sampler.legal(explored, drawn)

    def _fresh(self, n: int, exclude: Iterable[str]) -> list[Candidate]:
        """New random candidates, by the prior if it is on, the best suited first."""
        if not self.config.prior:
            return self._sampler.unseen(n, exclude)
        pool = self._sampler.unseen(_POOL * n, exclude)
        return self._suited(pool, n)

    def _suited(self, pool: Sequence[Candidate], n: int) -> list[Candidate]:
        """``n`` of the pool by the prior, softly: noise lets a misjudged candidate through."""
        noise = self.rng.gumbel(size=len(pool), scale=_PRIOR_NOISE)
        order = np.argsort(-(machine_fit(pool) + noise), kind="stable")
        return [pool[i] for i in order[:n].tolist()]

    def _breed(self, parents: Sequence[Candidate], n: int, known: set[str]) -> list[Candidate]:
        """Up to ``n`` new distinct children; earlier parents are likelier (rank-based)."""
        weights = 1.0 / (1.0 + np.arange(len(parents)))
        weights /= weights.sum()
        wanted = n * (_LITTER if self.config.prior else 1)
        children: dict[str, Candidate] = {}
        for first, second in self.rng.choice(
            len(parents), p=weights, size=(4 * wanted, 2)
        ).tolist():
            if len(children) >= wanted:
                break
            child = self._child(parents[first], parents[second])
            if child.key not in known and self._sampler.is_new(child):
                children.setdefault(child.key, child)
        bred = list(children.values())
        return self._suited(bred, n) if self.config.prior else bred

    def _child(self, parent: Candidate, other: Candidate) -> Candidate:
        if self.rng.random() < self.config.crossover:
            return self.space.crossover(parent, other, self.rng)
        child = self.space.mutate(parent, self.rng)
        while self.rng.random() < self.config.further_mutation:
            child = self.space.mutate(child, self.rng)
        return child

    def _score(
        self,
        children: Sequence[Candidate],
        scored: dict[str, Candidate],
        scores: dict[str, float],
    ) -> None:
        prediction = self.model.predict(children)
        for child, score in zip(children, prediction.score.tolist(), strict=True):
            if math.isnan(score):
                self._sampler.illegal.add(child.key)
            else:
                scored[child.key], scores[child.key] = child, score


def _keys(candidates: Iterable[Candidate]) -> list[str]:
    return [c.key for c in candidates]


def _in_turns(candidates: Sequence[Candidate]) -> list[Candidate]:
    """One of each sketch in turn, keeping the order within a sketch."""
    queues: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        queues.setdefault(candidate.sketch.key, []).append(candidate)
    rounds = itertools.zip_longest(*queues.values())
    return [c for turn in rounds for c in turn if c is not None]


def _alternate(a: Sequence[Candidate], b: Sequence[Candidate]) -> list[Candidate]:
    return [c for pair in itertools.zip_longest(a, b) for c in pair if c is not None]


def _spread(ranked: Sequence[Candidate]) -> list[Candidate]:
    """Candidates that differ from every earlier one in two decisions or more first, then the rest.

    What differs in one decision from a better one teaches little that the better one does not.
    """
    apart: list[Candidate] = []
    near: list[Candidate] = []
    for candidate in ranked:
        close = any(
            candidate.sketch.key == other.sketch.key
            and sum(x != y for x, y in zip(candidate.decisions, other.decisions, strict=True)) < 2
            for other in apart
        )
        (near if close else apart).append(candidate)
    return apart + near
