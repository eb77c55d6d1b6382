"""What the benchmarks of tree search and of proposers print."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import mcts, proposers
from foretune.bench import _ours, run_bench
from foretune.cli import main
from foretune.dataset import Group, Program
from foretune.errors import BadInputError
from foretune.search.proposers.heuristic import HeuristicProposer
from foretune.search.proposers.random import RandomProposer
from foretune.space import Space
from tests.llm.server import KEY, Server, always, completion
from tests.search.test_proposers import CPU
from tests.tuning.support import FormulaMeasurer, matmul, seconds_of


def run(strategy, seed, *bests, workload="k"):
    return {
        "workload": workload, "key": workload, "strategy": strategy, "seed": seed,
        "untuned_s": 12.0, "curve": [[18 * 2**i, 0.0, best] for i, best in enumerate(bests)],
    }  # fmt: skip


RUNS = [run("evolutionary", 0, 4.0, 3.0, 2.0), run("evolutionary", 1, 6.0, 3.0, 2.0),
        run("mcts:random", 0, 3.0, 1.0, 1.0), run("mcts:random", 1, 3.0, 4.0, 1.0)]  # fmt: skip


def test_speedups_over_the_untuned_program():
    rows = {(r["side"], r["samples"]): r for r in mcts.speedups(RUNS, (18, 36))}
    assert rows["evolutionary", 18]["mean"] == pytest.approx((3 + 2) / 2)
    assert rows["mcts:random", 36]["mean"] == pytest.approx((12 + 3) / 2)
    assert rows["mcts:random", 18]["low"] == rows["mcts:random", 18]["high"] == 4
    assert rows["mcts:random", 36]["seeds"] == 2


def test_how_soon_the_goal_is_reached():
    rows = {row["side"]: row for row in mcts.early(RUNS, 72)}
    assert rows["evolutionary"]["ratio"] == pytest.approx(2 / 3)
    assert rows["mcts:random"]["ratio"] == pytest.approx(np.sqrt((2 / 1) * (2 / 4)))


def test_how_many_samples_the_goal_takes():
    rows = {row["side"]: row for row in mcts.reaching(RUNS, 72)}
    assert rows["evolutionary"]["samples"] == 72 and rows["evolutionary"]["reached"] == 1
    # Within 36 samples with one seed, within 72 with the other.
    assert rows["mcts:random"]["samples"] == 54 and rows["mcts:random"]["pairs"] == 2
    (slow,) = [
        r for r in mcts.reaching([RUNS[0], run("late", 0, 4.0, 3.0)], 72) if r["side"] == "late"
    ]
    assert slow["samples"] is None and slow["reached"] == 0


@pytest.mark.parametrize("words, seeds", [("--seeds 2", [0, 1]), ("--seed-list 2,0", [2, 0])])
def test_seeds_of_a_part_of_the_work(monkeypatch, tmp_path, words, seeds):
    given = {}

    def run_bench(workloads, sides, trials, chosen, **options):
        given.update(options, workloads=workloads, sides=sides, seeds=chosen)
        return {"trials": trials, "runs": RUNS, "failures": [], "notes": {}}

    monkeypatch.setattr(mcts, "run_bench", run_bench)
    monkeypatch.setattr(
        mcts, "conditions", lambda _name, _seeds: SimpleNamespace(hardware=CPU, end=dict)
    )
    monkeypatch.setattr(mcts, "publish", lambda *arguments: given.update(body=arguments[2]))
    mcts.main([*words.split(), "--workloads", "flux_conv", "--work-dir", str(tmp_path)])
    assert given["seeds"] == seeds and given["workloads"] == ["flux_conv"]
    assert given["work_dir"] == tmp_path and "mcts:learned" in given["sides"]
    assert "get there" in given["body"]


def test_the_tables_name_every_kernel_and_side():
    found = {
        "trials": 72,
        "runs": [],
        "failures": [],
        "notes": {},
        "mcts": {
            "samples": [18, 72],
            "speedups": mcts.speedups(RUNS, (18, 72)),
            "early": mcts.early(RUNS, 72),
            "reaching": mcts.reaching(RUNS, 72),
            "overhead": {"mcts:random": {"search_ms": 1.0, "all_ms": 2.0}},
        },
    }
    text = mcts._body(found, ["evolutionary", "mcts:random"], ["mcts:learned:branching=4"])
    assert "mcts:random" in text and "needs a language model" in text and "2.00" in text


def test_a_language_model_that_is_not_there_is_refused_before_anything_runs():
    with pytest.raises(BadInputError, match="'mcts:llm' needs a language model"):
        run_bench(["matmul_512"], ["mcts:llm"], 4, hardware=CPU)


def test_a_language_model_that_nobody_asks_is_refused():
    with pytest.raises(BadInputError, match="none of random, mcts:heuristic is one"):
        run_bench(["matmul_512"], ["random", "mcts:heuristic"], 4, hardware=CPU, llm="m@http://h")


@pytest.mark.parametrize(
    "words, told",
    [
        ("--strategies mcts:llm", "give --llm MODEL@URL"),
        ("--strategies random --llm m@http://h/v1", "none of random is one"),
        ("--strategies mcts:llm --llm m@http://user:secret@h/v1", "without a user"),
        ("--strategies mcts:branching=many", "branching must be int"),
        ("--strategies mcts:history=2", "has an option 'history'"),
        ("--strategies mcts --proposer random", "unrecognized arguments: --proposer"),
    ],
)
def test_what_the_command_line_refuses(capsys, monkeypatch, tmp_path, words, told):
    monkeypatch.setattr("foretune.cli._compare.probe_hardware", lambda *_args, **_options: CPU)
    arguments = ["bench", "--workloads", "matmul_512", "--trials", "4", *words.split()]
    try:
        code = main([*arguments, "--json", str(tmp_path / "b.json")])
    except SystemExit as stop:
        code = stop.code
    error = capsys.readouterr().err
    assert code == 2 and told in error and error.count("\n") == 1


def test_the_command_line_hands_the_language_model_on(monkeypatch, tmp_path):
    given = {}
    monkeypatch.setattr("foretune.cli._compare.probe_hardware", lambda *_args, **_options: CPU)
    monkeypatch.setattr("foretune.bench.run_bench", lambda *_args, **options: given.update(options))
    monkeypatch.setattr("foretune.bench.print_bench", lambda _data: None)
    arguments = ["--workloads", "matmul_512", "--strategies", "mcts:llm", "--trials", "4"]
    words = [*arguments, "--json", str(tmp_path / "b.json"), "--llm", "m@http://h/v1"]
    assert main(["bench", *words]) == 0
    assert given["llm"] == "m@http://h/v1"


def test_a_run_of_a_benchmark_asks_the_language_model(monkeypatch, tmp_path):
    made = tmp_path / "llm.json"
    with Server(always(completion("nothing"))) as server:
        made.write_text(
            json.dumps({"model": "m", "base_url": server.url, "key_env": "THEIRS"}),
            encoding="utf-8",
        )
        request = {
            "hardware": CPU.to_json(), "workload": asdict(matmul(64)), "cost_model": "random",
            "strategy": "mcts:llm:asked=1:otherwise=random", "trials": 6, "seed": 0,
            "work_dir": str(tmp_path / "work"), "answer": str(tmp_path / "answer.json"),
            "llm": str(made),
        }  # fmt: skip
        monkeypatch.setattr(_ours, "tune", partial(_ours.tune, measurer=FormulaMeasurer()))
        _ours._run(request, {"THEIRS": KEY})
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
    assert json.loads((tmp_path / "answer.json").read_text())["result"]["llm"]["invalid"] > 0
    assert not any(KEY in f.read_text() for f in tmp_path.rglob("*") if f.is_file())


class TestProposers:
    @pytest.fixture(scope="class")
    def group(self):
        space = Space.generate(matmul(64), CPU)
        rng = np.random.default_rng(0)
        (parent,) = space.sample(rng, 1)
        programs = list(
            {c.key: c for c in [parent, *(space.mutate(parent, rng) for _ in range(30))]}.values()
        )
        seconds = np.array([seconds_of(c) for c in programs])
        return Group(space.workload.key, "mm", "dense", CPU.key, [Program(c) for c in programs],
                     seconds, CPU)  # fmt: skip

    def test_known_edits(self, group):
        for kind in (RandomProposer, HeuristicProposer):
            made = kind(proposers.space_of(group), np.random.default_rng(0))
            improved, gain, chance, possible = proposers.known(group, made)
            assert 0 <= improved <= possible <= 1 and 0 <= chance <= possible and abs(gain) <= 2

    def test_predicted_edits(self, group):
        judge = proposers.judge_of(group)
        made = RandomProposer(proposers.space_of(group), np.random.default_rng(0))
        improved, gain = proposers.predicted(group, made, judge, 2, 4)
        assert 0 <= improved <= 1 and abs(gain) <= 2
