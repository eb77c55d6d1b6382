"""One training and its figures: a cell, kept on a disk, so that a run goes on where it ended."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._tgraph.data import resolvable_tau
from benchmarks._tgraph.trees import layout_scores, tile_scores
from benchmarks.results import read_json, say
from benchmarks.sources import code_of
from foretune._files import write_json
from foretune.tgraph import (
    Graph,
    LayoutGraph,
    Part,
    TileGraph,
    by_configuration,
    by_graph,
    graph_key,
    named,
    train,
    whole,
)
from foretune.tgraph.config import TGraphConfig
from foretune.tgraph.metrics import layout_metrics, tile_metrics
from foretune.tgraph.splits import configuration_keys

TREES = "trees"
_JUDGING = ("cells.py", "data.py", "trees.py", "plans.py")
"""Files of what judges, and of the trees."""
Changes = Mapping[str, Any]
MODELS: Mapping[str, tuple[str, Changes]] = {
    "published": ("published", {}),
    "corrected": ("corrected", {}),
}
ABLATIONS: Mapping[str, tuple[str, Changes]] = {
    "corrected, no channel attention": ("variants", {"channel_attention": False}),
    "corrected, no cross attention": ("variants", {"attention": "none"}),
    "corrected, no edges": ("variants", {"edges": "none"}),
    "corrected, edges from consumers": ("variants", {"edges": "consumers"}),
    "corrected, pruned to 0 hops": ("corrected", {"prune_hops": 0}),
    "corrected, pruned to 3 hops": ("corrected", {"prune_hops": 3}),
    "corrected, ListMLE": ("variants", {"loss": "listmle"}),
    "corrected, RankNet": ("variants", {"loss": "ranknet"}),
    "corrected, squares": ("variants", {"loss": "mse"}),
    "corrected, margin 1 everywhere": ("corrected", {"tie_width": 0.0}),
    "published, no channel attention": ("published", {"channel_attention": False}),
    "published, no cross attention": ("published", {"attention": "none"}),
    "published, no edges": ("published", {"edges": "none"}),
    "published, one order": ("published", {"permutations": 0}),
}
"""Table 3 of the paper, and other switches. Permutations are the paper's augmentation."""
TILES: Mapping[str, tuple[str, Changes]] = {
    "published (inert attention)": ("published", {}),
    "published, no attention": ("published", {"tile_attention": "none"}),
    "published, fused attention": ("published", {"tile_attention": "fused"}),
    "corrected": ("corrected", {}),
    "corrected, no attention": ("variants", {"tile_attention": "none"}),
}


@dataclass(frozen=True)
class Settings:
    """What all trainings of a run have in common.

    Attributes:
        folder: Where cells are kept.
        options: Of every model: how wide, how long.
        tested: Configurations of a graph that are judged at most.
        threads: Of the trees.
    """

    folder: Path
    options: Changes
    tested: int
    threads: int


def layout_cell(graph: LayoutGraph, model: str, seed: int, settings: Settings) -> dict[str, Any]:
    """Figures of a fifth of the configurations, learned from the others."""

    def judged() -> dict[str, Any]:
        rng = np.random.default_rng(seed)
        learned, held = by_configuration(graph, 5, rng)
        if len(held.rows) > settings.tested:
            held = Part(graph, rng.choice(held.rows, settings.tested, replace=False))
        began = time.perf_counter()
        if model == TREES:
            scores = layout_scores(learned, held, seed, settings.threads)
            trained = scored = time.perf_counter()
        else:
            config = resolved(model, settings)
            assert config is not None
            made = train([learned], config, name=model, seed=seed, validate=False)
            trained = time.perf_counter()
            scores = made.score(graph, held.rows)
            scored = time.perf_counter()
        return {
            **layout_metrics(scores, held.runtime),
            "resolvable_tau": resolvable_tau(scores, held.runtime),
            "learned": len(learned.rows),
            "judged": len(held.rows),
            "train_s": trained - began,
            "score_s": scored - trained,
        }

    return kept(judged, settings, graph.name, [graph], model, seed)


def tile_cell(
    graphs: tuple[TileGraph, ...], model: str, seed: int, settings: Settings
) -> dict[str, Any]:
    """Figures of every kernel, learned from the others, as lists in the order of ``graphs``."""

    def judged() -> dict[str, Any]:
        began, found = time.perf_counter(), dict[int, dict[str, float]]()
        for fold in by_graph(graphs, len(graphs), np.random.default_rng(seed)):
            learned = [whole(graph) for at, graph in enumerate(graphs) if at not in set(fold)]
            held = [whole(graphs[at]) for at in fold]
            if model == TREES:
                scores = tile_scores(learned, held, seed, settings.threads)
            else:
                config = resolved(model, settings)
                assert config is not None
                made = train(learned, config, name=model, seed=seed, validate=False)
                scores = [made.score(part.graph, part.rows) for part in held]
            for at, part, each in zip(fold, held, scores, strict=True):
                found[at] = tile_metrics(each, part.runtime)
        return {
            "kernels": [found[at] for at in range(len(graphs))],
            "train_s": time.perf_counter() - began,
        }

    return kept(judged, settings, "tiles", graphs, model, seed)


def resolved(model: str, settings: Settings) -> TGraphConfig | None:
    """How a model is trained; None for what has no configuration."""
    known = {**MODELS, **ABLATIONS, **TILES}
    if model not in known:
        return None
    name, changes = known[model]
    return named(name, {**settings.options, **changes})


def kept(
    judged: Callable[[], dict[str, Any]],
    settings: Settings,
    part: str,
    graphs: Sequence[Graph],
    model: str,
    seed: int,
) -> dict[str, Any]:
    """The figures of a training, found again where data, configuration and code are the same.

    Args:
        judged: Trains and judges.
        settings: Of all trainings.
        part: What the training is a part of.
        graphs: What is learned from, and judged on.
        model: What is trained.
        seed: Of the training.
    """
    config = resolved(model, settings)
    identity = json.dumps(
        [
            part,
            [_digest(graph) for graph in graphs],
            model,
            None if config is None else config.to_json(),
            seed,
            settings.tested,
            code_of("foretune.tgraph.model", "foretune_research.tgraph.config", within=["tgraph"]),
            [_hash(Path(__file__).with_name(file).read_bytes()) for file in _JUDGING],
        ]
    )
    digest = _hash(identity.encode())
    file = settings.folder / f"{digest}.json"
    if not file.exists():
        began = time.perf_counter()
        cell = judged()
        settings.folder.mkdir(parents=True, exist_ok=True)
        write_json(file, {"part": part, "model": model, "seed": seed, **cell})
        say(f"{part}, {model}, seed {seed}: {time.perf_counter() - began:.0f} s")
    found = read_json(file)
    assert isinstance(found, dict)
    return found


def _digest(graph: Graph) -> str:
    """Changes with a graph, its configurations and their run times."""
    digest = hashlib.blake2b(graph_key(graph).encode(), digest_size=8)
    digest.update(np.ascontiguousarray(configuration_keys(graph)).tobytes())
    digest.update(np.ascontiguousarray(graph.runtime).tobytes())
    return digest.hexdigest()


def _hash(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()
