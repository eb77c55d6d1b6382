"""How well does TGraph order configurations of official files, as published and corrected?

``python -m benchmarks tgraph --data DIR`` reads all files of TpuGraphs in a folder. Each layout
graph is judged by itself: a fifth of its different configurations, by a model that learned from the
others, beside trees. Kernels are judged by models that learned from all others. The switches of the
paper's Table 3 are turned one by one on the largest graph.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._tgraph import (
    ABLATIONS,
    MODELS,
    TILES,
    TREES,
    Floats,
    Settings,
    ceiling,
    layout_cell,
    tile_cell,
)
from benchmarks.pages import Section, publish
from benchmarks.results import conditions, table
from foretune.tgraph import Graph, LayoutGraph, TileGraph, graph_key, read_graphs, whole
from foretune.tgraph.metrics import interval

PARTS = ("layouts", "tiles", "ablation")
FEWEST = 50
"""Different configurations of a layout graph that is judged by itself."""
_COPIES = 5
"""Runs of one configuration from which its noise is taken."""
_LAYOUT = {
    "tau": "tau", "tau-a": "tau_a", "OPA": "opa", "tau (0.2 %)": "resolvable_tau",
    "slowdown 1": "slowdown1", "10": "slowdown10", "100": "slowdown100",
}  # fmt: skip
_TILE = {"M_tile": "m_tile", "slowdown 1": "slowdown1", "5": "slowdown5", "10": "slowdown10",
         "tau": "tau"}  # fmt: skip


def read(folder: Path) -> tuple[list[LayoutGraph], tuple[TileGraph, ...]]:
    """Graphs in a folder that have an order: layouts, the largest first, and kernels with tiles.

    Of a network that occurs both in raw files and in official ones the official one is used.
    """
    graphs: list[Graph] = []
    for file in sorted(path for path in folder.rglob("*") if path.suffix in (".npz", ".pb")):
        name = file.relative_to(folder).with_suffix("").as_posix()
        for graph in read_graphs(file):
            if whole(graph).orderable:
                called = name if file.suffix == ".npz" else f"{name}: {graph.name}"
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
    return kept, tuple(graph for graph in graphs if isinstance(graph, TileGraph))


def noise_of(graph: LayoutGraph) -> Floats:
    """By how much logarithms of runs of one configuration differ from their median."""
    assert graph.runtime is not None
    log = np.log(graph.runtime.astype(np.float64))
    keys = graph.configurations.keys
    group, counts = np.unique(keys, return_inverse=True, return_counts=True)[1:]
    found = [
        log[group == at] - np.median(log[group == at]) for at in np.flatnonzero(counts >= _COPIES)
    ]
    return np.concatenate(found) if found else log[:0]


def section(data: Mapping[str, Any]) -> Section:
    """What readings say."""
    parts, rows, answer = [], [], "No layout graph was judged."
    for one in data.get("layouts", ()):
        first = next(iter(one["models"].values()))[0]
        bound = "unknown" if one["ceiling"] is None else f"{one['ceiling']:.3f}"
        taus = {model: _figure(cells, "tau") for model, cells in one["models"].items()}
        rows.append([one["graph"], bound, *taus.values()])
        header = ["graph", "noise leaves", *taus]
        parts.append(
            f"#### {one['graph']}\n\n{one['nodes']} nodes, {one['configurations']} configurations; "
            f"{first['learned']} learned from, {first['judged']} judged; noise leaves {bound}.\n\n"
            + _models(one["models"])
        )
    if rows:
        largest = data["layouts"][0]
        answer = (
            f"On {largest['graph']} `corrected` has a tau of "
            f"{_figure(largest['models']['corrected'], 'tau')}, `published` "
            f"{_figure(largest['models']['published'], 'tau')}, trees "
            f"{_figure(largest['models'][TREES], 'tau')}."
        )
    if data.get("ablation"):
        found = data["ablation"]
        parts.append(f"#### Switches, on {found['graph']}\n\n{_models(found['models'])}")
    if data.get("tiles"):
        parts.append(_kernels(data["tiles"]))
    return Section(
        "How well does TGraph order configurations of TpuGraphs?",
        answer,
        table(header, rows) if rows else "",
        "Equal configurations are on one side and count once. *tau (0.2 %)* is tau over pairs "
        "whose run times differ by more than 0.2 %. No model can pass what noise leaves: runs of "
        "one configuration differ. Figures are means over seeds, with their deviation.\n\n"
        + "\n\n".join(parts),
    )


def _models(models: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    rows = [
        [model, *(_figure(cells, name) for name in _LAYOUT.values()), f"{cells[0]['train_s']:.0f}"]
        for model, cells in models.items()
    ]
    return table(["model", *_LAYOUT, "s"], rows)


def _figure(cells: Sequence[Mapping[str, Any]], name: str) -> str:
    # What is not defined, NaN, is null in a file.
    values = [cell[name] for cell in cells if cell[name] is not None]
    if not values:
        return "-"
    spread = f" ± {np.std(values):.4f}" if len(values) > 1 else ""
    return f"{np.mean(values):.4f}{spread}"


def _kernels(found: Mapping[str, Any]) -> str:
    rows = []
    for model, cells in found["models"].items():
        figures = []
        for name in _TILE.values():
            # Kernels first: seeds of one kernel are no evidence of their own.
            table_of = np.array([[k[name] for k in cell["kernels"]] for cell in cells], dtype=float)
            one = interval(np.nanmean(table_of, axis=0).tolist())
            figures.append(f"{one['mean']:.3f} ({one['low']:.3f} to {one['high']:.3f})")
        rows.append([model, *figures])
    count = len(found["kernels"])
    return f"#### {count} kernels, each by models of the others\n\n" + table(
        ["model", *_TILE], rows
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a folder of TpuGraphs' files")
    parser.add_argument("--part", action="append", choices=PARTS, default=[])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=500, help="steps on a layout graph")
    parser.add_argument("--tile-epochs", type=int, default=40)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--tested", type=int, default=2000, help="configurations judged at most")
    parser.add_argument("--work-dir", type=Path, default=Path("foretune-work/tgraph"))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    began = conditions("tgraph", range(options.seeds))
    # Where the data lie is this machine's business.
    where = replace(began, command=began.command.replace(str(options.data), "DIR"))
    layouts, tiles = read(options.data)
    common = {"width": options.width, "batch": options.batch}
    threads = len(os.sched_getaffinity(0))
    settings = Settings(
        options.work_dir, {**common, "epochs": options.epochs}, options.tested, threads
    )
    of_tiles = replace(settings, options={**common, "epochs": options.tile_epochs})
    seeds, parts = range(options.seeds), options.part or PARTS

    def of_graph(graph: LayoutGraph, models: Sequence[str]) -> dict[str, Any]:
        return {
            "graph": graph.name,
            "nodes": len(graph.nodes),
            "configurations": len(graph.configurations),
            "ceiling": ceiling(whole(graph).runtime, noise_of(graph)),
            "models": {m: [layout_cell(graph, m, s, settings) for s in seeds] for m in models},
        }

    found: dict[str, Any] = {"schema": "foretune.bench.tgraph/2", "options": settings.options}
    if "layouts" in parts:
        found["layouts"] = [of_graph(graph, (*MODELS, TREES)) for graph in layouts]
    if "tiles" in parts and len(tiles) > 1:
        found["tiles"] = {
            "kernels": [graph.name for graph in tiles],
            "models": {
                m: [tile_cell(tiles, m, s, of_tiles) for s in seeds] for m in (*TILES, TREES)
            },
        }
    if "ablation" in parts and layouts:
        found["ablation"] = of_graph(layouts[0], (*MODELS, *ABLATIONS))
    publish("tgraph", section, found, where.end(), options.write)


if __name__ == "__main__":
    main()
