"""Gradient search: many candidates at once climb the score of a model that has gradients.

Idea: with compute locations fixed, the features of a program are formulas of its tile factors and
choices, and the score of a perceptron on them can be differentiated. Some groups of candidates with
one structure each are chosen; in each, starts drawn from the space and the best candidates so far
climb by Adam. Every point on the way is rounded to legal decisions and scored again with exact
features; the best are improved by single steps, and the cost model, which has learned from the run,
picks from them what is measured. With ``guide="world"`` the world model stands for formulas and
perceptron: tile factors and choices are numbers of its actions.

Symbols: ``guide`` is the frozen model that is climbed, ``model`` the cost model of the run. A
*group* is a sketch and a structure (``foretune.symbolic``).

Reading order: here; ``_gradient_config`` for the options, ``_relaxed`` for coordinates and
rounding, ``_descent`` for the optimiser, ``_guide`` and ``_world_guide`` for the score.

Source: Felix (Zhao et al., ASPLOS 2024), sections 3 and 4. Deviations: gradients are those of
exact operators, which climb higher in the same time than those of smooth ones
(``docs/gradient.md``); rounded points are scored again with exact features, because the way to the
nearest whole numbers costs score; what was scored once is not scored again; the perceptron is not
trained further in a run: trees correct it where candidates are picked
(``foretune.cost.pretrained``);
the best of earlier rounds are among the starts; products of tiles are kept by projection, so that
penalties are left for GPU limits only; a new optimiser for each group.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from foretune._arrays import FloatArray
from foretune._options import configured, option_names, refuse_unknown
from foretune.errors import BadInputError, IllegalCandidateError
from foretune.search._base import Strategy
from foretune.search._choosing import BatchPolicy, drawn, may_judge, pick
from foretune.search._descent import Landscape, descend
from foretune.search._gradient_config import GUIDE_NAMES, GradientConfig
from foretune.search._guide import Guide
from foretune.search._guides import chosen_guide
from foretune.search._relaxed import Changes
from foretune.search.evolutionary import Evolutionary
from foretune.space import Candidate
from foretune.symbolic import UnsupportedTraceError

if TYPE_CHECKING:
    from foretune.cost import CostModel
    from foretune.records import Trial
    from foretune.space import Space

_log = logging.getLogger(__name__)

_STUDIED = ("objective", "smoothing", "temperature", "coldest", "annealing", "variables")
"""Options that the research package adds."""
_NOISE = 0.5
"""Spread of the noise on drafts that choose starts, in log2 of a slow-down."""
_FEASIBLE = 1e-9
_SCOUTED = 8
"""Candidates scored of a group that is looked at for the first time."""
_FILLED_UP = 4
"""Random decisions tried per start that a group lacks."""
_LED_BACK = 8
"""Of these, where none keeps the limits of the target: those moved until they do."""
_REMEMBERED = 4096
"""Scored candidates that may still be proposed."""
_KNOWN = 65_536
"""Candidates that are not scored again: those scored last."""
_LANDSCAPES = 32
"""Groups whose formulas each search keeps, those met last: some 1 MB each, and a network has a
search for every task. Others are compiled again."""


class Gradient(Strategy[Candidate]):
    """Climbs the score of a perceptron, or of a world model; the model picks what is measured.

    Where no sketch of the space can be climbed (a trace that is not understood, no trained guide
    for the target), evolutionary search proposes, and a warning says why.

    Args:
        space: Where candidates come from.
        model: Who picks among candidates of a high score; ignored while it is not ready.
        rng: The only source of randomness.
        guide: What is climbed: a guide, or the name of one, as in ``GradientConfig``.
        options: Fields of ``GradientConfig``.

    Attributes:
        predictions: Points and candidates that the guide has scored so far.
        best_score: The guide's highest score of a candidate so far; minus infinity before any.

    Raises:
        BadInputError: An option is unknown or makes no sense.
        MissingDependencyError: PyTorch is not installed.
    """

    config_type: ClassVar[type[GradientConfig]] = GradientConfig

    def __init__(
        self,
        space: Space,
        model: CostModel[Candidate],
        rng: np.random.Generator,
        *,
        guide: Guide | str = GradientConfig.guide,
        **options: Any,
    ) -> None:
        super().__init__(space, model, rng)
        self.check_options({**options, "guide": guide})
        own = {} if isinstance(guide, Guide) else {"guide": guide}
        self.config, _ = configured(self.config_type, "gradient", {**options, **own})
        self.predictions = 0
        self._evolution = Evolutionary(space, model, rng)
        self._evolution.fresh = self.fresh
        self._guide = guide if isinstance(guide, Guide) else self._named_guide()
        self._landscapes: dict[Hashable, Landscape | None] = {}
        self._scouted: set[Hashable] = set()
        self._barren: set[Hashable] = set()
        self._visits: dict[Hashable, int] = {}
        self._warned: set[str] = set()
        self.best_score = -math.inf
        self._scored: dict[str, float] = {}
        self._waiting: dict[str, Candidate] = {}
        self._settled: set[str] = set()

    @classmethod
    def check_options(cls, options: Mapping[str, Any]) -> None:
        """Refuses what ``GradientConfig`` does not know or refuses, and a guide that is none."""
        own = {name: value for name, value in options.items() if not isinstance(value, Guide)}
        config, rest = configured(cls.config_type, "gradient", own)
        refuse_unknown("gradient", rest, option_names(cls.config_type), _STUDIED)
        if config.weights.endswith(".npz") and not Path(config.weights).is_file():
            raise BadInputError(
                f"gradient: weights must be a file that is there, but got {config.weights!r}: "
                f"make one with `foretune train {config.guide}`"
            )

    def _named_guide(self) -> Guide | None:
        return chosen_guide(self.model, self.space.hardware, self.config)

    def suggest(self, candidates: Sequence[Candidate]) -> None:
        """Tells those who breed the first batches, too."""
        super().suggest(candidates)
        self._evolution.suggest(candidates)

    def ask(self, n: int) -> list[Candidate]:
        """Up to ``n`` candidates; fewer when the space (or its legal part) is exhausted."""
        opening = self.config.opening and not self.fresh.seen and self._guide is not None
        if opening or not self.explore():
            return self._evolution.ask(n)
        policy = BatchPolicy(self.config.epsilon)
        proposed = self.fresh.propose(self._picked(n, policy), n)
        for candidate in proposed:
            self._waiting.pop(candidate.key, None)
        return proposed

    def tell(self, trials: Sequence[Trial[Candidate]]) -> None:
        """What ran may become an elite; what failed is only never proposed again."""
        self._evolution.tell(trials)
        for trial in trials:
            self._waiting.pop(trial.candidate_key, None)

    def explore(self) -> bool:
        """Looks for candidates that the guide scores high; they wait to be proposed.

        Returns:
            Whether there is anything to climb: False where every group drawn is refused.
        """
        if self._guide is None:
            what = GUIDE_NAMES[self.config.guide]
            self._warn_once(f"no {what} is trained for this target: give one as `weights`")
            return False
        from foretune._torch import limited_threads

        # Other cores build and measure, or do the same for another task.
        with limited_threads(1):
            climbed = self._found()
        self._forget()
        return climbed

    def _found(self) -> bool:
        """A round of climbs; whether there was anything to climb."""
        drawn = self.fresh.unseen(self.config.pool * self.config.seeds)
        drafted = self._drafted(drawn)
        self._scout(drafted)
        groups = self._chosen_groups(drafted)
        if not groups:
            if drawn:
                self._warn_once("none of its sketches can be climbed: evolutionary search proposes")
            return not drawn
        for landscape, members in groups:
            self._climb(landscape, members)
        self._polish()
        return True

    # Groups and starts.

    def _drafted(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Candidates by falling draft, with noise that lets a misjudged one through."""
        return (
            drawn(candidates, self.model.draft(candidates), _NOISE, self.rng) if candidates else []
        )

    def _by_group(self, candidates: Iterable[Candidate]) -> dict[Hashable, list[Candidate]]:
        assert self._guide is not None
        members: dict[Hashable, list[Candidate]] = {}
        for candidate in candidates:
            members.setdefault(self._guide.group(candidate), []).append(candidate)
        return members

    def _scout(self, drafted: Sequence[Candidate]) -> None:
        """Scores candidates of new groups: the structure matters as much as the numbers."""
        members = self._by_group(drafted)
        new = [group for group in members if group not in self._scouted][: self.config.scouts]
        scouted: list[Candidate] = []
        for group in new:
            landscape = self._landscape(group, members[group][0])
            if landscape is not None:
                scouted += self._allowed(landscape, members[group][:_SCOUTED])
        self._take(scouted)

    def _chosen_groups(
        self, drafted: Sequence[Candidate]
    ) -> list[tuple[Landscape, list[Candidate]]]:
        """Landscapes to climb, each with candidates of its group, the most promising first.

        Half of the groups are those of the elites; the others were climbed least, and among these
        have the best drafts.
        """
        assert self._guide is not None
        elites = self._elites()
        members = self._by_group([*elites, *drafted])
        known = list(dict.fromkeys(self._guide.group(elite) for elite in elites))
        half = known[: self.config.structures // 2]
        rest = sorted(
            (group for group in members if group not in half),
            key=lambda group: (group in self._barren, self._visits.get(group, 0)),
        )
        chosen = []
        for group in [*half, *rest]:
            landscape = self._landscape(group, members[group][0])
            starts = [] if landscape is None else self._feasible(landscape, members[group])
            if landscape is not None and starts:
                self._visits[group] = self._visits.get(group, 0) + 1
                chosen.append((landscape, starts))
            if len(chosen) == self.config.structures:
                break
        return chosen

    def _elites(self) -> list[Candidate]:
        """The fastest measured candidates and those that the guide likes best, in turn."""
        fastest = sorted(self._evolution.measured.values(), key=lambda m: (m[0], m[1].key))
        liked, count = self._ranked(), self.config.elites
        both = [c for pair in zip((c for _, c in fastest), liked, strict=False) for c in pair]
        both += [c for _, c in fastest[len(liked) :]] + liked[len(fastest) :]
        return list({c.key: c for c in both}.values())[:count]

    def _landscape(self, group: Hashable, candidate: Candidate) -> Landscape | None:
        assert self._guide is not None
        if group not in self._landscapes:
            self._scouted.add(group)
            try:
                self._landscapes[group] = self._guide.landscape(candidate)
            except UnsupportedTraceError as error:
                self._landscapes[group] = None
                self._warn_once(f"some sketches cannot be climbed: {error}")
        landscape = self._landscapes[group] = self._landscapes.pop(group)
        return landscape

    def _feasible(self, landscape: Landscape, members: Sequence[Candidate]) -> list[Candidate]:
        """Starts of a group, as many as its share, filled up with random decisions."""
        assert self._guide is not None
        share = max(1, self.config.seeds // self.config.structures)
        starts = self._allowed(landscape, members)[:share]
        group, lacking = self._guide.group(members[0]), share - len(starts)
        if lacking > 0 and landscape.relaxed.size and group not in self._barren:
            drawn = landscape.relaxed.sample(self.rng, _FILLED_UP * lacking)
            more = self._edited(members[0], drawn)
            known = set(_keys(starts))
            new = [c for c in more if c.key not in known]
            starts += (self._allowed(landscape, new) or self._led_back(landscape, new))[:lacking]
        if not starts:
            # Given up: a group that keeps no limit is not to be drawn from in every round.
            self._barren.add(group)
            self._warn_once(
                f"sketch {members[0].sketch.key} has a structure with no feasible start: no random "
                "candidate keeps the limits of the target, nor do single steps lead to one that "
                "does; other structures are climbed"
            )
        return starts

    def _led_back(self, landscape: Landscape, drawn: Sequence[Candidate]) -> list[Candidate]:
        """The nearest to what limits allow, moved by single steps until they keep them."""
        beyond = self._beyond(landscape, drawn)
        legal = []
        for at in np.argsort(beyond, kind="stable")[:_LED_BACK].tolist():
            current, excess = drawn[at], float(beyond[at])
            while excess > _FEASIBLE:
                near = self._edited(current, landscape.relaxed.neighbours(current.decisions))
                left = self._beyond(landscape, near)
                if not near or left.min() >= excess:
                    break
                current, excess = near[int(left.argmin())], float(left.min())
            if excess <= _FEASIBLE:
                legal.append(current)
        return list({c.key: c for c in legal}.values())

    @staticmethod
    def _beyond(landscape: Landscape, candidates: Sequence[Candidate]) -> FloatArray:
        """How far candidates are from keeping the limits, shape (n,)."""
        if not candidates:
            return np.zeros(0)
        return landscape.excess(landscape.relaxed.of([c.decisions for c in candidates]))

    def _allowed(self, landscape: Landscape, candidates: Sequence[Candidate]) -> list[Candidate]:
        inside = (self._beyond(landscape, candidates) <= _FEASIBLE).tolist()
        return [c for c, holds in zip(candidates, inside, strict=True) if holds]

    # Looking for candidates.

    def _climb(self, landscape: Landscape, starts: Sequence[Candidate]) -> None:
        """Scores every legal candidate on the way up from some starts."""
        relaxed = landscape.relaxed
        if not relaxed.size:
            self._take(starts)
            return
        x = relaxed.of([candidate.decisions for candidate in starts])
        visited = descend(landscape, x, self.config.descent)
        self.predictions += len(x) * (len(visited) - 1)
        decisions = relaxed.rounded(visited.reshape(-1, relaxed.size))
        self._take([*starts, *self._allowed(landscape, self._edited(starts[0], decisions))])

    def _edited(self, base: Candidate, decisions: Iterable[Changes]) -> list[Candidate]:
        """A candidate with other decisions; locations that they rule out are drawn again."""
        edits = []
        for changes in decisions:
            try:
                edits.append(self.space.edit(base, changes, self.rng))
            except IllegalCandidateError:
                continue
        return edits

    def _take(self, candidates: Iterable[Candidate]) -> None:
        """Scores what has not been scored before; what may still be proposed waits."""
        assert self._guide is not None
        new = {c.key: c for c in candidates if c.key not in self._scored}
        if not new:
            return
        self.predictions += len(new)
        scores = self._guide.scores(list(new.values())).tolist()
        for (key, candidate), score in zip(new.items(), scores, strict=True):
            if math.isnan(score):
                self.fresh.illegal.add(key)
            self._scored[key] = -math.inf if math.isnan(score) else score
            self.best_score = max(self.best_score, self._scored[key])
            if self.fresh.is_new(candidate):
                self._waiting[key] = candidate

    def _polish(self) -> None:
        """Moves the best by single steps for as long as that makes them better.

        A step moves one prime factor, changes one choice, or another structure is tried.
        """
        assert self._guide is not None
        ranked = (c for c in self._ranked() if c.key not in self._settled)
        current = list(itertools.islice(ranked, self.config.polished))
        for _ in range(self.config.polishing):
            steps = [(c, self._steps(c)) for c in current]
            self._take(near for _, each in steps for near in each)
            better: dict[str, Candidate] = {}
            for start, each in steps:
                best = max([start, *each], key=lambda c: self._scored[c.key])
                if best is start:
                    self._settled.add(start.key)
                elif best.key not in self._settled:
                    better[best.key] = best
            current = list(better.values())

    def _steps(self, candidate: Candidate) -> list[Candidate]:
        assert self._guide is not None
        landscape = self._landscape(self._guide.group(candidate), candidate)
        if landscape is None:
            return []
        near = self._edited(candidate, landscape.relaxed.neighbours(candidate.decisions))
        steps = self._allowed(landscape, near)
        open_to = landscape.relaxed.open_variables
        fixed = [i for i in range(len(candidate.decisions)) if i not in open_to]
        if fixed:
            steps += [self.space.mutate(candidate, self.rng, among=fixed) for _ in fixed]
        return steps

    def _ranked(self) -> list[Candidate]:
        """What may still be proposed by falling score; what scores like a better one comes last.

        Equal scores mean equal programs, nearly always.
        """
        waiting = [c for c in self._waiting.values() if self.fresh.is_new(c)]
        waiting.sort(key=lambda c: (-self._scored[c.key], c.key))
        first: dict[float, Candidate] = {}
        again = []
        for candidate in waiting:
            if first.setdefault(self._scored[candidate.key], candidate) is not candidate:
                again.append(candidate)
        return [*first.values(), *again]

    def _forget(self) -> None:
        self._waiting = {c.key: c for c in self._ranked()[:_REMEMBERED]}
        climbed = [group for group, landscape in self._landscapes.items() if landscape is not None]
        for group in climbed[:-_LANDSCAPES]:
            del self._landscapes[group]
        oldest = itertools.islice(self._scored, max(0, len(self._scored) - _KNOWN))
        for key in [key for key in oldest if key not in self._waiting]:
            del self._scored[key]
        self._settled &= self._scored.keys()

    # What is proposed.

    def _picked(self, n: int, policy: BatchPolicy) -> list[Candidate]:
        """Of the candidates of the highest score those that the cost model likes best."""
        finalists = self._ranked()[: self.config.finalists * n]
        measured = len(self._evolution.measured)
        if not may_judge(self.model, measured, self.config.warmup):
            # Their places, not their scores: what scores like a better one comes last.
            return pick(
                [(each, -float(at)) for at, each in enumerate(finalists)], n, policy, self.fresh
            )
        scores = self.model.predict(finalists).score.tolist()
        return pick(list(zip(finalists, scores, strict=True)), n, policy, self.fresh, self.model)

    def _warn_once(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            _log.warning("gradient search of %s: %s", self.space.workload.name, text)


def _keys(candidates: Iterable[Candidate]) -> list[str]:
    return [candidate.key for candidate in candidates]
