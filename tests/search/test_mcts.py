"""Tree search: how the tree grows, what it terminates on, what it is worth."""

from __future__ import annotations

import functools
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune import _tvm, search
from foretune.cost import create as create_model
from foretune.dataset import Group, Program
from foretune.errors import BadInputError, RecordError
from foretune.records import Trial
from foretune.search import Strategy
from foretune.search._choosing import difference
from foretune.search.mcts import Mcts
from foretune.search.proposers.random import RandomProposer
from foretune.space import Space
from foretune.testing import SyntheticMeasurer, SyntheticSpace, strategies, synthetic_trial
from foretune.testing.strategies import OracleModel, UnreadyModel
from foretune.tuning import resolve_names
from foretune_research.tables import MeasuredSpace, every_candidate
from tests.search.opened import opened
from tests.search.test_tree import is_whole, spare
from tests.tuning.support import HARDWARE, ok, row_sums

SEEDS = range(10)
Opened = opened(Mcts)


def told(candidates):
    return [synthetic_trial(c, m) for c, m in SyntheticMeasurer().measure(candidates)]


def mcts(space, model=None, seed=0, make=Mcts, **options):
    options = {"proposer": "random", **options}
    return make(space, model or OracleModel(), np.random.default_rng(seed), **options)


@pytest.mark.parametrize("branching", [1, 2, 4])
def test_no_node_has_more_children_than_allowed(branching):
    strategy = mcts(SyntheticSpace(seed=1), branching=branching)
    strategies.run(strategy, 48, 8)
    counts = [len(node.children) for node in strategy.tree.nodes.values()]
    assert max(counts) == branching


def test_with_progressive_widening_nodes_that_are_visited_more_have_more_children():
    strategy = mcts(SyntheticSpace(seed=1), branching=0)
    strategies.run(strategy, 96, 8)
    nodes = list(strategy.tree.nodes.values())
    counts = [(n.visits, len([c for c in n.children if not c.failed])) for n in nodes]
    assert max(count for _, count in counts) > 2
    assert all(count <= 1 + 0.5 * math.log2(visits + 1) for visits, count in counts)


def test_no_decisions_are_in_the_tree_twice_and_parents_fit():
    strategy = mcts(SyntheticSpace(seed=2, illegal=0.3, failing=0.2), make=Opened, nodes=64)
    for _ in range(8):
        step(strategy)
        assert is_whole(strategy.tree)
        assert all(key == node.candidate.key for key, node in strategy.tree.nodes.items())


class Counting(OracleModel):
    def __init__(self):
        self.scored = 0

    def draft(self, candidates):
        return super().predict(candidates).score

    def predict(self, candidates):
        self.scored += len(candidates)
        return super().predict(candidates)


class Learning(OracleModel):
    """Changes its mind with every update."""

    sign = 1.0

    def update(self, records):
        self.sign = -self.sign

    def predict(self, candidates):
        found = super().predict(candidates)
        return type(found)(self.sign * found.score, found.spread)


def test_all_nodes_are_scored_again_when_the_model_has_learned():
    strategy = mcts(SyntheticSpace(seed=4), Learning(), warmup=1)
    strategies.run(strategy, 16, 8)
    strategy.ask(8)
    for node in strategy.tree.nodes.values():
        expected = strategy.model.sign * -np.log(node.candidate.seconds)
        assert node.score == pytest.approx(expected)


def test_what_another_task_taught_the_model_counts_too():
    model = Learning()
    mine, other = (mcts(SyntheticSpace(seed=seed), model, warmup=1) for seed in (4, 5))
    strategies.run(mine, 16, 8)
    mine.ask(8)
    strategies.run(other, 8, 8)
    mine.ask(8)
    for node in mine.tree.nodes.values():
        assert node.score == pytest.approx(model.sign * -np.log(node.candidate.seconds))


def test_the_model_and_not_its_draft_chooses_among_proposals():
    class Misled(OracleModel):
        """Whose draft likes what is slow."""

        def draft(self, candidates):
            return -super().predict(candidates).score

    space, seen = SyntheticSpace(seed=3), []

    class Listening(RandomProposer):
        def judged(self, situation, children):
            seen.append((situation.program.candidate.key, children))

    strategy = mcts(space, Misled(), warmup=1, alternatives=6)
    strategy.proposer = Listening(space, strategy.rng)
    strategy.tell(told(space.sample(np.random.default_rng(1), 1)))
    strategy.ask(4)
    assert max(len(children) for _, children in seen) == 6, "all of them are judged"
    best = {}
    for parent, children in seen:
        known = [(child.score, child.candidate.key) for child in children]
        assert all(score is not None for score, _ in known)
        best.setdefault(parent, set()).add(max(known)[1])
    kept = [n for n in strategy.tree.nodes.values() if n.parent is not strategy.tree.root]
    first = {id(n.parent): n for n in reversed(kept)}
    chosen = [n.candidate.key in best[n.parent.candidate.key] for n in first.values()]
    assert sum(chosen) > 0.8 * len(chosen), "but for what two programs have in common"


def test_illegal_proposals_are_no_nodes():
    space = SyntheticSpace(seed=2, illegal=0.4)
    strategy = mcts(space, Counting(), warmup=1)
    strategies.run(strategy, 24, 8)
    grown = [n for n in strategy.tree.nodes.values() if n.parent is not strategy.tree.root]
    assert grown and all(node.candidate.legal for node in grown)


def test_dead_ends_are_not_scored_again():
    strategy = mcts(SyntheticSpace(seed=2, illegal=0.3, failing=0.3), Counting(), warmup=1)
    strategies.run(strategy, 48, 8)
    nodes = strategy.tree.nodes.values()
    alive = sum(not node.failed for node in nodes)
    strategy.model.scored = 0
    strategy._rescore()
    assert strategy.model.scored == alive < len(nodes)


def test_predictions_keep_their_places_where_much_was_measured():
    strategy = mcts(SyntheticSpace(seed=5), make=Opened, nodes=24)
    strategies.run(strategy, 96, 8)
    strategy._rescore()
    measured = [node for node in strategy.tree.nodes.values() if node.seconds is not None]
    assert len(measured) == 96
    assert len(spare(strategy.tree)) == 24


def test_what_was_measured_and_what_led_there_stays():
    strategy = mcts(SyntheticSpace(seed=5), make=Opened, nodes=1)
    strategies.run(strategy, 16, 8)
    measured = [node for node in strategy.tree.nodes.values() if node.seconds is not None]
    needed = {id(each) for node in measured for each in (node, *node.ancestors())}
    strategy._rescore()
    left = {id(node) for node in strategy.tree.nodes.values()}
    assert needed < left and len(left - needed) == 1


def test_what_an_earlier_run_measured_is_in_the_tree_again():
    space = SyntheticSpace(seed=1, failing=0.2)
    first = mcts(space)
    records = [record for _ in range(4) for record in step(first)]
    again = mcts(SyntheticSpace(seed=1, failing=0.2), seed=1)
    again.tell(records)
    nodes = again.tree.nodes
    assert set(nodes) == {record.candidate_key for record in records}
    for record in records:
        node = nodes[record.candidate_key]
        assert node.seconds == record.measurement.best_s
        assert node.failed == (record.measurement.best_s is None)
    edits = [node for node in nodes.values() if node.parent is not again.tree.root]
    assert len(edits) > len(nodes) / 4
    for node in edits:
        assert difference(node.candidate, node.parent.candidate) <= 2
        assert node.parent.seconds is not None
    alive = [sum(not child.failed for child in node.children) for node in nodes.values()]
    assert max(alive) <= again.config.branching
    proposed = {record.candidate_key for _ in range(4) for record in step(again)}
    assert len(proposed) == 32 and not proposed & set(key_of(records))
    assert any(node.parent.candidate and node.parent.candidate.key in set(key_of(records))
               for node in again.tree.nodes.values() if node.candidate.key in proposed)  # fmt: skip


def step(strategy, n=8):
    """One batch, measured and told; its records."""
    records = told(strategy.ask(n))
    strategy.tell(records)
    return records


def key_of(records):
    return [record.candidate_key for record in records]


def test_failed_measurements_are_never_proposed_again():
    space = SyntheticSpace(tiles=((12, 2),), choices=(2,), sketches=2, seed=6, failing=0.6)
    strategy = mcts(space)
    proposed = [c.key for c, _ in strategies.run(strategy, 500, 3)]
    assert len(proposed) == len(set(proposed)) == space.size
    assert strategy.ask(4) == [] and strategy.ask(1) == []


def test_rounds_do_not_repeat_the_random_stream(monkeypatch):
    options = {"epsilon": 1.0, "roots": 1, "fresh": 1.0, "pool": 8}
    strategy = mcts(SyntheticSpace(seed=7), UnreadyModel(), make=Opened, **options)
    drawn = []
    sample = strategy.space.sample

    def spied(rng, n):
        found = sample(rng, n)
        drawn[-1].extend(candidate.key for candidate in found)
        return found

    monkeypatch.setattr(strategy.space, "sample", spied)
    for _ in range(3):
        drawn.append([])
        strategy.tell(told(strategy.ask(4)))
    starts = {tuple(keys[:8]) for keys in drawn}
    assert len(starts) == 3 and all(len(start) == 8 for start in starts)


def test_batches_of_one_expand_and_have_fresh_roots_now_and_then():
    strategy = mcts(SyntheticSpace(seed=8), expansions=1, roots=1, epsilon=0.0)
    for _ in range(24):
        strategy.tell(told(strategy.ask(1)))
    tree = strategy.tree
    assert strategy.expanded == 24
    assert 4 < len(tree.root.children) < 24
    assert any(node.parent is not tree.root for node in tree.nodes.values())


def test_a_resumed_tree_widens_with_what_is_below(monkeypatch):
    space = SyntheticSpace(seed=9, tiles=((64, 2),), choices=(), sketches=1)
    records = told(space.sample(np.random.default_rng(0), 7))
    strategy = mcts(space, branching=0)
    strategy.tell(records)
    children = [len(node.children) for node in strategy.tree.nodes.values()]
    assert max(children) > 1
    counted = {key: node.visits for key, node in strategy.tree.nodes.items()}
    strategy.tree.revalue()
    assert counted == {key: node.visits for key, node in strategy.tree.nodes.items()}


def test_nothing_random_is_shared_with_the_process():
    np.random.seed(0)
    random.seed(0)
    before = np.random.get_state()[1].tolist(), random.getstate()
    strategies.run(mcts(SyntheticSpace(seed=8)), 16)
    assert (np.random.get_state()[1].tolist(), random.getstate()) == before


def geometric_mean(values):
    return float(np.exp(np.mean(np.log(values))))


@functools.cache
def average(name, model_name, **options):
    found = []
    for seed in SEEDS:
        space = SyntheticSpace(seed=seed, illegal=0.1, failing=0.05)
        model = OracleModel() if model_name == "oracle" else create_model(model_name, rng=0)
        options = {"proposer": "random"} if name == "mcts" else {}
        strategy = search.create(name, space, model, np.random.default_rng(seed), **options)
        history = strategies.run(strategy, 64, 16, SyntheticMeasurer(0.05, seed))
        best = min(c.seconds for c, s in history if math.isfinite(s))
        found.append(best / space.optimum.seconds)
    return geometric_mean(found)


def test_without_any_guidance_it_is_not_worse_than_random_search():
    assert average("mcts", "random") < 1.05 * average("random", "random")


@pytest.mark.slow
def test_a_good_model_makes_it_much_better():
    assert average("mcts", "oracle") < 0.8 * average("mcts", "random")


@settings(max_examples=6, deadline=None)
@given(batch=st.integers(1, 9), seed=st.integers(0, 9))
def test_any_batch_size_gives_distinct_candidates(batch, seed):
    proposed = [
        c.key for c, _ in strategies.run(mcts(SyntheticSpace(seed=9), seed=seed), 27, batch)
    ]
    assert len(set(proposed)) == 27


@pytest.mark.parametrize(
    "options, message",
    [
        ({"branching": -1}, "branching >= 0"),
        ({"epsilon": 2}, "epsilon <= 1"),
        ({"expansions": 0}, "expansions >= 1"),
        ({"proposer": "nobody"}, "unknown proposer 'nobody'"),
        ({"proposer": "llm"}, "needs a language model"),
        ({"exploration": math.nan}, "exploration >= 0, and finite` must hold"),
        ({"nodes": 9}, "has an option 'nodes'"),
        ({"branching": "many"}, "branching must be int, but got 'many'"),
        ({"branching": True}, "branching must be int"),
        ({"proposer": 3}, "proposer must be str"),
        ({"branchig": 2}, "has an option 'branchig'"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(BadInputError, match=message):
        mcts(SyntheticSpace(), **options)


class Plain(Strategy):
    """A plug-in that says nothing of its options."""

    def __init__(self, space, model, rng, *, depth=3):
        super().__init__(space, model, rng)

    def ask(self, n):
        return []

    def tell(self, records):
        pass


@pytest.fixture
def plain():
    search.register("plain", Plain)
    yield
    search.unregister("plain")


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize(
    "name, options, message",
    [
        ("nobody", {}, "unknown strategy 'nobody'"),
        ("mcts", {"branching": -1}, "branching >= 0"),
        ("mcts", {"branching": "many"}, "branching must be int"),
        ("mcts:branching=many", {}, "branching must be int"),
        ("mcts", {"proposer": "nobody"}, "unknown proposer 'nobody'"),
        ("mcts:nobody", {}, "unknown proposer 'nobody'"),
        ("mcts", {"branchig": 2}, "has an option 'branchig'"),
        ("mcts", {"space": 2}, "has an option 'space'"),
        ("mcts:llm", {"rng": 2}, "has an option 'rng'"),
        ("mcts:llm", {"history": 9}, "history <= 3"),
        ("mcts:llm", {"history": "9"}, "history must be int"),
        ("mcts:llm", {"otherwise": "nobody"}, "unknown proposer 'nobody'"),
        ("mcts:llm", {"otherwize": "random"}, "llm has no option 'otherwize'"),
        ("mcts:learned", {"policy": 3}, "policy must be a file"),
        ("evolutionary", {"warmup": "many"}, "warmup must be int"),
        ("evolutionary", {"warmup": 0}, "warmup >= 1"),
        ("evolutionary", {"pool": 2}, "evolutionary has no option 'pool'"),
        ("evolutionary", {"history": 2}, "evolutionary has no option 'history'"),
        ("evolutionary", {"sampler": 2}, "evolutionary has no option 'sampler'"),
        ("evolutionary:llm", {"style": "long"}, "unknown style of llm 'long'"),
        ("random", {"warmup": 2}, "random has no option 'warmup': it has none"),
        ("gradient", {"objectives": 2}, "gradient has no option 'objectives'"),
        ("gradient", {"steps": 0.5}, "steps must be int"),
        ("plain", {"width": 2}, "Plain has no option 'width': choose from depth"),
        ("mcts:branching=4", {"branching": 2}, "'branching' is 4 in .* and 2 beside it"),
        ("mcts:heuristic", {"proposer": "random"}, "'proposer' is 'heuristic'"),
        ("mcts:heuristic:random", {}, "gives 'proposer' twice"),
    ],
)
def test_options_are_refused_before_there_is_a_space(name, options, message):
    with pytest.raises(BadInputError, match=message):
        search.check(name, options)


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize(
    "name, options",
    [
        ("mcts", {}),
        ("mcts:heuristic:branching=4", {"branching": 4, "epsilon": 0}),
        ("mcts", {"proposer": "llm", "history": 3}),
        ("mcts:llm:history=3", {"style": "full"}),
        ("evolutionary", {"warmup": 2}),
        ("evolutionary:llm", {"asked": 2}),
        ("gradient", {"steps": 2}),
        ("plain:depth=4", {}),
    ],
)
def test_options_that_fit_are_not(name, options):
    search.check(name, options)


def test_a_policy_that_is_none_is_refused_before_there_is_a_space(tmp_path):
    (tmp_path / "policy.npz").write_bytes(b"no policy")
    for name in ("policy.npz", "gone.npz"):
        with pytest.raises(RecordError, match="is not a policy"):
            search.check("mcts:learned", {"policy": str(tmp_path / name)})


def test_options_may_stand_in_the_name():
    made = search.create(
        "mcts:heuristic:branching=4:epsilon=0.5", SyntheticSpace(), OracleModel(), 0
    )
    assert (made.config.proposer, made.config.branching, made.config.epsilon) == (
        "heuristic",
        4,
        0.5,
    )
    assert search.split_name("evolutionary") == ("evolutionary", {})
    assert resolve_names("mcts:random", "default")[0] == "mcts:random"
    with pytest.raises(BadInputError, match="unknown proposer 'nobody'"):
        resolve_names("mcts:nobody", "default")
    with pytest.raises(BadInputError, match="random has no option 'branching'"):
        search.create("random:branching=4", SyntheticSpace(), OracleModel(), 0)


def test_every_program_of_a_real_space_is_proposed_once_and_then_the_search_ends():
    space = Space.generate(row_sums(64, 7), HARDWARE)
    candidates = list(every_candidate(space))
    seconds = np.array([1e-3 * (1 + int(c.key, 16) % 97) for c in candidates])
    programs = [Program(candidate) for candidate in candidates]
    table = MeasuredSpace(
        Group(space.workload.key, "row_sums", "reduction", HARDWARE.key, programs, seconds)
    )
    model = create_model("random", rng=0)
    strategy = search.create("mcts:heuristic", table, model, 0, expansions=1)
    proposed = []
    while asked := strategy.ask(32):
        proposed += [_tvm.structural_hash(c.schedule().mod) for c in asked]
        records = [table.trial(c) for c in asked]
        model.update(records)
        strategy.tell(records)
    everything = {_tvm.structural_hash(c.schedule().mod) for c in candidates}
    assert sorted(proposed) == sorted(everything)


def test_no_program_of_a_real_space_is_measured_twice_and_its_twins_leave_the_tree():
    space = Space.generate(row_sums(3, 1), HARDWARE)
    strategy = search.create("mcts:random", space, create_model("random", rng=0), 0, expansions=2)
    asked, programs = [], []
    while batch := strategy.ask(16):
        # Nodes are told apart by their decisions: that two of them are one program is found where
        # programs are made, among what is about to be measured.
        assert is_whole(strategy.tree)
        asked += batch
        programs += [_tvm.structural_hash(c.schedule().mod) for c in batch]
        strategy.tell([Trial.of(c, ok(c), "mcts", {}) for c in batch])
    assert len({c.key for c in asked}) == len(asked)
    assert len(set(programs)) == len(programs) < space.size
    repeated = strategy.fresh.repeated
    assert repeated and not repeated & set(strategy.tree.nodes)
