"""Monte Carlo tree search whose edits come from a proposer, for example a language model.

Idea: a node is a program, an edge an edit. Roots are random candidates of which the draft thinks
most. A round walks down the tree by UCT to the nodes to expand, asks the proposer for edits of all
of them at once, lets the cost model score all these edits in one batch, and keeps for each node the
best. What is measured are the nodes of the highest score, thinned for diversity, and a few random
candidates. Before each batch all nodes are scored again by the model as it is then, because it
learns from the measurements of every task that shares it; a measured program counts with its
seconds.

Symbols, and how values are made: ``foretune.search._tree``.

Source: Reasoning Compiler (Tang et al., NeurIPS 2025), section 3. Deviations: the mean of min-max
scaled rewards stands in the place of the paper's 1 / (kappa N), which falls with the square of the
visits; values are never sums of what an older model said; there are no rollouts, because random
edits of a good program mostly say how bad random edits are; a proposal is several edits, of which
the best become children; the tree is expanded many times for each measurement, as scores are cheap;
a dead end is marked and not expanded again."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np

from foretune._options import Bounds, Count, Share, configured, require_options
from foretune.search import proposers
from foretune.search._base import Strategy
from foretune.search._choosing import (
    APART,
    FIRST_APART,
    BatchPolicy,
    difference,
    drawn,
    may_judge,
    pick,
)
from foretune.search._tree import Node, Tree
from foretune.search.proposers import Situation, Variant
from foretune.space.protocol import C

if TYPE_CHECKING:
    from foretune.cost import CostModel
    from foretune.records import Trial
    from foretune.space import SearchSpace

_LEAST_POOL = 512
"""Random candidates that an informed draft chooses the first roots from, at least."""
_NOISE = 0.25
"""Spread of the noise added to a draft that chooses roots, in its unit (log2 of a slow-down)."""


@dataclass(frozen=True)
class MctsConfig:
    """How the tree is grown.

    Attributes:
        proposer: Name of the proposer; ``"default"`` is the best one that needs nothing else.
        branching: Most children of a node; 0 for progressive widening.
        exploration: ``c`` of UCT. sqrt(2) is the paper's; less suits a few hundred nodes better.
        expansions: Nodes expanded per candidate asked for.
        alternatives: Edits asked for, and scored, per expansion.
        roots: Random candidates that join the tree per candidate asked for, the first time.
        epsilon: Share of the proposals that is random.
        warmup: Candidates measured before a model that is not informed is asked.
        rounds: Batches in which the expansions of one ask are made.
        fresh: Random candidates that join the tree per candidate asked for, later on.
        suggested: Share of those that are what others suggested, as long as there is any.
        pool: Random candidates drawn for each one that becomes a root.
        patience: Fruitless expansions in a row after which a node is a dead end.
        nodes: Programs kept of those that were not measured and led to none that was; the worst go.
            Before each batch these are scored anew, with what was measured and what led there,
            which grows with the trials that were paid for.
    """

    proposer: str = proposers.DEFAULT
    branching: Annotated[int, Bounds(ge=0)] = 2
    exploration: Annotated[float, Bounds(ge=0, finite=True)] = 0.5
    expansions: Count = 8
    alternatives: Count = 6
    roots: Count = 2
    epsilon: Share = 0.1
    warmup: Count = 8
    rounds: ClassVar[int] = 2
    fresh: ClassVar[float] = 0.5
    suggested: ClassVar[float] = 0.5
    pool: ClassVar[int] = 32
    patience: ClassVar[int] = 5
    nodes: ClassVar[int] = 512

    def __post_init__(self) -> None:
        require_options("mcts", self)


class Mcts(Strategy[C]):
    """Grows a tree of edits guided by UCT; a proposer makes the edits, the model values them.

    Args:
        space: Where candidates come from.
        model: Who scores them; its draft alone is asked while it is not ready.
        rng: The only source of randomness.
        options: Fields of ``MctsConfig``; others go to the proposer.
    """

    config_type: ClassVar[type[MctsConfig]] = MctsConfig
    tree_type: ClassVar[type[Tree[Any]]] = Tree

    def __init__(
        self, space: SearchSpace[C], model: CostModel[C], rng: np.random.Generator, **options: Any
    ) -> None:
        super().__init__(space, model, rng)
        self.config, rest = configured(self.config_type, "mcts", options)
        config = self.config
        self.proposer = proposers.create(config.proposer, space, rng, **rest)
        self.tree: Tree[C] = self.tree_type(config.branching, config.exploration, config.patience)
        self.expanded = 0
        self._sketches = {sketch.key for sketch in space.sketches}
        self._measured = 0
        self._best: Node[C] | None = None
        self._prepared: list[tuple[Node[C], Situation[C]]] = []

    @classmethod
    def check_options(cls, options: Mapping[str, Any]) -> None:
        """Refuses what neither ``MctsConfig`` nor the proposer knows, or one of them refuses."""
        config, rest = configured(cls.config_type, "mcts", options)
        proposers.check(config.proposer, rest)

    @property
    def status(self) -> str:
        """What the proposer has to say."""
        return self.proposer.status

    def ask(self, n: int) -> list[C]:
        """Up to ``n`` candidates; fewer when the space (or its legal part) is exhausted."""
        config = self.config
        self._rescore()
        # Rounded by chance: batches of one have fresh roots, too, now and then.
        fresh = int(config.fresh * n + self.rng.random())
        self._plant(fresh if self.expanded else config.roots * n)
        self._expand(self._foreseen(), fill=True)
        total = config.expansions * n
        rounds = min(config.rounds, total)
        for done in range(rounds):
            wave = total * (done + 1) // rounds - total * done // rounds
            if not self._expand(self._selected(wave)):
                break
        asked = self.fresh.propose(self._chosen(n), n)
        self._look_ahead()
        return asked

    def tell(self, trials: Sequence[Trial[C]]) -> None:
        """What ran counts with its seconds from now on; what failed is a dead end."""
        super().tell(trials)
        for trial in trials:
            candidate, measurement = trial.candidate, trial.measurement
            if candidate.sketch.key not in self._sketches:
                continue
            node = self.tree.nodes.get(candidate.key) or self._adopted(candidate)
            if not measurement.ran or measurement.best_s is None:
                self.tree.close(candidate.key)
                continue
            self._measured += node.seconds is None
            node.seconds = measurement.best_s
            if self._best is None or node.seconds < (self._best.seconds or math.inf):
                self._best = node

    def _adopted(self, candidate: C) -> Node[C]:
        """A node for a program that the tree does not know, of an earlier run for example.

        What was between two measured programs is not on record, but what is measured together
        differs in ``APART`` decisions. So its parent is a measured program of at most so many
        differences that has room, the nearest and among these the fastest; else the root.
        """
        near = [
            (apart, node.seconds, key)
            for key, node in self.tree.nodes.items()
            if node.seconds is not None
            and self.tree.room(node) > 0
            and (apart := _edits_between(candidate, node)) <= APART
        ]
        node = self.tree.add(candidate, self.tree.nodes[min(near)[2]] if near else None)
        # Widening counts them before the next batch does.
        for above in (*node.ancestors(), self.tree.root):
            above.visits += 1
        return node

    def _plant(self, n: int) -> None:
        """Adds random candidates under the root, those of which the draft thinks most.

        Before all others a few of what was suggested.
        """
        size = self.config.pool * n
        if n and self.model.abilities.informed_draft and not self.expanded:
            size = max(size, _LEAST_POOL)
        pool = self.fresh.unseen(size, self.tree.nodes)
        told = [
            candidate
            for key, candidate in self.suggested.items()
            if key not in self.tree.nodes and self.fresh.is_new(candidate)
        ][: math.ceil(self.config.suggested * n)]
        taken = {candidate.key for candidate in told}
        pool = [candidate for candidate in pool if candidate.key not in taken]
        if pool or told:
            drafted = drawn(pool, self.model.draft(pool), _NOISE, self.rng) if pool else []
            roots = [*told, *drafted][:n]
            self._score([self.tree.add(root) for root in roots])
        self.tree.revalue()

    def _selected(self, n: int) -> list[tuple[Node[C], Situation[C]]]:
        """Up to ``n`` nodes to expand, by UCT, none of them oftener than it has room."""
        nodes = []
        for _ in range(n):
            node = self.tree.select()
            if node is None:
                break
            nodes.append(node)
        self.tree.settle()
        return [(node, self._situation(node)) for node in nodes]

    def _foreseen(self) -> list[tuple[Node[C], Situation[C]]]:
        """What the proposer was told of before the last measurements, as far as it still counts."""
        prepared, self._prepared = self._prepared, []
        return [
            # What is known of a program may have changed, the program has not.
            (node, self._situation(node))
            for node, situation in prepared
            if situation.program.candidate.key in self.tree.nodes and not node.failed
        ]

    def _look_ahead(self) -> None:
        """Lets a slow proposer begin while candidates are measured."""
        if self.proposer.foresight:
            selected = self._selected(self.proposer.foresight)
            self._prepared = list({id(node): (node, known) for node, known in selected}.values())
            self.proposer.prepare([situation for _, situation in self._prepared])

    def _situation(self, node: Node[C]) -> Situation[C]:
        return Situation(
            _variant(node),
            self.config.alternatives,
            tuple(_variant(ancestor) for ancestor in node.ancestors()),
            None if self._best is None else _variant(self._best),
        )

    def _expand(self, nodes: Sequence[tuple[Node[C], Situation[C]]], fill: bool = False) -> bool:
        """One batch of expansions; False if there was nothing to expand.

        Args:
            nodes: What to expand.
            fill: Whether a node is given as many children as it has room for, and not just one.
        """
        if not nodes:
            return False
        self.expanded += len(nodes)
        proposed = self.proposer.propose([situation for _, situation in nodes])
        scores = self._judged(proposed)
        added: list[Node[C]] = []
        for (node, situation), edits in zip(nodes, proposed, strict=True):
            known = [edit for edit in edits if edit.key in scores]
            self.proposer.judged(situation, [Variant(e, scores[e.key]) for e in known])
            ranked = sorted(((scores[e.key], i, e) for i, e in enumerate(known)), key=_best_first)
            # Two nodes may have the same edit.
            new = [edit for _, _, edit in ranked if edit.key not in self.tree.nodes]
            room = max(0, self.tree.room(node))
            for edit in new[: room if fill else min(room, 1)]:
                added.append(self.tree.add(edit, node))
                added[-1].score = scores[edit.key]
            self.tree.expanded(node, bool(new))
        self._valued(added)
        self.tree.revalue()
        return True

    def _judged(self, proposed: Sequence[Sequence[C]]) -> dict[str, float]:
        """Scores of those proposals that are new and legal, by key."""
        new = {edit.key: edit for edits in proposed for edit in edits if self._is_new(edit)}
        scores = dict(zip(new, self._scores(list(new.values())), strict=True))
        # The model read these programs and found that they cannot be made.
        self.fresh.illegal.update(key for key, score in scores.items() if math.isnan(score))
        return {key: score for key, score in scores.items() if not math.isnan(score)}

    def _is_new(self, candidate: C) -> bool:
        return candidate.key not in self.tree.nodes and self.fresh.is_new(candidate)

    def _score(self, nodes: Sequence[Node[C]]) -> None:
        """Asks the model about nodes."""
        programs = [node.candidate for node in nodes]
        for node, score in zip(nodes, self._scores(programs), strict=True):
            node.score = score
            if math.isnan(score) and node.open:
                # The model read the program and found that it cannot be made.
                self.fresh.illegal.add(node.candidate.key)
                self.tree.close(node.candidate.key)
        self._valued([node for node in nodes if not node.failed])

    def _valued(self, nodes: Sequence[Node[C]]) -> None:
        """Called with nodes that have been scored. A study looks further from there."""

    def _scores(self, candidates: Sequence[C]) -> list[float]:
        if not candidates:
            return []
        if may_judge(self.model, self._measured, self.config.warmup):
            return list(self.model.predict(candidates).score.tolist())
        return list(self.model.draft(candidates).tolist())

    def _rescore(self) -> None:
        """All nodes but dead ends by the model as it is now, whoever taught it since."""
        self.tree.trim(self.config.nodes, [s.program.candidate.key for _, s in self._prepared])
        self._score([node for node in self.tree.nodes.values() if not node.failed])

    def _chosen(self, n: int) -> list[C]:
        """The best of the tree, apart from one another, and a few random candidates."""
        waiting = [
            (node.candidate, node.score)
            for key, node in sorted(self.tree.nodes.items())
            if node.open and key not in self.fresh.seen
        ]
        policy = BatchPolicy(self.config.epsilon, APART if self._measured else FIRST_APART)
        chosen = pick(waiting, n, policy, self.fresh, self.model)
        for candidate, _ in waiting:
            if candidate.key in self.fresh.illegal:
                self.tree.close(candidate.key)
            elif candidate.key in self.fresh.repeated:
                # Another node, or one that was told, stands for the same program.
                self.tree.drop(candidate.key)
        return chosen


def _edits_between(candidate: C, node: Node[C]) -> float:
    """Decisions in which they differ; infinity where they have other decisions."""
    other = node.candidate
    same = candidate.sketch.key == other.sketch.key
    return difference(candidate, other) if same else math.inf


def _variant(node: Node[C]) -> Variant[C]:
    score = None if math.isnan(node.score) else node.score
    return Variant(node.candidate, score, node.seconds, node.failed)


def _best_first(item: tuple[Any, ...]) -> tuple[Any, ...]:
    """Sorts by falling score; what has the same one, by what comes next."""
    return (-item[0], *item[1:2])
