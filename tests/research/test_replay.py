from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune import _tvm, search
from foretune.dataset import Group, Program, readers
from foretune.errors import BadInputError, IllegalCandidateError
from foretune.hardware import Hardware
from foretune.space import Space
from foretune.workload import Workload
from foretune_research.replay import (
    BUDGETS,
    SCHEMA,
    expected_share,
    expected_trials,
    replay,
    run_replay,
    trials_until,
)
from foretune_research.tables import (
    ConfigurationSpace,
    MeasuredSpace,
    TableSpace,
    every_candidate,
    table_space,
)

PARAMETERS: Mapping[str, Sequence[Any]] = {
    "block": (16, 32, 64, 128),
    "tile": (1, 2, 4, 8),
    "unroll": (0, 1),
    "layout": ("row", "column"),
    "version": (3,),
}


def configurations() -> list[dict[str, Any]]:
    """Every combination but those whose block and tile are both the largest."""
    rows = (
        dict(zip(PARAMETERS, values, strict=True))
        for values in itertools.product(*PARAMETERS.values())
    )
    return [row for row in rows if not (row["block"] == 128 and row["tile"] == 8)]


def seconds_of(row: Mapping[str, Any]) -> float:
    """Lowest at block 64, tile 2, unrolled, by columns; NaN where block and tile are smallest."""
    if row["block"] == 16 and row["tile"] == 1:
        return float("nan")
    distance = abs(np.log2(row["block"] / 64)) + abs(np.log2(row["tile"] / 2))
    slower = 1.0 + distance + 0.5 * (row["unroll"] == 0) + 0.25 * (row["layout"] == "row")
    return float(1e-3 * slower)


def tuned_group(
    rows: Sequence[Mapping[str, Any]], hardware: str = "device", **fields: Any
) -> Group:
    given = {"seconds": np.array([seconds_of(row) for row in rows]), **fields}
    programs = [Program(configuration=row) for row in rows]
    return Group("kernel", "kernel", "conv2d", hardware, programs, **given)


def searched(space: TableSpace, strategy: str, model: str, trials: int, seed: int = 0) -> Any:
    """Best share after each trial of one run, in batches of four."""
    made: Any = search.create(strategy, space, space.model(model, seed), seed)
    return replay(made, space, trials, batch=4)


@pytest.fixture
def table() -> ConfigurationSpace:
    return ConfigurationSpace(tuned_group(configurations()))


def row_maximum(rows: int, columns: int, subtract: bool = False) -> Workload:
    te = _tvm.tvm.te
    x, k = te.placeholder((rows, columns), name="x"), te.reduce_axis((0, columns), name="k")
    y = te.compute((rows,), lambda i: te.max(x[i, k], axis=k), name="y")
    if subtract:
        y = te.compute((rows, columns), lambda i, j: x[i, j] - y[i], name="z")
    return Workload.from_module(te.create_prim_func([x, y]), "row_maximum")


@pytest.fixture(scope="module")
def small_space(hardware: Hardware) -> Space:
    return Space.generate(row_maximum(64, 7), hardware)


@pytest.fixture(scope="module")
def measured(small_space: Space) -> Group:
    """All candidates of a real space with made-up seconds that depend on their decisions."""
    candidates = list(every_candidate(small_space))
    seconds = np.array([1e-3 * (1 + int(c.key, 16) % 97) for c in candidates])
    return Group(
        small_space.workload.key,
        "row_maximum",
        "reduction",
        small_space.hardware.key,
        [Program(candidate) for candidate in candidates],
        seconds,
        small_space.hardware,
    )


# Random search, exactly


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), min_size=1, max_size=6), st.data())
def test_expected_share_is_the_mean_over_all_orders(
    shares: list[float], data: st.DataObject
) -> None:
    trials = data.draw(st.integers(1, 8))
    orders = np.array(list(itertools.permutations(shares)))
    best = np.maximum.accumulate(orders, axis=1).mean(axis=0)
    expected = [best[min(t, len(shares)) - 1] for t in range(1, trials + 1)]
    assert expected_share(np.array(shares), trials) == pytest.approx(expected)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 6), st.data())
def test_expected_trials_are_the_mean_over_all_orders(n: int, data: st.DataObject) -> None:
    good = data.draw(st.integers(1, n))
    trials = data.draw(st.integers(1, 8))
    first = [
        order.index(True) + 1
        for order in itertools.permutations([True] * good + [False] * (n - good))
    ]
    assert expected_trials(good, n, trials) == pytest.approx(np.minimum(first, trials).mean())
    assert expected_trials(good, n) == pytest.approx(np.mean(first))


def test_random_search_on_a_table_is_what_the_closed_form_says(table: ConfigurationSpace) -> None:
    runs = np.stack([searched(table, "random", "random", 12, seed) for seed in range(100)])
    error = runs.std(axis=0) / np.sqrt(len(runs))
    assert (np.abs(runs.mean(axis=0) - expected_share(table.shares, 12)) <= 4 * error + 1e-9).all()


def test_trials_until_a_run_is_near_the_optimum() -> None:
    curves = np.array([[0.2, 0.96, 1.0], [0.5, 0.5, 0.94], [1.0, 1.0, 1.0]])
    spent, reached = trials_until(curves, 1.05)
    assert spent.tolist() == [2, 3, 1]
    assert reached.tolist() == [True, False, True]


# Tables of configurations


def test_only_what_the_table_holds_is_legal(
    table: ConfigurationSpace, rng: np.random.Generator
) -> None:
    assert table.size == len(configurations()) == 60
    # A parameter with one value is no decision.
    assert [v.name for v in table.sketches[0].variables] == ["block", "tile", "unroll", "layout"]
    found = table.sample(rng, 1000)
    assert len({candidate.key for candidate in found}) == table.size
    illegal = set()
    for _ in range(2000):
        child = table.mutate(found[int(rng.integers(len(found)))], rng)
        if child.legal:
            child.apply()
        else:
            illegal.add(child.key)
            with pytest.raises(IllegalCandidateError, match="not in the table"):
                child.apply()
    assert len(illegal) == 4, "the largest block with the largest tile, in four variants"


def test_mutation_changes_one_parameter_and_crossover_takes_from_both(
    table: ConfigurationSpace, rng: np.random.Generator
) -> None:
    a, b = table.sample(rng, 2)
    for _ in range(50):
        child = table.mutate(a, rng)
        assert sum(x != y for x, y in zip(a.decisions, child.decisions, strict=True)) == 1
        mixed = table.crossover(a, b, rng)
        parents = zip(a.decisions, b.decisions, strict=True)
        assert all(m in pair for m, pair in zip(mixed.decisions, parents, strict=True))


def test_a_failure_is_a_failure_with_no_share(table: ConfigurationSpace) -> None:
    failed = [record for record in table.trials() if not record.measurement.ok]
    assert len(failed) == 4
    assert all(record.measurement.message and not record.measurement.seconds for record in failed)
    assert (table.shares == 0).sum() == 4
    assert table.shares.max() == 1.0 and table.optimum_s == pytest.approx(1e-3)
    assert table.good(1.05) == 1 and table.good(1.3) == 2


def test_candidates_are_read_back(table: ConfigurationSpace, rng: np.random.Generator) -> None:
    (candidate,) = table.sample(rng, 1)
    assert table.candidate(json.loads(json.dumps(candidate.to_json()))) == candidate
    with pytest.raises(IllegalCandidateError, match="not in the table"):
        table.candidate(table.untuned.to_json())


def test_features_are_one_hot_and_logarithms(table: ConfigurationSpace) -> None:
    candidate = table.candidate({"sketch": "kernel@device", "decisions": [1, 3, 0, 1]})
    (rows,) = table.features([candidate])
    assert rows is not None and rows.shape == (1, 5 + 5 + 3 + 2 + 1)
    block, tile, unroll, layout, _ = np.split(rows[0], [5, 10, 13, 15])
    assert block.tolist() == pytest.approx([0, 1, 0, 0, np.log2(33)])
    assert tile.tolist() == pytest.approx([0, 0, 0, 1, np.log2(9)])
    assert unroll.tolist() == [1, 0, 0]
    # Text has no logarithm; it is sorted.
    assert layout.tolist() == [0, 1]
    assert table.features([table.untuned]) == [None]


@pytest.mark.parametrize(
    ("group", "message"),
    [
        (lambda rows: tuned_group(rows, seconds=np.full(len(rows), np.nan)), "a program that ran"),
        (lambda rows: tuned_group([*rows, rows[0]]), "each candidate once"),
        (lambda rows: tuned_group([*rows, {**rows[0], "new": 1}]), "the same parameters"),
        (
            lambda rows: Group(
                "k", "k", "conv2d", "d",
                [Program(configuration=rows[0]), Program(actions=())], np.ones(2),
            ),
            "1 of the 2 programs",
        ),
        (
            lambda rows: Group("k", "k", "conv2d", "d", [Program(actions=())] * 2, np.ones(2)),
            "a measured space has candidates",
        ),
        (lambda rows: tuned_group([]), "a measured space has candidates"),
    ],
)  # fmt: skip
def test_a_group_that_is_no_table_is_refused(group: Any, message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        table_space(group(configurations()))


def test_a_table_of_configurations_has_models_that_need_no_program(
    table: ConfigurationSpace,
) -> None:
    assert table.model("random", 0).abilities.ready
    assert not table.model("gbdt:scratch", 0).abilities.ready
    with pytest.raises(BadInputError, match="unknown cost model 'oracle'"):
        table.model("oracle", 0)
    with pytest.raises(BadInputError, match="configurations only"):
        table.model("gbdt", 0)


# Tables of measured spaces


def test_every_candidate_is_listed_once_and_nothing_else_is_ever_drawn(
    hardware: Hardware, rng: np.random.Generator
) -> None:
    space = Space.generate(row_maximum(64, 7, subtract=True), hardware)
    assert any(sketch.location_order for sketch in space.sketches)
    listed = [candidate.key for candidate in every_candidate(space)]
    assert len(set(listed)) == len(listed) <= space.size
    drawn = space.sample(rng, 500)
    drawn += [space.mutate(candidate, rng) for candidate in drawn]
    assert {candidate.key for candidate in drawn} <= set(listed)


def test_a_large_space_is_not_listed(hardware: Hardware) -> None:
    from foretune.workload import catalog

    workload = catalog.get("matmul:128x128x128")
    assert isinstance(workload, Workload)
    with pytest.raises(BadInputError, match="sample it instead"):
        next(every_candidate(Space.generate(workload, hardware)))


def test_a_measured_space_never_leaves_its_table(measured: Group, rng: np.random.Generator) -> None:
    space = table_space(measured)
    assert isinstance(space, MeasuredSpace)
    keys = {candidate.key for candidate in every_candidate(space._space)}
    assert space.size == len(keys)
    candidates = space.sample(rng, 100)
    for a, b in itertools.pairwise(candidates):
        assert {space.mutate(a, rng).key, space.crossover(a, b, rng).key} <= keys
    assert space.untuned.key not in keys
    assert space.default is None


def test_a_space_that_was_not_measured_whole_is_refused(measured: Group) -> None:
    fewer = measured.subset(list(range(len(measured) - 3)))
    with pytest.raises(BadInputError, match=r"3 of group .* are missing"):
        table_space(fewer)


def test_real_candidates_are_searched_with_a_model_that_reads_programs(measured: Group) -> None:
    space = table_space(measured)
    found = searched(space, "evolutionary", "gbdt:scratch", 16)
    assert (np.diff(found) >= 0).all() and 0 < found[-1] <= 1


# The benchmark


def test_a_model_that_learns_beats_random_search(table: ConfigurationSpace) -> None:
    result = run_replay([("evolutionary", "gbdt:scratch")], [table], 24, 8, batch=4)
    (last,) = [row for row in result["summary"]["share"] if row["trials"] == 24]
    assert last["ratio"] > 1
    assert last["low"] <= last["ratio"] <= last["high"]
    assert last["random"] == pytest.approx(expected_share(table.shares, 24)[-1])


def test_the_result_is_the_same_every_time_and_complete(table: ConfigurationSpace) -> None:
    spaces = [table, ConfigurationSpace(tuned_group(configurations(), "other"))]
    strategies = [("random", "random"), ("evolutionary", "random")]

    def run() -> dict[str, Any]:
        return run_replay(strategies, spaces, 20, 3)

    result = run()
    assert json.dumps(result, allow_nan=False) == json.dumps(run(), allow_nan=False)
    assert result["schema"] == SCHEMA
    assert [space["key"] for space in result["spaces"]] == ["kernel@device", "kernel@other"]
    assert result["spaces"][0]["size"] == 60 and result["spaces"][0]["valid"] == 56
    random = result["spaces"][0]["random"]["trials_to"]["1.05"]
    assert random["unlimited"] == 61 / 2 and random["mean"] < 20
    assert len(result["runs"]) == 4
    for run_row in result["runs"]:
        assert len(run_row["share"]) == len(run_row["low"]) == len(run_row["high"]) == 20
        assert 0 <= run_row["trials_to"]["1.01"]["reached"] <= 1
    budgets = sorted({row["trials"] for row in result["summary"]["share"]})
    assert budgets == [*(b for b in BUDGETS if b < 20), 20]
    assert {row["within"] for row in result["summary"]["trials_to"]} == {1.05, 1.01}


def test_an_exhausted_table_keeps_its_optimum(table: ConfigurationSpace) -> None:
    result = run_replay([("random", "random")], [table], 80, 1)
    (run_row,) = result["runs"]
    assert run_row["share"][-1] == 1.0
    assert run_row["trials_to"]["1.01"]["reached"] == 1.0


def test_progress_names_the_strategy_and_the_table(table: ConfigurationSpace) -> None:
    lines: list[str] = []
    run_replay([("random", "random")], [table], 4, 1, progress=lines.append)
    assert len(lines) == 1 and "random+random on kernel (device)" in lines[0]


@pytest.mark.parametrize("name", ["trials", "seeds", "batch"])
def test_numbers_below_one_are_refused(table: ConfigurationSpace, name: str) -> None:
    numbers = {"trials": 4, "seeds": 1, "batch": 2, name: 0}
    with pytest.raises(BadInputError, match=f"`{name} >= 1` must hold"):
        run_replay([("random", "random")], [table], **numbers)


def test_what_cannot_be_compared_is_refused(table: ConfigurationSpace) -> None:
    with pytest.raises(BadInputError, match="at least one strategy and one table"):
        run_replay([], [table], 4, 1)
    with pytest.raises(BadInputError, match="at least one strategy and one table"):
        run_replay([("random", "random")], [], 4, 1)
    with pytest.raises(BadInputError, match="give each once"):
        run_replay([("random", "random")], [table, table], 4, 1)
    with pytest.raises(BadInputError, match="unknown strategy 'annealing'"):
        run_replay([("annealing", "random")], [table], 4, 1)


@pytest.mark.parametrize("device", ["A100", "A4000"])
def test_a_brute_forced_cache_is_a_table(shared_data: Path, device: str) -> None:
    (group,) = readers.read(shared_data / "kernel-tuner" / f"{device}.json.gz").groups
    space = table_space(group)
    assert space.size == len(group) > 4000
    assert len(space.sketches[0].variables) == 7
    result = run_replay([("evolutionary", "gbdt:scratch")], [space], 32, 1)
    (run_row,) = result["runs"]
    assert 0 < run_row["share"][-1] <= 1
