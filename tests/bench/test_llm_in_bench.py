"""Language models in benchmarks: whose runs depend on one, what is refused, who is asked."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial

import pytest

from benchmarks import sources
from foretune.bench import Side, _ours, run_bench
from foretune.cli import main
from foretune.errors import BadInputError
from tests.llm.server import KEY, Server, always, completion
from tests.search.test_proposers import CPU
from tests.tuning.support import FormulaMeasurer, matmul

pytestmark = pytest.mark.slow


def test_runs_with_a_language_model_depend_on_its_room_and_no_others_do(monkeypatch):
    asked = []
    monkeypatch.setattr(sources, "state_of_ours", lambda more: asked.append(more) or str(more))
    names = ["mcts:llm:history=3", "evolutionary:llm", "mcts:learned:branching=4", "evolutionary"]
    for name in names:
        sources.state_of_side.__wrapped__(Side(name, "gbdt"))
    assert ["foretune.llm" in modules for modules in asked] == [True, True, False, False]


def test_a_language_model_that_is_not_there_is_refused_before_anything_runs():
    with pytest.raises(BadInputError, match="'mcts:llm' needs a language model"):
        run_bench(["matmul_512"], ["mcts:llm"], 4, hardware=CPU)


def test_a_language_model_that_nobody_asks_is_refused():
    with pytest.raises(BadInputError, match="none of random, mcts:heuristic asks one"):
        run_bench(["matmul_512"], ["random", "mcts:heuristic"], 4, hardware=CPU, llm="m@http://h")


@pytest.mark.parametrize(
    "words, told",
    [
        ("--strategies mcts:llm", "give --llm MODEL@URL"),
        ("--strategies random --llm m@http://h/v1", "none of random asks one"),
        ("--strategies mcts:llm --llm m@http://user:secret@h/v1", "without a user"),
        ("--strategies mcts:branching=many", "branching must be int"),
        ("--strategies mcts:history=2", "has an option 'history'"),
        ("--strategies mcts:random@0", "batch >= 1"),
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
            "strategy": "mcts:llm:asked=1:otherwise=random", "trials": 6, "batch": None,
            "seed": 0, "work_dir": str(tmp_path / "work"), "answer": str(tmp_path / "answer.json"),
            "llm": str(made), "transcript": str(tmp_path / "kept.jsonl"),
        }  # fmt: skip
        monkeypatch.setattr(_ours, "tune", partial(_ours.tune, measurer=FormulaMeasurer()))
        _ours._run(request, {"THEIRS": KEY})
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
    assert json.loads((tmp_path / "answer.json").read_text())["result"]["llm"]["invalid"] > 0
    assert '"text": "nothing"' in (tmp_path / "kept.jsonl").read_text()
    assert not any(KEY in f.read_text() for f in tmp_path.rglob("*") if f.is_file())
