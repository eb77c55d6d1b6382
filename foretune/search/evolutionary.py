"""Evolutionary search guided by a cost model, made for few trials.

Idea: the first batch is spread over the sketches and prefers schedules whose decisions promise most
(``CostModel.draft``). From then on each batch is bred in a few generations from the fastest
candidates measured and from fresh random ones; the model ranks the children, and the best of them,
thinned for diversity, are proposed with a few random ones. A model that learned from other
workloads (``Abilities.informed``) is followed from the first batch: with nothing measured yet, the
first generation is what its draft thinks best of random candidates, of many where the draft learned
from other workloads, too (``Abilities.informed_draft``). A share of each batch are the starts of
the space (``Space.starts``), as long as there are any: what rules of thumb say is good.

Symbols: ``n`` candidates are asked for, ``scored_per_ask * n`` are scored by the model per ask,
``epsilon`` of the proposals are random.

Source: the evolutionary search of Ansor (Zheng et al., OSDI 2020, section 5.1) as MetaSchedule runs
it. Deviations: selection is by rank, because scores of a ranking model are any real numbers; the
population is tens instead of thousands and starts from measured candidates, because scoring reads
the program (milliseconds), and a tuning run has tens to hundreds of trials, not thousands; the
prior thins the children before the model sees them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from foretune._options import (
    Count,
    Share,
    configured,
    option_names,
    refuse_unknown,
    require_options,
)
from foretune.search import proposers
from foretune.search._base import Strategy
from foretune.search._breeding import Breeding, Lineage, child, in_turns, pairs
from foretune.search._choosing import (
    APART,
    FIRST_APART,
    LOOKED_AT,
    BatchPolicy,
    drawn,
    may_judge,
    ordered,
    pick,
)
from foretune.search.proposers import Situation, Variant
from foretune.space.protocol import C

if TYPE_CHECKING:
    from foretune.cost import CostModel
    from foretune.records import Trial
    from foretune.space import SearchCandidate, SearchSpace

_SUITED_SHARE = 0.75
"""Share of a first batch without an informed model that the draft chooses; the rest is uniform, in
case it is wrong."""
_NOISE = 0.5
"""Spread of the noise added to a draft, in its unit (log2 of a slow-down)."""
_INFORMED_NOISE = 0.25
"""The same for an informed draft, which errs less."""
_ANCESTORS = 3
"""Of a program, that a proposer is told of: as many as a prompt shows at most."""
_LEAST_POOL = 512
"""Random candidates that an informed draft looks at, at least."""


@dataclass(frozen=True)
class EvolutionConfig:
    """How a batch is bred.

    Attributes:
        epsilon: Share of the proposals that is random.
        suggested: Share of the proposals that are what others suggested (``Strategy.suggest``). 0:
            nothing is made of it, either.
        warmup: Candidates measured in this space before a model that is not informed is asked.
        proposer: Who makes the edits of a mutation. ``"random"`` draws them one by one.
        starts: Share of the proposals that are starts of the space.
        prior: Whether the draft has a say in what is drawn and bred.
        scored_per_ask: Candidates scored by the model per candidate asked for.
        generations: Rounds of breeding per ask.
        elites: Measured candidates that breed.
        crossover: Share of the children with two parents.
        further_mutation: Probability that a mutated child is mutated once more, and so on.
        fresh: Share of the first generation that is random instead of bred.
        pool: Random candidates drawn for each one that the draft keeps.
        litter: Children bred for each one that the draft keeps.
        informed_per_ask, informed_generations: The same for a model that learned from other
            workloads: its judgement is worth more candidates.
        informed_pool, informed_litter: The same for a draft that did.
    """

    epsilon: Share = 0.1
    suggested: Share = 0.25
    warmup: Count = 8
    proposer: str = "random"
    starts: ClassVar[float] = 0.5
    prior: ClassVar[bool] = True
    scored_per_ask: ClassVar[float] = 3.0
    generations: ClassVar[int] = 2
    elites: ClassVar[int] = 8
    crossover: ClassVar[float] = 0.25
    further_mutation: ClassVar[float] = 0.3
    fresh: ClassVar[float] = 0.25
    pool: ClassVar[int] = 16
    litter: ClassVar[int] = 3
    informed_per_ask: ClassVar[float] = 8.0
    informed_generations: ClassVar[int] = 3
    informed_pool: ClassVar[int] = 64
    informed_litter: ClassVar[int] = 16

    def __post_init__(self) -> None:
        require_options("evolutionary", self)


class Evolutionary(Strategy[C]):
    """Breeds candidates from the fastest measured ones; the model decides which are worth a trial.

    Args:
        space: Where candidates come from.
        model: Who scores them; ignored while it is not ready.
        rng: The only source of randomness.
        options: Fields of ``EvolutionConfig``; others go to its proposer.

    Attributes:
        measured: Seconds and candidate of what ran in this space, by key.
    """

    config_type: ClassVar[type[EvolutionConfig]] = EvolutionConfig

    def __init__(
        self,
        space: SearchSpace[C],
        model: CostModel[C],
        rng: np.random.Generator,
        **options: Any,
    ) -> None:
        super().__init__(space, model, rng)
        self.config, rest = self._configured(options)
        plain = self.config.proposer == "random"
        # Random mutation needs nobody: it is part of breeding, and may be repeated on a child.
        self.proposer = (
            None if plain else proposers.create(self.config.proposer, space, rng, **rest)
        )
        self._prepared: list[Situation[C]] = []
        self._foresaw: set[str] = set()
        self._lineage: Lineage[C] = Lineage()
        """For proposers, which are told of ancestors."""
        self._scores: dict[str, float] = {}
        """By key, of this batch."""
        self._failed: set[str] = set()
        self._sketches = {sketch.key for sketch in space.sketches}
        self.measured: dict[str, tuple[float, C]] = {}

    @classmethod
    def check_options(cls, options: Mapping[str, Any]) -> None:
        """Refuses what neither ``EvolutionConfig`` nor the proposer knows, or one refuses."""
        config, rest = cls._configured(options)
        proposers.check(config.proposer, rest)

    @classmethod
    def _configured(cls, options: Mapping[str, Any]) -> tuple[EvolutionConfig, dict[str, Any]]:
        """The configuration, and what is left for a proposer."""
        config, rest = configured(cls.config_type, "evolutionary", options)
        if config.proposer == "random":
            refuse_unknown("evolutionary", rest, option_names(cls.config_type))
        return config, rest

    @property
    def status(self) -> str:
        """What the proposer has to say."""
        return "" if self.proposer is None else self.proposer.status

    def ask(self, n: int) -> list[C]:
        """Up to ``n`` candidates; fewer when the space (or its legal part) is exhausted."""
        guided = may_judge(self.model, len(self.measured), self.config.warmup)
        chosen = self._start(n, guided)
        if len(chosen) < n:
            left = n - len(chosen)
            bred = self._exploit(left) if guided else self._explore(left)
            known = {candidate.key for candidate in chosen}
            chosen += [candidate for candidate in bred if candidate.key not in known]
        proposed = self.fresh.propose(chosen, n)
        if self.proposer is not None:
            # Of what children were made of, only what leads to programs that are measured is kept.
            self._lineage.keep([*proposed, *(known for _, known in self.measured.values())])
            self._look_ahead()
        return proposed

    def tell(self, trials: Sequence[Trial[C]]) -> None:
        """Adds what ran to the parents; what failed is only never proposed again."""
        super().tell(trials)
        for trial in trials:
            seconds = trial.measurement.best_s
            if not trial.measurement.ran or seconds is None:
                self._failed.add(trial.candidate_key)
                continue
            if trial.candidate.sketch.key in self._sketches:
                self.measured[trial.candidate_key] = (seconds, trial.candidate)

    def _start(self, n: int, guided: bool) -> list[C]:
        """Starts of the space and what was suggested, not proposed yet, the model's choice of it.

        Rounded up: a batch of one is a start, too.
        """
        wanted = math.ceil(self.config.starts * n)
        starts = self._choice(self.space.starts, wanted, guided) if wanted else []
        chosen = self.fresh.legal(wanted, starts)
        further = min(n - len(chosen), math.ceil(self.config.suggested * n))
        known = {candidate.key for candidate in chosen}
        suggested = self._choice(self.suggested.values(), further, guided) if further else []
        return chosen + self.fresh.legal(further, [c for c in suggested if c.key not in known])

    def _choice(self, candidates: Iterable[C], wanted: int, guided: bool) -> list[C]:
        """Those that are new, the best first if the model may say which these are.

        It looks closer at some more than are wanted, where it does that.
        """
        new = [candidate for candidate in candidates if self.fresh.is_new(candidate)]
        if not guided or not new:
            return new
        ranked = ordered(new, self.model.predict(new).score)
        nearer = ranked[: min(self.model.abilities.closer, LOOKED_AT * wanted)]
        if not nearer:
            return ranked
        return ordered(nearer, self.model.look(nearer)) + ranked[len(nearer) :]

    def _explore(self, n: int) -> list[C]:
        """A spread first batch: the sketches in turn, most of it programs that suit the machine."""
        pool = self.fresh.unseen(self.config.pool * n)
        suited = self._suited(pool, n) if self.config.prior else []
        picked = {c.key for c in suited}
        others = [c for c in pool if c.key not in picked]
        first = self.fresh.legal(round(_SUITED_SHARE * n), _by_sketch(suited))
        return first + self.fresh.legal(n - len(first), _by_sketch(others))

    def _exploit(self, n: int) -> list[C]:
        """A batch from generations of children, ranked by the model and thinned for diversity."""
        config, informed = self.config, self.model.abilities.informed
        generations = config.informed_generations if informed else config.generations
        per_ask = config.informed_per_ask if informed else config.scored_per_ask
        ranking = sorted(self.measured.values(), key=lambda m: (m[0], m[1].key))
        elites = [c for _, c in ranking[: config.elites]]
        size = math.ceil(per_ask * n / generations)
        scored: dict[str, C] = {}
        scores = self._scores = {}
        suggested = list(self.suggested.values()) if config.suggested else []
        parents = elites or suggested[: config.elites]
        for generation in range(generations):
            fresh = round(config.fresh * size) if parents else size
            children = self._newcomers(fresh, scored) if generation == 0 else []
            foreseen = self._foreseen({*_keys(children)}) if generation == 0 else []
            children += {edit.key: edit for _, edits in foreseen for edit in edits}.values()
            children += self._breed(parents, size - len(children), {*scored, *_keys(children)})
            self._score(children, scored, scores)
            self._tell_proposer(foreseen, scores)
            best = sorted(scored.values(), key=lambda c: (-scores[c.key], c.key))
            # Measured parents stay: a model trained on few programs errs, a measurement does not.
            parents = in_turns(elites, best[: config.elites])
        policy = BatchPolicy(config.epsilon, APART if elites else FIRST_APART)
        # In the order of keys: of what scores alike the first is chosen. Without the draft, so that
        # what it misjudges everywhere is still seen.
        bred = [(scored[key], scores[key]) for key in sorted(scored)]
        return pick(bred, n, policy, self.fresh, self.model)

    def _newcomers(self, n: int, exclude: Iterable[str]) -> list[C]:
        """New random candidates, by the draft if it is on, the most promising first."""
        if n < 1 or not self.config.prior:
            return self.fresh.unseen(n, exclude)
        size = self.config.pool * n
        if self.model.abilities.informed_draft:
            size = max(self.config.informed_pool * n, _LEAST_POOL)
        return self._suited(self.fresh.unseen(size, exclude), n)

    def _suited(self, pool: Sequence[C], n: int) -> list[C]:
        """``n`` of the pool by the draft, softly: noise lets a misjudged candidate through."""
        scale = _INFORMED_NOISE if self.model.abilities.informed_draft else _NOISE
        return drawn(pool, self.model.draft(pool), scale, self.rng)[:n]

    def _breed(self, parents: Sequence[C], n: int, known: set[str]) -> list[C]:
        """Up to ``n`` new distinct children; earlier parents are likelier (rank-based)."""
        if not parents or n < 1:
            return []
        informed = self.model.abilities.informed_draft
        litter = self.config.informed_litter if informed else self.config.litter
        wanted = n * (litter if self.config.prior else 1)
        drawn_pairs = pairs(len(parents), 4 * wanted, self.rng)
        children: dict[str, C] = {}
        if self.proposer is not None:
            mutants = round((1 - self.config.crossover) * wanted)
            asked = [parents[first] for first, _ in drawn_pairs[:mutants]]
            for parent, edits in self._edits(asked):
                new = {edit.key: edit for edit in edits if self._is_unknown(edit, known)}
                self._remember(parent, new.values())
                children |= new
        how = Breeding(self.config.crossover, self.config.further_mutation)
        for first, second in drawn_pairs:
            if len(children) >= wanted:
                break
            made = child(self.space, parents[first], parents[second], how, self.rng)
            if self._is_unknown(made, known):
                children.setdefault(made.key, made)
                if self.proposer is not None:
                    self._remember(parents[first], [made])
        bred = list(children.values())
        return self._suited(bred, n) if self.config.prior else bred

    def _is_unknown(self, child: C, known: set[str]) -> bool:
        return child.key not in known and self.fresh.is_new(child)

    def _edits(self, parents: Sequence[C]) -> list[tuple[C, list[C]]]:
        """What the proposer makes of each parent: as many edits as it occurs."""
        assert self.proposer is not None
        distinct = {parent.key: parent for parent in parents}
        counts = Counter(parent.key for parent in parents)
        best = self._fastest()
        asked = [self._situation(parent, counts[key], best) for key, parent in distinct.items()]
        return list(zip(distinct.values(), self.proposer.propose(asked), strict=True))

    def _remember(self, parent: C, children: Iterable[C]) -> None:
        """Keeps what children were made of."""
        self._lineage.add(Variant(parent, score=self._scores.get(parent.key)), children)

    def _variant(self, candidate: C, score: float | None = None) -> Variant[C]:
        seconds, _ = self.measured.get(candidate.key, (None, candidate))
        return Variant(candidate, score, seconds, candidate.key in self._failed)

    def _fastest(self) -> Variant[C] | None:
        fastest = min(self.measured.values(), key=lambda m: (m[0], m[1].key), default=None)
        return None if fastest is None else self._variant(fastest[1])

    def _situation(self, parent: C, wanted: int, best: Variant[C] | None) -> Situation[C]:
        program = self._variant(parent, self._scores.get(parent.key))
        line = self._lineage.of(parent, _ANCESTORS)
        ancestors = tuple(self._variant(each.candidate, each.score) for each in line)
        return Situation(program, max(1, wanted), ancestors, best)

    def _look_ahead(self) -> None:
        """Lets a slow proposer begin on the fastest programs that it was not asked about yet."""
        assert self.proposer is not None
        # What was asked about while nothing is bred yet waits for its turn.
        if self.proposer.foresight and not self._prepared:
            ranking = sorted(self.measured.values(), key=lambda m: (m[0], m[1].key))
            # What was asked about gives the same answer again, whose edits are known.
            new = [candidate for _, candidate in ranking if candidate.key not in self._foresaw]
            fastest = new[: self.proposer.foresight]
            self._foresaw.update(_keys(fastest))
            best = self._fastest()
            self._prepared = [self._situation(each, self.config.litter, best) for each in fastest]
            self.proposer.prepare(self._prepared)

    def _foreseen(self, known: set[str]) -> list[tuple[Situation[C], list[C]]]:
        """What the proposer made of the programs that it was told of before."""
        prepared, self._prepared = self._prepared, []
        if self.proposer is None or not prepared:
            return []
        foreseen = []
        for situation, edits in zip(prepared, self.proposer.propose(prepared), strict=True):
            new = [edit for edit in edits if self._is_unknown(edit, known)]
            self._remember(situation.program.candidate, new)
            foreseen.append((situation, new))
        return foreseen

    def _tell_proposer(
        self, foreseen: Sequence[tuple[Situation[C], list[C]]], scores: Mapping[str, float]
    ) -> None:
        """What the model thinks of its edits, and of what they were made of."""
        if self.proposer is None or not foreseen:
            return
        before = self.model.predict([each.program.candidate for each, _ in foreseen]).score.tolist()
        for (situation, edits), score in zip(foreseen, before, strict=True):
            program = replace(situation.program, score=score)
            judged = [Variant(edit, scores[edit.key]) for edit in edits if edit.key in scores]
            self.proposer.judged(replace(situation, program=program), judged)

    def _score(
        self,
        children: Sequence[C],
        scored: dict[str, C],
        scores: dict[str, float],
    ) -> None:
        predicted = self.model.predict(children).score.tolist()
        for each, score in zip(children, predicted, strict=True):
            if math.isnan(score):
                self.fresh.illegal.add(each.key)
            else:
                scored[each.key], scores[each.key] = each, score


def _keys(candidates: Iterable[SearchCandidate]) -> list[str]:
    return [c.key for c in candidates]


def _by_sketch(candidates: Sequence[C]) -> list[C]:
    """One of each sketch in turn, keeping the order within a sketch."""
    queues: dict[str, list[C]] = {}
    for candidate in candidates:
        queues.setdefault(candidate.sketch.key, []).append(candidate)
    return in_turns(*queues.values())
