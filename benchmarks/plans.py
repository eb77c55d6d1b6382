"""Does TGraph find fast plans of networks that it has never seen?

``python -m benchmarks.plans --data DIR`` reads files of plans, which ``foretune graph collect
--pack`` wrote. Networks are dealt to five folds, sizes of one architecture to the same; each
network is judged by models of the other folds, with three seeds, beside trees on summed features,
beside the default plan, TVM's own, and a random one. The switches of the paper's Table 3 are turned
one by one on the first fold.

A file for each training is kept in the work directory; so the benchmark goes on where it was
interrupted.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._tgraph.cells import ABLATIONS, MODELS, TREES, Settings, kept, resolved
from benchmarks._tgraph.plans import Network, judged, read_networks, tree_scores
from benchmarks.results import conditions, publish, table
from foretune.tgraph import by_graph, train
from foretune.tgraph.metrics import interval

PARTS = ("folds", "ablation")
SHOWN = ("corrected", "corrected, no cross attention", TREES)
_FIGURES = ("tau", "pick", "best_of_five")
_FLOORS = ("default", "tvm", "random")
_TITLE = "TGraph on plans of our own pipeline"
TAU, LOSS = 0.6, 0.04
"""To be reached: tau at least, loss of the plan picked first at most."""


def fold_cell(
    networks: Sequence[Network], fold: Sequence[int], model: str, seed: int, settings: Settings
) -> dict[str, Any]:
    """Figures of the networks of a fold, learned from the others."""
    held = [networks[at] for at in fold]
    learned = [networks[at] for at in range(len(networks)) if at not in set(fold)]

    def figures() -> dict[str, Any]:
        began = time.perf_counter()
        if model == TREES:
            scores = tree_scores(learned, held, seed, settings.threads)
        else:
            config = resolved(model, settings)
            assert config is not None
            parts = [network.part for network in learned]
            made = train(parts, config, name=model, seed=seed, validate=False)
            scores = [made.score(network.graph, network.part.rows) for network in held]
        return {
            "networks": [judged(*pair) for pair in zip(held, scores, strict=True)],
            "seconds": time.perf_counter() - began,
        }

    graphs = [network.graph for network in (*learned, *held)]
    return kept(figures, settings, f"fold of {held[0].graph.name}", graphs, model, seed)


def folds(
    networks: Sequence[Network], count: int, seeds: int, settings: Settings
) -> dict[str, list[dict[str, Any]]]:
    """Model to the figures of every network, means over seeds."""
    parts = by_graph([network.graph for network in networks], count, np.random.default_rng(0))
    found = {}
    for model in SHOWN:
        by_name: dict[str, list[dict[str, Any]]] = {}
        for fold in parts:
            for seed in range(seeds):
                cell = fold_cell(networks, fold, model, seed, settings)
                for one in cell["networks"]:
                    by_name.setdefault(one["name"], []).append(one)
        found[model] = [_over_seeds(cells) for _, cells in sorted(by_name.items())]
    return found


def _over_seeds(cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    means = {name: float(np.mean([cell[name] for cell in cells])) for name in _FIGURES}
    spread = float(np.std([cell["tau"] for cell in cells]))
    return {**cells[0], **means, "tau_spread": spread}


def ablation(
    networks: Sequence[Network], count: int, seeds: int, settings: Settings
) -> dict[str, list[dict[str, Any]]]:
    """Model to the figures of the first fold's networks, a switch turned at a time."""
    fold = by_graph([network.graph for network in networks], count, np.random.default_rng(0))[0]
    found = {}
    for model in (*MODELS, *ABLATIONS):
        cells = [fold_cell(networks, fold, model, seed, settings) for seed in range(seeds)]
        rows = zip(*(cell["networks"] for cell in cells), strict=True)
        found[model] = [_over_seeds(row) for row in rows]
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs what is asked for and prints the tables."""
    parser = argparse.ArgumentParser(prog="benchmarks.plans", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a folder of packed plans")
    parser.add_argument("--part", action="append", choices=PARTS, default=[])
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=60, help="passes over the networks")
    parser.add_argument("--ablation-epochs", type=int, default=25)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--tie-width", type=float, default=0.03, help="noise of a reading")
    parser.add_argument("--work-dir", type=Path, default=Path("foretune-work/plans-learned"))
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args(arguments)
    where = conditions("plans", range(args.seeds))
    networks = read_networks(args.data)
    threads = len(os.sched_getaffinity(0))
    common = {"width": args.width, "batch": args.batch, "tie_width": args.tie_width}
    settings = Settings(args.work_dir, {**common, "epochs": args.epochs}, 0, threads)
    short = replace(settings, options={**common, "epochs": args.ablation_epochs})
    parts = args.part or PARTS
    found: dict[str, Any] = {"schema": "foretune.bench.plans/1", "networks": _described(networks)}
    if "folds" in parts:
        found["folds"] = folds(networks, args.folds, args.seeds, settings)
    if "ablation" in parts:
        found["ablation"] = ablation(networks, args.folds, args.seeds, short)
    publish("plans", _TITLE, body_of(found), found, where.end(), args.write)


def _described(networks: Sequence[Network]) -> list[dict[str, Any]]:
    return [
        {
            "name": network.graph.name,
            "nodes": len(network.graph.nodes),
            "operators": len(network.graph.configurable),
            "plans": len(network.part.rows),
            "quiet": float(np.mean(network.quiet >= 3)),
            "made": dict(network.made),
        }
        for network in networks
    ]


def body_of(found: Mapping[str, Any]) -> str:
    """The page's text."""
    networks = found["networks"]
    plans = sum(one["plans"] for one in networks)
    quiet = float(np.mean([one["quiet"] for one in networks]))
    machines = len({one["made"]["hardware"] for one in networks})
    parts = [
        f"{len(networks)} networks, {plans:,} plans, {quiet:.0%} with three quiet ones. "
        f"Machines: {machines}. "
        "Each network is judged by models that saw no network of its architecture. A loss is "
        "seconds over those of the best plan that was measured beside the default plan, minus 1. "
        "Figures are means over networks of means over seeds, with 95 % intervals over networks."
    ]
    if "folds" in found:
        parts += [_summary(found["folds"]), "## Networks one by one", _each(found["folds"])]
    if "ablation" in found:
        parts += ["## Switches, on the first fold", _summary(found["ablation"])]
    return "\n\n".join(parts)


def _summary(models: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    rows = []
    for model, networks in models.items():
        tau = interval([one["tau"] for one in networks])
        spread = float(np.mean([one["tau_spread"] for one in networks]))
        rows.append(
            [
                model,
                f"{tau['mean']:.3f} ({tau['low']:.3f} to {tau['high']:.3f})",
                f"{spread:.3f}",
                *(_percent([one[name] for one in networks]) for name in ("pick", "best_of_five")),
            ]
        )
    first = next(iter(models.values()))
    rows += [[_NAMES[name], "", "", _percent([one[name] for one in first]), ""] for name in _FLOORS]
    header = ["who picks", "tau-b", "deviation of seeds", "loss of the pick", "best of five picks"]
    return table(header, rows)


_NAMES = {
    "default": "the passes (default plan)",
    "tvm": "TVM by itself",
    "random": "chance (mean of random plans)",
}


def _percent(values: Sequence[float | None]) -> str:
    found = interval([100 * value for value in values if value is not None])
    return f"{found['mean']:.1f} % ({found['low']:.1f} to {found['high']:.1f})"


def _each(models: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    rows = []
    for at, first in enumerate(next(iter(models.values()))):
        figures = [networks[at] for networks in models.values()]
        floors = ["–" if first[n] is None else f"{100 * first[n]:.1f}" for n in _FLOORS]
        rows.append(
            [
                first["name"],
                str(first["plans"]),
                *(f"{one['tau']:.2f} / {100 * one['pick']:.1f}" for one in figures),
                *floors,
            ]
        )
    header = ["network", "plans", *(f"{model}: tau / loss, %" for model in models)]
    return table([*header, "default, %", "TVM, %", "random, %"], rows)


if __name__ == "__main__":
    main()
