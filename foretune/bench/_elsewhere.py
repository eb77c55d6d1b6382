"""Runs of a benchmark on the nodes of a cluster, each group on one of them, nothing beside it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from foretune._files import write_bytes
from foretune.cluster import Cluster, require_processor
from foretune.errors import NothingMeasuredError
from foretune.workload import Workload


def fill(
    cluster: Cluster,
    run: partial[dict[str, Any]],
    due: Sequence[tuple[int, Workload, Mapping[str, int | None]]],
    folder: Path,
    say: Callable[[str], None],
) -> None:
    """Has groups run on nodes and keeps their files, so that they are found as finished.

    Args:
        cluster: Whose nodes run.
        run: The benchmark, but for what differs between groups.
        due: Seed and workload of each group, and its sides with trials of their own, if any.
        folder: Where finished runs are kept.
        say: Told a line per group.
    """
    sent = cluster.share(run)
    asked = [(sent, *group) for group in due]
    for index, files in cluster.map_alone(_group, asked):
        for name, data in files.items():
            write_bytes(folder / name, data)
        seed, workload, _ = due[index]
        say(f"{workload.name}  seed {seed}: run on the cluster")


def _group(
    run: partial[dict[str, Any]], seed: int, workload: Workload, sides: Mapping[str, int | None]
) -> dict[str, bytes]:
    """The files that a group leaves, by their names."""
    require_processor(run.keywords["hardware"])
    with tempfile.TemporaryDirectory(prefix="foretune-") as folder:
        own = {name: trials for name, trials in sides.items() if trials is not None}
        # What fails here is run, and told, where the benchmark was begun.
        with suppress(NothingMeasuredError):
            run([workload], list(sides), seeds=[seed], own_trials=own, work_dir=folder)
        return {file.name: file.read_bytes() for file in Path(folder).glob("*.json")}
