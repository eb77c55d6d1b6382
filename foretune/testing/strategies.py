"""The contract of a strategy, as checks that a plug-in's author runs over the strategy's factory.

A factory is called as ``factory(space, model, rng)`` and returns a ``Strategy``. It must be a
module-level function or class, because one check runs it in another process. What a strategy needs
to propose a program once is in ``foretune.search.FreshSampler``.

    @pytest.mark.parametrize("check", strategies.CHECKS, ids=lambda check: check.__name__)
    def test_contract(check):
        check(MyStrategy)
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from foretune.cost import CostModel, Prediction, create
from foretune.records import Trial
from foretune.search import Strategy
from foretune.testing.synthetic import (
    SyntheticCandidate,
    SyntheticMeasurer,
    SyntheticSpace,
    synthetic_trial,
)

StrategyFactory = Callable[[Any, CostModel[Any], np.random.Generator], Strategy[Any]]


class OracleModel(CostModel[SyntheticCandidate]):
    """Knows the synthetic latency: the score is minus its logarithm. NaN for illegal candidates."""

    def fit(self, records: Sequence[Trial[SyntheticCandidate]]) -> None:
        """Nothing to learn."""

    def update(self, records: Sequence[Trial[SyntheticCandidate]]) -> None:
        """Nothing to learn."""

    def predict(self, candidates: Sequence[SyntheticCandidate]) -> Prediction:
        """Minus log seconds."""
        score = [-np.log(c.seconds) if c.legal else np.nan for c in candidates]
        return Prediction(np.array(score, dtype=np.float64), np.zeros(len(candidates)))


class NanModel(OracleModel):
    """Gives NaN for every candidate."""

    def predict(self, candidates: Sequence[SyntheticCandidate]) -> Prediction:
        """All NaN."""
        return Prediction(np.full(len(candidates), np.nan), np.zeros(len(candidates)))


class UnreadyModel(OracleModel):
    """Was never trained; its scores are NaN and must not be needed."""

    ready = False

    def predict(self, candidates: Sequence[SyntheticCandidate]) -> Prediction:
        """All NaN."""
        return Prediction(np.full(len(candidates), np.nan), np.zeros(len(candidates)))


def run(
    strategy: Strategy[Any], trials: int, batch: int = 8, measurer: SyntheticMeasurer | None = None
) -> list[tuple[SyntheticCandidate, float]]:
    """Drives ask, measure, update and tell as a tuner does, without records on disk.

    Returns:
        Candidates in the order proposed, each with its seconds (inf for a failure); fewer than
        ``trials`` when the space ran out.
    """
    measurer = measurer or SyntheticMeasurer()
    history: list[tuple[SyntheticCandidate, float]] = []
    while len(history) < trials:
        asked: list[Any] = strategy.ask(min(batch, trials - len(history)))
        if not asked:
            break
        measured = list(measurer.measure(asked))
        told = [synthetic_trial(c, m) for c, m in measured]
        strategy.model.update(told)
        strategy.tell(told)
        history += [(c, float("inf") if m.best_s is None else m.best_s) for c, m in measured]
    return history


def keys(candidates: Iterable[Any]) -> list[str]:
    """Keys in order."""
    return [c.key for c in candidates]


def check_distinct(factory: StrategyFactory) -> None:
    """No candidate is proposed twice, neither within a batch nor over batches."""
    strategy = factory(SyntheticSpace(seed=1), OracleModel(), np.random.default_rng(1))
    proposed = [c.key for c, _ in run(strategy, 96)]
    assert len(proposed) == 96, f"96 candidates were asked for, but {len(proposed)} proposed"
    assert len(set(proposed)) == 96, "a candidate was proposed twice"


def check_batch_size(factory: StrategyFactory) -> None:
    """``ask(n)`` gives at most ``n``, and exactly ``n`` in a large space."""
    strategy = factory(SyntheticSpace(seed=2), OracleModel(), np.random.default_rng(2))
    for n in (1, 3, 16):
        asked = strategy.ask(n)
        assert len(asked) == n, f"ask({n}) gave {len(asked)} candidates in a large space"


def check_untold_not_repeated(factory: StrategyFactory) -> None:
    """What was asked but never told is not proposed again."""
    space = SyntheticSpace(tiles=((8, 3),), choices=(4,), seed=3)
    strategy = factory(space, OracleModel(), np.random.default_rng(3))
    asked = [key for _ in range(6) for key in keys(strategy.ask(8))]
    assert len(set(asked)) == len(asked), "a candidate was proposed again before it was told"


def check_told_not_proposed(factory: StrategyFactory) -> None:
    """Records from elsewhere (a resumed run) are taken in and not proposed again."""
    space = SyntheticSpace(tiles=((8, 2),), choices=(3,), sketches=1, seed=4)
    everything = list(space.everything())
    told = everything[::2]
    strategy = factory(space, OracleModel(), np.random.default_rng(4))
    strategy.tell([synthetic_trial(c, m) for c, m in SyntheticMeasurer().measure(told)])
    proposed = {c.key for c, _ in run(strategy, len(everything), batch=4)}
    again = proposed & set(keys(told))
    assert not again, f"candidates that were told were proposed again: {sorted(again)}"
    assert proposed == set(keys(everything[1::2])), "a candidate that was left was never proposed"


def check_program_once(factory: StrategyFactory) -> None:
    """A program is proposed once, whatever decisions make it, also in a run that goes on."""
    space = SyntheticSpace(tiles=((12, 2),), choices=(3, 4), sketches=2, seed=15, twins=True)
    first = factory(space, OracleModel(), np.random.default_rng(15))
    asked = [c for c, _ in run(first, 18, batch=6)]
    resumed = factory(space, OracleModel(), np.random.default_rng(16))
    resumed.tell([synthetic_trial(c, m) for c, m in SyntheticMeasurer().measure(asked)])
    asked += [c for c, _ in run(resumed, space.size, batch=6)]
    programs = [c.program for c in asked]
    assert len(set(programs)) == len(programs), "other decisions of the same program were proposed"
    left = {c.program for c in space.everything()} - set(programs)
    assert not left, f"programs that nobody measured were never proposed: {sorted(left)}"


def check_exhaustion(factory: StrategyFactory) -> None:
    """A small space is proposed whole; then ``ask`` gives an empty list, again and again."""
    space = SyntheticSpace(tiles=((12, 2),), choices=(2,), sketches=2, seed=5)
    strategy = factory(space, OracleModel(), np.random.default_rng(5))
    proposed = [c.key for c, _ in run(strategy, 10 * space.size, batch=5)]
    assert sorted(proposed) == sorted(keys(space.everything())), "the space was not covered once"
    assert strategy.ask(4) == [] and strategy.ask(4) == [], "ask on an exhausted space gave some"


def check_illegal_candidates(factory: StrategyFactory) -> None:
    """Illegal candidates are not proposed; a space with nothing legal counts as exhausted."""
    space = SyntheticSpace(seed=6, illegal=0.8)
    proposed = run(factory(space, OracleModel(), np.random.default_rng(6)), 48)
    assert len(proposed) == 48, f"48 legal candidates exist, but {len(proposed)} were proposed"
    assert all(c.legal for c, _ in proposed), "an illegal candidate was proposed"
    hopeless = SyntheticSpace(tiles=((2**20, 4),), sketches=1, seed=6, illegal=1.0)
    assert factory(hopeless, OracleModel(), np.random.default_rng(6)).ask(4) == []


def check_same_seed(factory: StrategyFactory) -> None:
    """The same seed and measurements give the same candidates."""
    first, second = _trace(factory, 7), _trace(factory, 7)
    assert first == second, "two runs with one seed differ"
    assert first != _trace(factory, 8), "two seeds give the same candidates"


def check_other_process(factory: StrategyFactory) -> None:
    """The same seed gives the same candidates in another process, whose string hashes differ."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        there = pool.apply(_trace, (factory, 9))
    assert there == _trace(factory, 9), "a run in another process with the same seed differs"


def check_order_of_tell(factory: StrategyFactory) -> None:
    """Records may arrive late, in pieces, in another order, or never."""
    strategy = factory(SyntheticSpace(seed=10), OracleModel(), np.random.default_rng(10))
    measurer = SyntheticMeasurer()
    first: list[Any] = strategy.ask(8)
    second: list[Any] = strategy.ask(8)
    records = [synthetic_trial(c, m) for c, m in measurer.measure([*second, *first])]
    strategy.tell([])
    for record in records[::-1][:12]:
        strategy.tell([record])
    third = strategy.ask(8)
    assert len({*keys(first), *keys(second), *keys(third)}) == 24


def check_nan_scores(factory: StrategyFactory) -> None:
    """A model that gives only NaN, or was never trained, does not stop the search."""
    for model in (NanModel(), UnreadyModel()):
        strategy = factory(SyntheticSpace(seed=11), model, np.random.default_rng(11))
        proposed = run(strategy, 40)
        assert len(proposed) == 40, f"{type(model).__name__}: only {len(proposed)} of 40 proposed"


def check_failures(factory: StrategyFactory) -> None:
    """Failed measurements, even all of them, are taken in and the search goes on."""
    for share in (0.5, 1.0):
        space = SyntheticSpace(seed=12, failing=share)
        proposed = run(factory(space, OracleModel(), np.random.default_rng(12)), 40)
        assert len(proposed) == 40, f"with {share:.0%} failing only {len(proposed)} were proposed"


def check_untuned_told(factory: StrategyFactory) -> None:
    """The untuned program, which belongs to no sketch of the space, may be told."""
    space = SyntheticSpace(seed=13)
    strategy = factory(space, OracleModel(), np.random.default_rng(13))
    untuned = space.untuned
    strategy.tell([synthetic_trial(c, m) for c, m in SyntheticMeasurer().measure([untuned])])
    proposed = [c.key for c, _ in run(strategy, 24)]
    assert len(proposed) == 24 and untuned.key not in proposed


def check_random_model(factory: StrategyFactory) -> None:
    """Works with a model whose scores say nothing."""
    model = create("random", rng=14)
    strategy = factory(SyntheticSpace(seed=14), model, np.random.default_rng(14))
    assert len(run(strategy, 40)) == 40


def _trace(factory: StrategyFactory, seed: int) -> list[str]:
    space = SyntheticSpace(seed=100, illegal=0.2, failing=0.1)
    strategy = factory(space, OracleModel(), np.random.default_rng(seed))
    return [c.key for c, _ in run(strategy, 40)]


CHECKS: tuple[Callable[[StrategyFactory], None], ...] = (
    check_distinct,
    check_batch_size,
    check_untold_not_repeated,
    check_told_not_proposed,
    check_program_once,
    check_exhaustion,
    check_illegal_candidates,
    check_same_seed,
    check_other_process,
    check_order_of_tell,
    check_nan_scores,
    check_failures,
    check_untuned_told,
    check_random_model,
)


def check_strategy(factory: StrategyFactory) -> None:
    """Runs every check of the suite. Raises AssertionError at the first promise broken."""
    for check in CHECKS:
        check(factory)
