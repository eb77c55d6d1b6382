"""Search strategies on tables in which every candidate is known, against exact random search.

The tables are brute-forced configuration spaces that others published (caches of Kernel Tuner).
Nothing is timed, so that it gives the same on every machine. What it says is printed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks._search.figures import interval
from benchmarks.results import ROOT, say, table
from foretune.evaluate import read_data
from foretune_research.replay import run_replay
from foretune_research.tables import table_space

TUNED_BY_OTHERS = ROOT.parent / "shared" / "data" / "kernel-tuner"
STRATEGIES = (("evolutionary", "random"), ("evolutionary", "gbdt:scratch"))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=128)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--others", type=Path, default=TUNED_BY_OTHERS, help="*.json.gz")
    options = parser.parse_args(arguments)
    files = sorted(options.others.glob("*.json.gz"))
    if not files:
        sys.exit(f"{options.others} has no tables: get caches of Kernel Tuner, and give --others")
    spaces = [table_space(group) for group in read_data(files).groups]
    result = run_replay(
        STRATEGIES, spaces, options.trials, options.seeds, batch=options.batch, progress=say
    )
    rows = [
        [f"{row['strategy']} + {row['cost_model']}", str(row["trials"]), f"{row['share']:.3f}",
         f"{row['random']:.3f}", interval(row)]
        for row in result["summary"]["share"]
    ]  # fmt: skip
    print(table(["side", "trials", "share of the best", "random search", "ratio"], rows))


if __name__ == "__main__":
    main()
