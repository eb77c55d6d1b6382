"""Tree search with rollouts, a control of the Reasoning Compiler paper (section 3).

Idea: each new node is followed by some walks of random edits. Where they end is scored, and the
node's reward is the mean of its own and these. A cost model that reads decisions only makes no
program for that. Random edits of a good program mostly say how bad random edits are: of edits of
fast programs one in seven is an improvement, and so the tree search of ``foretune`` has none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from foretune._options import Bounds, Count
from foretune.search._tree import Node, Tree
from foretune.search.mcts import Mcts, MctsConfig
from foretune.space.protocol import C


@dataclass(frozen=True)
class RolloutConfig(MctsConfig):
    """``MctsConfig`` with rollouts.

    Attributes:
        rollout: Random edits that a rollout makes; 0 for none.
        rollouts: Rollouts from each new node.
    """

    rollout: Annotated[int, Bounds(ge=0)] = 2
    rollouts: Count = 1


@dataclass(eq=False)
class RolledNode(Node[C]):
    """A node that was rolled out from.

    Attributes:
        ends: Where rollouts from here ended.
        end_scores: What the cost model says of these.
    """

    ends: list[C] = field(default_factory=list)
    end_scores: list[float] = field(default_factory=list)


class RolledTree(Tree[C]):
    """A tree in which the ends of rollouts count beside a node's own level."""

    node_type = RolledNode

    def levels(self, node: Node[C], slope: float, offset: float) -> list[float]:
        """That of the node, and those of the ends."""
        scores = node.end_scores if isinstance(node, RolledNode) else []
        return [*super().levels(node, slope, offset), *(offset + slope * s for s in scores)]


class MctsRollouts(Mcts[C]):
    """Tree search that values new programs by random edits of them, too.

    Args:
        space, model, rng: As of ``Mcts``.
        options: Fields of ``RolloutConfig``; others go to the proposer.
    """

    config: RolloutConfig
    config_type: ClassVar[type[MctsConfig]] = RolloutConfig
    tree_type: ClassVar[type[Tree[Any]]] = RolledTree

    def _valued(self, nodes: Sequence[Node[C]]) -> None:
        """Rolls out from nodes where that was not done yet, and asks the model how that ended."""
        rolled = [node for node in nodes if isinstance(node, RolledNode)]
        for node in rolled:
            if self.config.rollout and not node.ends:
                node.ends = [self._rolled(node.candidate) for _ in range(self.config.rollouts)]
        scores = iter(self._scores([end for node in rolled for end in node.ends]))
        for node in rolled:
            found = [next(scores) for _ in node.ends]
            node.end_scores = [score for score in found if not math.isnan(score)]

    def _rolled(self, candidate: C) -> C:
        for _ in range(self.config.rollout):
            candidate = self.space.mutate(candidate, self.rng)
        return candidate
