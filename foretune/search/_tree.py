"""The tree of a tree search: nodes, their values on one scale, and which one to expand.

Symbols: a node's *level* is minus log2 of its seconds, measured, or what the cost model's score
says of it on the same axis. Rewards are levels, min-max scaled to [0, 1] within the tree. ``N`` is
a node's visits: itself, its fruitless expansions (reward 0), and the visits of its children, also
of those that are no longer kept. ``Q`` is the mean reward of these. UCT is
``Q + c sqrt(ln(N of the parent) / N)``.

Values are computed anew from the levels of all nodes whenever a level changes. Sums that are only
ever added to would keep what an earlier model said. What is no longer kept counts as it did last:
forgetting it would make its parent look as if nobody had tried.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic

import numpy as np

from foretune.space.protocol import C

_SLOPE_STRENGTH = 4.0
"""Measured programs with scores of unit variance that weigh as much as the belief that a score is
in log2 slow-downs."""


@dataclass(eq=False, kw_only=True)
class Fork(Generic[C]):
    """Where programs come from: another program, or the root, which stands for the untransformed.

    Attributes:
        children: What came from it.
        barren: Fruitless expansions.
        in_a_row: Those since the last one that was not.
        lost_visits, lost_total: Visits and rewards of what came from it and is no longer kept.
        closed: Whether nothing below can be expanded any more.
        visits, total: ``N`` and the sum of rewards.
        pending: Selections of this wave, here or below, whose outcome is not known yet.
        waiting: Whether nothing here or below can be selected before that outcome is known.
    """

    children: list[Node[C]] = field(default_factory=list)
    barren: int = 0
    in_a_row: int = 0
    lost_visits: int = 0
    lost_total: float = 0.0
    closed: bool = False
    visits: int = 1
    total: float = 0.0
    pending: int = 0
    waiting: bool = False


@dataclass(eq=False)
class Node(Fork[C]):
    """A program in the tree.

    Attributes:
        candidate: The program.
        parent: Where it came from.
        score: What the cost model says; NaN until it was asked.
        seconds: Measured seconds per call.
        failed: Whether measuring it failed: a dead end with reward 0.
    """

    candidate: C
    parent: Fork[C]
    score: float = math.nan
    seconds: float | None = None
    failed: bool = False

    @property
    def open(self) -> bool:
        """Whether it may be measured."""
        return self.seconds is None and not self.failed

    def ancestors(self) -> Iterator[Node[C]]:
        """The programs it came from, its parent first; the root is none."""
        above = self.parent
        while isinstance(above, Node):
            yield above
            above = above.parent


def uct(total: float, visits: int, parent_visits: int, c: float) -> float:
    """Upper confidence bound of a node: mean reward plus ``c sqrt(ln(parent's visits) / visits)``.

    Args:
        total: Sum of rewards in [0, 1].
        visits: How many, at least 1.
        parent_visits: Those of its parent, at least as many.
        c: Weight of exploration; with rewards in [0, 1] the theory's value is sqrt(2).
    """
    return total / visits + c * math.sqrt(math.log(parent_visits) / visits)


class Tree(Generic[C]):
    """Nodes by the keys of their candidates, no key twice.

    Args:
        branching: Most children of a node; 0 lets it grow with the visits (progressive widening).
        exploration: ``c`` of UCT.
        patience: Fruitless expansions in a row after which a node is a dead end.
    """

    node_type: ClassVar[type[Node[Any]]] = Node

    def __init__(self, branching: int, exploration: float, patience: int) -> None:
        self.root: Fork[C] = Fork()
        self.nodes: dict[str, Node[C]] = {}
        self._branching = branching
        self._exploration = exploration
        self._patience = patience

    def add(self, candidate: C, parent: Node[C] | None = None) -> Node[C]:
        """A new node; under the root if ``parent`` is None. The candidate must be new."""
        node: Node[C] = self.node_type(candidate, parent or self.root)
        (parent or self.root).children.append(node)
        self.nodes[candidate.key] = node
        return node

    def room(self, node: Node[C]) -> int:
        """How many more children a node may have now."""
        if node.failed:
            return 0
        failed = sum(child.failed for child in node.children)
        # A dead end is a fruitless expansion, and takes no other child's place.
        if node.in_a_row + failed >= self._patience:
            return 0
        most = self._branching or 1 + int(0.5 * math.log2(node.visits + 1))
        return most - (len(node.children) - failed) - node.pending

    def select(self) -> Node[C] | None:
        """The node to expand next, counted as visited until ``settle``; None if there is none.

        Until then a selection counts as a visit without reward, so that the next one looks
        elsewhere; a branch that is full with what was selected is passed over, not waited for.
        """
        at = self.root
        while not isinstance(at, Node) or self.room(at) < 1:
            below = [child for child in at.children if not (child.closed or child.waiting)]
            if below:
                visits = at.visits + at.pending
                at = max(
                    below,
                    key=lambda n: uct(n.total, n.visits + n.pending, visits, self._exploration),
                )
                continue
            if not isinstance(at, Node):
                return None
            # With a selection pending it may have children soon.
            at.waiting, at.closed = at.pending > 0, at.pending == 0
            at = at.parent
        for visited in (at, *at.ancestors(), self.root):
            visited.pending += 1
        return at

    def expanded(self, node: Node[C], fruitful: bool) -> None:
        """Takes note that somebody tried to edit a program, and whether anything new came of it."""
        node.barren += not fruitful
        node.in_a_row = 0 if fruitful else node.in_a_row + 1

    def settle(self) -> None:
        """Forgets the visits that ``select`` counted in advance."""
        for node in (self.root, *self.nodes.values()):
            node.pending, node.waiting = 0, False

    def revalue(self) -> None:
        """Computes rewards, visits and means of all nodes from their scores and seconds."""
        nodes = list(self.nodes.values())
        slope, offset = _line(nodes)
        levels = {id(n): _level(n, slope, offset) for n in nodes}
        known = [level for level in levels.values() if math.isfinite(level)]
        low, high = (min(known), max(known)) if known else (0.0, 0.0)
        width = high - low

        def reward(level: float) -> float:
            if not math.isfinite(level):
                return 0.0
            return min(max((level - low) / width, 0.0), 1.0) if width > 0 else 0.5

        for node in (self.root, *nodes):
            node.visits, node.total = 1 + node.barren + node.lost_visits, node.lost_total
            # Widening and trimming make room where there was none.
            node.closed = False
        for node in nodes:
            if node.failed:
                continue
            rewards = [reward(level) for level in self.levels(node, slope, offset)]
            node.total += sum(rewards) / len(rewards)
        # Children come after their parents.
        for node in reversed(nodes):
            node.parent.visits += node.visits
            node.parent.total += node.total

    def levels(self, node: Node[C], slope: float, offset: float) -> list[float]:
        """What a node's reward is the mean of: its own level."""
        return [_level(node, slope, offset)]

    def close(self, key: str) -> None:
        """Makes a program that is illegal or failed a dead end; what came from it may go on."""
        node = self.nodes.get(key)
        if node is not None:
            node.failed = True

    def drop(self, key: str) -> None:
        """Takes a program out of the tree; what came from it comes from its parent from now on.

        The parent may have more children then than it would be given.
        """
        node = self.nodes.pop(key, None)
        if node is None:
            return
        node.parent.children.remove(node)
        node.parent.children += node.children
        for child in node.children:
            child.parent = node.parent

    def trim(self, most: int, keep: Iterable[str] = ()) -> None:
        """Drops what was not measured, the worst leaves first, until ``most`` such nodes are left.

        What was measured stays, and so does what led there: neither counts. Dead ends are dropped
        with what they came from.

        Args:
            most: Nodes to be left of those that may go.
            keep: Keys of nodes that stay as if they were measured.
        """
        kept = set(keep)
        needed = {
            id(above)
            for key, node in self.nodes.items()
            if node.seconds is not None or key in kept
            for above in (node, *node.ancestors())
        }
        spare = {
            key: node for key, node in self.nodes.items() if node.open and id(node) not in needed
        }
        while len(spare) > most:
            leaves = sorted(
                (node.score, key)
                for key, node in spare.items()
                if not any(map(_lives, node.children))
            )
            for _, key in leaves[: len(spare) - most]:
                self._cut(spare.pop(key))

    def _cut(self, node: Node[C]) -> None:
        """Takes a program out of the tree, and what came from it."""
        node.parent.children.remove(node)
        node.parent.lost_visits += node.visits
        node.parent.lost_total += node.total
        below = [node]
        while below:
            gone = below.pop()
            del self.nodes[gone.candidate.key]
            below += gone.children


def _lives(node: Node[Any]) -> bool:
    """Whether a program or something that came from it is no dead end."""
    return not node.failed or any(map(_lives, node.children))


def _line(nodes: Iterable[Node[Any]]) -> tuple[float, float]:
    """Slope and offset that turn scores into levels: least squares over measured nodes."""
    pairs = [
        (node.score, -math.log2(node.seconds))
        for node in nodes
        if node.seconds is not None and math.isfinite(node.score)
    ]
    if not pairs:
        return 1.0, 0.0
    scores, levels = np.array(pairs).T
    centred = scores - scores.mean()
    moved = _SLOPE_STRENGTH + centred @ (levels - levels.mean())
    slope = float(np.clip(moved / (_SLOPE_STRENGTH + centred @ centred), 0.0, 2.0))
    return slope, float(levels.mean() - slope * scores.mean())


def _level(node: Node[Any], slope: float, offset: float) -> float:
    if node.failed:
        return -math.inf
    if node.seconds is not None:
        return -math.log2(node.seconds)
    return offset + slope * node.score
