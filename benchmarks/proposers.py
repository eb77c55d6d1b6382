"""Trains the policy of the proposer ``learned`` and writes the weights that ship.

``python -m benchmarks.proposers --train``, about a minute of a core.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.results import ROOT, versions
from foretune._files import write_json
from foretune.dataset import Group
from foretune.evaluate import read_data, refuse_excluded
from foretune.search.proposers._policy import Policy, weights

DATA = ROOT / "data" / "cpu"

Make = Callable[[Sequence[Group]], tuple[Path, Path, Mapping[str, Any]]]
"""Makes a file of groups: where it is, where what it was made of belongs, and more of that."""


def policy(groups: Sequence[Group]) -> tuple[Path, Path, Mapping[str, Any]]:
    """Trains on everything and writes the weights that ship."""
    began = time.process_time()
    made, pairs = Policy.train(groups)
    path = Path(str(weights("llvm")))
    path.parent.mkdir(exist_ok=True)
    made.save(path)
    spent = {"pairs": pairs, "train_cpu_s": time.process_time() - began}
    return path, path.with_suffix(".json"), spent


def ship(arguments: list[str] | None, description: str | None, name: str, make: Make) -> None:
    """Makes a file that comes with the package, and beside it what it was made of.

    Args:
        arguments: Of the command line.
        description: Of the benchmark.
        name: Of the benchmark.
        make: Writes the file.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", default=str(DATA))
    parser.add_argument("--train", action="store_true", required=True, help="write the file")
    options = parser.parse_args(arguments)
    groups = read_data([options.data]).groups
    refuse_excluded(groups)
    path, beside, more = make(groups)
    provenance = {
        "command": f"python -m benchmarks.{name} --train",
        # Relative to the repository: the file is the same wherever that lies.
        "data": [str(Path(options.data).resolve()).removeprefix(f"{ROOT.resolve()}/")],
        "groups": len(groups),
        "workloads": sorted({group.workload for group in groups}),
        "hardware": sorted({group.hardware for group in groups}),
        "versions": versions(),
    }
    write_json(beside, provenance | more)
    print(path)


def main(arguments: list[str] | None = None) -> None:
    ship(arguments, __doc__, "proposers", policy)


if __name__ == "__main__":
    main()
