"""Does TGraph find fast plans of networks that it has never seen?

``python -m benchmarks.plans --data DIR`` reads files of plans, which ``foretune graph collect
--pack`` wrote. Networks are dealt to five folds, those that resemble each other to the same
(``benchmarks.plan_networks.KIN``); each network is judged by models of the other folds, with three
seeds, beside trees on summed features, beside an order that only counts what differs from the
default plan, and beside the default plan, TVM's own, and random ones. The switches of the paper's
Table 3 are turned one by one on the first fold.

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
from benchmarks._tgraph.plans import (
    Network,
    ceiling,
    changed_scores,
    judged,
    kinds_of,
    read_networks,
    tree_scores,
)
from benchmarks.plan_networks import kin_of
from benchmarks.results import conditions, publish, table
from foretune.errors import BadInputError
from foretune.tgraph import train

PARTS = ("folds", "ablation")
CHANGED = "count of changes"
SHOWN = ("corrected", "corrected, no cross attention", TREES, CHANGED)
_FIGURES = ("tau", "tau_random", "tau_evolved", "pick", "pick_drawn")
_FLOORS = ("default", "tvm", "random", "evolved")
_TITLE = "TGraph on plans of our own pipeline"
TAU, LOSS, OF_FLOORS = 0.6, 0.04, 0.5
"""To be reached: tau at least, loss of the plan picked first at most, and its share of the losses
of TVM's own plan and of a random one at most."""
_RESAMPLES = 2000


def folds_of(networks: Sequence[Network], count: int) -> list[list[int]]:
    """Numbers of the networks of each fold; those that resemble each other are in one.

    Raises:
        BadInputError: All resemble each other.
    """
    kin = np.unique([kin_of(_name(network)) for network in networks], return_inverse=True)[1]
    kinds = int(kin.max()) + 1
    if kinds < 2:
        raise BadInputError(
            "networks must be of two kinds, to be judged by models that saw no other of theirs, "
            "but all are of one: give more"
        )
    dealt = np.random.default_rng(0).permutation(kinds) % min(count, kinds)
    return [np.flatnonzero(dealt[kin] == at).tolist() for at in range(min(count, kinds))]


def _name(network: Network) -> str:
    return network.graph.name.rpartition("/")[2]


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
        elif model == CHANGED:
            scores = [changed_scores(network) for network in held]
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
    found = {}
    for model in SHOWN:
        by_name: dict[str, list[dict[str, Any]]] = {}
        for fold in folds_of(networks, count):
            for seed in range(1 if model == CHANGED else seeds):
                cell = fold_cell(networks, fold, model, seed, settings)
                for one in cell["networks"]:
                    by_name.setdefault(one["name"], []).append(one)
        found[model] = [_over_seeds(cells) for _, cells in sorted(by_name.items())]
    return found


def _over_seeds(cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    # What is not defined is null in a file.
    rows = {name: [cell[name] for cell in cells if cell[name] is not None] for name in _FIGURES}
    means = {name: float(np.mean(values)) if values else None for name, values in rows.items()}
    spread = float(np.std([cell["tau"] for cell in cells]))
    return {**cells[0], **means, "tau_spread": spread}


def ablation(
    networks: Sequence[Network], count: int, seeds: int, settings: Settings
) -> dict[str, list[dict[str, Any]]]:
    """Model to the figures of the first fold's networks, a switch turned at a time."""
    fold = folds_of(networks, count)[0]
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
    found: dict[str, Any] = {
        "schema": "foretune.bench.plans/1",
        "networks": _described(networks),
        "kinds": kinds_of(networks),
    }
    if "folds" in parts:
        found["folds"] = folds(networks, args.folds, args.seeds, settings)
    if "ablation" in parts:
        found["ablation"] = ablation(networks, args.folds, args.seeds, short)
    publish("plans", _TITLE, body_of(found), found, where.end(), args.write)


def _described(networks: Sequence[Network]) -> list[dict[str, Any]]:
    return [
        {
            "name": _name(network),
            "kin": kin_of(_name(network)),
            "nodes": len(network.graph.nodes),
            "operators": len(network.graph.configurable),
            "plans": len(network.part.rows),
            "ceiling": ceiling(network),
            "made": network.made,
        }
        for network in networks
    ]


def body_of(found: Mapping[str, Any]) -> str:
    """The page's text."""
    networks = found["networks"]
    plans = sum(one["plans"] for one in networks)
    kinds = found["kinds"]
    left = [one["ceiling"] for one in networks if one["ceiling"] is not None]
    noise = f" Noise leaves a tau of {np.mean(left):.2f}." if left else ""
    parts = [
        f"{len(networks)} networks, {plans:,} plans, measured on {kinds['hardware']} machines with "
        f"{kinds['code']} versions of the code and {kinds['weights']} of the weights.{noise}",
        "Each network is judged by models that saw none that resembles it. A loss is seconds over "
        "those of the best plan that was measured beside the default plan, minus 1. Figures are "
        "means over networks of means over seeds, with 95 % intervals over kinds of networks. "
        "Bred plans are faster than drawn ones, which is easily seen; so tau is also told within "
        "both, and the pick also among drawn plans alone.",
    ]
    if "folds" in found:
        kin = [one["kin"] for one in networks]
        parts += [
            *_verdict(found["folds"]["corrected"]),
            _summary(found["folds"], kin),
            "## Networks one by one",
            _each(found["folds"]),
        ]
    if "ablation" in found:
        parts += ["## Switches, on the first fold", _summary(found["ablation"], None)]
    return "\n\n".join(parts)


def _verdict(networks: Sequence[Mapping[str, Any]]) -> list[str]:
    tau, pick = _mean(networks, "tau"), _mean(networks, "pick")
    lines = [
        f"- Goal: tau at least {TAU}: {_reached(tau >= TAU)} ({tau:.3f})",
        f"- Goal: the plan picked first at most {LOSS:.0%} slower than the best: "
        f"{_reached(pick <= LOSS)} ({pick:.1%})",
    ]
    for name in ("tvm", "random"):
        floor = _mean(networks, name)
        lines.append(
            f"- Goal: at most {OF_FLOORS:.0%} of the loss of {_NAMES[name]}: "
            f"{_reached(pick <= OF_FLOORS * floor)} ({pick:.1%} of {floor:.1%})"
        )
    return ["\n".join(lines)]


def _reached(so: bool) -> str:
    return "reached" if so else "missed"


def _mean(networks: Sequence[Mapping[str, Any]], name: str) -> float:
    return float(np.mean([one[name] for one in networks if one[name] is not None]))


def _summary(models: Mapping[str, Sequence[Mapping[str, Any]]], kin: Sequence[str] | None) -> str:
    rows = [
        [
            model,
            *(
                _interval([one[name] for one in networks], kin, percent="pick" in name)
                for name in _FIGURES
            ),
            f"{np.mean([one['tau_spread'] for one in networks]):.3f}",
        ]
        for model, networks in models.items()
    ]
    first = next(iter(models.values()))
    rows += [
        [_NAMES[name], "", "", "", _interval([one[name] for one in first], kin, True), "", ""]
        for name in _FLOORS
    ]
    header = ["who picks", "tau-b", "of drawn ones", "of bred ones", "loss of the pick",
              "of drawn ones", "deviation of tau over seeds"]  # fmt: skip
    return table(header, rows)


_NAMES = {
    "default": "the passes (default plan)",
    "tvm": "TVM's own plan",
    "random": "a random plan",
    "evolved": "a bred plan",
}


def _interval(values: Sequence[float | None], kin: Sequence[str] | None, percent: bool) -> str:
    """Mean with a 95 % interval of a bootstrap over kinds of networks; over networks without."""
    known = [at for at, value in enumerate(values) if value is not None]
    if not known:
        return "–"
    groups: dict[str, list[float]] = {}
    for at in known:
        value = values[at]
        assert value is not None
        groups.setdefault(str(at) if kin is None else kin[at], []).append(value)
    sums = np.array([[sum(own), len(own)] for own in groups.values()])
    drawn = np.random.default_rng(0).integers(len(sums), size=(_RESAMPLES, len(sums)))
    totals = sums[drawn].sum(axis=1)
    low, high = np.percentile(totals[:, 0] / totals[:, 1], [2.5, 97.5])
    mean = sums[:, 0].sum() / sums[:, 1].sum()
    scale, digits = (100.0, 1) if percent else (1.0, 3)
    told = " to ".join(f"{scale * end:.{digits}f}" for end in (low, high))
    return f"{scale * mean:.{digits}f}{' %' if percent else ''} ({told})"


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
    return table([*header, *(f"{_NAMES[name]}, %" for name in _FLOORS)], rows)


if __name__ == "__main__":
    main()
