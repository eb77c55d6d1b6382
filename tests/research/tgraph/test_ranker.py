"""Attention across schedules: what a score depends on, what is learned, refused and read back."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune.cost import rankers
from foretune.dataset import Group, Program
from foretune.errors import BadInputError, VersionMismatchError
from foretune.features import action_features
from foretune.testing import rankers as suite
from foretune.testing.rankers import Subject
from foretune_research.tgraph.ranker import TGraphRanker
from tests.cost import neural_support as support
from tests.space.programs import space

torch = pytest.importorskip("torch")

SMALL = {
    "width": 64,
    "anchors": 3,
    "epochs": 60,
    "batch": 64,
    "list_size": 32,
    "learning_rate": 5e-3,
    "dropout": 0.0,
}
CPU = {"threads": 1, "device": "cpu"}
SUBJECT = Subject(
    functools.partial(TGraphRanker, **SMALL, **CPU), functools.partial(TGraphRanker.load, **CPU)
)


@pytest.mark.parametrize("check", suite.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.slow
def test_contract(check):
    check(SUBJECT)


@functools.lru_cache(maxsize=4)
def fitted(**options):
    """A ranker of softmax schedules: many lanes are slow, whatever else they do."""
    programs = some(40, seed=0)
    group = Group("softmax", "softmax", "softmax", "cpu", programs, seconds_of(programs))
    ranker = TGraphRanker(**{**SMALL, "epochs": 20, **CPU, **options})
    ranker.fit([group])
    return ranker


def seconds_of(programs):
    """Of each program a number that its decisions tell."""
    rows = action_features(programs).astype(np.float64)
    varying = rows[:, rows.std(axis=0) > 0]
    return np.exp2(varying[:, : varying.shape[1] // 2].mean(axis=1))


def some(n, seed=1):
    drawn = space("softmax").sample(np.random.default_rng(seed), n)
    return [Program(candidate=candidate) for candidate in drawn]


def test_it_is_a_ranker_by_name_that_reads_no_program():
    ranker = rankers.create("tgraph", anchors=2)
    assert isinstance(ranker, TGraphRanker) and ranker.config.anchors == 2
    assert ranker.needs.decisions_only


@settings(deadline=None, max_examples=20)
@given(st.permutations(range(12)), st.integers(1, 12))
def test_a_score_depends_on_its_candidate_alone(order, kept):
    programs = some(12)
    whole = fitted().score(programs, None)
    chosen = [*order[:kept], order[0]]
    part = fitted().score([programs[at] for at in chosen], None)
    np.testing.assert_allclose(part, whole[chosen], rtol=1e-4, atol=1e-5)
    assert len(set(np.round(whole, 4))) > 6


def test_attention_across_candidates_is_part_of_the_score():
    programs = some(12)
    with_anchors, without = fitted(), fitted(anchors=0)
    assert with_anchors.config.anchors and not without.config.anchors
    network = with_anchors._networks[0]
    state = {name: weight for name, weight in network.named_parameters() if "across" in name}
    assert state, "temperatures are learned"
    before = with_anchors.score(programs, None)
    with torch.no_grad():
        for weight in state.values():
            weight.add_(3.0)
        changed = with_anchors.score(programs, None)
        for weight in state.values():
            weight.sub_(3.0)
    assert np.abs(changed - before).max() > 1e-3
    assert not [name for name, _ in without._networks[0].named_parameters() if "across" in name]


def test_anchors_are_of_the_candidates_own_sketch_and_always_the_same():
    programs = [*some(3), *(Program(candidate=c) for c in space("matmul").sample(
        np.random.default_rng(0), 3))]  # fmt: skip
    ranker = TGraphRanker(anchors=4, **CPU)
    own = action_features(programs)
    found = ranker._anchors(programs, own, None)
    again = ranker._anchors(programs[::-1], own[::-1], None)[::-1]
    np.testing.assert_array_equal(found, again)
    names = [each.candidate.sketch.key for each in programs]
    for i in range(6):
        for j in range(6):
            if names[i] == names[j]:
                np.testing.assert_array_equal(found[i], found[j])
    assert not np.array_equal(found[0], found[3])


def test_logged_programs_are_compared_with_others_of_the_set():
    group = support.groups(1, n=20)[0]
    ranker = TGraphRanker(**SMALL, **CPU)
    ranker.fit(support.groups(4))
    scores = ranker.score(group.programs, None)
    assert np.isfinite(scores).all() and scores.std() > 0
    order = np.random.default_rng(0).permutation(20)
    shuffled = ranker.score([group.programs[at] for at in order], None)
    np.testing.assert_allclose(shuffled, scores[order], rtol=1e-4, atol=1e-5)
    assert np.isfinite(ranker.score(group.programs[:2], None)).all(), "fewer than there are anchors"


def test_it_learns_the_order_of_logged_programs():
    ranker = TGraphRanker(**SMALL, **CPU)
    ranker.fit(support.groups(10))
    assert support.pair_accuracy(ranker, support.groups(6, seed=2)) > 0.75


def test_what_only_names_a_workload_is_not_looked_at():
    ranker = fitted()
    kept = ranker._trained.rows.factor > 0
    rows = action_features(some(40, seed=0))
    assert not kept[rows.std(axis=0) == 0].any() and kept.any()


def test_a_file_of_other_features_is_refused(tmp_path, monkeypatch):
    fitted().save(tmp_path / "t.npz")
    read = rankers.load(tmp_path / "t.npz", **CPU)
    programs = some(5)
    np.testing.assert_allclose(
        read.score(programs, None), fitted().score(programs, None), rtol=1e-3, atol=1e-3
    )
    monkeypatch.setattr("foretune.features.ACTION_FEATURE_VERSION", "other")
    with pytest.raises(VersionMismatchError):
        rankers.load(tmp_path / "t.npz", **CPU)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"width": 20}, "width % 16 == 0"),
        ({"depth": 0}, "depth >= 1"),
        ({"anchors": -1}, "anchors >= 0"),
        ({"anchors": 1.5}, "anchors must be int"),
        ({"nodes": 3}, "nodes"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, told):
    with pytest.raises(BadInputError, match=told):
        TGraphRanker(**options)
