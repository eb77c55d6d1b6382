"""The benchmark: strategies and TVM's own tuner against one another, measured side by side.

``_bench`` is the loop, ``_sides`` one side of a comparison in a process of its own, in which
``_ours`` runs our tuner; ``_elsewhere`` has runs made on a cluster. ``_summary`` computes what many
runs say, ``_print`` shows it.
"""

from foretune._files import write_json
from foretune.bench._bench import SCHEMA, compare, run_bench
from foretune.bench._print import print_bench
from foretune.bench._sides import Side, SideError, SideRun, asks_llm, run_side, side_of, sides
from foretune.bench._summary import (
    best_at,
    geometric_mean,
    side_name,
    sitting,
    summarise,
    trial_budgets,
    went_to,
)

__all__ = [
    "SCHEMA",
    "Side",
    "SideError",
    "SideRun",
    "asks_llm",
    "best_at",
    "compare",
    "geometric_mean",
    "print_bench",
    "run_bench",
    "run_side",
    "side_name",
    "side_of",
    "sides",
    "sitting",
    "summarise",
    "trial_budgets",
    "went_to",
    "write_json",
]
