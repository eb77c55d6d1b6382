"""Joined rankers: shares learned on workloads that no member has seen, corrected in a run."""

from __future__ import annotations

import functools
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune import cost
from foretune.cost import Ranker, shipped
from foretune.cost._prior import Measured
from foretune.cost.gbdt_ranker import GbdtActionRanker, GbdtRanker
from foretune.cost.joined import JoinedRanker, Shares
from foretune.cost.joined_model import JoinedModel, JoinedPrior
from foretune.errors import BadInputError, RecordError
from foretune.measure import Measurement, Status
from foretune.records import Trial
from foretune.space import Candidate
from foretune.testing import rankers as suite
from foretune.testing.rankers import NEST_HARDWARE, Subject
from tests.cost.test_ranker import NEST, SMALL


class Nested(JoinedRanker):
    """The same for the suite's nests, which TVM does not make."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"members": "gbdt_actions,gbdt", "folds": 2, **options})

    def _untrained(self, name: str) -> Ranker:
        small = {**SMALL, "rounds": 60}
        if name == "gbdt":
            return GbdtRanker(seed=self.seed, **NEST, **small)
        return GbdtActionRanker(seed=self.seed, **small)

    @staticmethod
    def _family(group: Any) -> str:
        return str(group.workload)

    @staticmethod
    def _read(data: Any, path: Path) -> Ranker:
        file = path.with_name("member.npz")
        file.write_bytes(data.tobytes())
        with np.load(io.BytesIO(data.tobytes())) as held:
            reads = '"gbdt_actions"' not in str(held["meta"])
        return GbdtRanker.load(file, **NEST) if reads else GbdtActionRanker.load(file)


@pytest.mark.slow
@pytest.mark.parametrize("check", suite.CHECKS, ids=lambda check: check.__name__)
def test_a_joined_ranker_keeps_the_contract(check: Any) -> None:
    check(Subject(Nested, Nested.load))


@functools.cache
def trained() -> Nested:
    made = Nested(seed=0)
    made.fit(suite.training_groups(24))
    return made


def record(candidate: Any, seconds: float) -> Trial[Candidate]:
    return Trial.of(candidate, Measurement(Status.OK, (seconds, seconds), (True, True)), "", {})


def test_a_member_is_read_from_the_file_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "weights"
    folder.mkdir()
    trained().save(folder / "joined-llvm.npz")
    monkeypatch.setattr(shipped.importlib.resources, "files", lambda _: tmp_path)
    (group, *_) = suite.training_groups(1)
    read = shipped.shipped("default", "llvm")
    assert isinstance(read, GbdtActionRanker)
    whole = trained().members["gbdt_actions"]
    assert (read.score_group(group) == whole.score_group(group)).all()
    # A file of its own counts more; what nobody joined is not there.
    assert shipped.shipped("tlp", "llvm") is None and shipped.shipped("mlp", "llvm") is None
    assert shipped.shipped("default", "cuda") is None
    with pytest.raises(RecordError, match=r"joins gbdt_actions, gbdt, but 'mlp' is wanted"):
        JoinedRanker.load_member(folder / "joined-llvm.npz", "mlp")
    (folder / "default-llvm.npz").write_bytes(b"damaged")
    with pytest.raises(RecordError, match="default-llvm"):
        shipped.shipped("default", "llvm")


def test_options_stand_behind_the_name_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mine.npz"
    trained().save(file)
    # Members for the suite's nests are no members of a file.
    monkeypatch.setattr("foretune.cost.rankers.load_for_run", lambda _: trained())
    made = cost.create(f"{file}:keep=7:online=false", hardware=NEST_HARDWARE)
    assert isinstance(made, JoinedModel) and made.abilities.closer == 7
    with pytest.raises(BadInputError, match="has no option 'draft': choose from keep, online"):
        cost.check_name(f"{file}:draft=default")
    with pytest.raises(BadInputError, match="keep"):
        cost.check_name(f"{file}:keep=many")


class TestShares:
    def judged(
        self, shares: list[float], groups: int = 40, spread: float = 0.0
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        rng = np.random.default_rng(0)
        found = []
        for _ in range(groups):
            x = rng.normal(size=(40, len(shares)))
            own = np.array(shares) + spread * rng.normal(size=len(shares))
            found.append((x, x @ own + 0.3 * rng.normal(size=40)))
        return found

    def test_they_are_what_explains_the_speeds(self) -> None:
        found = Shares.fitted(self.judged([0.7, 0.2]))
        assert found.belief == pytest.approx((0.7, 0.2), abs=0.03)
        assert found.noise == pytest.approx(0.09, rel=0.1)
        assert max(found.doubts) < 0.01

    def test_none_is_negative(self) -> None:
        found = Shares.fitted(self.judged([0.8, -0.3]))
        assert found.belief[1] == 0.0 and found.belief[0] == pytest.approx(0.8, abs=0.05)

    def test_doubts_say_how_much_workloads_differ(self) -> None:
        found = Shares.fitted(self.judged([0.7, 0.5], groups=300, spread=0.3))
        assert found.doubts == pytest.approx((0.09, 0.09), rel=0.35)

    def test_a_run_moves_them_to_where_they_explain_it(self) -> None:
        shares = Shares((0.7, 0.3), (0.1, 0.1), 0.09)
        (x, y), *_ = self.judged([0.1, 0.9], groups=1)
        few, many = shares.corrected(x[:3], y[:3]), shares.corrected(x, y)
        assert shares.corrected(x[:1], y[:1]) == pytest.approx((0.7, 0.3))
        truth = np.array((0.1, 0.9))
        far = [float(np.abs(found - truth).sum()) for found in (np.array((0.7, 0.3)), few, many)]
        assert far[2] < far[1] < far[0] and far[2] < 0.2

    @given(
        n=st.integers(0, 12),
        seed=st.integers(0, 100),
        doubts=st.lists(st.floats(1e-3, 1.0), min_size=2, max_size=2),
    )
    @settings(max_examples=100, deadline=None)
    def test_whatever_is_measured_they_are_finite_and_not_negative(
        self, n: int, seed: int, doubts: list[float]
    ) -> None:
        rng = np.random.default_rng(seed)
        shares = Shares((0.5, 0.5), (doubts[0], doubts[1]), 0.2)
        found = shares.corrected(rng.normal(size=(n, 2)), rng.normal(size=n))
        assert found.shape == (2,) and (found >= 0).all() and np.isfinite(found).all()
        assert Shares.from_json(shares.to_json()) == shares


def test_members_are_joined_by_their_shares() -> None:
    ranker = trained()
    group = suite.unseen_groups(16)[0]
    opinions = ranker.opinions(group.programs, group.machine)
    scores = ranker.score(group.programs, group.machine)
    np.testing.assert_allclose(scores, opinions @ ranker.near.belief, equal_nan=True)
    far = ranker.opinions(group.programs, group.machine, members=ranker.far_members)
    known = ~np.isnan(scores)
    np.testing.assert_array_equal(far[known], opinions[known][:, :1])
    # The nests' times follow from what their stores do, which decisions alone say less well.
    assert ranker.near.belief[1] > ranker.near.belief[0]


def test_one_workload_leaves_the_shares_equal() -> None:
    made = Nested(seed=0)
    made.fit(suite.training_groups(24)[:1])
    assert made.near.belief == (0.5, 0.5) and made.far.belief == (1.0,)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"members": "mlp"}, "reads? decisions only"),
        ({"members": "mlp,gbdt_actions"}, "reads? decisions only"),
        ({"folds": 1}, "folds >= 2 must hold"),
        ({"mlp_actions": 3}, "mlp_actions must be"),
        ({"world": {}}, "world"),
        ({"members": "gbdt_actions,nobody"}, "unknown ranker"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        JoinedRanker(**options)


class TestInARun:
    def model(self, **options: Any) -> JoinedModel:
        return JoinedModel(
            rng=np.random.default_rng(0), hardware=NEST_HARDWARE, ranker=trained(), **options
        )

    def candidates(self, n: int, seed: int = 0) -> list[Any]:
        space = suite.nest_space((128, 96, 64))
        drawn = space.sample(np.random.default_rng(seed), 4 * n)
        ran = [c for c in drawn if suite.is_legal(c) and not np.isnan(suite.nest_seconds(c))]
        return ran[:n]

    def test_a_closer_look_is_what_is_said_from_then_on(self) -> None:
        model, some = self.model(), self.candidates(12)
        before = model.predict(some).score
        looked = model.look(some[:6])
        after = model.predict(some)
        np.testing.assert_allclose(after.score[:6], looked)
        assert np.abs(looked - before[:6]).max() > 1e-6
        assert not after.spread.any(), "before trees are grown"

    def test_what_few_have_seen_compares_with_what_all_have(self) -> None:
        model, some = self.model(), self.candidates(24)
        before = model.predict(some).score
        looked = model.look(some[:16])
        rest = model.predict(some).score[16:]
        # All are moved alike, by what those that were looked at have changed on average.
        np.testing.assert_allclose(rest - before[16:], (looked - before[:16]).mean())
        assert abs((looked - before[:16]).mean()) > 1e-6
        model.update([record(c, suite.nest_seconds(c) ** -1) for c in some[:12]])
        assert np.isfinite(model.predict(some).score).all()

    def test_it_does_so_with_shares_that_the_run_corrected(self) -> None:
        some = self.candidates(24)
        prior = JoinedPrior(trained(), 64)
        prior.look(some[:16])
        measured = Measured(some[0].workload.key)
        for each, opinion in zip(some[:12], prior.opinions(some[:12]), strict=True):
            measured.add(record(each, suite.nest_seconds(each) ** -1), opinion)
        rows = prior.opinions(some[:16])
        narrow = rows.copy()
        narrow[:, 1:] = np.nan
        near, far = (prior.weighed(each, measured, 1.0) for each in (rows, narrow))
        assert abs((near - far).mean()) < 1e-6 and np.abs(near - far).max() > 1e-3

    def test_illegal_programs_are_nan_once_they_were_looked_at(self) -> None:
        model = self.model()
        drawn = suite.nest_space((128, 96, 64)).sample(np.random.default_rng(3), 60)
        illegal = [not suite.is_legal(c) for c in drawn]
        assert any(illegal) and not np.isnan(model.predict(drawn).score).any()
        assert (np.isnan(model.look(drawn)) == illegal).all()
        assert not np.isnan(model.draft(drawn)).any()

    def test_measurements_correct_what_was_expected(self) -> None:
        model, plain = self.model(), self.model(online=False)
        told, asked = self.candidates(48), self.candidates(48, seed=1)

        def seconds(candidate: Any) -> float:
            return float(suite.nest_seconds(candidate) ** -1)

        for each in (model, plain):
            each.update([record(c, seconds(c)) for c in told])
            each.look(asked)
        truth = -np.log2([seconds(c) for c in asked])
        learned, kept = (np.corrcoef(m.predict(asked).score, truth)[0, 1] for m in (model, plain))
        assert kept < 0 < learned

    def test_fit_forgets_the_run(self) -> None:
        model, some = self.model(), self.candidates(24)
        before = model.look(some)
        model.update([record(c, suite.nest_seconds(c) ** -1) for c in some])
        assert np.abs(model.predict(some).score - before).max() > 1e-3
        model.fit([])
        np.testing.assert_allclose(model.predict(some).score, before)

    def test_it_wants_as_many_closer_looks_as_it_was_told(self) -> None:
        assert self.model(keep=5).abilities.closer == 5 and self.model(keep=0).abilities.closer == 0
        with pytest.raises(BadInputError, match="keep >= 0 must hold"):
            self.model(keep=-1)
