"""The portfolio: fast schedules of other programs, and what strategies make of them."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from foretune import cost, search
from foretune.errors import RecordError, VersionMismatchError
from foretune.measure import Measurement, Status
from foretune.search.mcts import Mcts
from foretune.search.portfolio import KEPT, Machine, Portfolio, shipped
from foretune.space import Candidate, Recipe, Space, frame_of
from foretune.tuning import Task
from tests.space import programs
from tests.space.test_recipe import product


@pytest.fixture(scope="module")
def one() -> Space:
    return product(64, 128, 96)


@pytest.fixture(scope="module")
def other() -> Space:
    return product(48, 160, 96)


def filled(space: Space, n: int = 8) -> Portfolio:
    portfolio = Portfolio()
    for at, candidate in enumerate(space.sample(np.random.default_rng(0), n)):
        portfolio.add(candidate, 1e-3 * (1 + at / 100))
    return portfolio


def test_the_fastest_schedules_are_kept_and_moved(one: Space, other: Space, tmp_path: Path) -> None:
    portfolio = filled(one)
    assert len(portfolio) == 1
    moved = portfolio.suggest(other, 16)
    assert 0 < len(moved) <= KEPT
    assert all(c.workload == other.workload for c in moved)
    assert len({c.key for c in moved}) == len(moved)
    portfolio.save(tmp_path / "p.json.gz")
    assert Portfolio.load(tmp_path / "p.json.gz").suggest(other, 16) == moved
    # A slow one changes nothing, a faster one comes first.
    before = portfolio.version
    slow, fast = one.sample(np.random.default_rng(7), 2)
    portfolio.add(slow, 1.0)
    assert portfolio.version == before
    portfolio.add(fast, 1e-4)
    assert portfolio.version != before
    assert portfolio.suggest(one, 16) == [fast]


def test_programs_that_are_near_come_first(one: Space, other: Space) -> None:
    def moved(space: Space, seed: int) -> tuple[Candidate, Candidate]:
        (candidate,) = space.sample(np.random.default_rng(seed), 1)
        frame = frame_of(candidate.sketch)
        (sketch,) = [s for s in other.sketches if frame_of(s) == frame]
        return candidate, Recipe.of(candidate).follow(sketch)

    far, near = moved(product(512, 1024, 64), 0), moved(one, 5)
    portfolio = Portfolio()
    portfolio.add(far[0], 1e-3)
    assert portfolio.suggest(other, 1) == [far[1]]
    portfolio.add(near[0], 1.0)  # seconds of two programs are not compared
    assert portfolio.suggest(other, 4) == [near[1], far[1]]


def test_nothing_is_moved_between_programs_that_are_scheduled_otherwise(one: Space) -> None:
    assert filled(programs.space("softmax")).suggest(one, 8) == []


def test_machines_that_are_alike_are_near() -> None:
    wide, narrow = Machine("llvm", 1, 512), Machine("llvm", 1, 256)
    assert wide.distance(wide) == 0.0
    assert wide.distance(narrow) == 1.0
    assert wide.distance(replace(wide, threads=4)) == 1.0
    assert wide.distance(Machine("cuda", 1, 512)) == float("inf")


def test_a_portfolio_knows_what_those_before_it_know(one: Space, other: Space) -> None:
    known = filled(one)
    mine = Portfolio(known)
    assert mine.suggest(other, 4) == known.suggest(other, 4)
    mine.add(one.sample(np.random.default_rng(9), 1)[0], 1e-5)
    assert len(mine) == 2 and len(known) == 1


def test_how_many_are_wanted_first_does_not_limit_what_comes_later(one: Space) -> None:
    known, mine = filled(one), Portfolio(filled(one))
    assert mine.suggest(one, 1) == known.suggest(one, 1)
    assert mine.suggest(one, 8) == known.suggest(one, 8) and len(mine.suggest(one, 8)) > 1


def test_a_file_of_another_schema_says_so(tmp_path: Path) -> None:
    path = tmp_path / "p.json.gz"
    path.write_bytes(gzip.compress(b'{"schema": "foretune.portfolio/0", "programs": []}'))
    with pytest.raises(VersionMismatchError, match=r"p\.json\.gz must be .*portfolio/0.*make it"):
        Portfolio.load(path)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p.json.gz").write_bytes(b"torn")
    with pytest.raises(RecordError, match="no portfolio"):
        Portfolio.load(tmp_path / "p.json.gz")


def test_a_tree_begins_with_what_was_suggested(one: Space, other: Space) -> None:
    told = filled(one).suggest(other, 8)
    model = cost.create("gbdt", rng=0, hardware=other.hardware)
    strategy = search.create("mcts", other, model, 0)
    strategy.suggest(told)
    strategy.ask(8)
    assert isinstance(strategy, Mcts)
    assert {c.key for c in told} <= set(strategy.tree.nodes)


@pytest.mark.parametrize("name", ["evolutionary", "gradient"])
def test_strategies_propose_what_was_suggested(name: str, one: Space, other: Space) -> None:
    told = filled(one).suggest(other, 8)
    model = cost.create("gbdt", rng=0, hardware=other.hardware)
    strategy = search.create(name, other, model, 0)
    strategy.suggest(told)
    asked = strategy.ask(16)
    assert len({c.key for c in asked}) == 16
    assert {c.key for c in asked} & {c.key for c in told}


def test_tasks_that_share_a_portfolio_learn_from_each_other(one: Space, other: Space) -> None:
    portfolio = Portfolio()
    first, second = (
        Task(s.workload, s.hardware, space=s, cost_model="gbdt:scratch", portfolio=portfolio)
        for s in (one, other)
    )
    assert not second.strategy.suggested
    second.ask(4)
    assert not second.strategy.suggested
    ok = Measurement(Status.OK, (1e-3, 1e-3), (True, True))
    first.tell([(candidate, ok) for candidate in first.ask(4)])
    second.ask(4)
    assert second.strategy.suggested
    assert set(second.strategy.suggested) == {c.key for c in portfolio.suggest(other, 32)}


def test_what_no_package_has_is_empty() -> None:
    assert len(shipped("hexagon")) == 0
