"""Choosing what is measured: of the candidates that a strategy has scored, the batch it proposes.

Idea: the highest scores come first. Where the cost model can look closer, it does so at the best of
them, and its second opinion counts. What is nearly a better candidate's twin teaches little beside
it, so such comes last. A few of the batch are random: what the model misjudges everywhere is still
seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._arrays import FloatArray
from foretune._options import Share, require_options
from foretune.space.protocol import C

if TYPE_CHECKING:
    from foretune.cost import CostModel
    from foretune.search.sampling import FreshSampler
    from foretune.space import SearchCandidate

APART = 2
"""Decisions in which proposals of a batch differ."""
FIRST_APART = 3
"""The same while nothing is measured: a wrong belief should not be tried eight times."""
LOOKED_AT = 2
"""Candidates that a model looks closer at for each one that is wanted: of starts at most, of what
was bred at least."""


@dataclass(frozen=True)
class BatchPolicy:
    """How a batch is chosen from scored candidates.

    Attributes:
        epsilon: Share of it that is random, in [0, 1].
        apart: Decisions in which what is chosen differs; candidates that differ in fewer from a
            better one are chosen when there are no others.
    """

    epsilon: Share = 0.1
    apart: int = APART

    def __post_init__(self) -> None:
        require_options("a batch", self)


def pick(
    scored: Iterable[tuple[C, float]],
    n: int,
    policy: BatchPolicy,
    fresh: FreshSampler[C],
    model: CostModel[C] | None = None,
) -> list[C]:
    """Up to ``n`` of scored candidates and of random ones, new and legal; none is marked yet.

    Args:
        scored: Candidates with their scores, higher is better; of equal ones the first is. NaN
            means that a candidate is illegal, and it is remembered as such.
        n: How many are wanted.
        policy: How they are chosen.
        fresh: What was proposed so far; its ``rng`` draws.
        model: Looks closer at the best, if it does so at all.
    """
    best = _ranked(scored, fresh)
    if model is not None:
        best = _looked_at(best, n, model, fresh)
    # Rounded by chance: a batch of one explores too, now and then.
    explored = int(policy.epsilon * n + fresh.rng.random())
    guided = fresh.legal(n - explored, spread(best, policy.apart))
    return guided + fresh.random(explored, guided)


def may_judge(model: CostModel[Any], measured: int, warmup: int) -> bool:
    """Whether a model's scores are worth following after so many measurements.

    Args:
        model: Of the run.
        measured: Candidates measured in this space.
        warmup: So many are needed by a model that learned nothing from other workloads.
    """
    able = model.abilities
    return (able.informed or measured >= warmup) and able.ready


def _ranked(scored: Iterable[tuple[C, float]], fresh: FreshSampler[C]) -> list[C]:
    pairs = list(scored)
    fresh.illegal.update(candidate.key for candidate, score in pairs if math.isnan(score))
    known = [pair for pair in pairs if not math.isnan(pair[1])]
    return [candidate for candidate, _ in sorted(known, key=lambda pair: -pair[1])]


def _looked_at(best: Sequence[C], n: int, model: CostModel[C], fresh: FreshSampler[C]) -> list[C]:
    """The best after a closer look, where the model has one: ``n`` are chosen from these alone."""
    closer = model.abilities.closer
    nearer = best[: max(closer, LOOKED_AT * n)] if closer else []
    scores = model.look(nearer).tolist() if nearer else []
    if not model.abilities.closer:
        # There is nobody to ask, or not any more: nothing has changed.
        return list(best)
    judged = sorted(zip(nearer, scores, strict=True), key=lambda pair: pair[0].key)
    return _ranked(judged, fresh)


def ordered(candidates: Sequence[C], scores: FloatArray) -> list[C]:
    """The highest score first, equal ones as they were given; those without one last."""
    order = np.argsort(-np.nan_to_num(scores, nan=-np.inf), kind="stable")
    return [candidates[at] for at in order.tolist()]


def drawn(
    candidates: Sequence[C],
    scores: FloatArray,
    temperature: float,
    rng: np.random.Generator,
) -> list[C]:
    """Candidates in an order that follows their scores softly.

    It is a draw without replacement in which each weighs ``exp(score / temperature)``: an error of
    the scores, which programs alike may share, does not fill all places. Scores with Gumbel noise,
    sorted, are such a draw (Kool et al., "Stochastic beams and where to find them", ICML 2019).

    Args:
        candidates: What is ordered.
        scores: Of each, higher is better, shape (n,).
        temperature: Above 0, in the unit of the scores.
        rng: Draws.
    """
    noisy = scores + rng.gumbel(size=len(candidates), scale=temperature)
    return [candidates[at] for at in np.argsort(-noisy, kind="stable").tolist()]


def spread(ranked: Iterable[C], least: int = APART) -> Iterator[C]:
    """Candidates that differ from every earlier one in ``least`` decisions first, then the rest.

    What differs in one decision from a better one teaches little that the better one does not.
    One by one: who takes a few of many compares only these few with one another.
    """
    apart: list[C] = []
    near: list[C] = []
    for candidate in ranked:
        close = any(
            candidate.sketch.key == other.sketch.key and difference(candidate, other) < least
            for other in apart
        )
        if close:
            near.append(candidate)
        else:
            apart.append(candidate)
            yield candidate
    yield from near


def difference(a: SearchCandidate, b: SearchCandidate) -> int:
    """Decisions in which two candidates of one sketch differ."""
    return sum(x != y for x, y in zip(a.decisions, b.decisions, strict=True))
