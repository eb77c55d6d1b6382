"""What the benchmarks of tree search and of proposers print."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import expansions, mcts, proposers, results, sources
from benchmarks._mcts import figures, page, parts
from benchmarks._mcts.overhead import overhead
from foretune.bench import Side, _ours, run_bench
from foretune.cli import main
from foretune.dataset import Group, Program
from foretune.errors import BadInputError
from foretune.search.proposers.heuristic import HeuristicProposer
from foretune.search.proposers.random import RandomProposer
from foretune.space import Space
from tests.llm.server import KEY, Server, always, completion
from tests.search.test_proposers import CPU
from tests.tuning.support import FormulaMeasurer, matmul, seconds_of

pytestmark = pytest.mark.slow


def run(strategy, seed, *bests, workload="k", model="gbdt", **other):
    return {
        "workload": workload, "key": workload, "strategy": strategy, "cost_model": model,
        "seed": seed, "untuned_s": 12.0, "trials_per_s": 1.0, "machine": "M",
        "curve": [[18 * 2**i, 0.0, best] for i, best in enumerate(bests)], **other,
    }  # fmt: skip


RUNS = [run("evolutionary", 0, 4.0, 3.0, 2.0), run("evolutionary", 1, 6.0, 3.0, 2.0),
        run("mcts:random", 0, 3.0, 1.0, 1.0), run("mcts:random", 1, 3.0, 4.0, 1.0)]  # fmt: skip
NAMED = figures.named(RUNS, "gbdt")
LEFT_OUT = {"model": "m", "calls": 9, "prompt_tokens": 7, "completion_tokens": 5, "invalid": 1,
            "hits": 2, "judged": 3, "left_out": "its budget of 9 calls is spent"}  # fmt: skip


def test_speedups_over_the_untuned_program():
    rows = {(r["side"], r["samples"]): r for r in figures.speedups(NAMED, (18, 36))}
    assert rows["evolutionary", 18]["mean"] == pytest.approx(math.sqrt(3 * 2))
    assert rows["mcts:random", 36]["mean"] == pytest.approx(math.sqrt(12 * 3))
    assert rows["mcts:random", 18]["low"] == pytest.approx(4)
    assert rows["mcts:random", 18]["high"] == pytest.approx(4)
    assert rows["mcts:random", 36]["seeds"] == rows["mcts:random", 36]["of"] == 2


def test_intervals_are_those_of_student_for_logarithms():
    found = figures.interval([0.0, 1.0, 2.0])
    half = 4.302653 / math.sqrt(3)
    assert found["mean"] == pytest.approx(math.e)
    assert found["low"] == pytest.approx(math.exp(1 - half))
    assert found["high"] == pytest.approx(math.exp(1 + half))
    assert figures.interval([1.0]) == {"mean": pytest.approx(math.e), "low": None, "high": None}


def test_a_cell_says_on_how_many_seeds_it_rests():
    runs = [*RUNS, run("evolutionary", 2, 1.0, untuned_s=None), run("mcts:random", 2, 3.0)]
    rows = figures.speedups(figures.named(runs, "gbdt"), (18,))
    text = page.speedup_table({"samples": [18], "speedups": rows}, ["evolutionary", "mcts:random"])
    evolution, tree = text.splitlines()[-2:]
    assert "2 of 3 seeds" in evolution and "seeds" not in tree
    (alone,) = figures.speedups(figures.named([run("mcts", 0, 3.0)], "gbdt"), (18,))
    assert page._cell(alone) == "4.00", "one seed has no interval"


def test_sides_are_named_by_their_cost_models_where_these_are_others():
    runs = [run("mcts:learned", 0, 3.0),
            run("mcts-rollouts:learned:rollout=2", 0, 3.0, model="world"),
            run("metaschedule", 0, 3.0, model="xgb"), {**run("random", 0, 3.0), "batch": 16},
            {**run("mcts:learned", 0, 3.0), "batch": 4}]  # fmt: skip
    assert [each["side"] for each in figures.named(runs, "gbdt", 16)] == [
        "mcts:learned",
        "mcts-rollouts:learned:rollout=2+world",
        "metaschedule",
        "random",
        "mcts:learned@4",
    ]


def test_the_last_choice_of_a_tuner_counts_nowhere():
    chosen = [run("evolutionary", 0, 4.0, 3.0, 1.0, unconfirmed_s=2.0),
              run("mcts:random", 0, 3.0, 2.0, 0.5, unconfirmed_s=1.0)]  # fmt: skip
    runs = figures.named(chosen, "gbdt")
    rows = {(r["side"], r["samples"]): r["mean"] for r in figures.speedups(runs, (36, 72))}
    assert rows["evolutionary", 72] == pytest.approx(6)
    assert rows["mcts:random", 36] == pytest.approx(6)
    early = {row["side"]: row["ratio"] for row in figures.early(runs, 72)}
    assert early["mcts:random"] == pytest.approx(1)
    reaching = {row["side"]: row["samples"] for row in figures.reaching(runs, 72)}
    assert reaching == {"evolutionary": 72, "mcts:random": 36}


def test_shorter_runs_count_only_as_far_as_they_went():
    runs = figures.named(
        [*RUNS, run("mcts-rollouts:random:rollout=2", 0, 3.0, 1.0, budget=36)], "gbdt"
    )
    rows = {(r["side"], r["samples"]) for r in figures.speedups(runs, (18, 36, 72))}
    assert ("mcts-rollouts:random:rollout=2", 36) in rows and (
        "mcts-rollouts:random:rollout=2",
        72,
    ) not in rows
    early = {row["side"]: row for row in figures.early(runs, 72)}
    assert early["mcts-rollouts:random:rollout=2"]["pairs"] == 1
    assert {row["side"] for row in figures.reaching(runs, 72)} == {"evolutionary", "mcts:random"}


def test_how_soon_the_goal_is_reached():
    rows = {row["side"]: row for row in figures.early(NAMED, 72)}
    assert rows["evolutionary"]["ratio"] == pytest.approx(2 / 3)
    assert rows["mcts:random"]["ratio"] == pytest.approx(np.sqrt((2 / 1) * (2 / 4)))
    assert rows["mcts:random"]["pairs"] == 2


def test_how_many_samples_the_goal_takes():
    rows = {row["side"]: row for row in figures.reaching(NAMED, 72)}
    assert rows["evolutionary"]["samples"] == 72 and rows["evolutionary"]["reached"] == 1
    # Within 36 samples with one seed, within 72 with the other.
    assert rows["mcts:random"]["samples"] == 54 and rows["mcts:random"]["pairs"] == 2
    late = figures.named([RUNS[0], run("late", 0, 4.0, 3.0)], "gbdt")
    (slow,) = [row for row in figures.reaching(late, 72) if row["side"] == "late"]
    assert slow["samples"] is None and slow["reached"] == 0


def test_how_much_faster_than_a_reference_after_as_many_samples():
    far = [run("evolutionary", 0, 40.0, 20.0, workload="l"),
           run("mcts:random", 0, 20.0, 5.0, workload="l"),
           run("mcts:short", 0, 8.0, workload="l", budget=18)]  # fmt: skip
    rows = figures.over_reference(figures.named([*RUNS, *far], "gbdt"), (18, 36))
    found = {(row["side"], row["samples"]): row for row in rows}
    assert ("evolutionary", 18) not in found and ("mcts:short", 36) not in found
    early = found["mcts:random", 18]
    assert early["kernels"] == {
        "k": pytest.approx(math.sqrt(4 / 3 * 6 / 3)), "l": pytest.approx(2.0),
    }  # fmt: skip
    assert early["pairs"] == 3
    assert early["ratio"] == pytest.approx((4 / 3 * 6 / 3 * 2) ** (1 / 3))
    assert early["low"] <= early["ratio"] <= early["high"]
    assert found["mcts:short", 18]["ratio"] == pytest.approx(5.0)
    reference = {"side": "evolutionary", "over": rows}
    shown = "\n".join(page._over_reference(reference, ["evolutionary", "mcts:random"]))
    assert "mcts:short" not in shown and "| 1.63 | 2.00 | 1.747 (" in shown
    assert page._over_reference(reference, ["evolutionary"]) == []


def test_ablations_are_set_beside_what_was_measured_with_them():
    two, four = "mcts:learned:branching=2", "mcts:learned:branching=4"
    runs = [run(two, 0, 4.0, budget=18), run(four, 0, 2.0, budget=18),
            run("mcts:learned", 0, 1.0, compared=5.0)]  # fmt: skip
    (found,) = figures.families(figures.named(runs, "gbdt"), [two, four], (18,))
    assert (found["option"], found["sides"]) == ("branching", [two, four]), "no common sitting"
    (over,) = found["over"]
    assert (over["side"], over["samples"], over["pairs"]) == (four, 18, 1)
    assert over["ratio"] == pytest.approx(2.0)
    beside = [*runs, run("mcts:learned", 0, 1.0)]
    (found,) = figures.families(figures.named(beside, "gbdt"), [two, four], (18,))
    assert found["sides"] == ["mcts:learned", two, four]
    assert [row["ratio"] for row in found["over"]] == [pytest.approx(0.25), pytest.approx(0.5)]


def test_a_cost_model_is_compared_by_itself():
    names = ["mcts:learned:temperature=1", "mcts:learned:temperature=1+world", "mcts:learned"]
    runs = [run(name.partition("+")[0], 0, 4.0 / (1 + at), budget=18,
                model=name.partition("+")[2] or "gbdt")
            for at, name in enumerate(names)]  # fmt: skip
    found = figures.families(figures.named(runs, "gbdt"), names, (18,))
    assert [(each["option"], each["sides"]) for each in found] == [
        ("temperature", ["mcts:learned", names[0]]),
        ("cost model", [names[0], names[1]]),
    ]
    assert [row["ratio"] for row in found[1]["over"]] == [pytest.approx(2.0)]


def test_machines_have_tables_of_their_own():
    runs = [{**each, "machine": machine} for machine in ("A", "B") for each in RUNS]
    runs += [run("mcts:random", 2, 3.0, workload="other", machine="B")]
    rows = figures.speedups(figures.named(runs, "gbdt"), (18,))
    assert {row["of"] for row in rows if row["workload"] == "k"} == {2}
    text = page.speedup_table({"samples": [18], "speedups": rows}, ["evolutionary", "mcts:random"])
    first, second = text.split("On B:")
    assert first.startswith("On A:") and "other" not in first and "other" in second
    found = {"samples": [18], "speedups": rows}
    # Which machine it was is said of a side that ran on one of them, too.
    rows += figures.speedups(figures.named([run("late", 0, 3.0, machine="B")], "gbdt"), (18,))
    only = page.speedup_table(found, ["late"])
    assert only.startswith("On B:") and "On A:" not in only
    assert only.count("late") == 1, "kernels of which it has nothing are left out"
    assert page.speedup_table(found, ["never"]) == ""
    named = figures.named(runs, "gbdt")
    found["families"] = figures.families(named, ["never:branching=4"], (18,))
    assert page._ablations(found, ["never:branching=4"], 18) == []
    alone = [row for row in rows if row["machine"] == "A"]
    assert "On " not in page.speedup_table({"samples": [18], "speedups": alone}, ["evolutionary"])


CONDITIONS = {
    "command": "python -m benchmarks.mcts --seed-list 1", "seeds": [1], "began": "2026-11-24",
    "hardware": {"name": "Zen 9", "threads": 1, "key": "9"},
    "busy_before": [], "busy_after": ["cc 9 %"],
}  # fmt: skip


def unplaced(runs):
    """Runs as a call leaves them: of its own machine."""
    return [{name: value for name, value in each.items() if name != "machine"} for each in runs]


def published(*seeds, **other):
    """What a call with other seeds left."""
    runs = [{**each, "seed": seed} for seed in seeds for each in unplaced(RUNS[::2])]
    return {"trials": 72, "runs": runs, "failures": [], "notes": {"theirs": "n"},
            "states": {"evolutionary+gbdt": "a"}, "conditions": {**CONDITIONS, "seeds": [*seeds]},
            "parts": [], "hardware": CONDITIONS["hardware"], **other}  # fmt: skip


def test_results_of_other_seeds_are_put_together():
    whole = parts.together(published(0), [published(1), published(2)])
    assert sorted({run["seed"] for run in whole["runs"]}) == [0, 1, 2]
    (row, *_) = figures.speedups(figures.named(whole["runs"], "gbdt"), (18,))
    assert row["seeds"] == row["of"] == 3
    text = parts.said(whole["parts"])
    assert "Seeds [1]" in text and "Zen 9, 1 threads" in text and "beside cc 9 %" in text
    assert "Seeds [2]" in text and "others" not in text


def test_runs_that_were_given_no_batch_had_one_that_fits_their_trials():
    earlier = published(1, trials=600)
    earlier["runs"][0]["budget"] = 36
    later = {**earlier, "runs": [{**each, "batch": 16} for each in earlier["runs"]]}
    with pytest.raises(BadInputError, match=r"@16 seed 1 is in two"):
        parts.together(later, [earlier])
    later["runs"] = [{**each, "batch": 4} for each in earlier["runs"]]
    whole = parts.together(later, [earlier])
    assert [run["batch"] for run in whole["runs"]] == [9, 16, 4, 4], "the first was short"
    shown = [run["side"] for run in figures.named(whole["runs"], "gbdt", 4)]
    assert shown[0].endswith("@9") and shown[1].endswith("@16") and "@" not in shown[2]
    theirs = parts.together({**later, "runs": [run("metaschedule", 0, 3.0, model="xgb")]}, [])
    assert "batch" not in theirs["runs"][0]


@pytest.mark.parametrize(
    "codes, others", [("aac", [0, 1]), ("abb", [0]), ("aba", [1]), ("aaa", [])]
)
def test_parts_of_other_code_are_named_however_long_the_chain_is(codes, others):
    done = None
    for seed, code in enumerate(codes):
        call = published(seed, states={"evolutionary+gbdt": code})
        done = {**parts.together(call, [done] if done else []), "conditions": call["conditions"]}
    lines = parts.said(done["parts"]).splitlines()
    assert [line[:9] for line in lines] == ["- Seeds [", "- Seeds ["]
    found = [at for at, line in enumerate(lines) if line.endswith("others of evolutionary+gbdt.")]
    assert found == others


def test_seconds_of_two_sittings_are_not_compared():
    here = [{**each, "compared": 1.0} for each in RUNS[:2]]
    there = [{**each, "compared": 2.0} for each in RUNS[2:]]
    runs = figures.named([*here, *there], "gbdt")
    assert [row["side"] for row in figures.early(runs, 72)] == ["evolutionary"]
    assert [row["side"] for row in figures.reaching(runs, 72)] == ["evolutionary"]
    # A speed-up is over the untuned program of its own sitting.
    assert {row["side"] for row in figures.speedups(runs, (18,))} == {"evolutionary", "mcts:random"}
    late = published(runs=there, states={})
    whole = parts.together(published(runs=here), [late])
    assert whole["summary"]["speedup"] == []
    assert len(whole["summary"]["over_untuned"]) > 0


def test_what_a_search_looks_at_is_kept_where_it_is_not_measured_again():
    rows = [{"workload": "k", "side": side, "measured": n} for side in "ab" for n in (128, 512)]
    new = {"workload": "k", "side": "a", "measured": 64}
    earlier = {"mcts": {"overhead": rows}}
    assert parts.effort([new], [published(1), earlier]) == [new, *rows[2:]]


def test_results_that_overlap_or_are_of_other_lengths_are_not_put_together():
    with pytest.raises(BadInputError, match=r"k evolutionary\+gbdt@16 seed 1 is in two"):
        parts.together(published(0, 1), [published(1)])
    with pytest.raises(BadInputError, match="one has 64 and this call 72: give --trials 64"):
        parts.expect_as_long(72, [published(1, trials=64)])


@pytest.fixture
def given(monkeypatch):
    """What the benchmark hands to the runner and to the page; nothing is run."""
    found = {}

    def run_bench(workloads, sides, trials, chosen, **options):
        found.update(options, workloads=workloads, sides=sides, seeds=chosen)
        here = {"name": "Zen 8", "threads": 2, "key": "8"}
        runs = unplaced(RUNS)
        return {"trials": trials, "runs": runs, "failures": [], "notes": {}, "hardware": here}

    monkeypatch.setattr(mcts, "run_bench", run_bench)
    monkeypatch.setattr(
        mcts, "conditions", lambda _name, _seeds: SimpleNamespace(hardware=CPU, end=dict)
    )
    monkeypatch.setattr(
        mcts, "publish", lambda *arguments: found.update(body=arguments[2], data=arguments[3])
    )
    return found


@pytest.mark.parametrize("words, seeds", [("--seeds 2", [0, 1]), ("--seed-list 2,0", [2, 0])])
def test_seeds_of_a_part_of_the_work(given, tmp_path, words, seeds):
    words += f" --workloads flux_conv --cost-model gbdt --work-dir {tmp_path}"
    mcts.main(words.split())
    assert given["seeds"] == seeds and given["workloads"] == ["flux_conv"]
    assert given["work_dir"] == tmp_path and "mcts:learned@16" in given["sides"]
    assert "get there" in given["body"]
    assert "need one: give it with `--llm`" in given["body"]


def test_what_was_published_before_becomes_part_of_the_page(given, tmp_path):
    earlier = tmp_path / "earlier.json"
    earlier.write_text(json.dumps({**published(5), "trials": 600}))
    mcts.main(["--seed-list", "0,1", "--with", str(earlier)])
    assert "Seeds [5], published before" in given["body"]
    assert len(given["data"]["runs"]) == len(RUNS) + 2
    # Speed-ups of two machines are no sample of one thing.
    assert [line for line in given["body"].splitlines() if line.startswith("On ")] == [
        "On Zen 9, 1 threads (9):", "On Zen 8, 2 threads (8):",
    ]  # fmt: skip
    assert "seeds |" not in given["body"], "all of each machine are there"
    assert any(name.startswith("mcts:learned+") for name in given["data"]["states"])


def test_sides_that_were_published_before_have_rows(given, tmp_path):
    earlier = tmp_path / "earlier.json"
    runs = [run("mcts:old", 5, 3.0), run("mcts:old:branching=9", 5, 3.0, budget=36)]
    earlier.write_text(json.dumps(published(trials=600, runs=runs)))
    mcts.main(["--cost-model", "gbdt", "--with", str(earlier)])
    assert "mcts:old " in given["body"] and "mcts:old:branching=9" in given["body"]


def test_results_of_another_length_are_refused_before_anything_runs(given, tmp_path):
    earlier = tmp_path / "earlier.json"
    earlier.write_text(json.dumps(published(5)))
    with pytest.raises(BadInputError, match="give --trials 72"):
        mcts.main(["--with", str(earlier)])
    assert not given


def test_ablations_have_fewer_trials_than_what_they_are_compared_with(given):
    mcts.main([])
    own = given["own_trials"]
    less = [*mcts.BRANCHING, *mcts.ROLLOUTS, *mcts.SCRATCH]
    assert set(own) == {f"{name}@16" for name in less}, "their batches fit the runs beside them"
    assert set(own.values()) == {200}
    others = {name.removesuffix("@16") for name in set(given["sides"]) - set(own)}
    assert others == set(mcts.SIDES)
    assert given["sides"].index("mcts:learned@16") < len(mcts.SIDES)
    mcts.main(["--trials", "64", "--ablations", "mcts:random,mcts-rollouts:random:rollout=1"])
    own = given["own_trials"]
    assert own == {"mcts-rollouts:random:rollout=1@16": 64}, "the other one is a side already"


def test_batches_are_those_that_were_asked_for_but_where_a_side_has_its_own(given):
    sides = f"evolutionary,mcts:random@16,{mcts.PEER}"
    words = ["--batch", "4", "--sides", sides, "--ablations", "mcts:random,mcts:random@4"]
    mcts.main([*words, "--cost-model", "gbdt"])
    assert given["sides"] == ["evolutionary@4", "mcts:random@16", mcts.PEER, "mcts:random@4"]
    assert given["data"]["mcts"]["effort"] == {"batch": 4}
    assert list(given["data"]["states"]) == ["evolutionary+gbdt", "mcts:random+gbdt"]


def test_a_language_model_has_a_row_in_all_tables_of_the_paper(given):
    mcts.main(["--llm", "m@http://h/v1"])
    assert given["llm"] == "m@http://h/v1"
    assert "mcts:llm@16" in given["sides"] and "mcts:llm@16" not in given["own_trials"]
    assert {"mcts:llm:history=3@16", "mcts:llm:branching=4@16"} <= set(given["own_trials"])


def test_the_tables_name_every_kernel_and_side():
    ablations = ["mcts:random:branching=4", "mcts-rollouts:random:rollout=2", "mcts:random+world",
                 "mcts-rollouts:random:rollout=2+world", "mcts:random:epsilon=0.5"]  # fmt: skip
    others = [run(name.partition("+")[0], 0, 3.0, 2.0, budget=36,
                  model=name.partition("+")[2] or "gbdt") for name in ablations]  # fmt: skip
    peers = [run("metaschedule-equal", seed, 6.0, 5.0, 2.0, model="xgb") for seed in (0, 1)]
    dated = [{**each, "began": 1e9, "elapsed_s": 60.0} for each in [*RUNS, *others, *peers]]
    runs = figures.named(dated, "gbdt")
    row = {"drafted": 8.0, "scored": 48.0, "ask_ms": 100.0}
    tree = {"expansions": 128.0, "search_ms": 1.0, "all_ms": 2.0}
    plain = {"expansions": 0.0, "search_ms": None, "all_ms": None}
    found = {
        "trials": 72,
        "runs": dated,
        "failures": [],
        "notes": {},
        "mcts": {
            "samples": [18, 36, 72],
            "speedups": figures.speedups(runs, (18, 36, 72)),
            "families": figures.families(runs, ablations, (18, 36)),
            "references": [
                {
                    "side": side,
                    "over": figures.over_reference(runs, (18, 36, 72), side),
                    "early": figures.early(runs, 72, side),
                    "reaching": figures.reaching(runs, 72, side),
                }
                for side in ("evolutionary", "metaschedule-equal")
            ],
            "effort": {"batch": 16},
            "overhead": [
                {"workload": "k", "side": "evolutionary", "measured": 128, **row, **plain},
                {"workload": "k", "side": "mcts:random", "measured": 512, **row, **tree},
            ],
        },
    }
    text = page.body(found, ["evolutionary", "mcts:random", figures.PEER], ablations, 36)
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    assert ["k", "mcts:random", "512", "48", "8", "100", "128", "1.00", "2.00"] in cells
    assert ["k", "evolutionary", "128", "48", "8", "100", "–", "–", "–"] in cells
    assert "less than 5 ms of search per expansion: 1.00 at most, met." in text
    for reference in ("evolutionary", "metaschedule-equal"):
        goal = (
            "- Goal: the best of 1 tree searches, chosen by these very runs, has after 36 samples "
            f"what {reference} has after 72"
        )
        assert goal in text
    assert "metaschedule-equal itself after 36: 0.400." in text
    assert "Runs were made between 2001-09-09" in text
    assert "need one" in text and "left out" not in text.replace("is left out in the last", "")
    tables = text.split("\n\n")
    (rollouts,) = [part for at, part in enumerate(tables) if tables[at - 1].startswith("Rollouts")]
    assert [line.split("|")[2].strip() for line in rollouts.splitlines()[2:]] == [
        "mcts:random", "mcts-rollouts:random:rollout=2",
        "mcts:random+world", "mcts-rollouts:random:rollout=2+world",
    ]  # fmt: skip
    assert rollouts.splitlines()[0].split("|")[-2].strip() == "36", "as far as all of them went"
    (branching,) = [p for at, p in enumerate(tables) if tables[at - 1].startswith("Branching")]
    assert "branching=4" in branching and branching.count("\n") == 3
    assert text.count("epsilon=0.5") == 3, "in a table of what is left, and in those of goals"


@pytest.mark.parametrize("ratio, met", [(1.01, "met"), (0.99, "not met")])
def test_goals_are_of_the_best_tree_search_and_of_the_one_that_comes_as_default(ratio, met):
    sides = ["evolutionary", "mcts:random", "mcts:heuristic", "mcts:learned"]
    rows = list(zip(sides, (2.0, 0.5, ratio, 0.9), strict=True))
    rows.append(("mcts:learned:branching=4", 3.0))
    early = [{"side": s, "ratio": r, "low": r, "high": r} for s, r in rows]
    reference = {"side": "evolutionary", "early": early, "reaching": []}
    best, own = page.goals({"references": [reference], "overhead": []}, sides, 600)
    assert f"mcts:heuristic, {ratio:.3f}" in best and f"as fast, {met};" in best
    assert "the best of 3 tree searches" in best
    reference["early"] = [{**row, "low": 0.5, "high": 2.0} for row in early]
    best, _ = page.goals({"references": [reference], "overhead": []}, sides, 600)
    assert f"as fast, {met}, within the interval;" in best
    assert "mcts:learned, 0.900" in own and "as fast, not met;" in own
    assert best.endswith("itself after 36: 2.000.") and own.endswith("itself after 36: 2.000.")


def test_the_page_says_where_a_language_model_was_left_out():
    asked = run("mcts:llm", 0, 3.0, llm=LEFT_OUT)
    runs = figures.named([RUNS[0], asked], "gbdt")
    whole = {**LEFT_OUT, "left_out": None}
    found = {
        "trials": 18, "runs": [RUNS[0], asked], "failures": [], "notes": {},
        "mcts": {"samples": [18], "speedups": figures.speedups(runs, (18,)), "families": [],
                 "references": [], "overhead": []},
    }  # fmt: skip
    text = page.body(found, ["evolutionary", "mcts:llm"], [], 18)
    assert "4.00 \\*" in text and "went on without their language model" in text
    assert "**left out** before the end: its budget of 9 calls is spent" in text
    assert "need one" not in text
    found["runs"] = [RUNS[0], {**asked, "llm": whole}]
    found["mcts"]["speedups"] = figures.speedups(figures.named(found["runs"], "gbdt"), (18,))
    text = page.body(found, ["evolutionary", "mcts:llm"], [], 18)
    assert "\\*" not in text and "**left out**" not in text and "9 calls" in text


@pytest.mark.parametrize(
    "name, option, base",
    [
        ("mcts-rollouts:learned:rollout=2+world", "rollout", "mcts:learned+world"),
        ("mcts:llm:history=3", "history", "mcts:llm"),
        ("mcts:learned", "rollout", "mcts:learned"),
        ("mcts:learned:rollouts=2", "rollout", "mcts:learned:rollouts=2"),
        ("mcts-rollouts:learned:rollout=2+world@4", "rollout", "mcts:learned+world@4"),
        (
            "mcts-rollouts:learned:rollout=2+w.npz@4",
            "cost model",
            "mcts-rollouts:learned:rollout=2@4",
        ),
        (
            "mcts-rollouts:learned:rollout=2+me@4/w.npz@36",
            "batch",
            "mcts-rollouts:learned:rollout=2+me@4/w.npz",
        ),
        ("mcts:learned+me@4/w.npz", "batch", "mcts:learned+me@4/w.npz"),
    ],
)
def test_what_an_ablation_is_compared_with(name, option, base):
    assert figures.without(name, option) == base


@pytest.mark.slow
def test_the_page_of_expansions_judges_the_median_and_shows_the_highest_reading(
    monkeypatch, tmp_path
):
    times = iter([1.0, 9.0, 2.0, 4.0, 4.5, 3.0])

    def short(workload, hardware, side):
        rows = overhead(workload, hardware, side, ends=(8,), batch=4)
        return [{**row, "search_ms": next(times)} for row in rows]

    monkeypatch.setattr(results, "RESULTS", tmp_path)
    monkeypatch.setattr(expansions, "overhead_alone", short)
    words = "--workloads matmul:64x64x64 --sides mcts:random,mcts:heuristic --write"
    expansions.main(words.split())
    rows = results.readings_of("expansions")["summary"]
    assert [(row["side"], row["measured"], row["rounds"]) for row in rows] == [
        ("mcts:random", 8, 3), ("mcts:heuristic", 8, 3),
    ]  # fmt: skip
    assert rows[0]["search_ms"] == {"median": 2.0, "low": 1.0, "high": 4.5}
    assert 0 < rows[0]["all_ms"]["low"] <= rows[0]["all_ms"]["high"]
    page = (tmp_path / "expansions.md").read_text()
    assert "4.00 in the cell with the highest median, met; 9.00 in the highest" in page
    slow = [{**rows[0], "search_ms": dict.fromkeys(("median", "low", "high"), 5.5)}]
    assert "5.50 in the cell with the highest median, not met" in expansions.body([*rows, *slow])


@pytest.mark.parametrize("name", ["mcts:random", "mcts-rollouts:random:rollout=1", "evolutionary"])
def test_what_a_search_looks_at_and_how_long_it_takes_early_and_late(name):
    early, late = overhead("matmul:64x64x64", CPU, Side(name, "gbdt"), ends=(8, 16), batch=4)
    assert [early["measured"], late["measured"]] == [8, 16]
    for row in (early, late):
        assert row["scored"] > 1 and row["drafted"] > 1 and row["ask_ms"] > 0
        if name == "evolutionary":
            assert row["expansions"] == 0
            assert row["search_ms"] is row["all_ms"] is None
        else:
            assert 0 < row["expansions"] <= 4 * 8
            assert 0 <= row["search_ms"] <= row["all_ms"]
            assert row["scored"] > row["expansions"] / 4, "several edits of each, and old nodes"
    if name != "evolutionary":
        assert late["scored"] > early["scored"], "there are more nodes"


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
