"""Which graphs a folder of TpuGraphs' files has, and how well they can be ordered at all."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from foretune.tgraph import Graph, LayoutGraph, TileGraph, graph_key, read_graphs, whole
from foretune.tgraph.metrics import agreement

FEWEST = 50
"""Different configurations of a layout graph that is judged by itself."""
_COPIES = 5
"""Runs of one configuration from which its noise is taken."""


@dataclass(frozen=True)
class Data:
    """Graphs that were measured: layouts, the largest first, and kernels with tiles."""

    layouts: tuple[LayoutGraph, ...]
    tiles: tuple[TileGraph, ...]


def read(folder: Path) -> Data:
    """All graphs in a folder that have an order.

    Of a network that occurs several times in the same kind of file, as in raw files and in official
    ones, that with more configurations is used; collections are different files.
    """
    files = sorted(path for path in folder.rglob("*") if path.suffix in (".npz", ".pb"))
    graphs: list[Graph] = []
    for file in files:
        name = file.relative_to(folder).with_suffix("").as_posix()
        for graph in read_graphs(file):
            if whole(graph).orderable:
                alone = file.suffix == ".npz"
                called = name if alone else f"{name}: {graph.name}"
                graphs.append(type(graph)(**{**vars(graph), "name": called}))
    layouts = [graph for graph in graphs if isinstance(graph, LayoutGraph)]
    official = {graph_key(graph) for graph in layouts if ": " not in graph.name}
    kept = [
        graph
        for graph in layouts
        if len(whole(graph).rows) >= FEWEST
        and (": " not in graph.name or graph_key(graph) not in official)
    ]
    kept.sort(key=lambda graph: -len(graph.configurations))
    return Data(tuple(kept), tuple(g for g in graphs if isinstance(g, TileGraph)))


def ceiling(graph: LayoutGraph, seed: int = 0) -> float | None:
    """tau that a model cannot pass which knows everything but noise, None where nothing says so.

    The noise is what runs of one configuration differ by from their median. It is added to the run
    times; the tau of both is an upper bound, because the run times have been spread by noise
    already.
    """
    keys = graph.configurations.keys
    assert graph.runtime is not None
    log = np.log(graph.runtime.astype(np.float64))
    group, counts = np.unique(keys, return_inverse=True, return_counts=True)[1:]
    noise = [
        log[group == at] - np.median(log[group == at]) for at in np.flatnonzero(counts >= _COPIES)
    ]
    if not noise:
        return None
    rows, rng = whole(graph).rows, np.random.default_rng(seed)
    drawn = rng.choice(np.concatenate(noise), len(rows))
    return agreement(log[rows] + drawn, log[rows])[0]


def resolvable_tau(
    scores: npt.NDArray[np.float64], runtime: npt.NDArray[np.float64], apart: float = 0.002
) -> float:
    """tau-a over pairs whose run times differ by more than ``apart``, relative."""
    log = np.log(runtime)
    total = right = 0
    for at in range(len(scores)):
        slower = log[at] - log > apart
        total += int(slower.sum())
        right += int(np.sign(scores[at] - scores[slower]).sum())
    return right / total if total else float("nan")
