"""The tree of a tree search: rewards, what is passed up, the scale of scores, what is dropped."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune.search._tree import Tree, _line, uct


@given(
    rewards=st.lists(st.floats(0, 1), min_size=1, max_size=8),
    parent=st.integers(8, 99),
    c=st.floats(0, 2),
)
def test_more_visits_of_the_same_mean_leave_the_exploit_term_alone(rewards, parent, c):
    total, visits = sum(rewards), len(rewards)
    assert uct(2 * total, 2 * visits, parent, 0) == pytest.approx(uct(total, visits, parent, 0))
    if parent > 1 and c > 0:
        assert uct(2 * total, 2 * visits, parent, c) < uct(total, visits, parent, c) + 1e-12


class Named:
    """A candidate of which nothing but its key is looked at."""

    def __init__(self, key):
        self.key = key


def below(node):
    """A node and everything that came from it."""
    yield node
    for child in node.children:
        yield from below(child)


def is_whole(tree):
    """Whether children and parents agree, and nothing is in it twice."""
    held = [node for node in below(tree.root) if node is not tree.root]
    keys = [node.candidate.key for node in held]
    return sorted(keys) == sorted(tree.nodes) and all(
        tree.nodes[node.candidate.key] is node and node in node.parent.children for node in held
    )


def small_tree(levels, branching=2):
    """Children of one node, with measured levels (minus log2 seconds)."""
    tree = Tree(branching, math.sqrt(2), 3)
    parent = tree.add(Named("parent"))
    parent.seconds = 1.0
    nodes = []
    for i, level in enumerate(levels):
        node = tree.add(Named(str(i)), parent)
        node.seconds = 2.0**-level
        nodes.append(node)
    tree.revalue()
    return tree, nodes


def test_rewards_are_scaled_within_the_tree_whatever_the_unit():
    tree, (slow, middle, fast) = small_tree([-3, 1, 5])
    assert [n.total for n in (slow, middle, fast)] == [0, 0.5, 1]
    assert tree.root.visits == 5
    shifted, nodes = small_tree([7, 11, 15])
    shifted.nodes["parent"].seconds = 2.0**-10
    shifted.revalue()
    assert [n.total for n in nodes] == [0, 0.5, 1]


def test_a_measured_value_replaces_a_predicted_one():
    tree, (first, second) = small_tree([0, 1])
    third = tree.add(Named("third"), first)
    third.score = 1e9
    tree.revalue()
    assert third.total == 1
    third.seconds = 2.0
    tree.revalue()
    assert third.total == 0 and second.total == 1


def test_failures_are_dead_ends_without_reward():
    tree, (first, second) = small_tree([0, 1])
    tree.close("1")
    tree.revalue()
    assert second.total == 0 and tree.room(second) == 0
    assert tree.select() is tree.nodes["parent"], "which has room for another child"
    assert tree.select() is first


def test_failed_children_take_no_place_but_count_as_fruitless():
    tree, _ = small_tree([0, 1])
    parent = tree.nodes["parent"]
    assert tree.room(parent) == 0
    for key in ("0", "1"):
        tree.close(key)
    assert tree.room(parent) == 2
    tree.add(Named("2"), parent)
    tree.close("2")
    assert tree.room(parent) == 0, "patience is 3"


def test_what_came_from_a_failed_program_is_still_expanded():
    tree, (first, second) = small_tree([0, 5])
    tree.close("parent")
    tree.close("0")
    tree.revalue()
    assert tree.select() is second
    assert first.failed


def test_fruitless_expansions_close_a_node_and_then_its_parent():
    tree, nodes = small_tree([0, 1])
    for node in nodes:
        for fruitful in (False, False, True, False, False):
            tree.expanded(node, fruitful)
        assert tree.room(node) > 0, "patience is 3 in a row"
        tree.expanded(node, False)
        assert node.barren == 5
    assert tree.select() is None
    assert tree.nodes["parent"].closed


def test_a_full_branch_does_not_end_a_wave():
    tree = Tree(1, 0.0, 3)
    fast, slow = tree.add(Named("fast")), tree.add(Named("slow"))
    fast.seconds, slow.seconds = 1.0, 1.5
    child = tree.add(Named("child"), fast)
    child.seconds = 0.5
    tree.revalue()
    assert [tree.select() for _ in range(3)] == [child, slow, None]
    assert not any(node.closed for node in tree.nodes.values()), "children may come of it"
    tree.settle()
    assert tree.select() is child


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 99), branching=st.integers(1, 3))
def test_a_wave_takes_all_the_room_that_there_is(seed, branching):
    tree, rng = Tree(branching, 0.5, 3), np.random.default_rng(seed)
    nodes = [tree.add(Named("0"))]
    for i in range(1, 12):
        open_ones = [None, *(node for node in nodes if tree.room(node) > 0)]
        nodes.append(tree.add(Named(str(i)), open_ones[rng.integers(len(open_ones))]))
    for node in nodes:
        node.seconds = float(rng.uniform(0.5, 2))
    tree.revalue()
    room = {id(node): tree.room(node) for node in nodes}
    chosen = []
    while (node := tree.select()) is not None:
        chosen.append(id(node))
    assert sorted(chosen) == sorted(key for key, count in room.items() for _ in range(count))


def test_progressive_widening_grows_with_visits():
    tree, nodes = small_tree([0, 1, 2], branching=0)
    parent = tree.nodes["parent"]
    assert tree.room(nodes[0]) == 1
    assert tree.room(parent) < 1
    parent.barren, parent.visits = 0, 64
    assert tree.room(parent) == 1 + 3 - 3


# What is passed up


def own_rewards(tree):
    """Of every node, by the definition: where its level lies between the least and the highest."""
    slope, offset = _line(tree.nodes.values())

    def level(node):
        return offset + slope * node.score if node.open else -math.log2(node.seconds)

    alive = [node for node in tree.nodes.values() if not node.failed]
    levels = {id(node): level(node) for node in alive}
    low, high = min(levels.values(), default=0), max(levels.values(), default=0)

    def reward(found):
        return min(max((found - low) / (high - low), 0), 1) if high > low else 0.5

    rewards = {id(node): 0.0 for node in (tree.root, *tree.nodes.values())}
    for node in alive:
        rewards[id(node)] = reward(levels[id(node)])
    return rewards


OPERATIONS = ("add", "add", "add", "score", "measure", "close", "drop", "trim", "barren")


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 999), st.floats(-8, 8)), max_size=40
    )
)
def test_visits_and_totals_are_the_sums_over_all_that_is_below(operations):
    tree = Tree(2, 1.0, 3)
    for count, (operation, at, value) in enumerate(operations):
        nodes = list(tree.nodes.values())
        node = nodes[at % len(nodes)] if nodes else None
        if operation == "add" or node is None:
            tree.add(Named(str(count)), node if at % 3 else None).score = value
        elif operation == "score":
            node.score = value
        elif operation == "measure":
            node.seconds = 2.0**-value
        elif operation == "barren":
            tree.expanded(node, fruitful=value > 0)
        elif operation == "trim":
            tree.trim(at % 6)
        else:
            getattr(tree, operation)(node.candidate.key)
        tree.revalue()
    assert is_whole(tree)
    rewards = own_rewards(tree)
    for node in (tree.root, *tree.nodes.values()):
        visits = sum(1 + each.barren + each.lost_visits for each in below(node))
        total = sum(rewards[id(each)] + each.lost_total for each in below(node))
        assert node.visits == visits and node.total == pytest.approx(total)


def test_what_is_found_below_a_program_counts_for_it():
    tree = Tree(2, 0.0, 3)
    good, bad = tree.add(Named("good")), tree.add(Named("bad"))
    good.score, bad.score = 1.0, 2.0
    found = [tree.add(Named(name), good) for name in "ab"]
    found += [tree.add(Named(name), bad) for name in "cd"]
    for node, score in zip(found, (8.0, 7.0, 0.0, 0.0), strict=True):
        node.score = score
    tree.revalue()
    assert good.total == pytest.approx((1 + 8 + 7) / 8) and bad.total == pytest.approx(2 / 8)
    assert tree.root.total == pytest.approx(good.total + bad.total)
    assert tree.select() is found[0], "although `bad` itself has the higher score"


# The scale of scores


def scored(pairs):
    """Measured nodes with such scores and levels."""
    tree = Tree(2, 1.0, 3)
    for i, (score, level) in enumerate(pairs):
        node = tree.add(Named(str(i)))
        node.score, node.seconds = float(score), 2.0**-level
    return list(tree.nodes.values())


def test_a_score_is_believed_to_be_in_log2_of_a_slow_down():
    assert _line([]) == (1.0, 0.0)
    assert _line(scored([(3, 5)])) == pytest.approx((1, 2))
    assert _line(scored([(0, 7), (2, 9), (5, 12)])) == pytest.approx((1, 7))


def test_few_measurements_move_that_belief_a_little_and_many_a_lot():
    def flat(n):
        slope, _ = _line(scored([(score, 3) for score in np.linspace(-1, 1, n)]))
        return slope

    assert 1 > flat(2) > flat(8) > flat(64) > 0
    assert flat(2) > 0.6 and flat(64) < 0.2


@pytest.mark.parametrize("true, fitted", [(0.5, 0.5), (1, 1), (1.5, 1.5), (-1, 0), (4, 2)])
def test_the_scale_of_scores_is_fitted_to_what_was_measured(true, fitted):
    slope, offset = _line(scored([(score, true * score + 3) for score in np.linspace(-4, 4, 100)]))
    assert slope == pytest.approx(fitted, abs=0.02), "between 0 and twice what was believed"
    assert offset == pytest.approx(3)


@given(st.lists(st.tuples(st.floats(-6, 6), st.floats(-6, 6)), min_size=1, max_size=12))
def test_the_line_goes_through_the_middle_of_what_was_measured(pairs):
    slope, offset = _line(scored(pairs))
    scores, levels = np.mean(pairs, axis=0)
    assert 0 <= slope <= 2
    assert offset + slope * scores == pytest.approx(levels, abs=1e-9)


def test_what_has_no_score_or_no_time_has_no_say_in_the_scale():
    nodes = scored([(0, 7), (2, 9)])
    more = scored([(math.nan, 40), (5, 5)])
    more[1].seconds = None
    assert _line([*nodes, *more]) == pytest.approx(_line(nodes))


def test_predictions_and_measurements_are_compared_on_one_scale():
    tree = Tree(2, 1.0, 3)
    for i, score in enumerate(np.linspace(0, 4, 41).tolist()):
        node = tree.add(Named(str(i)))
        node.score, node.seconds = score, 2.0 ** -(0.5 * score + 3)
    predicted = tree.add(Named("predicted"))
    predicted.score = 3.0
    tree.revalue()
    # Of the levels 3 to 5 it has about 4.5. By a score in whole log2 it would have 5.
    assert predicted.total == pytest.approx(0.75, abs=0.05)


# What is dropped


def test_what_came_from_a_dropped_program_comes_from_its_parent():
    tree = Tree(2, 1.0, 3)
    parent = tree.add(Named("parent"))
    twin = tree.add(Named("twin"), parent)
    child = tree.add(Named("child"), twin)
    tree.drop("twin")
    tree.drop("nobody")
    assert list(tree.nodes) == ["parent", "child"]
    assert parent.children == [child] and list(child.ancestors()) == [parent]


def spare(tree, kept=()):
    """Keys of what was not measured, led to nothing that was, and is not to be kept."""
    return {
        key
        for key, node in tree.nodes.items()
        if node.open
        and not any(each.seconds is not None or each.candidate.key in kept for each in below(node))
    }


def test_what_was_measured_takes_no_place_from_what_was_predicted():
    tree = Tree(2, 1.0, 3)
    for i in range(600):
        tree.add(Named(f"measured {i}")).seconds = 1.0
    for i in range(100):
        tree.add(Named(f"predicted {i}")).score = float(i)
    tree.trim(512)
    assert len(tree.nodes) == 700
    tree.trim(40)
    assert spare(tree) == {f"predicted {i}" for i in range(60, 100)}


def test_the_worst_leaves_go_when_there_are_too_many():
    tree = Tree(2, 1.0, 3)
    parent = tree.add(Named("parent"))
    for i in range(6):
        tree.add(Named(str(i)), parent if i < 2 else None).score = float(i)
    parent.score = -1.0
    tree.trim(5)
    assert set(tree.nodes) == {"parent", "2", "3", "4", "5"}
    tree.trim(4)
    assert set(tree.nodes) == {"2", "3", "4", "5"}, "it is a leaf now, and the worst"
    tree.trim(2, ["3"])
    assert set(tree.nodes) == {"3", "4", "5"}


def test_trimming_forgets_programs_but_not_that_somebody_looked():
    tree = Tree(2, 1.0, 3)
    slow, fast = tree.add(Named("slow")), tree.add(Named("fast"))
    slow.seconds, fast.seconds = 4.0, 1.0
    for parent, score in ((slow, -2.0), (fast, 0.0)):
        for at in range(2):
            child = tree.add(Named(f"{parent.candidate.key} {at}"), parent)
            child.score = score
            tree.add(Named(f"below {child.candidate.key}"), child).score = score
    tree.revalue()
    before = {key: (tree.nodes[key].visits, tree.nodes[key].total) for key in ("slow", "fast")}
    root = tree.root.visits, tree.root.total
    assert before["slow"][0] == 5
    tree.trim(6)
    tree.trim(4)
    tree.revalue()
    assert spare(tree) == {"fast 0", "fast 1", "below fast 0", "below fast 1"}
    assert (tree.root.visits, tree.root.total) == (root[0], pytest.approx(root[1]))
    for key, (visits, total) in before.items():
        assert (tree.nodes[key].visits, tree.nodes[key].total) == (visits, pytest.approx(total))
    # Its place is free, and still it is not its turn.
    assert tree.room(slow) == 2 and tree.select() not in (slow, None)


def test_dead_ends_go_with_what_they_came_from():
    tree = Tree(2, 1.0, 3)
    parent, other = tree.add(Named("parent")), tree.add(Named("other"))
    parent.score, other.score = 1.0, 2.0
    tree.add(Named("illegal"), parent)
    tree.close("illegal")
    tree.trim(1)
    assert list(tree.nodes) == ["other"] and is_whole(tree)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 999), most=st.integers(0, 20))
def test_only_what_nobody_needs_is_dropped(seed, most):
    tree, rng = Tree(3, 1.0, 3), np.random.default_rng(seed)
    for i in range(40):
        nodes = [None, *tree.nodes.values()]
        node = tree.add(Named(str(i)), nodes[rng.integers(len(nodes))])
        node.score = float(rng.normal())
    for node in tree.nodes.values():
        kind = rng.random()
        node.seconds = 1.0 if kind < 0.2 else None
        node.failed = kind > 0.85
    kept = {str(i) for i in rng.integers(40, size=2)}
    before, extra = set(tree.nodes), spare(tree, kept)
    dead = {key for key, node in tree.nodes.items() if node.failed and node.seconds is None}
    tree.trim(most, kept)
    left = set(tree.nodes)
    assert is_whole(tree)
    assert before - left <= (extra | dead) - kept
    assert len(spare(tree, kept)) == min(most, len(extra))


def test_many_rounds_of_growing_and_dropping_keep_the_best_leaves():
    tree, rng = Tree(2, 1.0, 3), np.random.default_rng(0)
    best = []
    for i in range(300):
        node = tree.add(Named(str(i)))
        node.score = float(rng.normal())
        best = sorted([*best, node.score])[-32:]
        tree.trim(32)
    assert sorted(node.score for node in tree.nodes.values()) == best
