"""``benchmarks.coverage``: what becomes of a network, what is kept, and what the page says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("onnx")

from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import coverage, pages, results
from benchmarks._coverage import onnx_tests, processes, small_transformers, torch_samples
from benchmarks._coverage.architectures import Architectures
from benchmarks._coverage.random_networks import attempt
from benchmarks._coverage.suite import NOT_EXPORTABLE, PASS, difference, outcome_of
from foretune.errors import BadInputError
from tests.graph.random_networks import draw

pytestmark = pytest.mark.slow

HUGE = [np.inf, -np.inf, np.nan, float(np.finfo("float32").min), -1e9]


@settings(max_examples=4, derandomize=True, deadline=None, database=None)
@given(seed=st.integers(1000, 1 << 30))
def test_random_networks_compute_what_pytorch_does(hardware, seed):
    result = attempt(seed, hardware)
    assert result["outcome"] in (PASS, NOT_EXPORTABLE), result
    assert not result["left_out"]


def test_a_seed_draws_the_same_network_every_time():
    import torch

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


@pytest.mark.parametrize("value", HUGE)
def test_in_a_test_of_onnx_a_huge_element_excuses_no_other(value):
    wanted = np.array([1, 2, 3, value], "float32")
    wrong = wanted.copy()
    wrong[0] = 1.5
    for last_place in (False, True):
        assert not onnx_tests.difference([wanted.copy()], [wanted], 1e-3, 1e-7, last_place)
        assert onnx_tests.difference([wrong], [wanted], 1e-3, 1e-7, last_place)


def test_the_last_place_of_ordinary_numbers_is_allowed_where_it_is_asked_for():
    wanted = np.array([1e-9, 1, 2, 100], "float32")
    near = wanted.copy()
    near[0] = 1e-6
    assert onnx_tests.difference([near], [wanted], 1e-3, 1e-7)
    assert not onnx_tests.difference([near], [wanted], 1e-3, 1e-7, last_place=True)


@pytest.mark.parametrize(
    ("message", "outcome"),
    [
        ("net.onnx holds 'Unique': sizes depend on values", "refused"),
        ("net.onnx holds Relu in another form", "refused"),
        ("net.onnx does not work", "broken"),
    ],
)
def test_a_refusal_says_what_it_is_about(message: str, outcome: str) -> None:
    def refuse() -> str:
        raise BadInputError(message)

    found = outcome_of(refuse, "net.onnx", {"Relu"})
    assert found == {"outcome": outcome, "message": message}


def test_any_other_error_is_broken_and_says_where() -> None:
    found = outcome_of(lambda: {}["no"], "net")
    assert found["outcome"] == "broken"
    assert found["message"].startswith("KeyError test_coverage.py")
    assert outcome_of(lambda: "", "net")["outcome"] == "pass"
    assert outcome_of(lambda: "output 0 differs", "net")["outcome"] == "another result"


def test_one_network_of_each_suite_works(hardware) -> None:
    assert onnx_tests.OnnxTests().attempt("test_relu", hardware)["outcome"] == PASS
    samples = torch_samples.TorchSamples()
    assert samples.attempt("nn.functional.relu:float32:0", hardware)["outcome"] == PASS
    assert samples.attempt("nn.functional.relu:float32:3", hardware)["operator"].endswith("relu")


def test_names_of_suites_are_what_was_left_in() -> None:
    names, left_out = torch_samples.TorchSamples().names()
    assert "svd" in left_out and "svd:float32:0" not in names
    assert {name.rpartition(":")[2] for name in names} == {"0", "1", "2", "3"}
    names, _ = Architectures().names()
    assert len(names) == len(set(names)) == 197
    assert set(small_transformers.CACHED) <= set(small_transformers.TYPES["decoder"])


def test_a_run_goes_on_where_it_was_and_keeps_what_the_page_says_of_other_suites(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def run(_suite: Any, names: list[str], _workers: int) -> Any:
        asked.append(list(names))
        for name in names:
            outcome = NOT_EXPORTABLE if name == "1" else "crash" if name == "2" else PASS
            yield {"name": name, "outcome": outcome, "message": "exit -11", "operators": ["relu"],
                   "dtypes": ["float32"], "left_out": [], "seconds": 0.0}  # fmt: skip

    monkeypatch.setattr(processes, "run", run)
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    work = ["--suite", "random", "--work-dir", str(tmp_path), "--write"]
    coverage.main([*work, "--filter", "^[01]$"])
    kept = json.dumps(results.readings_of("coverage")).replace('"random"', '"architectures"')
    results.write_readings("coverage", json.loads(kept))
    coverage.main([*work, "--filter", "^[0-3]$"])
    assert asked == [["0", "1"], ["2", "3"]]
    text = (tmp_path / "coverage.md").read_text(encoding="utf-8")
    assert "**75 % of 4 small networks" in text and "1 come out wrong" in text
    assert "3 operators, 1 different ones" in text and "`2`: crash: exit -11" in text
    assert set(results.readings_of("coverage")["suites"]) == {"architectures", "random"}


def test_refusals_of_operators_are_told_in_few_words() -> None:
    rows = [
        {"name": "add:float32:0", "operator": "add", "outcome": "pass", "message": ""},
        {"name": "cov:float32:0", "operator": "cov", "outcome": "not exportable", "message": ""},
        {"name": "stft:float32:0", "operator": "stft", "outcome": "refused", "message": "no"},
        {"name": "stft:float32:1", "operator": "stft", "outcome": "refused", "message": "no"},
    ]
    left_out = {"svd": "linear algebra"}
    suite = {"results": rows, "left_out": left_out, "conditions": _conditions()}
    text = pages.text({"coverage": (coverage.section({"suites": {"torch": suite}}), suite)})
    assert "Refused, by operator: stft 2." in text
    assert "Not exportable, by operator: cov 1." in text
    assert "Left out: linear algebra 1." in text
    assert "| 3        | 33 %  | 2 " in text


def _conditions() -> dict[str, Any]:
    from foretune.hardware import probe

    return results.Conditions(probe(threads=1), "a test", [], busy_before=[]).end()
