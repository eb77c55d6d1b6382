"""``benchmarks.search22``, ``long_search`` and ``ablation`` on made-up runs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import long_search, pages, search22, sources
from benchmarks._search import figures as search_figures
from benchmarks._search import goals as search_goals
from benchmarks._search import runs as search_runs
from benchmarks._search.goals import PEER
from foretune import cost
from foretune.bench import Side, sides
from foretune.bench._bench import _file_name
from foretune.errors import BadInputError

Curve = list[list[float]]
OURS, SCRATCH = Side("evolutionary", cost.DEFAULT_MODEL), Side("evolutionary", "gbdt:scratch")
THEIRS = Side(PEER, "xgb")


def made_up_run(side: Side, curve: Curve, key: str = "k", seed: int = 0) -> dict[str, Any]:
    return {
        "workload": f"w-{key}",
        "key": key,
        "seed": seed,
        "strategy": side.strategy,
        "cost_model": side.cost_model,
        "untuned_s": 8.0,
        "elapsed_s": curve[-1][1] if curve else 1.0,
        "began": 1e9 + seed,
        "curve": curve,
    }


@pytest.fixture
def made_up_bench() -> dict[str, Any]:
    """Ours needs 4 trials to what the peer has after 32 and never betters; seeds agree."""
    runs = []
    for key, seed in itertools.product(("a", "b"), (0, 1)):
        ours = [[1, 0.1, 2.0], [4, 0.4, 1.0], [64, 6.4, 1.0]]
        theirs = [[2, 0.2, 4.0], [16, 1.6, 2.0], [32, 3.2, 1.0], [64, 6.4, 1.0]]
        runs.append(made_up_run(OURS, ours, key, seed))
        runs.append(made_up_run(SCRATCH, [[1, 0.1, 2.0]], key, seed))
        runs.append(made_up_run(THEIRS, theirs, key, seed))
    notes = {PEER: "partly random search"}
    return {"runs": runs, "trials": 64, "notes": notes, "failures": []}


def by_names(rows: Sequence[Mapping[str, Any]], at: str) -> dict[tuple[str, str, Any], float]:
    return {(row["side"], row["over"], row[at]): row["ratio"] for row in rows}


# Figures


def test_what_sides_find_and_when_is_compared(made_up_bench: dict[str, Any]) -> None:
    summary = search22.summarise(made_up_bench, OURS)
    default, scratch = search22.label(OURS), search22.label(SCRATCH)
    over = by_names(summary["speedups"], "trials")
    assert over[default, PEER, 8] == pytest.approx(4.0)
    assert over[default, PEER, 16] == pytest.approx(2.0)
    assert over[default, PEER, 64] == pytest.approx(1.0)
    assert over[default, scratch, 64] == pytest.approx(2.0)
    trials = by_names(summary["trials_to_near"], "near")
    seconds = by_names(summary["seconds_to_near"], "near")
    for near in search_figures.NEAR:
        assert trials[default, PEER, near] == pytest.approx(4 / 32)
        assert seconds[default, PEER, near] == pytest.approx(3.2 / 0.4)
        # What never gets there counts as twice the trials, and twice the longer run's seconds.
        assert trials[scratch, PEER, near] == pytest.approx(128 / 32)
        assert seconds[scratch, PEER, near] == pytest.approx(3.2 / 12.8)
        # What ours is compared with counts as what it spent.
        assert seconds[default, scratch, near] == pytest.approx(0.1 / 0.4)
    reached = {(row["side"], row["near"]): row for row in summary["reached"]}
    assert reached[default, 0.95]["reached"] == 1
    assert reached[default, 0.95]["trials"] == 4
    assert reached[default, 0.95]["seconds"] == pytest.approx(0.4)
    assert reached[scratch, 0.95]["reached"] == 0
    assert math.isinf(reached[scratch, 0.95]["seconds"])


@settings(max_examples=25, deadline=None)
@given(
    mine=st.lists(st.floats(0.5, 2.0), min_size=1, max_size=12),
    its=st.lists(st.floats(0.5, 2.0), min_size=1, max_size=12),
    slower=st.floats(0.1, 10.0),
)
def test_never_getting_there_is_never_an_advantage(
    mine: list[float], its: list[float], slower: float
) -> None:
    def curve(seconds: list[float], each: float) -> Curve:
        best = np.minimum.accumulate(seconds).tolist()
        return [[at, at * each, found] for at, found in enumerate(best, 1)]

    runs = [made_up_run(OURS, curve(mine, 1.0)), made_up_run(THEIRS, curve(its, slower))]
    bound = search_figures.best_known(runs)["k"]
    trials = by_names(search_figures.trials_to_near(runs, 12), "near")
    seconds = by_names(search_figures.seconds_to_near(runs), "near")
    for near in search_figures.NEAR:
        first = search_figures.arrival(runs[0], bound / near)
        if first is None:
            assert trials[search22.label(OURS), PEER, near] >= 2.0 - 1e-9
            assert seconds[search22.label(OURS), PEER, near] <= 0.5 + 1e-9
        else:
            # Nor does the peer count as later than the end of its run.
            latest = runs[1]["elapsed_s"] / first[1]
            assert seconds[search22.label(OURS), PEER, near] <= latest + 1e-9


def test_the_best_known_is_of_all_sides_and_seeds() -> None:
    runs = [
        made_up_run(OURS, [[1, 0.1, 2.0]], seed=0),
        made_up_run(THEIRS, [[1, 0.1, 1.0]], seed=1),
    ]
    assert search_figures.best_known(runs) == {"k": 1.0}


def test_programs_of_two_sittings_are_not_compared() -> None:
    runs = [
        made_up_run(OURS, [[1, 0.1, 2.0]]) | {"compared": 1.0},
        made_up_run(SCRATCH, [[1, 0.1, 1.0]]) | {"compared": 2.0},
        made_up_run(THEIRS, [[1, 0.1, 4.0]]) | {"compared": 1.0},
    ]
    rows = search_figures.speedups(runs, [1])
    assert {(row["side"], row["over"]): row["ratio"] for row in rows} == {
        (search22.label(OURS), PEER): pytest.approx(2.0)
    }


# Goals


def test_goals_are_judged_and_what_cannot_be_is_said(made_up_bench: dict[str, Any]) -> None:
    lines = search_goals.goals(search22.summarise(made_up_bench, OURS), OURS)
    assert all(line.startswith(f"- {search22.label(OURS)}, goal: at ") for line in lines)
    assert [("not met" in line) for line in lines] == [False, False, True, False, False]
    short = {**made_up_bench, "trials": 16}
    lines = search_goals.goals(search22.summarise(short, OURS), OURS)
    assert [line for line in lines if "64 trials: not judged" in line]


@pytest.mark.parametrize(
    ("side", "bounds"),
    [
        (OURS, ["1.6x", "1.45x", "1.2x", "0.93 of", "at most 0.25"]),
        (Side("evolutionary", "world"), ["1.5x", "1.3x", "1.07x", "0.97 of", "at most 0.125"]),
        (Side("evolutionary", "w/world.npz"), ["1.5x", "1.3x", "1.07x", "0.97", "0.125"]),
        (Side("gradient", "mlp:formulas"), ["3x sooner", "3x sooner"]),
        (Side("gradient:guide=world", "mlp"), ["3x sooner", "3x sooner"]),
        (Side("evolutionary", "tlp"), []),
    ],
)
def test_goals_belong_to_the_names_of_a_side(side: Side, bounds: list[str]) -> None:
    nothing: dict[str, Any] = {goal.table: [] for goal in search_goals.GOALS}
    lines = search_goals.goals(nothing, side)
    assert len(lines) == len(bounds)
    for line, bound in zip(lines, bounds, strict=True):
        assert bound in line and "not judged" in line


def test_gradient_search_is_judged_against_evolution_with_its_own_model() -> None:
    gradient, evolution = Side("gradient", "mlp:formulas"), Side("evolutionary", "mlp:formulas")
    other = Side("evolutionary", "gbdt")
    runs = [
        made_up_run(gradient, [[1, 1.0, 1.0]]),
        made_up_run(evolution, [[1, 4.0, 1.0]]),
        made_up_run(other, [[1, 1.0, 1.0]]),
        made_up_run(THEIRS, [[1, 2.0, 1.0]]),
    ]
    result = {"runs": runs, "trials": 1}
    lines = search_goals.goals(search22.summarise(result, gradient), gradient)
    assert [line for line in lines if PEER in line and "2.000, not met" in line]
    assert [
        line for line in lines if "evolutionary + mlp:formulas" in line and "4.000, met" in line
    ]


# Runs


def some_runs(calls: list[Any], path: Path | None = None) -> Any:
    """In place of ``run_bench``: notes what it is asked for, and makes up runs."""

    def run_bench(
        workloads: Any, strategies: Any, trials: int, seeds: Any, **options: Any
    ) -> dict[str, Any]:
        calls.append((workloads, strategies, options["cost_models"], list(seeds), options))
        named = [
            (name, side) for name in strategies for side in sides([name], options["cost_models"])
        ]
        runs = [
            made_up_run(side, [[1, 0.1, 1.0 + len(calls)]], key, seed)
            for key, seed in itertools.product(workloads, seeds)
            for name, side in named
            if seed in list(seeds)[: (options["own_seeds"] or {}).get(name)]
        ]
        peer_trials = options["peer_trials"]
        return {"runs": runs, "failures": [], "notes": {}, "trials": trials, "summary": [],
                "peer_trials": peer_trials}  # fmt: skip

    return run_bench


def told(section: pages.Section) -> str:
    return "\n\n".join([section.question, section.answer, section.table, section.details])


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    made: list[Any] = []
    monkeypatch.setattr(search_runs, "run_bench", some_runs(made))
    for module in (search22, long_search):
        where = SimpleNamespace(hardware=None, end=dict)
        monkeypatch.setattr(module, "conditions", lambda *_, where=where: where)
    monkeypatch.setattr(
        pages, "publish", lambda name, section, data, *_: print(told(section(data)))
    )
    return made


def test_search22_runs_controls_with_the_first_seed_only(
    calls: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    search22.main([])
    ours, peer = "evolutionary", PEER
    early, space = search22.EARLY_PEER, search22.SPACE_PEER
    controls = [early, space, f"{ours}+gbdt:scratch"]
    assert [call[1:4] for call in calls] == [([ours, peer, *controls], ["default"], [0, 1, 2])]
    assert calls[0][4]["own_seeds"] == dict.fromkeys(controls, 1)
    assert len(calls[0][0]) == 22
    state = calls[0][4]["state"]
    assert state(OURS) == state(SCRATCH) == sources.state_of_ours() != ""
    shown = capsys.readouterr().out.splitlines()
    rows = [[cell.strip() for cell in line.strip(" |").split("|")] for line in shown]
    default = f"evolutionary + {cost.DEFAULT_MODEL}"
    pairs = {row[1]: int(row[-1]) for row in rows if row[0] == default and row[-1].isdigit()}
    assert pairs == {peer: 3 * 22, early: 22, space: 22, "evolutionary + gbdt:scratch": 22}
    calls.clear()
    search22.main(["--controls", ""])
    assert calls[0][3] == [0, 1, 2] and calls[0][4]["own_seeds"] == {}


def test_a_call_for_one_seed_makes_its_runs_and_publishes_nothing(
    calls: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    search22.main(["--seed", "1", "--workloads", "dense,softmax"])
    search22.main(["--seed", "0,2"])
    assert [call[3] for call in calls] == [[1], [0, 2]]
    assert calls[0][0] == ["dense", "softmax"]
    assert capsys.readouterr().out == ""
    for text in ("3", "-1", "one"):
        with pytest.raises(BadInputError, match=f"seed < seeds.*--seed {text} with --seeds 3"):
            search22.main([f"--seed={text}"])


def test_runs_of_a_model_count_for_its_own_code(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Sequence[str]] = []
    monkeypatch.setattr(sources, "state_of_ours", lambda more: asked.append(more) or str(more))
    names = [("evolutionary", "gbdt"), ("evolutionary", "world"), ("gradient", "mlp:formulas")]
    for name in names:
        sources.state_of_side.__wrapped__(Side(*name))
    assert asked == [
        [],
        ["foretune.cost.world.ranker"],
        ["foretune.search.gradient", "foretune.cost.mlp"],
    ]


def test_options_in_a_name_make_another_run_of_the_same_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(sources, "state_of_ours", lambda more: asked.append(more) or "state")
    for name in ("world", "world:online=false", "world:online=false:draft=ranker"):
        sources.state_of_side.__wrapped__(Side("evolutionary", name))
    assert asked == [["foretune.cost.world.ranker"]] * 3
    monkeypatch.chdir(tmp_path)  # a long path would make a name that is cut
    file = Path("state=none.npz")
    file.write_bytes(b"weights")
    names = [f"{file}", f"{file}:online=false", "world", "world:online=false"]
    kept = [_file_name(name) for name in names]
    assert len(set(kept)) == len(kept) and not any("/" in name for name in kept)
    assert kept[1] == f"{kept[0]}:online=false" and kept[3] == "world:online=false"


def test_files_of_one_name_are_refused(calls: list[Any], tmp_path: Path) -> None:
    files = [tmp_path / folder / "world.npz" for folder in ("a", "b")]
    for file in files:
        file.parent.mkdir()
        file.touch()
    with pytest.raises(BadInputError, match=r"'evolutionary \+ world.npz' is that of several"):
        search22.main(["--controls", "", "--cost-models", ",".join(map(str, files))])
    assert calls == []


def test_what_the_page_of_search22_says(made_up_bench: dict[str, Any]) -> None:
    summary = search22.summarise(made_up_bench, OURS) | {"goals": ["- Goal: made up"]}
    judged = [search22.label(OURS), PEER]
    result = {**made_up_bench, "search22": summary, "judged": judged, "question": "Faster?"}
    found = search22.section(result)
    assert found.answer.startswith(f"Programs of {search22.label(OURS)}")
    assert f"those of {PEER}: 4.000 (4.000 to 4.000) after 8 trials" in found.answer
    assert found.table.count(PEER) == 1 and "8.000 (8.000 to 8.000)" not in found.table
    body = found.details
    assert "- Goal: made up" in body and "partly random search" in body and "never" in body
    assert "w-a" in body and "1.00 / 1.00 / 1.00" in body and "0.25 / 0.50 / 1.00" in body
    assert "100% / 100% / 100%" in body and "0% / 0% / 0%" in body
    assert "8.000 (8.000 to 8.000)" in body, "how much sooner"
    assert "Runs were made between 2001-09-09" in body


def test_several_sides_are_compared_in_a_sentence_with_the_peer_or_else_the_last(
    made_up_bench: dict[str, Any],
) -> None:
    result = {
        **made_up_bench,
        "search22": search22.summarise(made_up_bench, OURS),
        "judged": [search22.label(OURS), search22.label(SCRATCH)],
        "question": "Faster?",
    }
    found = search22.section(result)
    assert f"those of {search22.label(SCRATCH)}: 2.000" in found.answer
    result["judged"] = [PEER, *result["judged"]]
    found = search22.section(result)
    assert f"after 16 trials, times as fast as those of {PEER}: 2.000" in found.answer
    assert f"1.000 (1.000 to 1.000) of {search22.label(SCRATCH)}" in found.answer


def test_sides_and_a_language_model_are_handed_on(calls: list[Any]) -> None:
    search22.main(
        ["--strategies", "mcts:llm,evolutionary", "--controls", "", "--llm", "m@http://h/v1",
         "--budgets", "18,36", "--workloads", "flux_conv", "--seeds", "1"]
    )  # fmt: skip
    ((workloads, strategies, _models, seeds, options),) = calls
    assert (workloads, strategies, seeds) == (["flux_conv"], ["mcts:llm", "evolutionary"], [0])
    assert options["llm"] == "m@http://h/v1"


# A long search


def test_a_long_search_gives_the_peer_more_trials(
    calls: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    long_search.main([])
    ((workloads, strategies, models, seeds, options),) = calls
    assert len(workloads) >= 6 and strategies == ["evolutionary", PEER]
    assert models == ["world", "default"] and seeds == [0] and options["peer_trials"] == 1024
    printed = capsys.readouterr().out
    assert f"32 trials, times as fast as those of {PEER} after 1,024: 1.000" in printed
    assert "| 6 of 6 " in printed
    long_search.main(["--seed", "0"])
    assert capsys.readouterr().out == ""


def test_a_long_search_says_when_the_peer_is_as_fast() -> None:
    curve = [[1, 1.0, 8.0], [64, 60.0, 4.0], [512, 500.0, 1.5], [1024, 900.0, 1.0]]
    runs = [
        made_up_run(OURS, [[1, 1.0, 2.0], [32, 9.0, 2.0], [33, 9.5, 0.5]], "a"),
        made_up_run(THEIRS, curve, "a"),
        made_up_run(OURS, [[1, 1.0, 0.5]], "b"),
        made_up_run(THEIRS, curve, "b"),
    ]
    (row,) = long_search.against(runs, 32, 1024)
    assert row["ratio"] == pytest.approx(1.0) and (row["no_worse"], row["workloads"]) == (1, 2)
    assert [pair["peer_trials"] for pair in row["each"]] == [512, None]
    assert [pair["peer_s"] for pair in row["each"]] == [500.0, None]
    result = {"long_search": {"against": [row]}, "trials": 32, "peer_trials": 1024, "runs": runs,
              "notes": {}, "failures": []}  # fmt: skip
    cells = [line for line in long_search.section(result).details.splitlines() if "w-b" in line]
    assert len(cells) == 1 and "2.000" in cells[0] and cells[0].count("–") == 2
