"""``benchmarks.favourites``: pools of journals, and who picks from them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import favourites
from foretune.errors import BadInputError
from foretune.measure import Measurement, Status
from foretune.records import Journal, Record
from foretune.space import Candidate
from tests.space.programs import CPU, space

pytestmark = pytest.mark.slow

N = 12


def drawn(name: str = "matmul") -> list[Candidate]:
    found = {c.key: c for c in space(name).sample(np.random.default_rng(0), N)}
    assert len(found) == N
    return list(found.values())


def record(candidate: Candidate, seconds: float | None, origin: str = "random") -> Record:
    status = Status.OK if seconds is not None else Status.RUN_ERROR
    readings = (seconds,) if seconds is not None else ()
    return Record.of(candidate, Measurement(status, readings, (True,) * len(readings)), origin, {})


def journal(path: Path, records: list[Record], name: str = "matmul") -> Path:
    with Journal(path) as opened:
        opened.add_workload(space(name).workload)
        opened.add_hardware(CPU)
        opened.extend(records)
    return path


def test_a_pool_holds_the_fastest_trial_of_each_program_that_ran(tmp_path: Path) -> None:
    one, two, three, four = drawn()[:4]
    first = journal(
        tmp_path / "a.jsonl",
        [record(one, 3.0), record(two, 2.0), record(three, None), record(four, 0.1, "untuned")],
    )
    second = journal(tmp_path / "b.jsonl", [record(one, 1.0), record(two, 4.0)])
    (pool,) = favourites.read([first, second])
    assert (pool.runs, pool.workload.name, pool.hardware.key) == (2, "matmul", CPU.key)
    assert [r.candidate for r in pool.records] == [one, two]
    assert [r.measurement.best_s for r in pool.records] == [1.0, 2.0]


def test_folders_are_searched_for_journals(tmp_path: Path) -> None:
    names = ("runs/b/journal.jsonl", "runs/a/journal.jsonl", "runs/a/llm.jsonl", "alone.jsonl")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = favourites.journals([tmp_path / "runs", tmp_path / "alone.jsonl"])
    assert [str(path.relative_to(tmp_path)) for path in found] == [
        "runs/a/journal.jsonl",
        "runs/b/journal.jsonl",
        "alone.jsonl",
    ]


def test_programs_of_another_space_are_left_out(tmp_path: Path) -> None:
    strange = Record(
        space("matmul").workload.key,
        CPU.key,
        "0" * 16,
        {"sketch": "1" * 16, "decisions": []},
        Measurement(Status.OK, (0.1,), (True,)),
        "random",
    )
    path = journal(tmp_path / "a.jsonl", [strange, *(record(c, 1.0) for c in drawn()[:2])])
    (pool,) = favourites.read([path])
    assert len(pool.records) == 2 and pool.left_out == 1


def test_nothing_that_ran_is_refused(tmp_path: Path) -> None:
    path = journal(tmp_path / "a.jsonl", [record(c, None) for c in drawn()])
    with pytest.raises(BadInputError, match="two programs"):
        favourites.read([path])


class Spy:
    """Scores programs by their place, the last one best; remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.asked: list[str] = []

    def update(self, records: list[Record]) -> None:
        self.told += [record.candidate_key for record in records]

    def predict(self, candidates: list[Candidate]) -> Any:
        self.asked = self.asked or [candidate.key for candidate in candidates]
        return SimpleNamespace(score=np.arange(len(candidates), dtype=np.float64))


def test_all_pick_from_one_half_and_only_the_control_knows_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spies: list[Spy] = []

    def create(name: str, **options: Any) -> Spy:
        assert name == "gbdt" and options == {"rng": 3, "hardware": CPU}
        spies.append(Spy())
        return spies[-1]

    monkeypatch.setattr(favourites.cost, "create", create)
    seconds = {c.key: 1.0 + i for i, c in enumerate(drawn())}
    path = journal(tmp_path / "a.jsonl", [record(c, seconds[c.key]) for c in drawn()])
    (pool,) = favourites.read([path])
    found = favourites.shares(pool, "gbdt", seed=3, most=4)
    assert list(found) == [
        favourites.CHANCE,
        favourites.NOTHING,
        favourites.PICKED,
        favourites.HALF,
    ]
    nothing, picked, control = spies
    half = nothing.asked
    assert len(half) == N // 2 and picked.asked == half and control.asked == half
    # Picked from the last on: the four that are wanted at once, or a batch, here all.
    four = half[:-5:-1]
    assert nothing.told == four and picked.told == half[::-1]
    assert set(control.told[: N // 2]) == set(seconds) - set(half)
    assert control.told[N // 2 :] == half[::-1]
    best = min(seconds[key] for key in half)
    expected = [best / min(seconds[key] for key in four[:n]) for n in (1, 2, 3, 4)]
    for who in (favourites.NOTHING, favourites.PICKED, favourites.HALF):
        assert found[who].tolist() == pytest.approx(expected)
    assert found[favourites.CHANCE][0] == pytest.approx(
        np.mean([best / seconds[key] for key in half])
    )


def test_a_page_of_a_real_model_has_a_row_for_each(tmp_path: Path) -> None:
    records = [record(c, 1e-3 * (1 + i)) for i, c in enumerate(drawn())]
    rows = favourites.figures(
        favourites.read([journal(tmp_path / "a.jsonl", records)]), "gbdt", [0, 1]
    )
    (row,) = rows
    assert (row["runs"], row["programs"], row["best_ms"]) == (1, N, pytest.approx(1.0))
    assert (
        list(row["taus"]) == [favourites.NOTHING]
        and row["machine"] == f"{CPU.name}, {CPU.threads} threads"
    )
    # More picks than there are programs find the best one.
    assert {shares[144]["mean"] for shares in row["shares"].values()} == {1.0}
    page = favourites.body(rows, "gbdt")
    assert page.count("| matmul ") == 2 + 4 and favourites.HALF in page


@pytest.mark.slow
def test_a_control_learns_from_the_searches_of_the_other_workloads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [
        journal(
            tmp_path / f"{name}.jsonl",
            [record(c, 1e-3 * (1 + i)) for i, c in enumerate(drawn(name))],
            name,
        )
        for name in ("matmul", "softmax")
    ]
    learned: list[list[str]] = []
    taught_by = favourites.taught_by

    def listening(pools: list[favourites.Pool]) -> Any:
        learned.append([pool.workload.name for pool in pools])
        return taught_by(pools)

    monkeypatch.setattr(favourites, "taught_by", listening)
    rows = favourites.figures(favourites.read(paths), "gbdt", [0])
    assert learned == [["softmax"], ["matmul"]]
    assert all(favourites.OTHERS in row["taus"] for row in rows)
    assert favourites.body(rows, "gbdt").count(favourites.OTHERS) == 2 + 1
    learned.clear()
    rows = favourites.figures(favourites.read(paths), "random", [0])
    assert not learned and all(favourites.OTHERS not in row["shares"] for row in rows)


def test_rankers_from_files_pick_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = {c.key: 1e-3 * (1 + i) for i, c in enumerate(drawn())}

    class Knowing(Spy):
        """Scores as it was made to, by a factor of the seconds."""

        def __init__(self, sign: float) -> None:
            super().__init__()
            self.sign = sign

        def predict(self, candidates: list[Candidate]) -> Any:
            return SimpleNamespace(score=self.sign * np.array([seconds[c.key] for c in candidates]))

    files = {"good.npz": -1.0, str(tmp_path / "bad.npz"): 1.0}
    monkeypatch.setattr(favourites.rankers, "load_for_run", files.__getitem__)
    monkeypatch.setattr(favourites.cost, "create", lambda name, *, ranker=0.0, **_: Knowing(ranker))
    path = journal(tmp_path / "a.jsonl", [record(c, seconds[c.key]) for c in drawn()])
    favourites.main([str(path), "--seeds", "1", "--ranker", "mine=good.npz",
                     "--ranker", str(tmp_path / "bad.npz")])  # fmt: skip
    shown = [line for line in capsys.readouterr().out.splitlines() if "| ranker" in line]
    for name, tau in (("mine", "1.00"), ("bad", "-1.00")):
        order, picked = (line for line in shown if f"ranker {name}, told of nothing" in line)
        assert order.split("|")[-2].strip() == tau
        first = float(picked.split("|")[3].split()[0])
        assert (first == 1) == (name == "mine")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--ranker", "a/r.npz", "--ranker", "b/r.npz"], "all different"),
        (["--ranker", "r="], "NAME=FILE.npz"),
        (["--ranker", "=r.npz"], "NAME=FILE.npz"),
        (["--ranker", "r.npz", "--cost-model", "random"], "leave one of them out"),
    ],
)
def test_rankers_that_cannot_be_told_apart_or_used_are_refused(
    given: list[str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInputError, match=message):
        favourites.main([str(tmp_path), *given])


def test_a_file_may_have_an_equals_sign_in_its_name(tmp_path: Path) -> None:
    assert favourites._ranker("x=runs/lr=0.1.npz") == ("x", "runs/lr=0.1.npz")
    (tmp_path / "lr=0.1.npz").touch()
    assert favourites._ranker(f"{tmp_path}/lr=0.1.npz") == ("lr=0.1", f"{tmp_path}/lr=0.1.npz")
