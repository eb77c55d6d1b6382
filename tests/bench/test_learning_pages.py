"""The pages of own variants and of learning from a network, on results that were made up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import learned_from, own_variants
from benchmarks._devices import Case, told_nothing
from benchmarks.results import read_json
from foretune.dataset import Group, Program
from foretune.hardware import Hardware


def _result(best: list[tuple[float, float | None]], default_s: float | None = 4.0) -> Any:
    trials = [{"elapsed_s": at, "best_s": seconds} for at, seconds in best]
    task = {"key": "k", "weight": 2, "default_s": default_s, "untuned_s": 8.0, "trials": trials}
    return {"tasks": [task], "network": {"original_s": 6.0, "tuned_s": 2.0}}


def test_a_kernel_counts_with_its_default_schedule_until_a_trial_is_faster() -> None:
    result = _result([(1.0, None), (2.0, 5.0), (3.0, 3.0), (9.0, 1.0)])
    seconds = [learned_from.kernels_s(result, at, {"k"}) for at in (0.0, 2.0, 3.0, 10.0)]
    assert seconds == [8.0, 8.0, 6.0, 2.0]
    assert learned_from.kernels_s(_result([], None), 1.0, {"k"}) == 16.0


def test_a_kernel_that_one_run_has_not_measured_counts_in_neither() -> None:
    both, half = _result([]), _result([])
    for result, seconds in ((both, 9.0), (half, None)):
        result["tasks"].append(
            {"key": "l", "weight": 1, "default_s": seconds, "untuned_s": None, "trials": []}
        )
    assert learned_from.comparable([both, both]) == {"k", "l"}
    assert learned_from.comparable([both, half]) == {"k"}
    assert learned_from.figures({"with": both, "without": half}, 10.0)["1"] == 1.0


def test_learning_is_without_over_with_and_noise_of_the_machine_cancels() -> None:
    slower = _result([(1.0, 2.0)])
    # The same run on a machine that was half as fast meanwhile, and found less.
    faster = _result([(1.0, 8.0), (5.0, 4.0)], 8.0) | {
        "network": {"original_s": 12.0, "tuned_s": 6.0}
    }
    found = learned_from.figures({"with": slower, "without": faster}, 10.0)
    assert found == {"0.1": 2.0, "0.25": 2.0, "0.5": 1.0, "1": 1.0, "network": 1.5}
    row = {"first": "a", "then": "b", "seed": 0, "figures": found}
    section = learned_from.section({"rows": [row, row], "time_s": 10.0})
    assert "After 1 s the kernels" in section.answer
    assert "are **2.000 (2.000 to 2.000) times as fast**" in section.answer
    assert "after 10 s 1.000 (1.000 to 1.000) times" in section.answer
    assert "| a " in section.table and "1.500" in section.table


def _group(workload: str, threads: int, seconds: list[float]) -> Group:
    machine = Hardware("cpu", '{"kind": "llvm"}', threads=threads, simd_bits=256)
    programs = [Program(actions=()) for _ in seconds]
    times = np.array(seconds)
    return Group(workload, workload, "matmul", machine.key, programs, times, machine=machine)


def test_who_is_told_nothing_sees_one_machine() -> None:
    train = (_group("a", 1, [1.0, 2.0]), _group("b", 2, [1.0, 2.0]))
    test = (_group("c", 4, [1.0, 2.0]),)
    seen: list[int] = []

    def rival(case: Case) -> dict[str, Any]:
        seen.extend(g.machine.threads for g in (*case.train, *case.test) if g.machine)
        return {}

    told_nothing(rival)(Case("x", train, (), test, {}, 0))
    assert seen == [1, 1, 1]


def test_a_variant_and_some_workloads_are_left_out_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = [_group(name, n, [1.0, 2.0, 4.0]) for n in (1, 2) for name in "abcdef"]
    parts = list(own_variants.cases(groups, folds=3, parts=2, seed=0))
    assert len(parts) == 4
    for _, case in parts:
        tested = {g.workload for g in case.test}
        assert {g.hardware for g in case.test} == {case.device}
        assert case.device not in {g.hardware for g in case.train}
        assert not tested & {g.workload for g in case.train}

    def knows(case: Case) -> dict[str, Any]:
        return {g.key: -g.seconds for g in case.test}

    def wrong(case: Case) -> dict[str, Any]:
        return {g.key: g.seconds for g in case.test}

    monkeypatch.setattr(own_variants, "RIVALS", {
        "trees without hardware factors": wrong, "trees": knows, "formulas alone": knows,
        "behaviour": knows,
    })  # fmt: skip
    monkeypatch.setattr(own_variants, "keep_judgeable", lambda found: (found, []))
    monkeypatch.setattr(own_variants, "read_data", lambda _: type("Read", (), {"groups": groups}))
    pages: list[str] = []
    monkeypatch.setattr(
        own_variants,
        "publish",
        lambda _, told, data, *__: pages.append(told(data).answer + told(data).table),
    )
    arguments = ["--folds", "3", "--seeds", "2", "--work-dir", str(tmp_path)]
    own_variants.main(arguments)
    assert "reaches 1.000 of the best, +0.750 (+0.750 to +0.750)" in pages[0]
    assert "256 bits, 2 threads" in pages[0]
    cells = [read_json(path) for path in tmp_path.glob("*/*.json")]
    ours = [cell["result"] for cell in cells if cell["cell"].startswith("behaviour")]
    assert ours and {entry["top1"] for each in ours for entry in each} == {1.0}
    # Other readings of the same programs are other cells.
    groups[0] = replace(groups[0], seconds=groups[0].seconds * 2)
    own_variants.main(arguments)
    assert len(list(tmp_path.glob("*/*.json"))) == 2 * len(cells)
