"""Plans as a search space: normal form, keys, what strategies do with them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune import search
from foretune.errors import BadInputError, IllegalCandidateError
from foretune.measure import Measurement, Status
from foretune.plans.model import LinearPlans
from foretune.plans.space import PlanSpace
from foretune.records import Trial
from foretune.search.evolutionary import EvolutionConfig
from tests.plans.spaces import space

SPACE = space()
SIZES = [len(variable.choices) for variable in SPACE.sketch.variables]
decisions = st.tuples(*(st.integers(0, size - 1) for size in SIZES))
seeds = st.integers(0, 2**32 - 1)


def plan(values):
    return SPACE.candidate({"sketch": SPACE.sketch.key, "decisions": list(values)})


def test_a_space_has_as_many_plans_as_paths_of_its_operators_multiplied():
    assert [len(operator.paths) for operator in SPACE.sketch.operators] == [10, 10, 4]
    assert SPACE.size == 400
    small = space(convolutions=1, products=0)
    assert len(small.sample(np.random.default_rng(0), 100)) == small.size == 10


@given(decisions)
def test_what_means_nothing_is_the_defaults(values):
    found = plan(values)
    meaningful = {SPACE.sketch.places[n][s] for n, path in enumerate(found.paths) for s, _ in path}
    for at, variable in enumerate(SPACE.sketch.variables):
        assert found.decisions[at] == (values[at] if at in meaningful else variable.default)
    assert plan(found.decisions) == found


@given(decisions, decisions)
def test_keys_are_equal_exactly_when_plans_do_the_same(one, other):
    assert (plan(one).key == plan(other).key) == (plan(one).paths == plan(other).paths)


@given(decisions)
def test_a_plan_is_read_back_from_json(values):
    found = plan(values)
    assert SPACE.candidate(json.loads(json.dumps(found.to_json()))) == found


@given(decisions, decisions, seeds)
def test_children_are_plans_in_normal_form(one, other, seed):
    rng = np.random.default_rng(seed)
    a, b = plan(one), plan(other)
    mutant, child = SPACE.mutate(a, rng), SPACE.crossover(a, b, rng)
    assert mutant != a
    for each in (mutant, child):
        assert plan(each.decisions) == each
    assert all(path in pair for path, *pair in zip(child.paths, a.paths, b.paths, strict=True))
    changed = [x != y for x, y in zip(mutant.paths, a.paths, strict=True)]
    assert sum(changed) == 1


def test_mutation_changes_the_variables_it_may(rng):
    (fusion, *_) = [at for at, v in enumerate(SPACE.sketch.variables) if v.step == "fusion"]
    mutant = SPACE.mutate(SPACE.default, rng, [fusion])
    pairs = zip(mutant.decisions, SPACE.default.decisions, strict=True)
    assert [at for at, (a, b) in enumerate(pairs) if a != b] == [fusion]
    assert SPACE.mutate(SPACE.default, rng, []) == SPACE.default


def test_the_default_and_one_algorithm_everywhere_are_starts():
    assert SPACE.starts[0] == SPACE.default
    algorithms = [{dict(path)["algorithms"] for path in s.paths[:2]} for s in SPACE.starts]
    assert algorithms == [{"winograd2"}, {"direct"}, {"winograd4"}]


def test_a_space_is_read_back_from_json():
    data = json.loads(json.dumps(SPACE.to_json()))
    again = PlanSpace.from_json(data)
    assert again.sketch == SPACE.sketch
    assert again.default == SPACE.default
    with pytest.raises(BadInputError, match="hash of their content"):
        PlanSpace.from_json({**data, "key": "0" * 16})
    with pytest.raises(BadInputError, match="schema"):
        PlanSpace.from_json({**data, "schema": "foretune.plans/0"})
    with pytest.raises(BadInputError, match="make them again"):
        PlanSpace.from_json({k: v for k, v in data.items() if k != "operators"})


@pytest.mark.parametrize(
    ("data", "error", "named"),
    [
        ({"sketch": "x", "decisions": []}, BadInputError, "another network"),
        ({"decisions": []}, BadInputError, "sketch and decisions"),
        ({"sketch": SPACE.sketch.key, "decisions": "01"}, BadInputError, "list"),
        ({"sketch": SPACE.sketch.key, "decisions": [0]}, IllegalCandidateError, "one decision per"),
        (
            {"sketch": SPACE.sketch.key, "decisions": [7, *[0] * (len(SIZES) - 1)]},
            IllegalCandidateError,
            "channels last, as written",
        ),
    ],
)
def test_other_data_is_refused(data, error, named):
    with pytest.raises(error, match=named):
        SPACE.candidate(data)


def seconds(candidate):
    """Each choice that is not the first costs, and two neighbours as written save a transpose."""
    costs = {"as written": 0.3, "winograd2": -0.1, "winograd4": -0.2, "plain": 0.2, "alone": 0.1}
    written = [dict(path).get("layouts") == "as written" for path in candidate.paths]
    total = sum(costs.get(choice, 0.0) for path in candidate.paths for _, choice in path)
    return 2e-3 * (2 + total - 0.1 * (sum(written) == 2))


def record(candidate):
    measurement = Measurement(Status.OK, (seconds(candidate),), (True,))
    return Trial.of(candidate, measurement, "test", {})


@pytest.mark.parametrize("name", ["random", "evolutionary"])
def test_strategies_search_plans_unchanged(name, monkeypatch):
    monkeypatch.setattr(EvolutionConfig, "prior", False)

    def trials(seed):
        model = LinearPlans()
        strategy = search.create(name, SPACE, model, seed)
        found = []
        while len(found) < 60:
            asked = strategy.ask(10)
            records = [record(candidate) for candidate in asked]
            model.update(records)
            strategy.tell(records)
            found += asked
        return found

    found = trials(3)
    assert len({candidate.key for candidate in found}) == len(found)
    assert [c.key for c in trials(3)] == [c.key for c in found]
    best = min(map(seconds, found))
    optimum = min(seconds(SPACE.uniform({"algorithms": a})) for a in ("direct", "winograd4"))
    assert best >= optimum
    if name == "evolutionary":
        assert best == optimum


def test_random_search_ends_when_all_plans_were_proposed():
    small = space(convolutions=1, products=1)
    strategy = search.create("random", small, LinearPlans(), 0)
    found = [candidate.key for _ in range(10) for candidate in strategy.ask(10)]
    assert len(found) == len(set(found)) == small.size == 40


@settings(max_examples=20)
@given(seeds, st.integers(12, 40))
def test_the_model_orders_what_only_adds_up(seed, count):
    plans = SPACE.sample(np.random.default_rng(seed), count)
    model = LinearPlans()
    assert not model.abilities.ready
    assert (model.predict(plans).score == 0).all()
    model.fit([record(each) for each in plans])
    assert model.abilities.ready
    scores = model.predict(plans).score
    assert np.isfinite(scores).all()
    assert np.corrcoef(scores, [-np.log(seconds(each)) for each in plans])[0, 1] > 0.5
