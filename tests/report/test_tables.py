"""Tables for the terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from foretune.hardware import Hardware
from foretune.report import _units as units
from foretune.report import print_comparison, print_hardware, print_summary
from tests.report.support import llm, network, result, scores, task


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=80)


def _text(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_summary_names_tasks_heaviest_first_and_what_failed(console: Console) -> None:
    light, heavy = task("light", weight=1), task("[bold]heavy", weight=9)
    print_summary(result(light, heavy), console)
    text = _text(console)
    assert text.index("[bold]heavy") < text.index("light")
    for part in (
        "167 µs",
        "600",
        "60 %",
        "sum of kernels: 40.0 ms",
        "20.0× faster",
        "4 timeout",
        "left untuned: resize2d",
    ):
        assert part in text


NETWORKS = [
    ({}, "network: 32.0 ms, original (ONNX Runtime) 40.0 ms, 1.25× its speed", "640 ms"),
    ({"tuned_s": 50e-3}, "slower than the original: network 50.0 ms", "(ONNX Runtime) 40.0 ms"),
    (
        {"shipped": "default", "tuned_s": 700e-3, "fault": "it is slower than the default"},
        "slower than the original: network 640 ms",
        "the default schedules ship, not the tuned network",
    ),
    ({"original": None, "original_s": None}, "network: 32.0 ms", "equal to the original within"),
    ({"original": "eager"}, "network: 32.0 ms, original (eager PyTorch) 40.0 ms", "8 inputs"),
    ({"inputs": 0, "max_abs_error": None}, "network: 32.0 ms", "cannot run on this machine"),
]


@pytest.mark.parametrize(("changes", "first", "further"), NETWORKS)
def test_a_network_is_told_first_and_beside_the_original(
    console: Console, changes: dict[str, object], first: str, further: str
) -> None:
    print_summary({**result(task("dense")), "network": network(**changes)}, console)
    text = _text(console)
    assert text.startswith(first)
    assert further in " ".join(text.split())
    assert "faster" not in text, "no multiple of the default stands alone"


def test_an_operator_that_keeps_the_default_schedule_is_not_called_untuned(
    console: Console,
) -> None:
    data = result(task("pool", best_s=1e-3), task("bare", best_s=40e-3))
    print_summary({**data, "untuned_operators": ["pool", "bare", "resize2d"]}, console)
    text = _text(console)
    assert "no candidate beat the default schedule: pool\n" in text
    assert "left untuned: bare, resize2d" in text


def test_of_many_untuned_operators_the_first_are_named(console: Console) -> None:
    names = [f"gate{at}" for at in range(40)]
    print_summary({**result(task("dense")), "untuned_operators": names}, console)
    text = " ".join(_text(console).split())
    assert "left untuned: gate0, gate1, " in text
    assert "gate7 and 32 more" in text
    assert "gate8" not in text


def test_numbers_stay_whole_where_names_do_not_fit(console: Console) -> None:
    print_summary(result(task("fused_" * 30)), console)
    lines = _text(console).splitlines()
    assert max(map(len, lines)) <= 80 or "searching" in max(lines, key=len)
    assert "fused_fused" in _text(console)
    assert "4.00 ms" in _text(console)
    assert "60 %" in _text(console)


def test_summary_tells_what_the_language_model_cost(console: Console) -> None:
    print_summary(result(task(), llm=llm()), console)
    text = " ".join(_text(console).split())
    for part in ("qwen3", "calls 12, 9 answers", "9000 read, 700 written", "41.5 s", "$0.0123",
                 "3 questions without an answer", "20, 25 % better"):  # fmt: skip
        assert part in text
    assert "left out" not in text


def test_summary_of_a_model_that_scores_tells_of_scores(console: Console) -> None:
    wrong = scores(malformed=4, clipped=7, rejected=2)
    asked = llm(proposals=0, judged=0, hits=0, hit_rate=None, invalid=0, scores=wrong)
    print_summary(result(task(), llm=asked), console)
    text = " ".join(_text(console).split())
    for part in ("its scores: 36 of 128 programs scored by formulas instead",
                 "3 known from before", "95 answers, 4 malformed",
                 "of their scores 7 clipped, 2 rejected"):  # fmt: skip
        assert part in text
    assert "proposals" not in text


def test_summary_of_a_model_that_does_both_tells_both(console: Console) -> None:
    print_summary(result(task(), llm=llm(scores=scores())), console)
    text = " ".join(_text(console).split())
    assert "its scores: 36 of 128" in text and "its proposals: 20" in text
    assert "of their scores" not in text


def test_summary_of_an_early_result_tells_of_scores(console: Console) -> None:
    early = {name: value for name, value in scores().items() if name != "programs"}
    print_summary(result(task(), llm=llm(scores=early)), console)
    assert "its scores: 36 programs scored by formulas instead" in _text(console)


def test_summary_tells_why_a_language_model_was_left_out(console: Console) -> None:
    print_summary(result(task(), llm=llm(left_out="no [b]answer", usd=0.0, hit_rate=None)), console)
    text = _text(console)
    assert "was left out: no [b]answer" in text and "no price is given" in text
    print_summary(result(task()), console)
    assert _text(console).count("language model qwen3") == 1


def test_summary_of_an_unfinished_run(console: Console) -> None:
    data = result(task(trials=0), tuned_s=None, interrupted=True, untuned_operators=[])
    print_summary(data, console)
    assert "interrupted" in _text(console)
    assert "untuned:" not in _text(console)


def test_comparison_ranks_engines_and_tells_the_factor(console: Console) -> None:
    latency = {
        "eager": {"median": 0.02, "low": 0.019, "high": 0.021},
        "openvino": {"median": None, "low": None, "high": None, "error": "not installed"},
        "foretune": {"median": 0.005, "low": 0.0049, "high": 0.0051, "max_abs_error": 2e-5},
    }
    print_comparison({"latency_s": latency, "max_abs_error": {"eager": 1e-5}}, console)
    text = _text(console)
    assert text.index("foretune ") < text.index("eager")
    assert "4.00×" in text
    assert "19.0 ms to 21.0 ms" in text
    assert "1e-05" in text
    assert "2e-05" in text
    assert "openvino could not be timed: not installed" in text


def test_comparison_names_engines_that_compute_something_else(console: Console) -> None:
    seconds = {"median": 0.02, "low": 0.019, "high": 0.021}
    latency = {
        "eager": {**seconds, "within_tolerance": True},
        "inductor": {**seconds, "within_tolerance": False},
        "openvino": seconds,
        "onnxruntime": {**seconds, "within_tolerance": None, "difference": "that is why"},
    }
    print_comparison({"latency_s": latency}, console)
    text = _text(console)
    assert "onnxruntime cannot be compared with the original: that is why" in text
    assert text.count("cannot be compared") == 1
    assert "inductor computes something else than the original" in text
    assert text.count("something else") == 1


def test_comparison_with_one_difference_for_all(console: Console) -> None:
    latency = {"eager": {"median": 0.02, "low": 0.019, "high": 0.021}}
    print_comparison({"latency_s": latency, "max_abs_error": 3e-6}, console)
    assert "largest difference of the outputs: 3e-06" in _text(console)


def test_hardware_tells_what_is_not_known(console: Console) -> None:
    print_hardware(Hardware("cpu", '{"kind": "llvm"}', 2, simd_bits=512, l1_bytes=32768), console)
    text = _text(console)
    assert "512 bit" in text
    assert "32 KiB, not known, not known" in text
    assert "peak" in text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (2.5, "2.50 s"), (0.0123, "12.3 ms"), (4.56e-5, "45.6 µs"), (2e-9, "0.00 µs")],
)
def test_seconds(value: float | None, text: str) -> None:
    assert units.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0.4, "0 s"), (59.6, "1 min 00 s"), (3725.4, "1 h 02 min")],
)
def test_duration(value: float | None, text: str) -> None:
    assert units.duration(value) == text


def test_a_ratio_needs_both_values() -> None:
    assert units.ratio(4.0, 2.0) == 2.0
    assert units.ratio(None, 2.0) is None
    assert units.ratio(4.0, 0.0) is None


def test_summary_tells_what_was_reused(console: Console) -> None:
    known = {"enough": True, "best": True}
    tasks = [known, {"enough": False, "best": False}]
    print_summary(result(task(), reused={"store": "[b]s.jsonl", "tasks": tasks}), console)
    assert "reused from [b]s.jsonl: 1 of 2 tasks needed no trial, 1 of the best" in _text(console)
    print_summary(result(task(), reused={"store": "other", "tasks": tasks[1:]}), console)
    assert "other" not in _text(console)
