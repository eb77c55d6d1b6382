"""The search for the plan that ships: what is measured, and when another plan is claimed better."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from foretune.errors import BadInputError, MissingDependencyError
from foretune.graph import extract
from foretune.measure import Measurement, Status
from foretune.plans import JOURNAL, choose, search_plans
from foretune.plans.measurer import OutOfTime, PlanMeasurer
from foretune.plans.standings import DEFAULT, EVOLVED
from foretune.records import CONFIRM, Journal
from foretune.workload import load_input
from tests.plans import networks
from tests.plans.formula import Interrupted, formula, hardware, seconds

pytest.importorskip("torch")

NETWORK = SimpleNamespace(name="a network/of mine")


def faster(plan):
    """The default is the slowest: whatever is decided otherwise saves time."""
    pairs = zip(plan.decisions, plan.sketch.variables, strict=True)
    return 2e-3 / (1 + 0.1 * sum(decision != variable.default for decision, variable in pairs))


def search(folder, measurer, model, said=None, **options):
    say = (said if said is not None else []).append
    return search_plans(
        NETWORK,
        hardware(),
        folder,
        **{"trials": 12, "model": model, "measurer": measurer, "say": say, **options},
    )


def records(folder):
    with Journal(folder / JOURNAL, read_only=True) as journal:
        return journal.records()


def test_the_best_plan_is_found_and_compared_beside_the_default(tmp_path, network, model):
    said = []
    measurer = formula(*network, seconds=faster, fails=lambda plan: False)
    found = search(tmp_path, measurer, model, said)
    origins = [record.origin for record in records(tmp_path)]
    assert origins == [DEFAULT] + [EVOLVED] * 12 + [CONFIRM] * 4
    compared = records(tmp_path)[-4:]
    assert compared[0].candidate_key == network[0].default.key
    assert found.plan == {"made up": {"plan": compared[1].candidate_key}}
    assert found.ratio == pytest.approx(faster(network[0].default) / min(
        record.measurement.best_s for record in compared
    ))  # fmt: skip
    assert found.ratio > 1 and found.expected is not None and found.expected > 0
    assert (found.measured, found.failed, found.model) == (12, 0, "made up")
    assert found.stopped == "12 plans were measured"
    assert found.to_json()["chosen"] is True and "plan" not in found.to_json()
    assert "12 of 12 beside the default measured" in said[-2]
    assert "comparing the best 3" in said[-1]
    assert not list(tmp_path.glob("*/kernels"))


def test_what_is_expected_leads_to_faster_plans_than_chance(tmp_path, network, measurer, model):
    """The formula that the model learned: plans like the default are the fastest."""
    search(tmp_path, measurer, model, trials=8)
    bred = [r.measurement.best_s for r in records(tmp_path) if r.origin == EVOLVED]
    random = [seconds(plan) for plan in network[0].sample(np.random.default_rng(1), 40)]
    assert np.median([s for s in bred if s]) < np.median(random)


def test_the_default_plan_stays_where_no_other_is_faster(tmp_path, measurer, model):
    found = search(tmp_path, measurer, model)
    assert found.plan is None and found.ratio is None
    assert "none is faster than the default plan" in found.stopped
    assert found.to_json()["chosen"] is False


def test_luck_does_not_survive_the_comparison(tmp_path, network, model):
    class Lucky(formula(*network, seconds=faster)):
        """Fast the first time; beside the default as slow as that, but for some readings."""

        def compare(self, candidates):
            found = super().compare(candidates)
            if len(candidates) == 1:
                return found
            readings = [(2e-3,) * 4] + [(1.5e-3, 2.1e-3, 2.1e-3, 1.9e-3)] * (len(candidates) - 1)
            return [Measurement(Status.OK, seconds, (True,) * 4) for seconds in readings]

    found = search(tmp_path, Lucky, model)
    assert found.plan is None
    assert found.ratio is not None and found.stopped.endswith("faster beside the default plan")


def test_plans_that_fail_are_survived_and_counted(tmp_path, network, model):
    def fails(plan):
        return plan != network[0].default and int(plan.key, 16) % 3 == 0

    found = search(tmp_path, formula(*network, faster, fails), model)
    failed = [record for record in records(tmp_path) if not record.measurement.ok]
    assert found.failed == len(failed) > 0
    assert found.measured == 12


def test_a_default_plan_that_does_not_run_is_an_error(tmp_path, network, model):
    with pytest.raises(BadInputError, match="default plan must run"):
        search(tmp_path, formula(*network, fails=lambda plan: True), model)


def test_a_comparison_that_fails_claims_nothing(tmp_path, network, model):
    class Dying(formula(*network, seconds=faster)):
        """Dies where several plans are loaded at once."""

        def compare(self, candidates):
            found = super().compare(candidates)
            died = Measurement(Status.OUT_OF_MEMORY, message="killed")
            return found if len(candidates) == 1 else [died] * len(candidates)

    found = search(tmp_path, Dying, model)
    assert found.plan is None and "comparing the best with the default plan failed" in found.stopped


def test_a_search_that_was_stopped_goes_on_and_measures_nothing_twice(tmp_path, network, model):
    measurer = formula(*network, seconds=faster)
    measurer.stop_after = 5
    with pytest.raises(Interrupted):
        search(tmp_path, measurer, model)
    assert list(tmp_path.glob("*/kernels"))
    measurer.stop_after = 10**9
    found = search(tmp_path, measurer, model)
    assert found.measured == 12 and found.plan is not None
    tried = measurer.measured[:-4]
    assert len(tried) == len(set(tried)) == 13


def test_time_ends_it_before_anything_is_started(tmp_path, measurer, model):
    found = search(tmp_path, measurer, model, seconds=-1.0)
    assert found.plan is None and "before anything was measured" in found.stopped
    assert measurer.started == 0


@pytest.mark.parametrize("after", [0, 1, 6])
def test_time_ends_it_in_the_middle_of_a_plan(tmp_path, network, model, after):
    class Slow(formula(*network, seconds=faster)):
        """Runs out of time."""

        def __init__(self, *given, **options):
            super().__init__(*given, **options)
            self.left = after

        def compare(self, candidates):
            self.left -= 1
            if self.left < 0:
                raise OutOfTime
            return super().compare(candidates)

    found = search(tmp_path, Slow, model, seconds=1e6)
    assert found.plan is None
    assert found.measured == max(0, after - 1)
    assert f"the time was spent after {found.measured} plans" in found.stopped


def test_seconds_of_earlier_runs_count(tmp_path, network, model, monkeypatch):
    class Costly(formula(*network, seconds=faster)):
        """Says that each plan took 10 s."""

        def _read(self, candidate):
            found = super()._read(candidate)
            return Measurement(found.status, found.seconds, found.quiet, build_s=9.0, run_s=1.0)

    Costly.stop_after = 4
    with pytest.raises(Interrupted):
        search(tmp_path, Costly, model)
    Costly.stop_after = 10**9
    found = search(tmp_path, Costly, model, seconds=30.0)
    assert found.earlier_s == 40.0 and found.seconds >= 40.0 and found.measured == 3
    assert len(Costly.measured) == 4


def test_passes_that_are_off_have_a_place_of_their_own(tmp_path, measurer, model):
    for without in ((), ("layouts",), ("layouts",)):
        search(tmp_path, measurer, model, trials=1, without=without)
    assert len([place for place in tmp_path.iterdir() if place.is_dir()]) == 2


@pytest.mark.slow
def test_a_plan_that_is_found_is_one_that_the_pipeline_takes(tmp_path, model):
    class Biased(PlanMeasurer):
        """Finds the default plan slow."""

        def compare(self, candidates):
            found = super().compare(candidates)
            return [
                replace(one, seconds=tuple(10 * s for s in one.seconds))
                if plan == self.space.default
                else one
                for plan, one in zip(candidates, found, strict=True)
            ]

    small = load_input(f"{networks.__file__}:product")
    found = search_plans(small, hardware(), tmp_path, trials=2, model=model, measurer=Biased)
    assert found.plan is not None and found.ratio > 2
    assert found.plan != extract(small, hardware()).plan
    assert extract(small, hardware(), plan=found.plan).plan == found.plan
    assert {file.suffix for place in tmp_path.iterdir() if place.is_dir()
            for file in place.iterdir()} == {".npz", ".json", ".txt"}  # fmt: skip


def test_without_weights_or_pytorch_it_says_so(tmp_path, measurer, monkeypatch):
    monkeypatch.setattr(choose, "shipped_plan_model", lambda kind: None)
    with pytest.raises(BadInputError, match=r"no trained model of plans.*--plan-model"):
        search(tmp_path, measurer, None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match="PyTorch"):
        search(tmp_path, measurer, None)
    assert measurer.started == 0
    with pytest.raises(BadInputError, match="trials >= 1"):
        search(tmp_path, measurer, None, trials=0)


def test_the_package_has_the_model_if_there_is_one(tmp_path, measurer, model, monkeypatch):
    asked = []
    monkeypatch.setattr(choose, "shipped_plan_model", lambda kind: asked.append(kind) or model)
    assert search(tmp_path, measurer, None, trials=1).model == "made up"
    assert asked == ["llvm"]
