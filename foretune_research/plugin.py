"""What this package adds to foretune's tables, by the entry point group ``foretune.plugins``.

Nothing is imported here: a row says where a part is.
"""

from __future__ import annotations

from collections.abc import Mapping

TABLES: Mapping[str, Mapping[str, str]] = {
    "foretune.strategies": {
        "mcts-rollouts": "foretune_research.rollouts:MctsRollouts",
    },
}
"""Entry point group -> name -> ``"module:attribute"``."""
