"""Losses against double loops, and what equal run times contribute."""

from __future__ import annotations

import itertools
import math

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from foretune.tgraph import _losses, named  # noqa: E402
from foretune_research.tgraph.losses import hinge, listmle, loss, ranknet, squared  # noqa: E402


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


ROWS = st.lists(
    st.tuples(st.floats(-3, 3, allow_subnormal=False), st.integers(1, 5)), min_size=2, max_size=9
)


def _pairs(rows):
    return [
        (a[0] - b[0], math.log(a[1] / b[1]))
        for a, b in itertools.product(rows, rows)
        if a[1] > b[1]
    ]


@settings(max_examples=50, deadline=None)
@given(ROWS)
def test_the_hinge_is_a_double_loop(rows):
    scores, runtime = (tensor(list(part)) for part in zip(*rows, strict=True))
    each = [max(0.0, 1.0 - difference) for difference, _ in _pairs(rows)]
    assert hinge(scores, runtime, "sum").item() == pytest.approx(sum(each))
    assert hinge(scores, runtime, "mean_all").item() == pytest.approx(sum(each) / len(rows) ** 2)
    mean = sum(each) / max(1, len(each))
    assert hinge(scores, runtime, "mean_valid").item() == pytest.approx(mean)
    assert _losses.hinge(scores, runtime).item() == pytest.approx(mean)


@settings(max_examples=50, deadline=None)
@given(ROWS, st.sampled_from([0.02, 0.5, 2.0]))
def test_a_margin_is_smaller_between_times_that_are_near(rows, width):
    scores, runtime = (tensor(list(part)) for part in zip(*rows, strict=True))
    each = [max(0.0, min(1.0, log / width) - difference) for difference, log in _pairs(rows)]
    assert hinge(scores, runtime, "sum", width).item() == pytest.approx(sum(each), abs=1e-9)


@settings(max_examples=50, deadline=None)
@given(ROWS)
def test_ranknet_is_a_double_loop(rows):
    scores, runtime = (tensor(list(part)) for part in zip(*rows, strict=True))
    each = [math.log1p(math.exp(-difference)) for difference, _ in _pairs(rows)]
    assert ranknet(scores, runtime).item() == pytest.approx(sum(each) / max(1, len(each)))


def test_listmle_by_hand():
    # The fastest is second: -s is -0.5, -2.0 in the order of run times.
    scores, runtime = tensor([2.0, 0.5]), tensor([9.0, 3.0])
    first = -0.5 - math.log(math.exp(-0.5) + math.exp(-2.0))
    assert listmle(scores, runtime).item() == pytest.approx(-first / 2)
    assert listmle(-scores, runtime) > listmle(scores, runtime)


def test_squares_are_taken_of_standardised_logarithms():
    runtime = tensor([1.0, math.e**2])
    assert squared(tensor([-1.0, 1.0]), runtime).item() == pytest.approx(0.0)
    assert squared(tensor([0.0, 0.0]), runtime).item() == pytest.approx(1.0)


@pytest.mark.parametrize("of", [hinge, ranknet])
@pytest.mark.parametrize("width", [0.0, 0.02])
def test_equal_run_times_have_no_gradient(of, width):
    scores = tensor([0.3, -0.7, 0.1]).requires_grad_()
    arguments = ("mean_valid", width) if of is hinge else ()
    of(scores, tensor([5.0, 5.0, 5.0]), *arguments).backward()
    assert scores.grad.abs().sum() == 0
    # Of one that differs, only the others move beside it.
    scores = tensor([0.3, -0.7, 0.1]).requires_grad_()
    of(scores, tensor([5.0, 5.0, 9.0]), *arguments).backward()
    assert (scores.grad[:2] >= 0).all()
    assert scores.grad[2] < 0


@pytest.mark.parametrize("name", ["hinge", "listmle", "ranknet", "mse"])
def test_every_loss_falls_when_the_order_is_right(name):
    config = named("variants", {"loss": name})
    runtime = tensor([1.0, 2.0, 4.0])
    right = loss(tensor([-1.2, 0.0, 1.2]), runtime, config)
    wrong = loss(tensor([1.2, 0.0, -1.2]), runtime, config)
    assert right < wrong
