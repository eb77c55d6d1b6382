"""Tree search with rollouts: their length and number, what they count for, no program is made."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from foretune import cost, search
from foretune.errors import BadInputError
from foretune.records import Trial
from foretune.search.proposers import Proposer
from foretune.space import Candidate, Space
from foretune.testing import SyntheticSpace, strategies
from foretune.testing.strategies import OracleModel
from foretune_research.rollouts import MctsRollouts, RolledTree
from tests.search.test_mcts import Counting, mcts, told
from tests.search.test_proposers import CPU
from tests.search.test_tree import Named
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
        "mcts-rollouts:random", space, model, 0, rollout=2, rollouts=ROLLOUTS, expansions=2
    )
    asked = []
    for _ in range(3):
        batch = strategy.ask(4)
        asked += batch
        records = [Trial.of(candidate, ok(candidate), "mcts", {}) for candidate in batch]
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


@pytest.mark.parametrize("rollout, rollouts", [(0, 1), (1, 1), (3, 2)])
def test_rollouts_have_the_length_and_number_asked_for(rollout, rollouts):
    space, lengths = SyntheticSpace(seed=3), []
    mutate = space.mutate

    def counted(candidate, rng):
        lengths.append(candidate.key)
        return mutate(candidate, rng)

    class Still(Proposer):
        def propose(self, situations):
            return [[] for _ in situations]

    strategy = mcts(
        space, Counting(), make=MctsRollouts, rollout=rollout, rollouts=rollouts, warmup=1
    )
    strategy.proposer = Still(space, strategy.rng)
    strategy.tell(told(space.sample(np.random.default_rng(1), 1)))
    space.mutate = counted
    strategy.ask(4)
    roots = len(strategy.tree.nodes)
    assert len(lengths) == roots * rollout * rollouts
    ends = rollouts if rollout else 0
    assert all(len(node.ends) == ends for node in strategy.tree.nodes.values())


@pytest.mark.parametrize("check", strategies.CHECKS, ids=lambda check: check.__name__)
def test_contract(check):
    check(rolling)


def rolling(space, model, rng):
    """With random edits, of which there are enough in a space without a compiler."""
    return MctsRollouts(space, model, rng, proposer="random", rollout=1)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"rollout": -1}, "rollout >= 0"),
        ({"rollouts": 0}, "rollouts >= 1"),
        ({"expansions": 0}, "expansions >= 1"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(BadInputError, match=message):
        search.create("mcts-rollouts", SyntheticSpace(), OracleModel(), 0, **options)


def test_a_program_counts_with_the_mean_of_itself_and_the_ends_of_its_rollouts():
    tree = RolledTree(2, 1.0, 3)
    low, high, node = (tree.add(Named(name)) for name in ("low", "high", "node"))
    low.score, high.score, node.score = 0.0, 4.0, 1.0
    tree.revalue()
    assert node.total == pytest.approx(1 / 4)
    node.end_scores = [3.0, 2.0]
    tree.revalue()
    assert node.total == pytest.approx((1 / 4 + 3 / 4 + 2 / 4) / 3) and node.visits == 1
    assert tree.root.total == pytest.approx(1 + node.total)
    node.seconds = 2.0**-4
    tree.revalue()
    assert node.total == pytest.approx(1 / 2), "ends count beside what was measured, too"


def test_ends_of_rollouts_do_not_stretch_the_scale():
    tree = RolledTree(2, 1.0, 3)
    low, high, node = (tree.add(Named(name)) for name in ("low", "high", "node"))
    low.score, high.score, node.score = 0.0, 4.0, 2.0
    node.end_scores = [99.0, -99.0]
    tree.revalue()
    assert [n.total for n in (low, high, node)] == pytest.approx([0, 1, (0.5 + 1 + 0) / 3])


def test_ends_of_rollouts_from_a_dead_end_do_not_count():
    tree = RolledTree(2, 1.0, 3)
    first, second = (tree.add(Named(name)) for name in ("first", "second"))
    first.score, second.score, second.end_scores = 0.0, 1.0, [9.0]
    tree.close("second")
    tree.revalue()
    assert second.total == 0
