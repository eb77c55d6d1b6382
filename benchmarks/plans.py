"""Does TGraph find fast plans of networks that it has never seen?

``python -m benchmarks plans --data DIR`` reads files of plans, which ``foretune graph collect
--pack`` wrote. Networks are dealt to five folds, those that resemble each other to the same
(``benchmarks.plan_networks.KIN``); each network is judged by models of the other folds, with three
seeds, beside trees on summed features, beside an order that only counts what differs from the
default plan, and beside the default plan, TVM's own, and random ones. The switches of the paper's
Table 3 are turned one by one on the first fold.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._tgraph import (
    ABLATIONS,
    MODELS,
    TREES,
    Network,
    Settings,
    ceiling,
    changed_scores,
    judged,
    kept,
    read_networks,
    resolved,
    tree_scores,
)
from benchmarks.pages import Section, publish
from benchmarks.plan_networks import kin_of
from benchmarks.results import conditions, table
from foretune.errors import BadInputError
from foretune.evaluate import Bootstrap
from foretune.tgraph import train

PARTS = ("folds", "ablation")
CHANGED = "count of changes"
SHOWN = ("corrected", "corrected, no cross attention", TREES, CHANGED)
_FIGURES = {"tau-b": "tau", "of drawn ones": "tau_random", "of bred ones": "tau_evolved",
            "loss of the pick, %": "pick", "of drawn ones, %": "pick_drawn"}  # fmt: skip
_FLOORS = {
    "default": "the passes (default plan)",
    "tvm": "TVM's own plan",
    "random": "a random plan",
    "evolved": "a bred plan",
}
TAU, LOSS, OF_FLOORS = 0.6, 0.04, 0.5
"""To be reached: tau at least, loss of the plan picked first at most, and its share of the losses
of TVM's own plan and of a random one at most."""

Figures = Mapping[str, Sequence[Mapping[str, Any]]]
"""Model -> what is known of each network."""


def folds_of(networks: Sequence[Network], count: int) -> list[list[int]]:
    """Numbers of the networks of each fold; those that resemble each other are in one.

    Raises:
        BadInputError: All resemble each other.
    """
    kin = np.unique([kin_of(network.name) for network in networks], return_inverse=True)[1]
    kinds = int(kin.max()) + 1
    if kinds < 2:
        raise BadInputError(
            "networks must be of two kinds, to be judged by models that saw no other of theirs, "
            "but all are of one: give more"
        )
    dealt = np.random.default_rng(0).permutation(kinds) % min(count, kinds)
    return [np.flatnonzero(dealt[kin] == at).tolist() for at in range(min(count, kinds))]


def fold_cell(
    networks: Sequence[Network], fold: Sequence[int], model: str, seed: int, settings: Settings
) -> list[dict[str, Any]]:
    """Figures of the networks of a fold, learned from the others."""
    held = [networks[at] for at in fold]
    learned = [networks[at] for at in range(len(networks)) if at not in set(fold)]

    def judge() -> dict[str, Any]:
        if model == TREES:
            scores = tree_scores(learned, held, seed, settings.threads)
        elif model == CHANGED:
            scores = [changed_scores(network) for network in held]
        else:
            parts = [network.part for network in learned]
            config = resolved(model, settings)
            made = train(parts, config, name=model, seed=seed, validate=False)
            scores = [made.score(network.graph, network.part.rows) for network in held]
        return {"networks": [judged(*pair) for pair in zip(held, scores, strict=True)]}

    graphs = [network.graph for network in (*learned, *held)]
    found = kept(judge, settings, f"fold of {held[0].graph.name}", graphs, model, seed)
    return list(found["networks"])


def figures(
    networks: Sequence[Network],
    folds: Sequence[Sequence[int]],
    models: Sequence[str],
    seeds: int,
    settings: Settings,
) -> dict[str, list[dict[str, Any]]]:
    """Model to the figures of every network of the folds, means over seeds."""
    found = {}
    for model in models:
        by_name: dict[str, list[dict[str, Any]]] = {}
        for fold in folds:
            for seed in range(1 if model == CHANGED else seeds):
                for one in fold_cell(networks, fold, model, seed, settings):
                    by_name.setdefault(one["name"], []).append(one)
        found[model] = [_over_seeds(cells) for _, cells in sorted(by_name.items())]
    return found


def _over_seeds(cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    # What is not defined is null in a file.
    rows = {n: [c[n] for c in cells if c[n] is not None] for n in _FIGURES.values()}
    means = {name: float(np.mean(values)) if values else None for name, values in rows.items()}
    spread = float(np.std([cell["tau"] for cell in cells]))
    return {**cells[0], **means, "tau_spread": spread}


# The page


def section(data: Mapping[str, Any]) -> Section:
    """What readings say."""
    networks = data["networks"]
    kin = {one["name"]: one["kin"] for one in networks}
    parts = [_reading(networks, data["kinds"])]
    answer, shown = "No fold was judged.", ""
    if "folds" in data:
        answer = _answer(data["folds"], kin)
        shown = _summary(data["folds"], kin)
        parts.append(f"#### Networks one by one\n\n{_each(data['folds'])}")
    if "ablation" in data:
        parts.append(f"#### Switches, on the first fold\n\n{_summary(data['ablation'], kin)}")
    question = "Does TGraph find fast plans of networks that it has never seen?"
    return Section(question, answer, shown, "\n\n".join(parts))


def _answer(found: Figures, kin: Mapping[str, str]) -> str:
    ours = found["corrected"]
    tau, pick = (_mean(ours, name, kin) for name in ("tau", "pick"))
    assert tau is not None and pick is not None
    goals = [f"tau {TAU}: {_reached(tau['mean'] >= TAU)}"]
    goals.append(f"a loss of {LOSS:.0%}: {_reached(pick['mean'] <= LOSS)}")
    for name in ("tvm", "random"):
        floor = _mean(ours, name, kin)
        if floor is not None:
            so = _reached(pick["mean"] <= OF_FLOORS * floor["mean"])
            goals.append(f"{OF_FLOORS:.0%} of that of {_FLOORS[name]}: {so}")
    return (
        f"The plan that TGraph picks first is {_told(pick, percent=True)} % slower than the best "
        f"known, and its tau is {_told(tau)} (asked: {'; '.join(goals)})."
    )


def _reached(so: bool) -> str:
    return "reached" if so else "missed"


def _reading(networks: Sequence[Mapping[str, Any]], kinds: Mapping[str, int]) -> str:
    left = [one["ceiling"] for one in networks if one["ceiling"] is not None]
    noise = f" Noise leaves a tau of {np.mean(left):.2f}." if left else ""
    return (
        f"{len(networks)} networks, {sum(one['plans'] for one in networks):,} plans, measured on "
        f"{kinds['hardware']} machines with {kinds['code']} versions of the code and "
        f"{kinds['weights']} of the weights.{noise} Each network is judged by models that saw none "
        "that resembles it. A loss is seconds over those of the best plan that was measured beside "
        "the default plan, minus 1. Figures are means over networks of means over seeds, with 95 % "
        "intervals over kinds of networks. Bred plans are faster than drawn ones, which is easily "
        "seen; so tau is also told within both, and the pick also among drawn plans alone."
    )


def _mean(
    networks: Sequence[Mapping[str, Any]], name: str, kin: Mapping[str, str]
) -> dict[str, float] | None:
    known = [one for one in networks if one[name] is not None]
    if not known:
        return None
    return Bootstrap([kin[one["name"]] for one in known]).mean([one[name] for one in known])


def _told(found: Mapping[str, float] | None, percent: bool = False) -> str:
    if found is None:
        return "–"
    scale, digits = (100.0, 1) if percent else (1.0, 3)
    mean, low, high = (f"{scale * found[end]:.{digits}f}" for end in ("mean", "low", "high"))
    return f"{mean} ({low} to {high})"


def _summary(models: Figures, kin: Mapping[str, str]) -> str:
    rows = [
        [
            model,
            *(_told(_mean(networks, n, kin), "pick" in n) for n in _FIGURES.values()),
            f"{np.mean([one['tau_spread'] for one in networks]):.3f}",
        ]
        for model, networks in models.items()
    ]
    first = next(iter(models.values()))
    rows += [
        [words, "", "", "", _told(_mean(first, name, kin), True), "", ""]
        for name, words in _FLOORS.items()
    ]
    return table(["who picks", *_FIGURES, "deviation of tau over seeds"], rows)


def _each(models: Figures) -> str:
    rows = []
    for at, first in enumerate(next(iter(models.values()))):
        each = [networks[at] for networks in models.values()]
        floors = ["–" if first[n] is None else f"{100 * first[n]:.1f}" for n in _FLOORS]
        told = (f"{one['tau']:.2f} / {100 * one['pick']:.1f}" for one in each)
        rows.append([first["name"], str(first["plans"]), *told, *floors])
    header = ["network", "plans", *(f"{model}: tau / loss, %" for model in models)]
    return table([*header, *(f"{words}, %" for words in _FLOORS.values())], rows)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
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
    options = parser.parse_args(arguments)
    where = conditions("plans", range(options.seeds))
    networks = read_networks(options.data)
    common = {"width": options.width, "batch": options.batch, "tie_width": options.tie_width}
    threads = len(os.sched_getaffinity(0))
    settings = Settings(options.work_dir, {**common, "epochs": options.epochs}, 0, threads)
    short = replace(settings, options={**common, "epochs": options.ablation_epochs})
    folds = folds_of(networks, options.folds)
    parts = options.part or PARTS
    made = [network.made for network in networks]
    found: dict[str, Any] = {
        "schema": "foretune.bench.plans/2",
        "networks": [
            {
                "name": network.name,
                "kin": kin_of(network.name),
                "nodes": len(network.graph.nodes),
                "operators": len(network.graph.configurable),
                "plans": len(network.part.rows),
                "ceiling": ceiling(network.part.runtime, network.noise),
                "made": network.made,
            }
            for network in networks
        ],
        "kinds": {
            name: len({json.dumps(one.get(name)) for one in made})
            for name in ("hardware", "code", "weights")
        },
    }
    if "folds" in parts:
        found["folds"] = figures(networks, folds, SHOWN, options.seeds, settings)
    if "ablation" in parts:
        models = (*MODELS, *ABLATIONS)
        found["ablation"] = figures(networks, folds[:1], models, options.seeds, short)
    publish("plans", section, found, where.end(), options.write)


if __name__ == "__main__":
    main()
