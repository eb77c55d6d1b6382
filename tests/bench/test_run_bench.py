from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from filelock import FileLock
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from foretune.bench import (
    SideError,
    SideRun,
    _bench,
    _ours,
    _sides,
    print_bench,
    run_bench,
)
from foretune.bench._sides import Point, Side, sides
from foretune.cost import rankers
from foretune.errors import BadInputError, NothingMeasuredError
from foretune.hardware import Hardware
from foretune.measure import Measurement, Measurer, Status
from foretune.metaschedule import trace_json
from foretune.records import Journal
from foretune.space import Candidate, Space
from foretune.testing.rankers import training_groups
from foretune.workload import Workload, catalog
from tests.records.support import record


class Formula(Measurer):
    """Seconds by formula: the untuned program 1 s, others between 0 and 1 by their key."""

    def __init__(self, hardware: Hardware, policy: object = None) -> None:
        del hardware, policy

    def measure(
        self, candidates: Sequence[Candidate], best_s: Mapping[str, float] | None = None
    ) -> Iterator[tuple[Candidate, Measurement]]:
        raise AssertionError("the bench only compares")

    def compare(self, candidates: Sequence[Candidate]) -> list[Measurement]:
        assert len({c.key for c in candidates}) == len(candidates), "each is measured once"
        return [Measurement(Status.OK, (seconds_of(c),), (True,)) for c in candidates]

    def close(self) -> None:
        pass


def seconds_of(candidate: Candidate) -> float:
    if not candidate.sketch.variables:
        return 1.0
    return (int(candidate.key, 16) % 1000 + 1) / 2000


@pytest.fixture(scope="module")
def workload() -> Workload:
    found = catalog.get("matmul:64x64x64")
    assert isinstance(found, Workload)
    return found


@pytest.fixture
def calls(
    monkeypatch: pytest.MonkeyPatch,
) -> list[tuple[str, int]]:
    """Replaces runs by made-up ones of eight trials, and returns the list of runs made."""
    spaces: dict[str, Space] = {}
    made: list[tuple[str, int]] = []

    def run_side(
        side: Side,
        workload: Workload,
        hardware: Hardware,
        trials: int,
        seed: int,
        *_: Any,
        **_options: Any,
    ) -> SideRun:
        made.append((side.strategy, seed))
        if side.strategy == "random":
            raise SideError("the child died")
        if workload.key not in spaces:
            spaces[workload.key] = Space.generate(workload, hardware)
        space = spaces[workload.key]
        drawn = space.sample(np.random.default_rng([seed, len(side.strategy)]), 8)
        first, second, *_ = {seconds_of(candidate): candidate for candidate in drawn}.values()
        given: dict[str, Any] = {"candidate": first.to_json()}
        if side.is_peer:
            given = {"trace": trace_json(first.schedule())}
        points = (
            Point(2, 0.2, 0.9, **given),
            Point(5, 0.5, 0.1, candidate=second.to_json()),
        )
        arrivals = tuple(0.1 * (i + 1) for i in range(trials))
        return SideRun(trials, 1, 0.1 * trials, points, arrivals, {"search_s": 0.01})

    monkeypatch.setattr(_bench, "run_side", run_side)
    monkeypatch.setattr(_bench, "LocalMeasurer", Formula)
    return made


def test_the_object_of_the_contract(
    calls: list[tuple[str, int]], workload: Workload, hardware: Hardware
) -> None:
    lines: list[str] = []
    result = run_bench(
        [workload],
        ["evolutionary", "metaschedule"],
        8,
        2,
        hardware=hardware,
        progress=lines.append,
    )
    assert result["schema"] == "foretune.bench/1"
    assert json.loads(json.dumps(result)) == result
    assert "partly random" in result["notes"]["metaschedule"]
    assert len(result["runs"]) == 4
    for run in result["runs"]:
        assert {
            "workload", "strategy", "cost_model", "seed", "elapsed_s", "trials_per_s",
            "untuned_s", "curve",
        } <= run.keys()  # fmt: skip
        assert run["untuned_s"] == 1.0
        assert [point[0] for point in run["curve"]] == [2, 3, 4, 5, 6, 7, 8]
        assert [point[1] for point in run["curve"]] == pytest.approx([0.1 * n for n in range(2, 9)])
        assert run["reported"][0][2] == 0.9, "what the run itself read"
        assert run["curve"][0][2] < 0.6, "what the comparison read"
        assert run["trials_per_s"] == pytest.approx(10.0)
    assert {row["trials"] for row in result["summary"]["speedup"]} == {8}
    assert any("best" in line for line in lines)


def test_sides_take_turns_at_going_first(
    calls: list[tuple[str, int]], workload: Workload, hardware: Hardware
) -> None:
    run_bench([workload], ["evolutionary", "metaschedule"], 8, 2, hardware=hardware)
    assert [strategy for strategy, _ in calls] == [
        "evolutionary",
        "metaschedule",
        "metaschedule",
        "evolutionary",
    ]


def test_finished_runs_are_found_again(
    calls: list[tuple[str, int]], workload: Workload, hardware: Hardware, tmp_path: Path
) -> None:
    path = tmp_path / "bench.json"
    given: dict[str, Any] = {"hardware": hardware, "work_dir": tmp_path / "runs", "path": path}
    run_bench([workload], ["evolutionary"], 8, 1, **given)
    first = json.loads(path.read_text())
    again = run_bench([workload], ["evolutionary", "metaschedule"], 8, 2, **given)
    assert calls == [("evolutionary", 0), ("metaschedule", 0), ("metaschedule", 1),
                     ("evolutionary", 1)]  # fmt: skip
    assert again["runs"][0]["curve"] == first["runs"][0]["curve"]
    assert json.loads(path.read_text()) == again


def test_seeds_of_several_calls_are_put_together_by_the_last(
    calls: list[tuple[str, int]], workload: Workload, hardware: Hardware, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"hardware": hardware, "work_dir": tmp_path}
    sides = ["evolutionary", "metaschedule"]
    for seeds in ([2], [1, 0]):
        run_bench([workload], sides, 8, seeds, **given)
    assert sorted(calls) == [(side, seed) for side in sides for seed in range(3)]
    result = run_bench([workload], sides, 8, 3, **given)
    assert len(calls) == 6, "nothing was left to be run"
    assert [run["seed"] for run in result["runs"]] == [0, 0, 1, 1, 2, 2]


def test_what_another_call_is_at_is_left_to_it_and_found_in_the_end(
    calls: list[tuple[str, int]],
    workload: Workload,
    hardware: Hardware,
    tmp_path: Path,
) -> None:
    given: dict[str, Any] = {"hardware": hardware, "work_dir": tmp_path}
    other = FileLock(tmp_path / f"{workload.key}-{hardware.key}-0.lock")
    other.acquire()
    said: list[str] = []

    def progress(line: str) -> None:
        said.append(line)
        if "seed 1: best" in line:
            other.release()

    result = run_bench([workload], ["evolutionary"], 8, 2, progress=progress, **given)
    assert said[0].endswith("seed 0: another call is at it")
    assert calls == [("evolutionary", 1), ("evolutionary", 0)]
    assert [run["seed"] for run in result["runs"]] == [0, 1]


def test_other_code_or_weights_make_our_runs_anew_but_not_those_of_peers(
    calls: list[tuple[str, int]], workload: Workload, hardware: Hardware, tmp_path: Path
) -> None:
    def run(state: str) -> dict[str, Any]:
        both = ["evolutionary", "metaschedule"]
        return run_bench([workload], both, 8, 1, hardware=hardware, work_dir=tmp_path, state=state)

    before = run("before")
    assert calls == [("evolutionary", 0), ("metaschedule", 0)]
    after = run("after")
    assert calls[2:] == [("evolutionary", 0)]
    assert [row["strategy"] for row in after["runs"]] == ["evolutionary", "metaschedule"]
    assert all(row["curve"] for row in after["runs"]), "both are compared in one sitting again"
    again = run("before")["runs"]
    assert [row["curve"] for row in again] == [row["curve"] for row in before["runs"]]
    assert len(calls) == 3, "what was made in either state is still there"


def test_calls_of_one_seed_or_workload_share_a_folder_and_one_call_joins_them(
    calls: list[tuple[str, int]], workload: Workload, hardware: Hardware, tmp_path: Path
) -> None:
    other = catalog.get("matmul:32x32x32")
    both, sides_ = [workload, other], ["evolutionary", "metaschedule"]
    given: dict[str, Any] = {"hardware": hardware, "work_dir": tmp_path}
    parts = [
        run_bench(both, sides_, 8, [1], **given),
        run_bench([workload], sides_, 8, [0], **given),
        run_bench([other], sides_, 8, [0], **given),
    ]
    assert len(calls) == 8 and len(list(tmp_path.glob("*.json"))) == 8
    whole = run_bench(both, sides_, 8, 2, **given)
    assert len(calls) == 8, "nothing is run again"
    assert as_told(run for part in parts for run in part["runs"]) == as_told(whole["runs"])
    assert [run["seed"] for run in whole["runs"]] == [0, 0, 0, 0, 1, 1, 1, 1]


def as_told(runs: Iterable[Mapping[str, Any]]) -> dict[tuple[str, int, str], dict[str, Any]]:
    """Runs by what they are of, without the time at which they were compared."""
    return {
        (run["key"], run["seed"], run["strategy"]): {
            name: value for name, value in run.items() if name != "compared"
        }
        for run in runs
    }


def test_all_seeds_of_a_workload_are_compared_in_one_sitting_in_the_end(
    calls: list[tuple[str, int]], workload: Workload, hardware: Hardware, tmp_path: Path
) -> None:
    both = [workload, catalog.get("matmul:32x32x32")]
    given: dict[str, Any] = {"hardware": hardware, "work_dir": tmp_path}
    run_bench(both, ["evolutionary", "metaschedule"], 8, [1], **given)
    result = run_bench(both, ["evolutionary", "metaschedule"], 8, 3, **given)
    sittings = {run["key"]: set[float]() for run in result["runs"]}
    for run in result["runs"]:
        sittings[run["key"]].add(run["compared"])
    assert [len(times) for times in sittings.values()] == [1, 1]
    again = run_bench(both, ["evolutionary", "metaschedule"], 8, 3, **given)
    assert again["runs"] == result["runs"], "once together, they stay as they are"


def test_some_strategies_may_have_fewer_seeds(
    calls: list[tuple[str, int]], workload: Workload, hardware: Hardware
) -> None:
    both = ["evolutionary", "metaschedule"]
    result = run_bench(
        [workload], both, 8, [4, 2], own_seeds={"metaschedule": 1}, hardware=hardware
    )
    assert sorted(calls) == [("evolutionary", 2), ("evolutionary", 4), ("metaschedule", 4)]
    assert len(result["runs"]) == 3
    with pytest.raises(BadInputError, match="own_seeds >= 1"):
        run_bench([workload], both, 8, own_seeds={"metaschedule": 0}, hardware=hardware)
    with pytest.raises(BadInputError, match="'random' is none of"):
        run_bench([workload], both, 8, own_seeds={"random": 1}, hardware=hardware)


def test_runs_that_others_compared_in_between_are_compared_together_again(
    calls: list[tuple[str, int]],
    workload: Workload,
    hardware: Hardware,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sittings: list[int] = []
    whole = _bench.compare

    def counted(measurer: Measurer, candidates: Sequence[Candidate]) -> dict[str, float]:
        sittings.append(len(candidates))
        return whole(measurer, candidates)

    monkeypatch.setattr(_bench, "compare", counted)

    def run(*models: str) -> int:
        before = len(sittings)
        given: dict[str, Any] = {"cost_models": models, "work_dir": tmp_path}
        found = run_bench(
            [workload], ["evolutionary", "metaschedule"], 8, hardware=hardware, **given
        )
        assert len({run["compared"] for run in found["runs"]}) == 1
        return len(sittings) - before

    assert [run("gbdt"), run("gbdt"), run("random"), run("gbdt"), run("gbdt")] == [1, 0, 1, 1, 0]
    assert [run("gbdt", "random"), run("random")] == [1, 0]
    assert len(calls) == 3, "the peer ran once"


def test_a_seed_by_itself_is_run_in_the_order_that_it_has_among_all(
    calls: list[tuple[str, int]], workload: Workload, hardware: Hardware
) -> None:
    both = ["evolutionary", "metaschedule"]
    run_bench([workload], both, 8, 3, hardware=hardware)
    for seed in (2, 1):
        run_bench([workload], both, 8, [seed], hardware=hardware)
    assert calls[6:8] == calls[4:6] and calls[8:] == calls[2:4]


def test_a_peer_may_have_more_trials(
    calls: list[tuple[str, int]], workload: Workload, hardware: Hardware, tmp_path: Path
) -> None:
    both = ["evolutionary", "metaschedule"]
    given: dict[str, Any] = {"hardware": hardware, "work_dir": tmp_path}
    result = run_bench([workload], both, 8, 1, peer_trials=20, **given)
    assert (result["trials"], result["peer_trials"]) == (8, 20)
    assert {run["strategy"]: run["trials"] for run in result["runs"]} == {
        "evolutionary": 8,
        "metaschedule": 20,
    }
    assert {row["trials"] for row in result["summary"]["speedup"]} == {8}
    assert "peer_trials" not in run_bench([workload], both, 8, 1, **given)
    assert calls[2:] == [("metaschedule", 0)], "another number of trials is another run"


def test_some_strategies_may_have_fewer_trials_and_are_compared_at_as_many(
    calls: list[tuple[str, int]], workload: Workload, hardware: Hardware, tmp_path: Path
) -> None:
    both = ["evolutionary", "mcts:learned"]
    given: dict[str, Any] = {"hardware": hardware, "work_dir": tmp_path}
    result = run_bench([workload], both, 16, 1, own_trials={"mcts:learned": 8}, **given)
    assert {run["strategy"]: (run["trials"], run["budget"]) for run in result["runs"]} == {
        "evolutionary": (16, 16),
        "mcts:learned": (8, 8),
    }
    assert {row["trials"] for row in result["summary"]["speedup"]} == {8}
    own = {(row["strategy"], row["trials"]) for row in result["summary"]["over_untuned"]}
    assert own == {("evolutionary", 8), ("evolutionary", 16), ("mcts:learned", 8)}
    run_bench([workload], both, 16, 1, **given)
    assert calls[2:] == [("mcts:learned", 0)], "another number of trials is another run"


def test_every_side_may_have_a_state_of_its_own(
    calls: list[tuple[str, int]], workload: Workload, hardware: Hardware, tmp_path: Path
) -> None:
    models: dict[str, Any] = {"cost_models": ["gbdt", "random"], "work_dir": tmp_path}

    def run(states: dict[str, str]) -> int:
        before = len(calls)
        given = {"hardware": hardware, "state": lambda side: states[side.cost_model], **models}
        run_bench([workload], ["evolutionary", "metaschedule"], 4, 1, **given)
        return len(calls) - before

    first = {"gbdt": "a", "random": "b"}
    assert [run(first), run(first), run({**first, "random": "c"})] == [3, 0, 1]


@pytest.mark.slow
def test_processes_share_a_folder(workload: Workload, tmp_path: Path) -> None:
    program = (
        "import sys; from foretune.bench import run_bench; "
        "run_bench(['matmul:64x64x64'], ['random'], 2, [int(sys.argv[1])], work_dir=sys.argv[2])"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", program, str(seed), str(tmp_path)])
        for seed in (0, 1)
    ]
    assert [process.wait(240) for process in processes] == [0, 0]
    files = sorted(tmp_path.glob("*.json"))
    made = [json.loads(file.read_bytes())["raw"] for file in files]
    result = run_bench([workload], ["random"], 2, 2, work_dir=tmp_path)
    assert [run["seed"] for run in result["runs"]] == [0, 1]
    found = [json.loads(file.read_bytes()) for file in files]
    assert [run["raw"] for run in found] == made, "nothing was run again"
    assert len({run["compared"] for run in found}) == 1, "but compared in one sitting"


def test_an_interrupted_bench_keeps_its_finished_runs(
    calls: list[tuple[str, int]],
    workload: Workload,
    hardware: Hardware,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = _bench.run_side

    def interrupted(side: Side, *arguments: Any, **options: Any) -> SideRun:
        if side.is_peer:
            raise KeyboardInterrupt
        return whole(side, *arguments, **options)

    monkeypatch.setattr(_bench, "run_side", interrupted)
    given: dict[str, Any] = {"hardware": hardware, "path": tmp_path / "bench.json"}
    with pytest.raises(KeyboardInterrupt):
        run_bench([workload], ["evolutionary", "metaschedule"], 8, 1, **given)
    assert json.loads((tmp_path / "bench.json").read_text())["schema"] == "foretune.bench/1"
    monkeypatch.setattr(_bench, "run_side", whole)
    result = run_bench([workload], ["evolutionary", "metaschedule"], 8, 1, **given)
    assert calls == [("evolutionary", 0), ("metaschedule", 0)]
    assert [len(run["curve"]) for run in result["runs"]] == [7, 7]
    assert [file.name for file in tmp_path.iterdir()] == ["bench.json"]
    run_bench([workload], ["evolutionary"], 8, 1, **given)
    assert len(calls) == 3, "a finished benchmark is run anew"


def test_a_failed_run_is_told_and_the_bench_goes_on(
    calls: list[tuple[str, int]], workload: Workload, hardware: Hardware
) -> None:
    result = run_bench([workload], ["random", "evolutionary"], 8, 1, hardware=hardware)
    assert [run["strategy"] for run in result["runs"]] == ["evolutionary"]
    assert [(f["strategy"], f["error"]) for f in result["failures"]] == [
        ("random", "the child died")
    ]


def test_a_bench_whose_runs_all_failed_is_written_and_refused(
    calls: list[tuple[str, int]], workload: Workload, hardware: Hardware, tmp_path: Path
) -> None:
    path = tmp_path / "bench.json"
    with pytest.raises(NothingMeasuredError, match=r"all 2 runs .* the child died"):
        run_bench([workload], ["random"], 8, 2, hardware=hardware, path=path)
    written = json.loads(path.read_text())
    assert written["runs"] == []
    assert [failure["seed"] for failure in written["failures"]] == [0, 1]
    assert [file.name for file in tmp_path.iterdir()] == ["bench.json"]


def test_our_runs_do_not_stop_early(
    tmp_path: Path, workload: Workload, hardware: Hardware, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {}

    def tune(*_: object, **options: Any) -> Any:
        given.update(options)
        task = SimpleNamespace(best=None)
        return SimpleNamespace(tasks=[task], to_json=dict)

    monkeypatch.setattr(_ours, "tune", tune)
    request = {
        "hardware": hardware.to_json(),
        "workload": asdict(workload),
        "strategy": "random",
        "cost_model": "random",
        "trials": 1000,
        "batch": 12,
        "seed": 0,
        "work_dir": str(tmp_path),
        "answer": str(tmp_path / "answer.json"),
    }
    _ours._run(request, {})
    assert given["patience"] >= given["trials"] == 1000
    assert given["batch"] == 12
    assert json.loads((tmp_path / "answer.json").read_text()) == {"result": {}, "best": None}


def test_strategies_are_crossed_with_cost_models_but_peers_bring_their_own() -> None:
    assert sides(["evolutionary", "metaschedule"], ["gbdt", "random"]) == [
        Side("evolutionary", "gbdt"),
        Side("evolutionary", "random"),
        Side("metaschedule", "xgb"),
    ]
    assert sides(["gradient+mlp:formulas", "random", "metaschedule"], ["gbdt"]) == [
        Side("gradient", "mlp:formulas"),
        Side("random", "gbdt"),
        Side("metaschedule", "xgb"),
    ]


def test_a_side_may_name_its_batch() -> None:
    found = sides(["random@4", "gradient+mlp:formulas@16", "random", "metaschedule"], ["gbdt"])
    assert found == [
        Side("random", "gbdt", 4),
        Side("gradient", "mlp:formulas", 16),
        Side("random", "gbdt"),
        Side("metaschedule", "xgb"),
    ]
    assert [side.name for side in found[:3]] == [
        "random+gbdt@4", "gradient+mlp:formulas@16", "random+gbdt",
    ]  # fmt: skip
    assert sides([side.name for side in found[:3]], ["random"]) == found[:3]


def test_runs_of_one_strategy_are_told_apart_by_their_batches(
    calls: list[tuple[str, int]], workload: Workload, hardware: Hardware, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"hardware": hardware, "work_dir": tmp_path}
    result = run_bench([workload], ["evolutionary", "evolutionary@4"], 8, 1, **given)
    assert [run.get("batch") for run in result["runs"]] == [None, 4]
    pairs = {(row["strategy"], row["over"]) for row in result["summary"]["speedup"]}
    assert pairs == {("evolutionary", "evolutionary@4"), ("evolutionary@4", "evolutionary")}
    print_bench(result, Console(file=(shown := io.StringIO()), width=200))
    assert "evolutionary@4" in shown.getvalue()
    run_bench([workload], ["evolutionary@4", "evolutionary@8"], 8, 1, **given)
    assert len(calls) == 3, "only what has another batch was run"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"strategies": ["quantum"]}, "metaschedule-warm"),
        ({"strategies": ["metaschedule+gbdt"]}, "brings its own"),
        ({"strategies": ["random+oracle"]}, "gbdt"),
        ({"cost_models": ["oracle"]}, "gbdt"),
        ({"trials": 0}, "trials >= 1"),
        ({"peer_trials": 0}, "peer_trials >= 1"),
        ({"own_trials": {"random": 0}}, "own_trials >= 1"),
        ({"own_trials": {"mcts": 4}}, "'mcts' is none of random"),
        ({"strategies": ["random@0"]}, r"batch >= 1.*random@0"),
        ({"strategies": ["metaschedule@4"]}, "batches of its own"),
        ({"seeds": 0}, "seeds >= 1"),
        ({"seeds": []}, "numbers from 0 on"),
        ({"seeds": [1, -1]}, r"seeds=\[1, -1\]"),
        ({"strategies": []}, "at least one"),
    ],
)
def test_bad_arguments_are_named(
    change: dict[str, Any], message: str, workload: Workload, hardware: Hardware
) -> None:
    given: dict[str, Any] = {
        "workloads": [workload], "strategies": ["random"], "trials": 4, **change,
    }  # fmt: skip
    with pytest.raises(BadInputError, match=message):
        run_bench(hardware=hardware, **given)


@pytest.mark.slow
@pytest.mark.machine
def test_a_real_run_measures_as_many_trials_as_asked(
    workload: Workload, hardware: Hardware
) -> None:
    result = run_bench([workload], ["evolutionary"], 6, 1, hardware=hardware)
    assert result["failures"] == []
    (run,) = result["runs"]
    assert run["trials"] == 6
    assert run["curve"][-1][0] == 6
    assert 0 < run["curve"][-1][2] < 10 * run["untuned_s"]
    assert run["elapsed_s"] > run["spent_s"]["elapsed_s"]


def test_what_is_printed(
    calls: list[tuple[str, int]],
    workload: Workload,
    hardware: Hardware,
    capsys: pytest.CaptureFixture[str],
) -> None:
    strategies = ["random", "evolutionary", "metaschedule"]
    print_bench(run_bench([workload], strategies, 8, 1, hardware=hardware))
    printed = capsys.readouterr().out
    for expected in ("matmul:64x64x64", "faster programs", "partly random", "the child died"):
        assert expected in printed


def test_a_trained_cost_model_is_kept_by_what_is_in_its_file(
    calls: list[tuple[str, int]], workload: Workload, hardware: Hardware, tmp_path: Path
) -> None:
    ranker = rankers.create("gbdt_actions", rounds=10, boosters=1)
    ranker.fit(training_groups(8))
    (tmp_path / "mine").mkdir()
    weights = tmp_path / "mine" / "w.npz"
    ranker.save(weights)
    given: dict[str, Any] = {"cost_models": [str(weights)], "work_dir": tmp_path / "kept"}

    def again() -> int:
        before = len(calls)
        found = run_bench([workload], ["evolutionary"], 4, 1, hardware=hardware, **given)
        assert found["failures"] == [] and found["runs"][0]["cost_model"] == str(weights)
        return len(calls) - before

    assert (again(), again()) == (1, 0)
    ranker.fit(training_groups(9))
    ranker.save(weights)
    assert again() == 1, "what was trained anew is another cost model"
    weights = weights.rename(tmp_path / "w.npz")
    given["cost_models"] = [str(weights)]
    assert again() == 0, "the same weights elsewhere are the same cost model"


@pytest.mark.parametrize(
    ("strategy", "state"),
    [
        ("gradient:weights=HERE/net.npz", ""),
        ("gradient:weights=HERE/net.npz:rounds=2@4", "HERE/a b:c"),
        ("evolutionary+HERE/net.npz", "x" * 300),
    ],
)
def test_runs_whose_options_hold_paths_are_kept_and_found_again(
    calls: list[tuple[str, int]],
    workload: Workload,
    hardware: Hardware,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    strategy: str,
    state: str,
) -> None:
    """A run is paid for: no option's value may keep its result from being written."""
    # Whether the strategy has such an option is not what is asked here.
    monkeypatch.setattr(_sides, "resolve_names", lambda strategy, model, options: (strategy, model))
    folders = [tmp_path / "one", tmp_path / "an other"]
    for number, folder in enumerate(folders):
        folder.mkdir()
        (folder / "net.npz").write_bytes(bytes([number]) * 9)

    def again(folder: Path) -> int:
        before = len(calls)
        found = run_bench(
            [workload], [strategy.replace("HERE", str(folder))], 4, 1, hardware=hardware,
            state=state, work_dir=tmp_path / "kept",
        )  # fmt: skip
        assert found["failures"] == []
        return len(calls) - before

    assert [again(folder) for folder in folders] == [1, 1], "other weights, another side"
    assert [again(folder) for folder in folders] == [0, 0]
    (folders[0] / "net.npz").write_bytes(b"trained anew")
    assert again(folders[0]) == 1


@settings(max_examples=200)
@given(st.text(min_size=1), st.text(min_size=1))
def test_every_name_is_a_name_of_a_file_and_its_own(first: str, second: str) -> None:
    names = [_bench._file_name(name) for name in (first, second)]
    for name in names:
        assert os.sep not in name and "\0" not in name
        assert len(name.encode()) <= 120
    assert (names[0] == names[1]) == (first == second)


# The last choice of a tuner


def test_the_last_choice_of_a_tuner_is_told_from_what_it_read_as_best(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal(path) as journal:
        journal.extend(record(i, best_s=best) for i, best in enumerate((3.0, 2.0, 1.9)))

    def points(best: int) -> list[tuple[int, bool]]:
        answer = {"result": {"tasks": [{"best_s": 2.0}]}, "best": record(best).decisions}
        run = _sides._our_side(answer, path, "w", 1e9, 9.0)
        return [(point.trials, point.confirmed) for point in run.points]

    assert points(2) == [(1, False), (2, False), (3, False)]
    assert points(1) == [(1, False), (2, False), (3, False), (3, True)]


def test_a_run_keeps_what_it_read_as_best_beside_its_last_choice(
    calls: list[tuple[str, int]],
    workload: Workload,
    hardware: Hardware,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = _bench.run_side

    def chosen(*arguments: Any, **options: Any) -> SideRun:
        run = whole(*arguments, **options)
        first = run.points[0].candidate
        return replace(
            run, points=(*run.points, Point(8, 0.9, 0.2, candidate=first, confirmed=True))
        )

    monkeypatch.setattr(_bench, "run_side", chosen)
    (run,) = run_bench([workload], ["evolutionary"], 8, 1, hardware=hardware)["runs"]
    (first, *_), last = run["curve"], run["curve"][-1]
    assert last[2] == first[2] != run["unconfirmed_s"] == run["curve"][-2][2]


def test_a_last_choice_that_is_what_the_run_read_as_best_is_no_other_reading(
    calls: list[tuple[str, int]], workload: Workload, hardware: Hardware
) -> None:
    runs = run_bench([workload], ["evolutionary", "metaschedule"], 8, 1, hardware=hardware)["runs"]
    for run in runs:
        assert run["unconfirmed_s"] == run["curve"][-1][2]


# Language models


@pytest.fixture
def transcripts(calls: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Has runs that ask a language model keep an answer, and returns where."""
    kept: list[Path] = []
    whole = _bench.run_side

    def answered(*arguments: Any, transcript: Path | None = None, **options: Any) -> SideRun:
        run = whole(*arguments, **options)
        if transcript is None:
            return run
        kept.append(transcript)
        with transcript.open("a", encoding="utf-8") as file:
            file.write('{"text": "an answer"}\n')
        return replace(run, llm={"answers": 1, "left_out": "its budget of 1 calls is spent"})

    monkeypatch.setattr(_bench, "run_side", answered)
    return kept


@pytest.mark.parametrize(
    ("cached", "left_out", "words"),
    [
        (0, "its budget of 0 calls is spent", "answered nothing: its budget"),
        (0, None, "answered nothing: it was not asked in so few rounds"),
        (5, "its budget of 0 calls is spent", ""),
    ],
)
def test_a_run_counts_only_if_answers_came_or_were_known_before(
    tmp_path: Path, cached: int, left_out: str | None, words: str
) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal(path) as journal:
        journal.extend([record(0, best_s=3.0)])
    llm = {"answers": 0, "cached": cached, "left_out": left_out}
    answer = {"result": {"tasks": [{"best_s": 3.0}], "llm": llm}, "best": record(0).decisions}
    if cached:
        assert _sides._our_side(answer, path, "w", 1e9, 9.0).llm == llm
    else:
        with pytest.raises(SideError, match=words):
            _sides._our_side(answer, path, "w", 1e9, 9.0)


def test_answers_of_a_language_model_are_kept_beside_its_run(
    transcripts: list[Path], workload: Workload, hardware: Hardware, tmp_path: Path
) -> None:
    run_bench(
        [workload],
        ["evolutionary", "mcts:llm"],
        8,
        1,
        hardware=hardware,
        work_dir=tmp_path,
        llm="m@http://h/v1",
    )
    (kept,) = transcripts
    assert kept.with_suffix(".json").exists() and "mcts:llm" in kept.name
    assert list(tmp_path.glob("*.jsonl")) == [kept]


def test_answers_of_a_language_model_outlive_a_finished_benchmark(
    transcripts: list[Path], workload: Workload, hardware: Hardware, tmp_path: Path
) -> None:
    path = tmp_path / "bench.json"
    for _ in range(2):
        run_bench([workload], ["mcts:llm"], 8, 1, hardware=hardware, path=path, llm="m@http://h/v1")
    assert transcripts[0] == transcripts[1], "the second time they are known"
    left = {file for file in tmp_path.rglob("*") if file.is_file()}
    assert left == {path, transcripts[0]}


def test_a_language_model_that_was_left_out_is_told(
    transcripts: list[Path],
    workload: Workload,
    hardware: Hardware,
    capsys: pytest.CaptureFixture[str],
) -> None:
    said: list[str] = []
    given: dict[str, Any] = {"hardware": hardware, "llm": "m@http://h/v1", "progress": said.append}
    print_bench(run_bench([workload], ["mcts:llm"], 8, 1, **given))
    told = "the language model was left out: its budget of 1 calls is spent"
    assert any(told in line for line in said)
    assert told in " ".join(capsys.readouterr().out.split())


def test_other_settings_of_a_language_model_make_another_run(
    transcripts: list[Path], workload: Workload, hardware: Hardware, tmp_path: Path
) -> None:
    settings = tmp_path / "settings.json"

    def again(**changed: Any) -> int:
        before = len(transcripts)
        settings.write_text(json.dumps({"model": "m", **changed}), encoding="utf-8")
        given: dict[str, Any] = {"hardware": hardware, "work_dir": tmp_path / "runs"}
        run_bench([workload], ["mcts:llm"], 8, 1, llm=str(settings), **given)
        return len(transcripts) - before

    assert (again(), again(), again(temperature=0.1), again()) == (1, 0, 1, 0)
    assert again(key_file="key.txt") == 0, "where the key is has no say"
