"""Parts of other packages: each needs forty lines, nothing private, and CONTRIBUTING alone."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from foretune import cost
from foretune.cost import create
from foretune.errors import BadInputError
from foretune.graph import passes
from foretune.graph.simplify import simplify
from foretune.measure import Measurement, Status
from foretune.testing import SyntheticMeasurer, SyntheticSpace, cost_models, measurers
from foretune.workload import from_object
from tests import ROOT
from tests.plugins.cost_model import Alike
from tests.plugins.graph_pass import drop_absolutes
from tests.plugins.measurer import Patient

PARTS = ("strategy", "cost_model", "measurer", "graph_pass")


@pytest.mark.parametrize("part", PARTS)
def test_a_part_needs_forty_lines_and_nothing_private(part):
    source = (ROOT / "tests" / "plugins" / f"{part}.py").read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 40
    assert not re.search(r"foretune[.\w]*\._", source)


@pytest.mark.parametrize("part", PARTS)
def test_the_guide_shows_it(part):
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    assert (ROOT / "tests" / "plugins" / f"{part}.py").read_text(encoding="utf-8") in blocks


@pytest.mark.parametrize("check", cost_models.CHECKS, ids=lambda check: check.__name__)
def test_the_cost_model_keeps_the_contract(check):
    check(Alike)


def test_the_cost_model_is_used_by_its_name():
    cost.register("alike", Alike)
    try:
        made = create("alike", rng=0, sharpness=3)
    finally:
        cost.unregister("alike")
    assert isinstance(made, Alike) and made.sharpness == 3


@pytest.mark.parametrize("check", measurers.CHECKS, ids=lambda check: check.__name__)
def test_the_measurer_keeps_the_contract(check):
    candidates = SyntheticSpace(failing=0.3).sample(np.random.default_rng(0), 8)
    check(lambda: Patient(SyntheticMeasurer()), candidates)


class Flaky(SyntheticMeasurer):
    """Crashes at every candidate the first time."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def measure(self, candidates, best_s=None):
        for candidate, measurement in super().measure(candidates, best_s):
            if candidate.key not in self.seen:
                self.seen.add(candidate.key)
                yield candidate, Measurement(Status.CRASH, message="signal 11")
            else:
                yield candidate, measurement


def test_the_measurer_measures_once_more_what_failed_by_chance():
    candidates = SyntheticSpace().sample(np.random.default_rng(0), 4)
    with Patient(Flaky()) as measurer:
        assert all(measurement.ok for _, measurement in measurer.measure(candidates))


class Network(torch.nn.Module):
    """Takes the absolute value of what is never negative."""

    def forward(self, x):
        return torch.abs(torch.relu(x)) * 2.0


@pytest.fixture
def registered():
    passes.register("absolutes", drop_absolutes)
    yield
    passes.unregister("absolutes")


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("off", [False, True])
def test_the_pass_is_run_and_can_be_switched_off(hardware, off):
    model = from_object((Network(), (torch.zeros(4, 8),)), "network")
    made = simplify(model, hardware, ["absolutes"] if off else [])
    (report,) = [each for each in made.passes if each.name == "absolutes"]
    assert report.on is report.changed is (not off)
    assert not report.failed


@pytest.mark.usefixtures("registered")
def test_names_of_passes_are_taken_once():
    with pytest.raises(BadInputError, match="a pass 'absolutes' already"):
        passes.register("absolutes", drop_absolutes)


@pytest.mark.passes_may_fail
def test_a_pass_that_cannot_be_loaded_is_left_out(hardware):
    def broken(module):
        raise ImportError("no such package")

    passes.register("broken", broken)
    try:
        model = from_object((Network(), (torch.zeros(4, 8),)), "network")
        made = simplify(model, hardware)
    finally:
        passes.unregister("broken")
    assert [each.name for each in made.passes if each.failed] == ["broken"]
