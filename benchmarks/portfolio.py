"""Fills the portfolio, fast schedules of other programs, and writes the file that ships.

``python -m benchmarks.portfolio --train``. What it brings is a comparison of searches with it and
without: ``python -m benchmarks search22 --strategies evolutionary,evolutionary:suggested=0.0``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.proposers import ship
from foretune.dataset import Group
from foretune.search import portfolio as portfolios
from foretune.search.portfolio import Portfolio


def filled(groups: Sequence[Group]) -> Portfolio:
    """The portfolio of all programs of groups that ran."""
    found = Portfolio()
    for group in groups:
        for program, seconds in zip(group.programs, group.seconds.tolist(), strict=True):
            if program.candidate is not None and not np.isnan(seconds):
                found.add(program.candidate, seconds)
    return found


def portfolio(groups: Sequence[Group]) -> tuple[Path, Path, Mapping[str, Any]]:
    """Writes the portfolio that ships."""
    kinds = {group.machine.kind for group in groups if group.machine is not None}
    if len(kinds) != 1:
        raise SystemExit(f"a portfolio is for one kind of target, but the data has {sorted(kinds)}")
    path = Path(str(portfolios.file_of(*kinds)))
    path.parent.mkdir(exist_ok=True)
    made = filled(groups)
    made.save(path)
    beside = path.with_name(path.name.replace(".json.gz", ".json"))
    return path, beside, {"programs": len(made)}


def main(arguments: list[str] | None = None) -> None:
    ship(arguments, __doc__, "portfolio", portfolio)


if __name__ == "__main__":
    main()
