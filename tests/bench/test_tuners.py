"""The benchmark of tuners on whole networks: runs that resume, curves, tables."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import pages, results, tuners
from benchmarks._tuner import child, runs, tables
from benchmarks._tuner import compare as comparison
from benchmarks._tuner.runs import Incumbent, NetworkRun, Plan
from foretune import cost
from foretune.bench import Side, SideError
from foretune.errors import BadInputError, NothingMeasuredError
from foretune.graph import Extraction
from foretune.hardware import Hardware
from foretune.measure import Measurement, Measurer, Status
from foretune.metaschedule import PeerResult, PeerTrial, trace_json
from foretune.records import CONFIRM, DEFAULT, UNTUNED, Record, Trial
from foretune.space import Candidate
from foretune.workload import Workload, load_input

pytestmark = pytest.mark.slow

PEER = Side("metaschedule-early", "xgb")
OURS = Side("evolutionary", cost.DEFAULT_MODEL)
NET = """
import torch

def make():
    torch.manual_seed(0)
    layers = torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8)
    return torch.nn.Sequential(*layers), (torch.randn(4, 16),)
"""


def _silent(_text: str) -> None:
    pass


@pytest.fixture(scope="module")
def workloads() -> list[Workload]:
    found = [load_input("matmul:16x16x16"), load_input("matmul:32x16x16")]
    return [w.with_weight(n) for n, w in enumerate(found, start=1) if isinstance(w, Workload)]


@pytest.fixture(scope="module")
def network(workloads: list[Workload], hardware: Hardware) -> comparison.Network:
    """Two tasks, called once and twice; the model itself is not looked at."""
    extraction = Extraction(workloads, [], None, {})  # type: ignore[arg-type]
    return comparison.Network.of(None, hardware, extraction)  # type: ignore[arg-type]


def _run(incumbents: Mapping[str, Sequence[Incumbent]], **changed: Any) -> NetworkRun:
    run = NetworkRun("evolutionary+gbdt", 0, 60.0, 8, 0, len(incumbents), incumbents, "folder")
    return replace(run, **changed)


def _sampled(network: comparison.Network, key: str, count: int) -> list[Candidate]:
    return network.spaces[key].sample(np.random.default_rng(0), count)


class Table(Measurer):
    """Gives every candidate the seconds that a table has for it; without an entry it fails."""

    def __init__(self, seconds: Mapping[str, float], stops_after: int = 10**9) -> None:
        self.seconds = seconds
        self.left = stops_after
        self.compared: list[list[str]] = []

    def measure(self, candidates: Any, best_s: Any = None) -> Iterator[Any]:
        raise NotImplementedError

    def compare(self, candidates: Sequence[Candidate]) -> list[Measurement]:
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        self.compared.append([candidate.key for candidate in candidates])
        return [
            Measurement(Status.OK, (self.seconds[c.key],))
            if c.key in self.seconds
            else Measurement(Status.CRASH)
            for c in candidates
        ]

    def close(self) -> None:
        pass


# Sides and runs


def test_a_side_is_a_strategy_with_a_cost_model_or_a_peer() -> None:
    assert runs.side_of("evolutionary+default") == runs.side_of("default") == OURS
    gradient = runs.side_of("gradient+mlp:formulas")
    assert runs.label(gradient) == "gradient+mlp:formulas"
    assert runs.side_of("metaschedule-early") == PEER
    assert runs.label(PEER) == "metaschedule-early"
    assert runs.label(runs.side_of("evolutionary@4")) == f"{runs.label(OURS)}@4"


def test_the_batch_of_a_side_reaches_its_process(
    hardware: Hardware, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stuck(command: Sequence[str], _threads: int, output: Path, _timeout_s: float) -> int:
        asked.append(json.loads(Path(command[-1]).read_text())["batch"])
        output.write_text("stuck")
        return 1

    asked: list[int | None] = []
    monkeypatch.setattr(runs._child, "run", stuck)
    names = ("random+random@4", "random+random")
    plans = [Plan("net.py:make", runs.side_of(name), 0, 20.0) for name in names]
    for plan in plans:
        with pytest.raises(SideError, match="exit status 1"):
            runs.run(plan, hardware, [], tmp_path)
    assert asked == [4, None]
    assert len({plan.folder(hardware, []) for plan in plans}) == 2
    told: dict[str, Any] = {}
    result = SimpleNamespace(tasks=[])
    monkeypatch.setattr(child, "tune", lambda *_, **options: told.update(options) or result)
    child._run({"network": "n", "hardware": hardware.to_json(), "strategy": "random",
                "cost_model": "random", "batch": 4, "seconds": 1.0, "seed": 0, "epoch": 0.0,
                "work_dir": "w", "answer": str(tmp_path / "answer.json")})  # fmt: skip
    assert told["batch"] == 4


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("metaschedule+gbdt", "brings its own cost model"),
        ("nobody+gbdt", "'nobody'.*peers"),
        ("mcts:llm", "needs a language model"),
        ("mcts:learned:depth=x", "depth"),
    ],
)
def test_a_side_that_cannot_run_is_refused_before_anything_runs(name: str, words: str) -> None:
    with pytest.raises(BadInputError, match=words):
        runs.side_of(name)


def test_a_finished_run_is_found_again_and_one_broken_off_starts_anew(
    hardware: Hardware, workloads: list[Workload], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan("net", OURS, 0, 60.0)
    seen: list[list[str]] = []
    fails = True

    def made(plan: Plan, hardware: Hardware, folder: Path) -> NetworkRun:
        seen.append([path.name for path in folder.iterdir()])
        (folder / "journal.jsonl").write_text("half a run")
        if fails:
            raise KeyboardInterrupt
        return _run({"a": [Incumbent(1.0, 2.0, {"x": 1})]}, folder=folder.name)

    monkeypatch.setattr(runs, "_our_run", made)
    monkeypatch.setattr(runs, "state_of_side", lambda side: "one")
    with pytest.raises(KeyboardInterrupt):
        runs.run(plan, hardware, workloads, tmp_path)
    fails = False
    first = runs.run(plan, hardware, workloads, tmp_path)
    again = runs.run(plan, hardware, workloads, tmp_path)
    # Nothing of the run that was broken off is there for the one that counts.
    assert seen == [[], []]
    assert json.dumps(again.to_json()) == json.dumps(first.to_json())
    assert again.incumbents["a"][0] == Incumbent(1.0, 2.0, {"x": 1})


def test_runs_of_ours_count_for_the_code_that_made_them_and_those_of_peers_for_any(
    hardware: Hardware, workloads: list[Workload], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "state_of_side", lambda side: "one")
    ours, peer = Plan("net", OURS, 0, 60.0), Plan("net", PEER, 0, 60.0)
    before = [plan.folder(hardware, workloads) for plan in (ours, peer)]
    monkeypatch.setattr(runs, "state_of_side", lambda side: "another")
    after = [plan.folder(hardware, workloads) for plan in (ours, peer)]
    assert before[0] != after[0] and before[1] == after[1]
    others = [replace(peer, seed=1), replace(peer, time_s=30.0), replace(peer, network="net2")]
    names = {plan.folder(hardware, workloads) for plan in (peer, *others)}
    names.add(peer.folder(hardware, workloads[:1]))
    assert len(names) == 5


def _record(
    candidate: Candidate, seconds: float, time: float, status: Status = Status.OK, origin: str = "e"
) -> Record:
    record = Trial.of(candidate, Measurement(status, (seconds,)), origin, {})
    return replace(record, time=time)


def test_incumbents_of_ours_hold_baselines_and_end_with_what_was_chosen(
    network: comparison.Network,
) -> None:
    key = network.tasks[0].key
    first, second, third = _sampled(network, key, 3)
    records = [
        _record(network.spaces[key].untuned, 9.0, 101.0, origin=UNTUNED),
        _record(network.default(key), 5.0, 102.0, origin=DEFAULT),
        _record(first, 4.0, 103.0, Status.CUT_SHORT),
        _record(second, 3.0, 104.0),
        _record(third, 2.0, 105.0),
        _record(third, 3.5, 106.0, origin=CONFIRM),
    ]
    chosen = {"candidate": second.to_json(), "seconds": 3.1}
    answer = {"elapsed_s": 8.0, "bests": {key: chosen}}
    found = runs.our_incumbents(records, 100.0, answer)[key]
    assert [(each.elapsed_s, each.seconds) for each in found] == [
        (1.0, 9.0), (2.0, 5.0), (4.0, 3.0), (5.0, 2.0), (6.0, 3.1),
    ]  # fmt: skip
    assert found[-1].candidate == second.to_json()
    answer["bests"] = {key: {"candidate": third.to_json(), "seconds": 2.0}}
    assert len(runs.our_incumbents(records, 100.0, answer)[key]) == 4


def test_trials_that_became_known_too_late_do_not_count(
    hardware: Hardware, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trial(index: int, elapsed_s: float, workload: str, *seconds: float) -> PeerTrial:
        return PeerTrial(index, elapsed_s, seconds, "", [["i"], []], workload)

    trials = (
        trial(1, 10.0, "a", 3.0), trial(2, 60.0, "a"), trial(3, 60.5, "a"), trial(4, 61.0, "b", 1.0)
    )  # fmt: skip
    result = PeerResult(trials, 62.0)
    monkeypatch.setattr(runs, "run_peer_on_model", lambda *_: result)
    made = runs._peer_run(Plan("net", PEER, 0, 60.0), hardware, tmp_path)
    assert (made.trials, made.failed, made.reached) == (2, 1, 1)
    assert made.elapsed_s == 62.0 and set(made.incumbents) == {"a", "b"}


@given(
    st.lists(st.tuples(st.floats(0.0, 100.0), st.sampled_from("abc"), st.booleans())),
    st.floats(0.0, 100.0),
)
def test_counts_are_of_what_was_known_in_time(
    known: list[tuple[float, str, bool]], time_s: float
) -> None:
    found = runs.counts(known, time_s)
    assert found == runs.counts([each for each in known if each[0] <= time_s], 1e9)
    assert 0 <= found["failed"] <= found["trials"] <= len(known)
    assert found["reached"] <= min(3, found["trials"])
    whole = runs.counts(known, 100.0)
    assert whole["trials"] == len(known)
    assert whole["failed"] == [ran for _, _, ran in known].count(False)
    assert whole["reached"] == len({task for _, task, _ in known})


def test_incumbents_of_a_peer_are_what_it_ranks_by_task_by_task() -> None:
    def trial(index: int, workload: str, *seconds: float) -> PeerTrial:
        return PeerTrial(index, float(index), seconds, "", [["i"], []], workload)

    trials = [trial(1, "a", 3.0, 5.0), trial(2, "b"), trial(3, "b", 1.0), trial(4, "a", 3.0, 4.0)]
    found = runs.peer_incumbents([*trials, trial(5, "a", 9.0)])
    assert {k: [(i.elapsed_s, i.seconds) for i in each] for k, each in found.items()} == {
        "a": [(1.0, 4.0), (4.0, 3.5)],
        "b": [(3.0, 1.0)],
    }


@pytest.mark.slow
def test_a_tuner_of_ours_runs_within_its_time_in_a_process_of_its_own(
    hardware: Hardware, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    (tmp_path / "net.py").write_text(NET)
    plan = Plan(f"{tmp_path}/net.py:make", Side("random", "random"), 0, 20.0)
    made = runs.run(plan, hardware, [], tmp_path / "runs")
    assert made.trials >= made.reached == len(made.incumbents) > 0
    assert all(0 < i.elapsed_s <= made.elapsed_s for f in made.incumbents.values() for i in f)
    with pytest.raises(SideError, match="exit status"):
        runs.run(replace(plan, time_s=0.1), hardware, [], tmp_path / "runs")


# What was found, measured again


@given(st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=30))
def test_incumbents_that_hardly_gain_are_left_out(seconds: list[float]) -> None:
    falling = [Incumbent(float(n), s) for n, s in enumerate(sorted(seconds, reverse=True))]
    kept = comparison.thinned(falling)
    assert kept[0] is falling[0] and kept[-1] is falling[-1]
    steps = list(itertools.pairwise(kept))
    assert all(b.seconds <= comparison.STEP * a.seconds for a, b in steps[:-1])
    for each in falling:
        # At no time is what is kept more than the step behind.
        so_far = [k.seconds for k in kept if k.elapsed_s <= each.elapsed_s]
        assert comparison.STEP * so_far[-1] <= each.seconds * (1 + 1e-9)


def test_the_curve_is_the_weighted_sum_of_what_would_have_been_shipped(
    network: comparison.Network, tmp_path: Path
) -> None:
    one, two = (task.key for task in network.tasks)
    a, b = _sampled(network, one, 2)
    (c,) = _sampled(network, two, 1)
    seconds = {
        network.spaces[one].untuned.key: 8.0, network.default(one).key: 4.0, a.key: 3.0, b.key: 2.0,
        network.spaces[two].untuned.key: 6.0, network.default(two).key: 5.0, c.key: 1.0,
    }  # fmt: skip
    steps = {one: [(10.0, a), (30.0, b)], two: [(20.0, c)]}
    readings = comparison.measured_again(network, {"r": steps}, Table(seconds), tmp_path, _silent)
    assert comparison.curve(steps, network, readings) == [
        [0.0, 4.0 + 2 * 5.0], [10.0, 3.0 + 2 * 5.0], [20.0, 3.0 + 2 * 1.0], [30.0, 2.0 + 2 * 1.0],
    ]  # fmt: skip
    assert comparison.curve({}, network, readings) == [[0.0, 14.0]]
    # Two of a batch that arrived at once: what came last counts, not what is slowest.
    together = comparison.curve({one: [(10.0, a), (10.0, b)]}, network, readings)
    assert together[-1] == [10.0, 2.0 + 2 * 5.0]
    assert comparison.untuned_s(network, readings) == 8.0 + 2 * 6.0
    assert comparison.shipped(steps, readings) == {one: b, two: c}


def test_a_program_that_fails_when_it_is_measured_again_counts_as_never_found(
    network: comparison.Network, tmp_path: Path
) -> None:
    one = network.tasks[0].key
    a, b = _sampled(network, one, 2)
    seconds = {a.key: 3.0}
    for task in network.tasks:
        seconds |= {network.spaces[task.key].untuned.key: 8.0, network.default(task.key).key: 4.0}
    steps = {one: [(10.0, a), (30.0, b)]}
    readings = comparison.measured_again(network, {"r": steps}, Table(seconds), tmp_path, _silent)
    assert [elapsed for elapsed, _ in comparison.curve(steps, network, readings)] == [0.0, 10.0]
    assert comparison.unread(network, readings) == []
    without = {
        key: {k: s for k, s in own.items() if k != network.spaces[one].untuned.key}
        for key, own in readings.items()
    }
    assert comparison.unread(network, without) == [[network.tasks[0].name, "untuned"]]
    with pytest.raises(NothingMeasuredError, match="none is"):
        comparison.untuned_s(network, {**without, one: {}})
    assert comparison.shipped(steps, readings) == {one: a}


def test_an_interrupted_comparison_goes_on_and_a_finished_one_is_not_repeated(
    network: comparison.Network, tmp_path: Path
) -> None:
    one = network.tasks[0].key
    first, second = _sampled(network, one, 2)
    found = {"r": {one: [(1.0, first)]}}
    seconds = {network.default(task.key).key: 1.0 for task in network.tasks}
    interrupted, rest, idle = Table(seconds, stops_after=1), Table(seconds), Table(seconds)
    with pytest.raises(KeyboardInterrupt):
        comparison.measured_again(network, found, interrupted, tmp_path, _silent)
    whole = comparison.measured_again(network, found, rest, tmp_path, _silent)
    assert set(whole) == {task.key for task in network.tasks}
    assert len(interrupted.compared) == len(rest.compared) == 1
    assert interrupted.compared != rest.compared
    again = comparison.measured_again(network, found, idle, tmp_path, _silent)
    assert again == whole and not idle.compared
    # Another run's programs are read beside these, not beside what was read another day.
    found["known"] = {one: [(0.0, second)]}
    comparison.measured_again(network, found, idle, tmp_path, _silent)
    assert {first.key, second.key} <= set(idle.compared[0])


def test_traces_and_decisions_become_the_same_candidates(network: comparison.Network) -> None:
    one = network.tasks[0].key
    (candidate,) = _sampled(network, one, 1)
    of_ours = Incumbent(1.0, 1.0, candidate=candidate.to_json())
    of_peer = Incumbent(2.0, 0.5, trace=trace_json(candidate.schedule()))
    run = _run({one: [of_ours, of_peer], "a task without a space": [of_ours]})
    assert comparison.steps_of(run, network) == {one: [(1.0, candidate), (2.0, candidate)]}
    assert comparison.steps_of(run, network, 1.5) == {one: [(1.0, candidate)]}
    assert comparison.steps_of(run, network, 0.5) == {}


# Tables


def _found(*rows: tuple[str, int, list[list[float]]], **changed: Any) -> dict[str, Any]:
    return {
        "tasks": 2,
        "untuned_s": 10.0,
        "default_s": 5.0,
        "unread": [],
        "runs": [
            {"side": side, "seed": seed, "elapsed_s": 600.0, "trials": 8, "failed": 0,
             "reached": 2, "curve": [[0.0, 5.0], *curve]}
            for side, seed, curve in rows
        ],
        "whole": {},
        **changed,
    }  # fmt: skip


def _timed(*readings: float, right: bool = True) -> dict[str, Any]:
    return {"readings": list(readings), "within_tolerance": right, "error": None}


def _told(networks: dict[str, Any]) -> Any:
    summary = tables.summarise(networks)
    return tables.section({"networks": networks, "summary": summary, "time_s": 600.0})


EARLY = runs.label(OURS)
LATE = PEER.strategy


def test_minutes_until_near_the_best_known_and_never_is_said() -> None:
    found = _found(
        (EARLY, 0, [[60.0, 1.04], [120.0, 1.0]]),
        (EARLY, 1, [[180.0, 1.02]]),
        (LATE, 0, [[300.0, 2.0]]),
        (LATE, 1, [[600.0, 1.1]]),
    )
    assert tables.best_known(found) == 1.0
    ours, theirs = tables.contestants(found)
    assert ours["minutes"] == {
        "0.1": [1.0, 3.0], "0.05": [1.0, 3.0], "0.03": [2.0, 3.0], "0.01": [2.0, None],
    }  # fmt: skip
    assert theirs["minutes"]["0.1"] == [None, 10.0]
    lines = _told({"net": found}).table.splitlines()
    row = next(line for line in lines if EARLY in line)
    assert row.split("|")[-2].strip() == "2.0 / 2.0 / 2.5 / never (1 of 2)"
    row = next(line for line in lines if LATE in line)
    assert row.split("|")[-2].strip().endswith("never / never / never")


def test_ends_are_medians_of_rounds_and_sides_are_compared_on_the_same_seeds() -> None:
    found = _found(
        (EARLY, 0, [[60.0, 1.0]]),
        (EARLY, 1, [[60.0, 1.0]]),
        ("mcts+gbdt", 0, [[60.0, 4.0]]),
        (LATE, 0, [[60.0, 2.0]]),
        (LATE, 1, [[60.0, 2.0]]),
        whole={"0": {EARLY: _timed(3.0, 3.0, 9.0), LATE: _timed(6.0, 6.0, 18.0, right=False)},
               "1": {EARLY: {"readings": [], "within_tolerance": None, "error": "no room"}}},
    )  # fmt: skip
    by_side = {row["side"]: row for row in tables.contestants(found)}
    assert by_side[EARLY]["latency_s"]["mean"] == pytest.approx(1.0)
    assert by_side[EARLY]["whole_s"]["mean"] == pytest.approx(3.0)
    assert by_side[EARLY]["whole_s"]["high"] == pytest.approx(9.0)
    assert by_side["mcts+gbdt"]["whole_s"] is None
    assert by_side[LATE]["wrong"] and not by_side[EARLY]["wrong"]
    rows = {row["over"]: row["ratio"] for row in tables.ahead({"net": found})}
    assert rows == {"mcts+gbdt": pytest.approx(4.0), LATE: pytest.approx(2.0)}
    told = _told({"net": found})
    assert f"2.00 of {LATE}" in told.answer and f"{LATE} (wrong output)" in told.table
    assert f"the network of {EARLY}, seed 1, could not be timed: no room" in told.details


def test_milestones_are_of_the_peers_own_best_and_who_is_never_there_counts_as_late() -> None:
    quick = _found((EARLY, 0, [[60.0, 0.9]]), (LATE, 0, [[240.0, 1.05], [480.0, 1.0]]))
    stuck = _found((EARLY, 0, [[60.0, 1.04]]), (LATE, 0, [[120.0, 1.04], [480.0, 1.0]]))
    rows = {row["network"]: row["peaks"] for row in tables.sooner({"a": quick, "b": stuck})}
    assert rows["a"]["0.95"]["ratio"] == pytest.approx(4.0)
    assert rows["a"]["0.99"]["ratio"] == pytest.approx(8.0)
    assert rows["b"]["0.95"]["ratio"] == pytest.approx(2.0)
    # 480 s over twice the longer run, of 600 s.
    assert (rows["b"]["0.99"]["pairs"], rows["b"]["0.99"]["of"]) == (0, 1)
    assert rows["b"]["0.99"]["ratio"] == pytest.approx(0.4)
    assert rows[None]["0.95"]["ratio"] == pytest.approx(8.0**0.5)
    assert (rows[None]["0.99"]["pairs"], rows[None]["0.99"]["of"]) == (1, 2)
    assert rows[None]["0.99"]["ratio"] == pytest.approx((8.0 * 0.4) ** 0.5)
    assert tables.sooner({"a": _found((EARLY, 0, [[60.0, 0.9]]))}) == []


def test_gradient_search_is_compared_with_evolution_on_the_same_perceptron() -> None:
    evolution = tables.label(tables.SAME_MODEL)
    assert evolution in tuners.SIDES
    found = _found(("gradient+mlp:formulas", 0, [[60.0, 0.9]]), (evolution, 0, [[180.0, 0.9]]))
    (own, _) = tables.sooner({"net": found})
    assert (own["reference"], own["side"]) == (evolution, "gradient+mlp:formulas")
    assert own["peaks"]["0.95"]["ratio"] == pytest.approx(3.0)


def test_the_goal_is_judged_for_its_network_only() -> None:
    quick, late = (_found((EARLY, 0, [[s, 1.02], [600.0, 1.0]])) for s in (120.0, 400.0))
    judged = {
        name: tables.goal(tables.summarise({tables.GOAL_NETWORK: found}), EARLY)
        for name, found in (("quick", quick), ("late", late))
    }
    assert "2.0 minutes, met" in judged["quick"][0]
    assert "6.7 minutes, not met" in judged["late"][0]
    assert tables.goal(tables.summarise({"dcgan": quick}), EARLY) == []


def test_the_goal_stands_beside_what_peers_need() -> None:
    world = "evolutionary+world"
    found = _found(
        (EARLY, 0, [[60.0, 1.0]]), (world, 0, [[240.0, 1.02]]), (LATE, 0, [[600.0, 2.0]])
    )
    summary = tables.summarise({tables.GOAL_NETWORK: found})
    (early,), (late,) = (tables.goal(summary, side) for side in (EARLY, world))
    assert f"with {EARLY}: 1.0 minutes, met; {LATE}: never." in early
    assert f"with {world}: 4.0 minutes, not met; {LATE}: never." in late
    assert tables.goal(summary, "gradient+gbdt") == []


def test_both_sides_of_evolution_are_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [(runs.label(runs.side_of(name)), 0, [[60.0, 1.0]]) for name in tuners.SIDES]
    monkeypatch.setattr(tuners, "_of_network", lambda *_: (_found(*rows), []))
    where = SimpleNamespace(hardware=None, end=dict)
    monkeypatch.setattr(tuners, "conditions", lambda *_: where)
    monkeypatch.setattr(
        pages, "publish", lambda name, section, data, *_: print(section(data).details)
    )
    tuners.main(["--networks", tables.GOAL_NETWORK, "--work-dir", str(tmp_path)])
    goals = [line for line in capsys.readouterr().out.splitlines() if line.startswith("- Goal")]
    assert [line.split(" with ")[1].split(":")[0] for line in goals] == [
        EARLY, "evolutionary+world",
    ]  # fmt: skip
    assert all("metaschedule-quick-start: 1.0 minutes" in line for line in goals)


# The command


@pytest.mark.slow
def test_a_page_is_written_from_runs_of_which_one_failed(
    hardware: Hardware,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("torch")
    (tmp_path / "net.py").write_text(NET)
    name = f"{tmp_path}/net.py:make"
    order: list[tuple[str, int]] = []

    def run(plan: Plan, hardware: Hardware, found: Any, root: Path) -> NetworkRun:
        order.append((plan.side.strategy, plan.seed))
        if plan.seed and plan.side == PEER:
            raise SideError("the peer's last words")
        return _run({}, side=runs.label(plan.side), seed=plan.seed, folder=f"{len(order)}")

    class Equal(Table):
        def compare(self, candidates: Sequence[Candidate]) -> list[Measurement]:
            return [Measurement(Status.OK, (1.0,)) for _ in candidates]

    monkeypatch.setattr(tuners, "run", run)
    # Peaks are not measured.
    monkeypatch.setattr(
        tuners, "conditions", lambda *given: results.conditions(*given, hardware=hardware)
    )
    monkeypatch.setattr(comparison, "LocalMeasurer", lambda _hardware: Equal({}))
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    monkeypatch.setattr(pages, "PAGES", {})
    tuners.main(
        ["--networks", name, "--sides", f"default,{PEER.strategy}", "--time", "5", "--seeds", "2",
         "--rounds", "0", "--work-dir", str(tmp_path / "work"), "--write"]
    )  # fmt: skip
    # No side always runs first.
    assert order == [("evolutionary", 0), (PEER.strategy, 0), (PEER.strategy, 1),
                     ("evolutionary", 1)]  # fmt: skip
    text = (tmp_path / "tuners.md").read_text()
    assert "the peer's last words" in text and "warm-up lowered" in text
    assert "python -m benchmarks tuners" in text and text in capsys.readouterr().out
    data = results.readings_of("tuners")
    assert len(data["networks"][name]["runs"]) == 3
    assert data["failures"][0]["side"] == PEER.strategy


def test_a_single_workload_is_refused(
    tmp_path: Path, hardware: Hardware, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuners, "conditions", lambda *_: SimpleNamespace(hardware=hardware))
    with pytest.raises(BadInputError, match="takes models, but 'matmul:16x16x16'"):
        tuners.main(["--networks", "matmul:16x16x16", "--work-dir", str(tmp_path)])
