"""The contract of a cost model, as checks that a plug-in's author runs over the model's factory.

A factory is called as ``factory(rng=...)`` and returns a ``CostModel`` that can score the
candidates of a ``SyntheticSpace`` (a model over programs takes its extractor as an argument: give
it ``synthetic_features``). It must be a module-level function or class, because one check runs it
in another process.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from foretune.cost import CostModel, Prediction
from foretune.measure import Measurement, Status
from foretune.records import Trial
from foretune.testing.synthetic import (
    SyntheticCandidate,
    SyntheticMeasurer,
    SyntheticSpace,
    synthetic_trial,
)

CostModelFactory = Callable[..., CostModel[Any]]


def measured(space: SyntheticSpace, n: int, seed: int) -> list[Trial[SyntheticCandidate]]:
    """Measurements of ``n`` random candidates."""
    candidates = space.sample(np.random.default_rng(seed), n)
    return [synthetic_trial(c, m) for c, m in SyntheticMeasurer().measure(candidates)]


def pair_accuracy(prediction: Prediction, candidates: Sequence[Any]) -> float:
    """Share of the pairs that the scores order as the synthetic latency does; 0.5 is chance."""
    seconds = np.array([c.seconds for c in candidates])
    i, j = np.triu_indices(len(seconds), 1)
    right = np.sign(prediction.score[i] - prediction.score[j]) == np.sign(seconds[j] - seconds[i])
    return float(right.mean())


def check_unfitted(factory: CostModelFactory) -> None:
    """``predict`` works before any ``fit``, and after a ``fit`` of nothing."""
    model = factory(rng=np.random.default_rng(0))
    candidates: list[Any] = SyntheticSpace().sample(np.random.default_rng(0), 5)
    _shapes(model.predict(candidates), 5)
    model.fit([])
    _shapes(model.predict(candidates), 5)


def check_empty(factory: CostModelFactory) -> None:
    """No candidates give no scores; no records change nothing."""
    model = factory(rng=np.random.default_rng(0))
    _shapes(model.predict([]), 0)
    model.update([])
    model.fit(measured(SyntheticSpace(), 20, 0))
    model.update([])
    _shapes(model.predict([]), 0)


def check_few_records(factory: CostModelFactory) -> None:
    """One record, or many with one time, are taken in."""
    space = SyntheticSpace()
    candidates: list[Any] = space.sample(np.random.default_rng(1), 6)
    for count in (1, 2, 3):
        model = factory(rng=np.random.default_rng(0))
        model.fit(measured(space, count, 1))
        _shapes(model.predict(candidates), 6)
    model = factory(rng=np.random.default_rng(0))
    same = Measurement(Status.OK, (1e-3,), (True,))
    model.fit([synthetic_trial(c, same) for c in space.sample(np.random.default_rng(2), 20)])
    _shapes(model.predict(candidates), 6)


def check_failures(factory: CostModelFactory) -> None:
    """Failed measurements are taken in, also when there is nothing else."""
    space = SyntheticSpace(failing=1.0)
    model = factory(rng=np.random.default_rng(0))
    model.fit(measured(space, 20, 2))
    _shapes(model.predict(_some(space)), 10)
    model.update(measured(SyntheticSpace(failing=0.3), 40, 3))
    _shapes(model.predict(_some(space)), 10)


def check_illegal(factory: CostModelFactory) -> None:
    """An illegal candidate gets NaN or a score, never an exception; legal ones get numbers."""
    space = SyntheticSpace(illegal=0.5)
    model = factory(rng=np.random.default_rng(0))
    model.fit(measured(space, 40, 4))
    candidates: list[Any] = space.sample(np.random.default_rng(5), 30)
    prediction = model.predict(candidates)
    _shapes(prediction, 30)
    legal = np.array([c.legal for c in candidates])
    assert not np.isnan(prediction.score[legal]).any(), "a legal candidate was scored NaN"


def check_several_workloads(factory: CostModelFactory) -> None:
    """Records of several workloads, of different size and speed, may be mixed."""
    spaces = [SyntheticSpace(seed=seed) for seed in range(3)]
    model = factory(rng=np.random.default_rng(0))
    model.fit(
        [record for i, space in enumerate(spaces) for record in measured(space, 5 + 9 * i, i)]
    )
    mixed: list[Any] = [c for space in spaces for c in space.sample(np.random.default_rng(6), 4)]
    _shapes(model.predict(mixed), 12)


def check_same_seed(factory: CostModelFactory) -> None:
    """The same seed, records and calls give the same scores, in another process too."""
    here = _scores(factory)
    assert here == _scores(factory), "two models with one seed differ"
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        there = pool.apply(_scores, (factory,))
    assert here == there, "a model with the same seed differs in another process"


def check_batch_independence(factory: CostModelFactory) -> None:
    """A trained model's score does not depend on which other candidates are in the batch."""
    space = SyntheticSpace()
    model = factory(rng=np.random.default_rng(0))
    model.fit(measured(space, 60, 7))
    candidates: list[Any] = space.sample(np.random.default_rng(8), 8)
    together = model.predict(candidates).score
    alone = np.array([model.predict([c]).score[0] for c in candidates])
    assert np.allclose(together, alone, atol=1e-5), "scores depend on the batch"


def check_learns(factory: CostModelFactory) -> None:
    """After 96 records the model orders more than 65 % of unseen pairs right and is ready."""
    space = SyntheticSpace(seed=3)
    model = factory(rng=np.random.default_rng(0))
    records = measured(space, 96, 9)
    model.fit(records[:48])
    model.update(records[48:])
    unseen: list[Any] = space.sample(np.random.default_rng(10), 128)
    accuracy = pair_accuracy(model.predict(unseen), unseen)
    assert model.abilities.ready, "the model is not ready after 96 records"
    assert accuracy > 0.65, f"only {accuracy:.0%} of unseen pairs are ordered right"


def check_fit_forgets(factory: CostModelFactory) -> None:
    """``fit`` forgets: records fitted before leave no trace."""
    space = SyntheticSpace()
    fresh, used = (factory(rng=np.random.default_rng(0)) for _ in range(2))
    used.fit(measured(SyntheticSpace(seed=9), 40, 11))
    for model in (fresh, used):
        model.fit(measured(space, 40, 12))
    assert np.allclose(fresh.predict(_some(space)).score, used.predict(_some(space)).score)


def _some(space: SyntheticSpace) -> list[Any]:
    return list(space.sample(np.random.default_rng(99), 10))


def _scores(factory: CostModelFactory) -> list[float]:
    space = SyntheticSpace(failing=0.1)
    model = factory(rng=np.random.default_rng(5))
    model.fit(measured(space, 30, 13))
    first = model.predict(_some(space)).score
    model.update(measured(space, 30, 14))
    return [*first.tolist(), *model.predict(_some(space)).score.tolist()]


def _shapes(prediction: Prediction, n: int) -> None:
    for name in ("score", "spread"):
        values = getattr(prediction, name)
        assert values.shape == (n,), f"{name} must have shape ({n},), but has {values.shape}"
        assert values.dtype == np.float64, f"{name} must be float64, but is {values.dtype}"
    assert not np.isinf(prediction.score).any(), "a score is infinite"
    assert (prediction.spread >= 0).all(), "spread must not be negative or NaN"


ROBUSTNESS: tuple[Callable[[CostModelFactory], None], ...] = (
    check_unfitted,
    check_empty,
    check_few_records,
    check_failures,
    check_illegal,
    check_several_workloads,
    check_same_seed,
)
"""Checks that hold for every model, a random one too."""

CHECKS: tuple[Callable[[CostModelFactory], None], ...] = (
    *ROBUSTNESS,
    check_batch_independence,
    check_fit_forgets,
    check_learns,
)
"""The whole suite: what is more than ``ROBUSTNESS`` holds for models that learn."""


def check_cost_model(factory: CostModelFactory, learns: bool = True) -> None:
    """Runs the suite; ``learns=False`` for a control that is not meant to learn."""
    for check in CHECKS if learns else ROBUSTNESS:
        check(factory)
