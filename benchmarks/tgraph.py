"""How well does TGraph order configurations of official files, as published and corrected?

``python -m benchmarks.tgraph --data DIR`` reads all files of TpuGraphs in a folder. Each layout
graph is judged by itself: a fifth of its different configurations, by a model that learned from the
others, beside trees. Kernels are judged by models that learned from all others. The switches of the
paper's Table 3 are turned one by one on the largest graph. A made network of the largest official
size shows what memory a step takes.

A file for each training is kept in the work directory; so the benchmark goes on where it was
interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._tgraph import large
from benchmarks._tgraph.cells import (
    ABLATIONS,
    MODELS,
    TILES,
    TREES,
    Settings,
    layout_cell,
    tile_cell,
)
from benchmarks._tgraph.data import Data, ceiling, read
from benchmarks.results import conditions, publish, table
from foretune.tgraph.metrics import interval

PARTS = ("layouts", "tiles", "ablation", "large")
_LAYOUT = ("tau", "tau_a", "opa", "resolvable_tau", "slowdown1", "slowdown10", "slowdown100")
_TILE = ("m_tile", "slowdown1", "slowdown5", "slowdown10", "tau")


def layouts(data: Data, seeds: int, settings: Settings) -> list[dict[str, Any]]:
    """Each layout graph by each model."""
    return [
        {
            "graph": graph.name,
            "nodes": len(graph.nodes),
            "configurations": len(graph.configurations),
            "ceiling": ceiling(graph),
            "models": {
                model: [layout_cell(graph, model, seed, settings) for seed in range(seeds)]
                for model in (*MODELS, TREES)
            },
        }
        for graph in data.layouts
    ]


def ablation(data: Data, seeds: int, settings: Settings) -> dict[str, Any]:
    """The largest layout graph with a switch turned at a time."""
    if not data.layouts:
        return {}
    graph = data.layouts[0]
    return {
        "graph": graph.name,
        "models": {
            model: [layout_cell(graph, model, seed, settings) for seed in range(seeds)]
            for model in (*MODELS, *ABLATIONS)
        },
    }


def tiles(data: Data, seeds: int, settings: Settings) -> dict[str, Any]:
    """All kernels, each by models of the others."""
    if len(data.tiles) < 2:
        return {}
    return {
        "kernels": [graph.name for graph in data.tiles],
        "models": {
            model: [tile_cell(data.tiles, model, seed, settings) for seed in range(seeds)]
            for model in (*TILES, TREES)
        },
    }


def largest(args: argparse.Namespace) -> dict[str, Any]:
    """A made network of the size asked for, read and trained in a process of its own."""
    nodes, every, configurations = args.large
    args.work_dir.mkdir(parents=True, exist_ok=True)
    file = args.work_dir / f"made-{nodes}-{every}-{configurations}.npz"
    if not file.exists():
        large.make(file, nodes, every, configurations)
    options = json.dumps({"epochs": 2, "batch": args.large_batch})
    command = [sys.executable, "-m", "benchmarks._tgraph.large", str(file), options]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs what is asked for and prints a table for each part."""
    parser = argparse.ArgumentParser(prog="benchmarks.tgraph", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a folder of TpuGraphs' files")
    parser.add_argument("--part", action="append", choices=PARTS, default=[])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=500, help="steps on a layout graph")
    parser.add_argument("--tile-epochs", type=int, default=40)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--tested", type=int, default=2000, help="configurations judged at most")
    parser.add_argument(
        "--large",
        type=int,
        nargs=3,
        default=(44_000, 26, 100_000),
        metavar=("NODES", "EVERY", "CONFIGURATIONS"),
        help="one node in EVERY is configurable",
    )
    parser.add_argument("--large-batch", type=int, default=128)
    parser.add_argument("--work-dir", type=Path, default=Path("foretune-work/tgraph"))
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args(arguments)
    began = conditions("tgraph", range(args.seeds))
    # Where the data lie is this machine's business.
    where = replace(began, command=began.command.replace(str(args.data), "DIR"))
    data = read(args.data)
    threads = len(os.sched_getaffinity(0))
    common = {"width": args.width, "batch": args.batch}
    of_layouts = Settings(args.work_dir, {**common, "epochs": args.epochs}, args.tested, threads)
    of_tiles = Settings(args.work_dir, {**common, "epochs": args.tile_epochs}, args.tested, threads)
    makers = {
        "layouts": lambda: layouts(data, args.seeds, of_layouts),
        "tiles": lambda: tiles(data, args.seeds, of_tiles),
        "ablation": lambda: ablation(data, args.seeds, of_layouts),
        "large": lambda: largest(args),
    }
    found = {part: makers[part]() for part in args.part or PARTS}
    body = [_INTRODUCTION.format(**vars(args))]
    body += [_SECTIONS[part](figures) for part, figures in found.items() if figures]
    publish(
        "tgraph",
        "TGraph on official files",
        "\n\n".join(body),
        {"schema": "foretune.bench.tgraph/1", **found},
        where.end(),
        args.write,
    )


_INTRODUCTION = (
    "Models of {width} channels, {batch} configurations a step, {epochs} passes over a graph with "
    "layouts and {tile_epochs} over the kernels, one member each. Equal configurations are on one "
    "side and count once. *tau (0.2 %)* is tau over pairs whose run times differ by more than "
    "0.2 %; *ceiling* is the tau that no model can pass, because runs of one configuration differ. "
    "Figures are means over seeds, with their deviation."
)


def _figure(cells: Sequence[Mapping[str, Any]], name: str) -> str:
    # What is not defined, NaN, is null in a file.
    values = [cell[name] for cell in cells if cell[name] is not None]
    if not values:
        return "-"
    spread = f" ± {np.std(values):.4f}" if len(values) > 1 else ""
    return f"{np.mean(values):.4f}{spread}"


def _rows(models: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[list[str]]:
    return [
        [model, *(_figure(cells, name) for name in _LAYOUT), f"{cells[0]['train_s']:.0f}"]
        for model, cells in models.items()
    ]


_HEADER = ["model", "tau", "tau-a", "OPA", "tau (0.2 %)", "slowdown 1", "10", "100", "training, s"]


def _layout_section(graphs: Sequence[Mapping[str, Any]]) -> str:
    parts = []
    for one in graphs:
        first = next(iter(one["models"].values()))[0]
        bound = "unknown" if one["ceiling"] is None else f"{one['ceiling']:.3f}"
        parts.append(
            f"### {one['graph']}\n\n{one['nodes']} nodes, {one['configurations']} configurations; "
            f"{first['learned']} learned from, {first['judged']} judged; ceiling {bound}.\n\n"
            + table(_HEADER, _rows(one["models"]))
        )
    return "## Layout graphs, one by one\n\n" + "\n\n".join(parts)


def _ablation_section(found: Mapping[str, Any]) -> str:
    return f"## Switches, on {found['graph']}\n\n" + table(_HEADER, _rows(found["models"]))


def _tile_section(found: Mapping[str, Any]) -> str:
    rows = []
    for model, cells in found["models"].items():
        figures = []
        for name in _TILE:
            # Kernels first: seeds of one kernel are no evidence of their own.
            table_of = np.array([[k[name] for k in cell["kernels"]] for cell in cells], dtype=float)
            one = interval(np.nanmean(table_of, axis=0).tolist())
            figures.append(f"{one['mean']:.3f} ({one['low']:.3f} to {one['high']:.3f})")
        rows.append([model, *figures])
    names = ["model", "M_tile", "slowdown 1", "5", "10", "tau"]
    return (
        f"## {len(found['kernels'])} kernels, each by models of the others\n\n{table(names, rows)}"
    )


def _large_section(found: Mapping[str, Any]) -> str:
    rows = [[name, f"{value:.1f}" if isinstance(value, float) else str(value)]
            for name, value in found.items()]  # fmt: skip
    return "## A made network of the largest official size\n\n" + table(["", ""], rows)


_SECTIONS = {
    "layouts": _layout_section,
    "tiles": _tile_section,
    "ablation": _ablation_section,
    "large": _large_section,
}


if __name__ == "__main__":
    main()
