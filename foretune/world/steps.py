"""Steps: the actions of a candidate that can change its program.

The others have to be left out where there is no program to look at. In TVM's sketches these are
moves of a block to the root, where it is already, and fusions of a single loop, so that the actions
themselves tell.
"""

from __future__ import annotations

from collections.abc import Sequence

from foretune.space import Action

_MOVES = ("compute_at", "reverse_compute_at")
_ROOT = "root"


def steps_of(actions: Sequence[Action]) -> tuple[Action, ...]:
    """The actions that a rollout goes through: those that can change a program.

    Left out are moving a block to the root, which is where it was, and fusing a single loop.

    Args:
        actions: As ``Candidate.actions`` gives them.
    """
    return tuple(action for action in actions if not stays(action))


def stays(action: Action) -> bool:
    """Whether an action leaves every program as it is."""
    if action.kind == "fuse":
        return len(action.args) == 1
    # This location of TVM's says: leave the block alone.
    return action.kind in _MOVES and action.args[-1] == _ROOT
