from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretune import _tvm, cost, search
from foretune.cost import CostModel, Prediction
from foretune.errors import BadInputError
from foretune.hardware import Hardware
from foretune.measure import Status
from foretune.metaschedule import (
    TvmCostModel,
    as_cost_model,
    as_search_strategy,
    match_trace,
    measure_candidate,
    trace_json,
)
from foretune.metaschedule._cost_model import positive
from foretune.records import Trial
from foretune.space import Candidate, Space
from tests.metaschedule.programs import matmul, quick_builder, two_operators

pytestmark = pytest.mark.slow

ms = _tvm.meta_schedule


class Listening(CostModel):
    """Scores by the number of unrolled steps, and remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[Trial[Candidate]] = []
        self.seen: list[Candidate] = []

    def fit(self, records: Sequence[Trial[Candidate]]) -> None:
        self.told = list(records)

    def update(self, records: Sequence[Trial[Candidate]]) -> None:
        self.told += records

    def predict(self, candidates: Sequence[Candidate]) -> Prediction:
        self.seen += candidates
        score = np.array([-float(len(c.key)) + i for i, c in enumerate(candidates)])
        return Prediction(score, np.zeros(len(candidates)))


def result(seconds: float | None) -> Any:
    if seconds is None:
        return ms.runner.RunnerResult(None, "it broke")
    return ms.runner.RunnerResult([seconds], None)


@given(st.lists(st.floats(-1e12, 1e12), min_size=2, max_size=20))
def test_scores_become_positive_and_keep_their_order(scores: list[float]) -> None:
    mapped = positive(np.array(scores))
    assert (mapped > 0).all()
    order = np.argsort(scores, kind="stable")
    assert (np.diff(mapped[order]) >= 0).all()


def test_an_illegal_candidate_scores_nothing() -> None:
    assert positive(np.array([np.nan, -3.0, 0.0, 2.0])).tolist() == [0.0, 0.25, 1.0, 3.0]


def test_our_model_sees_the_candidates_tvm_means(hardware: Hardware) -> None:
    workload = matmul()
    space = Space.generate(workload, hardware)
    candidates = space.sample(np.random.default_rng(0), 3)
    context = _tvm.make_context(workload.module, hardware.tvm_target())
    model = Listening()
    theirs = as_cost_model(model)
    given_to_tvm = [measure_candidate(c) for c in candidates]
    scores = theirs.predict(context, given_to_tvm)
    assert model.seen == candidates
    assert (scores > 0).all()
    assert (np.diff(scores) > 0).all()
    theirs.update(context, given_to_tvm, [result(2e-3), result(None), result(1e-3)])
    assert [r.candidate for r in model.told] == candidates
    assert [r.measurement.status for r in model.told] == [
        Status.OK,
        Status.RUN_ERROR,
        Status.OK,
    ]
    assert [r.measurement.best_s for r in model.told] == [2e-3, None, 1e-3]


def test_files_of_our_model_are_not_tvms_business() -> None:
    theirs = as_cost_model(Listening())
    with pytest.raises(BadInputError, match="before it is handed to TVM"):
        theirs._inst.load("x")
    with pytest.raises(BadInputError, match="is not saved"):
        theirs._inst.save("x")


def test_tvms_model_scores_our_candidates(hardware: Hardware) -> None:
    workload = matmul()
    space = Space.generate(workload, hardware)
    context = _tvm.make_context(workload.module, hardware.tvm_target())
    model = TvmCostModel(ms.cost_model.RandomModel(seed=3), context)
    prediction = model.predict(space.sample(np.random.default_rng(0), 4))
    assert prediction.score.shape == (4,)
    assert np.isfinite(prediction.score).all()


@pytest.mark.parametrize("cost_model", [None, "random", "ours"])
def test_our_strategy_spends_the_trials_it_is_given(
    hardware: Hardware, cost_model: str | None
) -> None:
    workload = matmul()
    model = Listening()
    theirs = {
        None: None,
        "random": ms.cost_model.RandomModel(seed=1),
        "ours": as_cost_model(model),
    }[cost_model]
    context = _tvm.make_context(
        workload.module,
        hardware.tvm_target(),
        search_strategy=as_search_strategy("evolutionary"),
        space_generator="post-order-apply",
        rand_state=5,
    ).clone()
    context.pre_tuning(10, 4, [], None, theirs)
    space = Space.generate(workload, hardware)
    seen: set[str] = set()
    sizes = []
    while (batch := context.generate_measure_candidates()) is not None:
        found = [match_trace(trace_json(c.sch), space) for c in batch]
        assert None not in found
        keys = {c.key for c in found if c is not None}
        assert len(keys) == len(batch)
        assert not keys & seen
        seen |= keys
        sizes.append(len(batch))
        context.notify_runner_results(batch, [result(1e-3 * (i + 1)) for i in range(len(batch))])
    context.post_tuning()
    assert sizes == [4, 4, 2]


def test_a_strategy_of_ones_own_is_told_in_order(hardware: Hardware) -> None:
    told: list[Trial[Candidate]] = []

    class Own(search.Strategy):
        def ask(self, n: int) -> list[Candidate]:
            return self.space.sample(self.rng, n)

        def tell(self, records: Sequence[Trial[Candidate]]) -> None:
            told.extend(records)

    context = _tvm.make_context(
        matmul().module, hardware.tvm_target(), search_strategy=as_search_strategy(Own)
    )
    context.pre_tuning(4, 2, [], None, None)
    batch = context.generate_measure_candidates()
    context.notify_runner_results(batch, [result(3e-3), result(None)])
    assert told == [], "the cost model learns first"
    context.generate_measure_candidates()
    assert [r.measurement.best_s for r in told] == [3e-3, None]
    assert told[1].measurement.message == "it broke"


def test_an_unknown_strategy_is_named() -> None:
    with pytest.raises(BadInputError, match="evolutionary"):
        as_search_strategy("quantum")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gbdt", "world"])
def test_tune_tir_with_our_cost_model(hardware: Hardware, tmp_path: Path, name: str) -> None:
    if name == "world":
        pytest.importorskip("torch")
    model = cost.create(name, rng=0)
    asked: list[int] = []
    predict, update = model.predict, model.update
    told: list[Trial[Candidate]] = []

    def predicted(candidates: Sequence[Candidate]) -> Prediction:
        asked.append(len(candidates))
        return predict(candidates)

    def updated(records: Sequence[Trial[Candidate]]) -> None:
        told.extend(records)
        update(records)

    model.predict, model.update = predicted, updated  # type: ignore[method-assign]
    database = ms.tune_tir(
        mod=matmul().module,
        target=hardware.tvm_target(),
        work_dir=str(tmp_path),
        max_trials_global=8,
        num_trials_per_iter=4,
        builder=quick_builder(hardware),
        cost_model=as_cost_model(model),
        strategy=ms.search_strategy.EvolutionarySearch(
            population_size=16, genetic_num_iters=1, genetic_max_fail_count=2
        ),
        seed=1,
    )
    assert len(database) == 8
    assert model.abilities.ready
    assert len(told) == 8 and sum(asked) >= 8


@pytest.mark.slow
def test_tune_relax_with_our_strategy_and_model(hardware: Hardware, tmp_path: Path) -> None:
    from tvm import relax, transform

    module = two_operators()
    target = hardware.tvm_target()
    database = ms.relax_integration.tune_relax(
        module,
        {},
        target,
        str(tmp_path),
        max_trials_global=6,
        num_trials_per_iter=3,
        builder=quick_builder(hardware),
        cost_model=as_cost_model(cost.create("gbdt", rng=0)),
        strategy=as_search_strategy("evolutionary"),
        seed=1,
    )
    assert len(database) == 6
    with target, database, transform.PassContext(opt_level=3):
        applied = relax.transform.MetaScheduleApplyDatabase()(module)
    scheduled = [
        bool(f.attrs.get("tirx.is_scheduled", False))
        for f in applied.functions.values()
        if isinstance(f, _tvm.PrimFunc)
    ]
    assert scheduled == [True, True]
