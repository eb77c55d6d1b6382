"""``benchmarks.world_start``: shares of variance, controls, and what the page says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from benchmarks import world_start
from benchmarks._world import direct as direct_module
from benchmarks._world import start as start_module
from benchmarks._world.folds import Learning
from benchmarks._world.start import DECISIONS, INPUTS, PLAIN, TRANSITIONS, Ends, bag
from foretune.dataset import Group, Program
from foretune.space import Action
from foretune.world.transition import ActionTable, Paths
from foretune_research.world.config import WorldStudyConfig
from tests.bench.test_world import product

OWNER = ("a",) * 4 + ("b",) * 6


def states(seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    centre = np.repeat(rng.standard_normal((2, 5)), (4, 6), axis=0)
    return (centre + 0.3 * rng.standard_normal((10, 5))).astype(np.float32)


def explained(predicted: Any, moved: Any = None) -> dict[str, float]:
    true = states()
    ends = Ends(true, OWNER, np.zeros(5, np.float32))
    found = {k: np.array(v) for k, v in ends.sums(predicted, moved).items()}
    return {name: one["mean"] for name, one in world_start.shares(found).items()}


def test_variance_is_told_apart_between_workloads_and_within() -> None:
    true = states()
    means = np.concatenate([np.repeat(true[:4].mean(0)[None], 4, 0),
                            np.repeat(true[4:].mean(0)[None], 6, 0)])  # fmt: skip
    right, of_means = explained(true), explained(means)
    assert [right[name] for name in ("all", "between", "within")] == pytest.approx([1, 1, 1])
    assert of_means["between"] == pytest.approx(1)
    assert of_means["within"] == pytest.approx(0, abs=1e-5)
    assert 0 < of_means["all"] < 1
    within = explained(true - means)
    assert within["within"] == pytest.approx(1) and within["between"] == pytest.approx(0, abs=1e-5)
    nothing = explained(np.zeros_like(true))
    assert [nothing[name] for name in ("all", "between", "within")] == pytest.approx([0, 0, 0])


def test_what_another_start_moves_is_told_in_shares_of_the_spread() -> None:
    true = states()
    assert explained(true, true)["moved"] == 0
    mirrored = 2 * true.mean(axis=0) - true
    assert explained(true, mirrored)["moved"] == pytest.approx(4, rel=1e-4)


def test_a_gain_is_paired() -> None:
    ends = Ends(states(), OWNER, np.zeros(5, np.float32))
    one, other = (
        {k: np.array(v) for k, v in ends.sums(states() * share).items()} for share in (1.0, 0.5)
    )
    found = world_start.shares(one, other)
    assert found["all - other"]["mean"] == pytest.approx(0.25, abs=1e-5)
    assert found["all - other"]["low"] == pytest.approx(0.25, abs=1e-5)


def test_a_bag_sums_words_times_numbers_of_all_actions() -> None:
    actions = [Action("split", ("C.i", 1, 7)), Action("annotate", ("x", 3))]
    words = np.array([[1.0, 0.0], [0.0, 2.0]], np.float32)
    steps = [(np.array([0, 1, 1]), np.array([0, 1])), (np.array([0, 1]), np.array([1]))]
    paths = Paths(np.eye(2, 3, dtype=np.float32), ActionTable.of(actions, words), steps,
                  np.zeros(2, np.int64))  # fmt: skip
    both, last = bag(paths, relative=False).reshape(2, 2, 9)
    assert both[0, :3].tolist() == [1, 1, 3] and both[1, :2].tolist() == [2, 4]
    assert not last[0].any() and last[1, :2].tolist() == [2, 4]
    assert bag(paths, relative=True).reshape(2, 2, 9)[0, 0, :3].tolist() == [1, 0, 1]


def a_group(workload: str, hardware: str, n: int = 6) -> Group:
    programs = [Program(actions=()) for _ in range(n)]
    return Group(workload, "n", "k", hardware, programs, np.arange(1.0, n + 1))


def test_a_part_of_the_data_is_chosen_alike_each_time() -> None:
    groups = [a_group(f"w{at}", f"h{at % 2}") for at in range(10)]
    assert {g.hardware for g in world_start.chosen(groups, ["h1"], 0, 4)} == {"h1"}
    assert [len(g) for g in world_start.chosen(groups, [], 0, 4)] == [4] * 10
    some = [g.workload for g in world_start.chosen(groups, [], 3, 4)]
    assert len(some) == 3 and some == [g.workload for g in world_start.chosen(groups, [], 3, 4)]


@pytest.mark.slow
def test_cells_are_made_once_and_the_page_has_every_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_module, "STEPS", 5)
    groups = [product(rows) for rows in (24, 32, 40, 56)]
    options = {"members": 2, "terminal_epochs": 1, "batch": 256}
    config = WorldStudyConfig(dimension=8, transition_options=options, trajectories=16)
    given: dict[str, Any] = {"folds": 2, "seed": 0, "programs": 32, "threads": 1}
    learning = Learning(config, **given, cache=tmp_path / "cache", folder=tmp_path)
    result = world_start.run(groups, learning, [0, 1])

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("learned a second time")

    monkeypatch.setattr(start_module, "learn", refuse)
    assert world_start.run(groups, learning, [0, 1]) == result
    page = world_start.body_of(result, "made up")
    for row in (*INPUTS, *TRANSITIONS, DECISIONS):
        assert f"| {row} " in page
    rows = {row["row"]: row for row in result["predicted"]}
    assert rows["actions only"]["partners"]["moved"]["mean"] == 0
    assert rows["end, actions only"]["partners"]["moved"]["mean"] == 0
    assert rows[PLAIN]["partners"]["moved"]["mean"] > 0
