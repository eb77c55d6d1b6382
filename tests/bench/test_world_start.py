"""``benchmarks.world_start``: shares of variance, starts that are swapped, cells made once."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from benchmarks import _world as start_module
from benchmarks import results, world_start
from benchmarks._world import DECISIONS, PLAIN, TRANSITIONS, Ends, Fold, partners
from foretune import _tvm
from foretune.dataset import Group, Program
from foretune.evaluate import Split
from foretune.space import Space
from foretune.workload import Workload
from foretune_research.world.config import WorldStudyConfig
from tests.space.programs import CPU, space

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


def a_group(workload: str, hardware: str, n: int = 6) -> Group:
    programs = [Program(actions=()) for _ in range(n)]
    return Group(workload, "n", "k", hardware, programs, np.arange(1.0, n + 1))


def test_a_part_of_the_data_is_chosen_alike_each_time() -> None:
    groups = [a_group(f"w{at}", f"h{at % 2}") for at in range(10)]
    assert {g.hardware for g in world_start.chosen(groups, ["h1"], 4)} == {"h1"}
    some = world_start.chosen(groups, [], 4)
    assert [len(g) for g in some] == [4] * 10
    again = world_start.chosen(groups, [], 4)
    assert [g.programs for g in some] == [g.programs for g in again]


def as_group(here: Space, n: int = 8) -> Group:
    candidates = list(dict.fromkeys(here.sample(np.random.default_rng(0), n)))
    return Group(
        workload=here.workload.key,
        name=here.workload.name,
        kind=here.workload.name,
        hardware=here.hardware.key,
        programs=[Program(candidate=c) for c in candidates],
        seconds=np.array([1e-3 * (1 + zlib.crc32(c.key.encode()) % 97 / 97) for c in candidates]),
        machine=here.hardware,
    )


def product(rows: int) -> Group:
    te = _tvm.tvm.te
    a, b = te.placeholder((rows, 24), name="A"), te.placeholder((24, 40), name="B")
    k = te.reduce_axis((0, 24), name="k")
    c = te.compute((rows, 40), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    workload = Workload.from_module(te.create_prim_func([a, b, c]), f"product{rows}")
    return as_group(Space.generate(workload, CPU))


@pytest.mark.slow
def test_partners_have_the_same_steps_whatever_was_decided() -> None:
    groups = [as_group(space("softmax")), as_group(space("pooling")), product(32), product(56)]
    found = partners(groups)
    products = {group.workload for group in groups[2:]}
    assert set(found) == products
    assert all(workload.key in products - {key} for key, workload in found.items())


@pytest.mark.slow
def test_a_world_that_is_swapped_begins_where_the_partner_does(tmp_path: Path) -> None:
    groups = [product(rows) for rows in (24, 32, 40, 56)]
    options = {"members": 1, "terminal_epochs": 1, "batch": 256}
    config = WorldStudyConfig(
        dimension=8, transition_options=options, trajectories=16, crossfit=False
    )
    part = Split("products", tuple(groups[:2]), (), tuple(groups[2:]))
    fold = Fold(part, config, seed=0, threads=1, programs=8, draw=0, cache=tmp_path)
    world = fold.world(PLAIN)
    one, other = (group.programs[0].candidate for group in part.test)
    assert one is not None and other is not None
    own = world.initial(one.workload)
    world.others = partners(part.test)
    assert np.array_equal(world.initial(other.workload), own)
    world.others = {}
    assert not np.array_equal(world.initial(other.workload), own)


@pytest.mark.slow
def test_cells_are_made_once_and_the_page_has_every_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    data = SimpleNamespace(groups=[product(rows) for rows in (24, 32, 40, 56)])
    monkeypatch.setattr(world_start, "read_data", lambda paths: data)
    given = ["--trajectories", "16", "--epochs", "1", "--seeds", "0,1"]
    given += ["--cache", str(tmp_path / "cache"), "--work-dir", str(tmp_path / "cells")]
    given += ["--hardware", CPU.key, "--write"]
    world_start.main(given)
    result = results.readings_of("world_start")
    assert result is not None

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("learned a second time")

    monkeypatch.setattr(start_module, "learn", refuse)
    world_start.main(given)
    again = results.readings_of("world_start")
    assert again is not None
    for one in (result, again):
        del one["conditions"]
    assert json.dumps(again) == json.dumps(result)
    printed = capsys.readouterr().out
    for row in (*TRANSITIONS, DECISIONS):
        assert f"| {row} " in printed
    rows = {row["row"]: row for row in result["predicted"]}
    assert rows["actions only"]["partners"]["moved"]["mean"] == 0
    assert rows["end, actions only"]["partners"]["moved"]["mean"] == 0
    assert rows[PLAIN]["partners"]["moved"]["mean"] > 0
