"""``benchmarks.networks`` and ``benchmarks.company``: figures, what is kept, and what pages say."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import cells, company, cuda, networks, quantised, results
from benchmarks._networks import figures, kernels, page, passes, runs
from foretune.workload import catalog

positive = st.floats(1e-6, 1e3)


def _engine(*readings: float, error: str = "") -> dict[str, Any]:
    median = float(np.median(readings)) if readings else None
    return {
        "median": median, "low": min(readings, default=None), "high": max(readings, default=None),
        "readings": list(readings), "error": error or None, "max_abs_error": 1e-6,
        "max_relative_error": 2e-6, "within_tolerance": True if readings else None,
    }  # fmt: skip


def _result(**engines: dict[str, Any]) -> dict[str, Any]:
    tune = {
        "network": {"tolerance": 1e-4, "default_s": 3e-3, "tuned_s": 2e-3, "shipped": "tuned"},
        "tasks": [{"trial_count": 7}],
    }
    found = [
        {"name": "product", "count": 2, "seconds": 4e-3},
        {"name": "copy", "count": 1, "seconds": 1e-3},
        {"name": "tiny", "count": 1, "seconds": 1e-5},
    ]
    return {"tune": tune, "compare": {"latency_s": engines}, "kernels": found, "seconds": 300.0}


def _page(found: dict[str, Any]) -> str:
    section = page.section({"networks": found})
    return "\n\n".join([section.question, section.answer, section.table, section.details])


@given(st.lists(st.tuples(positive, positive), min_size=1, max_size=20))
def test_a_ratio_is_the_median_within_rounds_and_lies_in_its_interval(rounds):
    over, under = zip(*rounds, strict=True)
    found = figures.ratio(over, under)
    assert found["median"] == pytest.approx(np.median(np.divide(over, under)))
    assert found["low"] <= found["median"] * (1 + 1e-9)
    assert found["median"] <= found["high"] * (1 + 1e-9)


def test_the_better_rival_counts_and_one_that_failed_does_not():
    latency = {
        "foretune": _engine(0.010, 0.010, 0.020),
        "eager": _engine(0.001, 0.001, 0.001),
        "onnxruntime": _engine(0.012, 0.012, 0.024),
        "openvino": _engine(error="refused"),
    }
    compared = {"latency_s": latency}
    assert figures.best_rival(compared) == "onnxruntime"
    assert figures.gains(compared)["best"]["median"] == pytest.approx(1.2)
    latency["openvino"] = _engine(0.011, 0.011, 0.011)
    assert figures.best_rival(compared) == "openvino"
    latency["onnxruntime"] = latency["openvino"] = _engine(error="refused")
    assert figures.best_rival(compared) is None and "best" not in figures.gains(compared)


def test_a_sum_with_an_unknown_kernel_is_unknown():
    kernel = {"seconds": 2.0, "count": 3}
    assert figures.sum_of_kernels([kernel, {"seconds": 1.0, "count": 1}]) == 7.0
    assert figures.sum_of_kernels([kernel, {"seconds": None, "count": 1}]) is None


def test_the_summary_names_the_worst_and_where_others_are_ahead():
    results = {
        "fast": _result(
            foretune=_engine(0.01), eager=_engine(0.03), openvino=_engine(0.02)
        ),
        "slow": _result(
            foretune=_engine(0.02), eager=_engine(0.01), openvino=_engine(0.01)
        ),
    }  # fmt: skip
    told = page.summary(results)
    assert told["geometric_mean"] == pytest.approx(math.sqrt(2.0 * 0.5))
    assert (told["least_network"], told["least"]) == ("slow", pytest.approx(0.5))
    assert told["below"] == ["slow"]
    assert told["behind"] == {"eager": ["slow"], "openvino": ["slow"]}
    text = _page(results)
    assert "Eager PyTorch is ahead on slow" in text
    assert text.index("| fast ") < text.index("## Tuning")


def test_a_sum_that_is_off_is_marked():
    text = _page({"net": _result(foretune=_engine(0.00901), openvino=_engine(0.01))})
    assert "1.00 " in text and "(off)" not in text
    text = _page({"net": _result(foretune=_engine(0.02), openvino=_engine(0.01))})
    assert "0.45 (off)" in text
    assert "1.50 " in text, "what tuning brings: 3 ms before, 2 ms after"


def test_what_failed_is_told_beside_the_others():
    good = _result(foretune=_engine(0.01), openvino=_engine(0.02), inductor=_engine(error="no C++"))
    text = _page({"good": good, "bad": {"error": "RuntimeError: ended with 2"}})
    assert "- bad: RuntimeError: ended with 2" in text
    assert "- good, Inductor: no C++" in text
    assert "2.00 [2.00, 2.00] times as fast" in text
    assert "No network could be compared" in _page({"bad": {"error": "E"}})


def test_passes_are_told_with_their_interval_or_why_not():
    result = _result(foretune=_engine(0.01), openvino=_engine(0.02))
    result["passes"] = {
        "layouts": {
            "ratio": {"median": 1.5, "low": 1.4, "high": 1.6}, "median": {"on": 0.01, "off": 0.015},
            "shipped": "tuned", "within_tolerance": True,
        },
        "fusion": {"error": "RuntimeError: refused"},
    }  # fmt: skip
    text = _page({"net": result})
    assert "1.50 (1.40 to 1.60)" in text and "RuntimeError: refused" in text


def test_a_shorter_time_is_told_with_what_it_costs():
    result = _result(foretune=_engine(0.01), openvino=_engine(0.02))
    assert "of the time" not in _page({"net": result})
    result["shorter"] = {
        "ratio": {"median": 1.02, "low": 1.01, "high": 1.04}, "median": {"a": 0.01, "b": 0.0102},
        "seconds": 75.0, "trials": 200,
    }  # fmt: skip
    text = _page({"net": result})
    assert "In 25% of the time" in text and "+2.0% longer" in text
    assert "75 of 300" in text and "1.020 (1.010 to 1.040)" in text


def test_networks_of_other_days_are_kept_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    assert networks._earlier(["net"]) == {}
    result = _result(foretune=_engine(0.01), openvino=_engine(0.02))
    before = {key: {"name": "old"} if key == "hardware" else "before" for key in networks._WHEN}
    page_of = {"networks": {"net": result, "kept": result}, "conditions": before}
    results.write_readings("networks", page_of)
    earlier = networks._earlier(["net"])
    assert list(earlier) == ["kept"]
    now = {**before, "began": "now", "hardware": {"name": "new"}}
    text = _page({**earlier, "net": {**result, "when": now}})
    assert "| kept    | old" in text and "| net     | new" in text
    assert "Machines and days" not in _page({"net": {**result, "when": now}})


def test_passes_that_changed_nothing_or_were_off_are_not_tried():
    def report(name: str, on: bool, changed: bool) -> dict[str, Any]:
        return {"name": name, "on": on, "changed": changed}

    reports = [report("a", True, True), report("b", True, False), report("c", False, True)]
    tune = {"network": {"passes": [*reports, report("d", True, True)]}}
    assert passes.changed_passes(tune) == ["a", "d"]
    assert passes.changed_passes(tune, ["d", "b"]) == ["d"]


def test_kernels_have_the_time_of_what_ships(monkeypatch: pytest.MonkeyPatch) -> None:
    task = {"name": "dense", "weight": 3, "best_s": 1e-3, "default_s": 2e-3}
    monkeypatch.setattr(kernels, "_scheduled", lambda *_: [("norm", 2, None)])
    for shipped, seconds in (("tuned", 1e-3), ("default", 2e-3)):
        tune = {"network": {"shipped": shipped}, "tasks": [task]}
        dense, norm = kernels.of_network("net", tune)
        assert dense == {"name": "dense", "count": 3, "seconds": seconds}
        assert norm["seconds"] is None


def test_what_is_there_is_kept_and_what_fails_is_not(tmp_path: Path):
    calls = []

    def make() -> dict[str, int]:
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("not yet\nfurther lines")
        return {"value": 3}

    file = tmp_path / "deep" / "one.json"
    first = runs.or_error("net", lambda: cells.kept(file, make))
    assert first == {"error": "ValueError: not yet"} and not file.exists()
    assert runs.or_error("net", lambda: cells.kept(file, make)) == {"value": 3}
    assert cells.kept(file, make) == {"value": 3} and len(calls) == 2


def test_every_network_is_in_the_catalog():
    assert set(networks.NETWORKS) <= set(catalog.names("network"))
    assert len(set(networks.NETWORKS)) == 12
    assert set(networks._SHORT) <= set(networks.NETWORKS)


def _repeat(before: float, together: float, after: float) -> dict[str, dict[str, float]]:
    return {"eager": {"before": before, "company": together, "after": after}}


def test_company_is_compared_with_the_solitude_around_it():
    # The machine gets twice as slow in the second repeat, and company costs nothing in any.
    drifting = [_repeat(1.0, 1.0, 1.0), _repeat(1.0, 1.5, 2.0), _repeat(3.0, 3.0, 3.0)]
    found = company.ratios(drifting)["eager"]
    assert found["company"]["median"] == found["company"]["high"] == 1.0
    assert found["control"]["high"] == 2.0
    assert "No: 1 of 1 engines" in company.section({"networks": {"net": drifting}}).answer
    dear = [_repeat(1.0, 1.2, 1.0)] * 3
    answer = company.section({"networks": {"net": dear}}).answer
    assert "0 of 1 engines" in answer and "but eager on net (1.200" in answer


@pytest.mark.slow
def test_an_engine_is_timed_alone_and_in_company(tmp_path: Path):
    from foretune.engines._process import Workspace
    from foretune.workload import from_object

    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    model = from_object((torch.nn.Linear(8, 4), (torch.ones(2, 8),)), "net", "a test")
    workspace = Workspace(tmp_path, model, {}, model.examples)
    found = company.of_engine("eager", ["onnxruntime"], workspace, 1, 2)
    assert list(found) == ["before", "company", "after"]
    assert min(found.values()) > 0


def test_trials_that_improved_are_kept_and_all_are_counted() -> None:
    trials = [{"index": i, "best_s": best} for i, best in enumerate((None, 2.0, 2.0, 1.0))]
    (task,) = runs.without_repeats({"tasks": [{"name": "t", "trials": trials}]})["tasks"]
    assert [trial["index"] for trial in task["trials"]] == [1, 3]
    assert task["trial_count"] == 4


def test_a_mean_lies_in_its_interval() -> None:
    found = figures.mean_interval([1.0, 1.1, 1.2, 1.9])
    assert found["low"] < figures.geometric_mean([1.0, 1.1, 1.2, 1.9]) < found["high"]


@pytest.mark.parametrize("engine", [(1.0, 2.0), ()])
def test_bars_are_of_networks_that_a_rival_ran(engine: tuple[float, ...]) -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    rival = _engine(*engine) if engine else _engine(error="refused")
    section = page.section({"networks": {"net": _result(foretune=_engine(1, 1), openvino=rival)}})
    axes = Figure().subplots()
    assert section.plot is not None
    section.plot(axes)
    assert len(axes.patches) == bool(engine)


def test_a_quantised_network_is_told_beside_its_floats() -> None:
    names = ("foretune floats", "onnxruntime floats", "onnxruntime bytes")
    readings = {name: [2.0, 2.0, 3.0] for name in names}
    readings["foretune bytes"] = [1.0, 1.0, 1.5]
    tune = {"budget": {"seconds": 340.0}, "tasks": [{"trial_count": 7}, {"trial_count": 8}]}
    found = {
        "seconds": readings, "product": "dot_16x4_vnni", "seven_bits": False,
        "ratios": {f"{a} over {b}": figures.ratio(readings[a], readings[b])
                   for a, b in quantised._RATIOS},
        "tune": {"floats": tune, "bytes": tune},
    }  # fmt: skip
    section = quantised.section(found)
    assert "in bytes is 2.00 (2.00 to 2.00) times as fast as in floats" in section.answer
    assert "15 trials of 2 tasks in floats" in section.details


def test_a_gpu_is_compared_with_the_fastest_of_pytorch() -> None:
    def timed(**seconds: float) -> dict[str, Any]:
        return {name: {"median_s": value} for name, value in seconds.items()}

    network = {"timed": {**timed(default=2e-3, eager=8e-3), **timed(**{"eager, graph": 3e-3})}}
    kernel = {"timed": timed(foretune=1e-5, pytorch=8e-6), "flops": 1e9, "trials": 9}
    data = {"kernels": {"product": {**kernel, "fault": ""}},
            "networks": {"net": {**network, "fault": "longer than 9 s"}}}  # fmt: skip
    section = cuda.section(data)
    assert "0 of 1 kernels" in section.answer and "product 0.80, net 1.50" in section.answer
    assert "longer than 9 s" in section.table
