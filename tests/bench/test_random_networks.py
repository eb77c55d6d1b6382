"""Random networks are drawn alike everywhere, and a handful compute what PyTorch does."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import _suites, random_networks
from benchmarks._random import draw
from benchmarks._random.trial import NOT_EXPORTED, PASS, attempt, difference

pytestmark = pytest.mark.slow


@settings(max_examples=4, derandomize=True, deadline=None, database=None)
@given(seed=st.integers(1000, 1 << 30))
def test_random_networks_compute_what_pytorch_does(hardware, seed):
    result = attempt(seed, hardware)
    assert result["outcome"] in (PASS, NOT_EXPORTED), result
    assert not result["left_out"]


def test_a_seed_draws_the_same_network_every_time():
    for seed in range(5):
        one, inputs = draw(seed)
        other, again = draw(seed)
        assert one.operators == other.operators
        for left, right in zip(inputs, again, strict=True):
            assert torch.equal(left, right)
        for left, right in zip(one(*inputs), other(*again), strict=True):
            assert torch.equal(left, right) or bool(torch.isnan(left).any())


def test_seeds_draw_many_operators_ranks_and_types():
    operators, ranks, dtypes = set(), set(), set()
    for seed in range(60):
        network, inputs = draw(seed)
        operators |= set(network.operators)
        ranks |= {t.ndim for t in inputs}
        dtypes |= {str(t.dtype) for t in inputs}
    assert len(operators) > 100
    assert ranks == {0, 1, 2, 3, 4, 5}
    assert len(dtypes) >= 8


@pytest.mark.parametrize(
    ("actual", "said"),
    [
        ([np.ones((2, 1), "float32")], "of shape (2, 1)"),
        ([np.ones(2, "float64")], "of type float64"),
        ([np.array([1, 1.001], "float32")], "differs by"),
        ([np.array([1, np.nan], "float32")], "is nan at [1]"),
        ([np.array([1, np.inf], "float32")], "is inf at [1]"),
        ([], "0 outputs in place of 1"),
        ([np.array([1, 1.00001], "float32")], ""),
    ],
)
def test_a_difference_is_seen_and_named(actual, said):
    found = difference([np.ones(2, "float32")], actual)
    assert said in found if said else not found


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, "lowest", "highest"])
def test_what_is_not_finite_or_huge_excuses_nothing_beside_it(dtype, value):
    ends = {"lowest": np.finfo(dtype).min, "highest": np.finfo(dtype).max}
    expected = np.array([1, 2, 3, ends.get(value, value)], dtype)
    assert not difference([expected], [expected.copy()])
    for at, number in ((0, 5.0), (3, 0.0)):
        actual = expected.copy()
        actual[at] = number
        assert difference([expected], [actual])


def test_whole_numbers_have_no_tolerance():
    assert difference([np.array([2**53 + 1])], [np.array([2**53])])


def test_the_benchmark_goes_on_where_it_was_and_draws_others_for_what_is_left_out(
    tmp_path, monkeypatch, capsys
):
    asked = []

    def run(_serve, names, _workers):
        asked.append(list(names))
        for name in names:
            outcome = NOT_EXPORTED if name == "1" else PASS
            yield {"name": name, "outcome": outcome, "message": "", "operators": ["relu"],
                   "dtypes": ["float32"], "left_out": [], "seconds": 0.0}  # fmt: skip

    monkeypatch.setattr(_suites, "run", run)
    records = tmp_path / "records.jsonl"
    random_networks.main(["--count", "2", "--records", str(records)])
    random_networks.main(["--count", "4", "--records", str(records)])
    assert asked == [["0", "1"], ["2"], ["3", "4"]]
    assert len([json.loads(line) for line in records.read_text().splitlines()]) == 5
    assert "4 networks of 4 operators" in capsys.readouterr().out
