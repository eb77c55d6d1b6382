"""Rollouts of tree search that the world model scores: no program is made for them."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from foretune import cost, search
from foretune.records import Record
from foretune.space import Candidate, Space
from tests.search.test_proposers import CPU
from tests.tuning.support import matmul, ok

ROLLOUTS = 2


def alive(strategy):
    return [node for node in strategy.tree.nodes.values() if not node.failed]


@pytest.fixture(scope="module")
def made():
    """Keys of the candidates whose programs were made."""
    keys, schedule = [], Candidate.schedule

    def counted(candidate):
        keys.append(candidate.key)
        return schedule(candidate)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Candidate, "schedule", counted)
        yield keys


@pytest.fixture(scope="module")
def searched(made):
    """A search of some batches with the world model of the package, and what it asked for."""
    space = Space.generate(matmul(64), CPU)
    made.clear()
    model = cost.create("world", rng=0, hardware=CPU)
    strategy = search.create(
        "mcts:random", space, model, 0, rollout=2, rollouts=ROLLOUTS, expansions=2
    )
    asked = []
    for _ in range(3):
        batch = strategy.ask(4)
        asked += batch
        records = [Record.of(candidate, ok(candidate), "mcts", {}) for candidate in batch]
        model.update(records)
        strategy.tell(records)
    strategy._rescore()
    return strategy, asked


def test_every_program_has_rollouts_that_end_in_legal_candidates(searched):
    strategy, asked = searched
    assert len(asked) == 12
    for node in alive(strategy):
        assert len(node.ends) == len(node.end_scores) == ROLLOUTS
        for end in node.ends:
            assert end.sketch == node.candidate.sketch
            assert strategy.space.candidate(end.to_json()) == end
    ends = {end.key for node in alive(strategy) for end in node.ends}
    assert len(ends) > len(strategy.tree.nodes), "they lead elsewhere"


def test_ends_have_the_scores_that_the_model_gives_them(searched):
    strategy, _ = searched
    nodes = alive(strategy)
    expected = strategy.model.predict([end for node in nodes for end in node.ends]).score
    found = [score for node in nodes for score in node.end_scores]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert len(np.unique(found)) > ROLLOUTS


def test_rollouts_change_what_programs_are_worth(searched):
    strategy, _ = searched
    tree, nodes = strategy.tree, alive(strategy)
    scores = [node.end_scores for node in nodes]

    def totals():
        tree.revalue()
        return [node.total for node in (tree.root, *nodes)]

    before = totals()
    for node in nodes:
        node.end_scores = []
    without = totals()
    for node, found in zip(nodes, scores, strict=True):
        node.end_scores = found
    assert totals() == before
    changed = np.abs(np.subtract(before, without)) > 1e-6
    assert changed.mean() > 0.5 and changed[0], "up to the root"


def test_no_program_is_made_to_score_one(searched, made):
    strategy, asked = searched
    sampler = strategy.fresh
    about_to_be_measured = {candidate.key for candidate in asked}
    assert about_to_be_measured <= set(made)
    assert set(made) <= about_to_be_measured | sampler.illegal | sampler.repeated
    ends = {end.key for node in alive(strategy) for end in node.ends}
    assert len(ends - set(made)) > len(ends) / 2
