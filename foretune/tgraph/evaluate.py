"""Judging a TGraph: on graphs, or configurations, that it has not learned from.

``evaluate`` trains a named configuration on each part of a split and judges it on the rest;
``judge_all`` judges a trained model on whole graphs. Both give the ``foretune.graph/1`` object.
Equal configurations are judged once, by their fastest run, since their order is noise.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from foretune.errors import BadInputError, listed, unknown_name
from foretune.tgraph.config import TGraphConfig
from foretune.tgraph.graphs import LAYOUT, Graph, graph_names
from foretune.tgraph.metrics import interval, layout_metrics, tile_metrics
from foretune.tgraph.model import TGraph, fold_figures, train
from foretune.tgraph.prepare import family
from foretune.tgraph.splits import Part, by_configuration, by_graph, whole

SCHEMA = "foretune.graph/1"
SPLITS = ("graph", "configuration")
NONE = "none"
FOLDS = 5
DEFINITIONS = {
    "tau": "Kendall's tau-b of scores and run times",
    "tau_a": "pairs in order minus pairs out of order, over all pairs",
    "opa": "pairs in order over pairs with different run times",
    "slowdownK": "fastest of the K best-scored configurations / fastest of all - 1; of equal "
    "scores, slower ones count as scored better",
    "m_tile": "2 - fastest of the 5 best-scored / fastest of all",
    "configurations": "different ones that were judged, each by its fastest run",
    "low, high": "95 % bootstrap over graphs",
}
UNMEASURED = "no run times"
NO_ORDER = "fewer than two different run times"


def evaluate(
    name: str,
    config: TGraphConfig,
    graphs: Sequence[Graph],
    by: str,
    *,
    folds: int = FOLDS,
    seed: int = 0,
    device: str | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Trains on a part of the data and judges on the rest.

    Args:
        name: Of the configuration.
        config: What is trained.
        graphs: Of one kind.
        by: ``"graph"``: each graph is judged by a model that never saw its network;
            ``"configuration"``: on one of ``folds`` parts of each graph's configurations, by one
            model that learned from the other parts of all graphs.
        folds: Parts of the graphs, or of the configurations, at least 2.
        seed: Seeds splits and training.
        device: Of PyTorch.
        progress: Is told what is going on.

    Returns:
        The ``foretune.graph/1`` object but for ``data``.

    Raises:
        BadInputError: There is no such split, or nothing to learn from or to judge.
    """
    if by not in SPLITS:
        raise unknown_name("split", by, SPLITS)
    if folds < 2:
        raise BadInputError(f"`folds >= 2` must hold, but got --folds {folds}")
    used, skipped = judgeable(graphs)
    rng = np.random.default_rng(seed)
    rounds = list(_rounds(used, by, folds, rng, config.dedup))
    judged, figures, train_s, score_s = [], [], 0.0, 0.0
    for at, (learned, held) in enumerate(rounds):
        progress(f"training {at + 1} of {len(rounds)}, judged on {_named(held)}")
        began = time.perf_counter()
        # Where configurations are split, every graph is learned from: no fold is left out.
        model = train(learned, config, name=name, seed=seed, device=device, validate=by == "graph")
        train_s += time.perf_counter() - began
        figures.append(fold_figures(model.members))
        for part in held:
            began = time.perf_counter()
            judged.append(judge(model, part, device=device, seed=seed))
            score_s += time.perf_counter() - began
    return {
        **_result(name, by, graphs[0].kind, judged, skipped),
        "seed": seed,
        "folds": folds,
        "options": config.to_json(),
        "members": figures,
        "train_s": train_s / len(rounds),
        "score_s_per_configuration": score_s / sum(one["configurations"] for one in judged),
    }


def judge_all(
    model: TGraph, graphs: Sequence[Graph], *, device: str | None = None, seed: int = 0
) -> dict[str, Any]:
    """Judges a trained model on whole graphs.

    Args:
        model: Of their kind.
        graphs: At least one of them measured.
        device: Of PyTorch.
        seed: Of the orders over which scores are averaged.

    Returns:
        The ``foretune.graph/1`` object but for ``data``; ``seen`` of a graph says whether the model
        learned from its architecture, in whatever size.

    Raises:
        BadInputError: No graph can be judged, or one is of another kind.
    """
    used, skipped = judgeable(graphs)
    began = time.perf_counter()
    judged = [
        {
            **judge(model, whole(graph), device=device, seed=seed),
            "seen": family(graph) in model.seen,
        }
        for graph in used
    ]
    elapsed = time.perf_counter() - began
    return {
        **_result(model.name, NONE, model.kind, judged, skipped),
        "options": model.config.to_json(),
        "members": [fold_figures(model.members)],
        "score_s_per_configuration": elapsed / sum(one["configurations"] for one in judged),
    }


def judge(model: TGraph, part: Part, *, device: str | None = None, seed: int = 0) -> dict[str, Any]:
    """The figures of one graph, as ``graphs`` of ``foretune.graph/1`` has them.

    Args:
        model: Scores.
        part: Different configurations of a measured graph.
        device: Of PyTorch.
        seed: Of the orders over which scores are averaged.
    """
    scores = model.score(part.graph, part.rows, device=device, seed=seed)
    figures = layout_metrics if part.graph.kind == LAYOUT else tile_metrics
    return {
        "name": part.graph.name,
        "nodes": len(part.graph.nodes),
        "configurations": len(part.rows),
        "rows": len(part.graph.configurations),
        **figures(scores, part.runtime),
    }


def judgeable(graphs: Sequence[Graph]) -> tuple[list[Graph], dict[str, list[str]]]:
    """Graphs with an order of run times, and reason to names of the others.

    Raises:
        BadInputError: There is none.
    """
    skipped = defaultdict[str, list[str]](list)
    used = []
    for graph in graphs:
        if whole(graph).orderable:
            used.append(graph)
        else:
            skipped[UNMEASURED if graph.runtime is None else NO_ORDER].append(graph.name)
    if not used:
        raise BadInputError(
            "a graph needs two different configurations with different run times to be judged, but "
            f"{graph_names(graphs)} has none: give graphs that were measured"
        )
    return used, dict(skipped)


def _rounds(
    graphs: Sequence[Graph], by: str, folds: int, rng: np.random.Generator, keep: str
) -> Iterable[tuple[list[Part], list[Part]]]:
    """What is learned from and what is judged on, for each training."""
    if by == "configuration":
        pairs = [by_configuration(graph, folds, rng, keep) for graph in graphs]
        learned, held = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        orderable = [part for part in held if part.orderable]
        if not orderable:
            raise BadInputError(
                f"a part of the configurations must have two different run times to be judged, but "
                f"one of {folds} parts of {graph_names(graphs)} has not: take fewer --folds"
            )
        yield learned, orderable
        return
    for fold in by_graph(graphs, folds, rng):
        learned = [whole(graph, keep) for at, graph in enumerate(graphs) if at not in set(fold)]
        yield learned, [whole(graphs[at]) for at in fold]


def _result(
    name: str,
    by: str,
    kind: str,
    judged: Sequence[Mapping[str, Any]],
    skipped: Mapping[str, Sequence[str]],
) -> dict[str, Any]:
    described = {"name", "nodes", "configurations", "rows", "seen"}
    figures = [key for key in judged[0] if key not in described]
    return {
        "schema": SCHEMA,
        "model": name,
        "split": by,
        "kind": kind,
        "graphs": list(judged),
        "metrics": {key: interval([one[key] for one in judged]) for key in figures},
        "skipped": dict(skipped),
        "definitions": DEFINITIONS,
    }


def _named(parts: Sequence[Part]) -> str:
    return listed([part.graph.name for part in parts], 4)
