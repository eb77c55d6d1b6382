"""What a graph network expects of plans, and how measured ones correct it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from foretune.errors import BadInputError, MissingDependencyError, RecordError
from foretune.measure import Measurement, Status
from foretune.plans import GraphPrior, LinearPlans, calibrated, prior, read_plan_model
from foretune.records import Trial
from foretune.tgraph import TGraph, load, named, train, whole
from tests.plans import spaces
from tests.plans.formula import seconds
from tests.tgraph.made import layout_graph

pytest.importorskip("torch")

SPACE = spaces.space()


def record(plan, took=None, status=Status.OK):
    took = (seconds(plan) if took is None else took,) if status is Status.OK else ()
    return Trial.of(plan, Measurement(status, took, (True,) * len(took), message="x"), "test", {})


def test_what_is_expected_orders_plans_and_is_in_log2_slow_downs(network, model):
    space, graph = network
    expected = GraphPrior(model, graph, space)
    plans = space.sample(np.random.default_rng(11), 60)
    found = expected.scale * expected.expected(plans)
    speed = -np.log2([seconds(plan) for plan in plans])
    assert np.corrcoef(found, speed)[0, 1] > 0.7
    slope = np.polyfit(found, speed, 1)[0]
    assert 0.4 < slope < 2.5
    best, worst = plans[int(found.argmax())], plans[int(found.argmin())]
    assert expected.gain(best, worst) == pytest.approx(2 ** (found.max() - found.min()))
    assert 1 <= expected.strength <= 64


def test_neither_companions_nor_copies_change_what_is_expected(network, model):
    space, graph = network
    plans = space.sample(np.random.default_rng(12), 12)
    together = GraphPrior(model, graph, space).expected([*plans, *plans])
    np.testing.assert_array_equal(together[:12], together[12:])
    alone = [GraphPrior(model, graph, space).expected([plan])[0] for plan in plans]
    np.testing.assert_allclose(alone, together[:12], atol=1e-4)
    again = GraphPrior(model, graph, space)
    again.expected(plans[6:])
    np.testing.assert_allclose(again.expected(plans), together[:12], atol=1e-4)


def test_a_model_is_read_back_with_what_its_scores_are_worth(tmp_path, model):
    model.save(tmp_path / "plans.npz")
    found = read_plan_model(tmp_path / "plans.npz")
    assert (found.scale, found.strength) == (model.scale, model.strength)
    replace(model, scale=None).save(tmp_path / "old.npz")
    assert load(tmp_path / "old.npz").scale is None


def test_scores_are_worth_what_they_explain_of_graphs_that_were_left_out():
    parts = [whole(layout_graph(seed)) for seed in range(4)]
    options = {"width": 16, "epochs": 6, "batch": 32, "learning_rate": 1e-2, "folds": 2}
    trained = train(parts, named("corrected", options))
    assert all(len(member.left_out) == 2 for member in trained.members)
    found = calibrated(trained, parts)
    assert found.scale is not None and found.scale > 0 and 1 <= found.strength <= 64
    assert found.members == trained.members
    reverse = [whole(replace(part.graph, runtime=4_000_000 - part.graph.runtime)) for part in parts]
    assert calibrated(trained, reverse).scale == 0.0, "what says the opposite is worth nothing"


def test_other_files_are_refused(tmp_path, model):
    with pytest.raises(BadInputError, match="there is none at"):
        read_plan_model(tmp_path / "missing.npz")
    (tmp_path / "text.npz").write_text("no model")
    with pytest.raises(RecordError, match="trained TGraph"):
        read_plan_model(tmp_path / "text.npz")
    apart = named("variants", {**model.config.to_json(), "attention": "batch"})
    for change, told in (
        ({"scale": None}, "not known"),
        ({"scale": 0.0}, "nothing"),
        ({"columns": 24}, "140 columns"),
        ({"kind": "tile"}, "ranks tile graphs"),
        ({"config": apart}, "attention=batch"),
    ):
        replace(model, **change).save(tmp_path / "other.npz")
        with pytest.raises(BadInputError, match=told):
            read_plan_model(tmp_path / "other.npz")


def test_without_pytorch_nothing_is_expected(monkeypatch, network, model):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match="pip install"):
        GraphPrior(model, network[1], network[0])


def test_weights_come_with_the_package_by_the_kind_of_target(tmp_path, monkeypatch, model):
    assert prior.shipped_plan_model("no such kind") is None
    monkeypatch.setattr("importlib.resources.files", lambda package: tmp_path)
    assert prior.shipped_plan_model("llvm") is None
    (tmp_path / "weights").mkdir()
    model.save(tmp_path / "weights" / "plans-llvm.npz")
    found = prior.shipped_plan_model("llvm")
    assert isinstance(found, TGraph) and found.name == "made up"


class Scaled:
    """Expects what is given of each plan."""

    scale, strength = 0.25, 8.0

    def __init__(self, of):
        self.of = of

    def expected(self, plans):
        return np.array([self.of(plan) for plan in plans])


def right(plan):
    """A share of what a plan takes, in the prior's unit."""
    return -np.log2(seconds(plan)) / Scaled.scale


def test_before_measurements_the_score_is_what_is_expected():
    plans = SPACE.sample(np.random.default_rng(0), 20)
    model = LinearPlans(Scaled(right))
    assert model.abilities.ready and model.abilities.informed
    assert not LinearPlans().abilities.ready
    np.testing.assert_allclose(
        model.predict(plans).score, [-np.log2(seconds(plan)) for plan in plans]
    )
    assert model.predict([]).score.shape == (0,)
    same = model.predict([plans[0], *plans, plans[0]]).score
    assert same[0] == same[1] == same[-1]


@pytest.mark.parametrize(("count", "least"), [(4, 0.3), (60, 0.8)])
def test_what_misleads_is_forgotten_as_plans_are_measured(count, least):
    """The slope falls with each plan that says otherwise, and the choices explain the rest."""
    plans = SPACE.sample(np.random.default_rng(1), count)
    model = LinearPlans(Scaled(lambda plan: -right(plan)))
    model.update([record(plan) for plan in plans])
    unseen = SPACE.sample(np.random.default_rng(2), 60)
    speed = [-np.log2(seconds(plan)) for plan in unseen]
    before = np.corrcoef(LinearPlans(Scaled(lambda p: -right(p))).predict(unseen).score, speed)
    after = np.corrcoef(model.predict(unseen).score, speed)
    assert before[0, 1] == pytest.approx(-1)
    assert after[0, 1] > -1 + least


def test_a_right_prior_is_kept_and_failures_teach_nothing():
    plans = SPACE.sample(np.random.default_rng(3), 12)
    model = LinearPlans(Scaled(right))
    model.fit([record(plan) for plan in plans])
    unseen = SPACE.sample(np.random.default_rng(4), 40)
    scores = model.predict(unseen).score
    np.testing.assert_allclose(
        scores - scores.mean(),
        np.array([-np.log2(seconds(p)) for p in unseen])
        + np.log2([seconds(p) for p in unseen]).mean(),
        atol=0.05,
    )
    model.update([record(plan, status=Status.CRASH) for plan in unseen])
    np.testing.assert_array_equal(model.predict(unseen).score, scores)
    model.fit([])
    fresh = LinearPlans(Scaled(right))
    np.testing.assert_array_equal(model.predict(unseen).score, fresh.predict(unseen).score)
    model.fit([record(plan, took=1e-3) for plan in plans])
    assert np.isfinite(model.predict(unseen).score).all()
