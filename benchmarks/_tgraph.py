"""What is trained on graphs, and how it is judged: cells of ``benchmarks.tgraph`` and ``plans``.

Trees are the strong baseline. Of one layout graph they read the numbers of all its configurable
nodes in a row, which trees of another graph could not read; of kernels, a configuration beside mean
and maximum of the nodes' columns. Of plans of other networks they read sums: over all operators
with a choice, how many took each one, alone and weighted by an operator's share of the work.

The code of this module is part of what finished cells are kept under.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xgboost

from benchmarks.cells import Cells
from benchmarks.sources import code_of
from foretune.errors import BadInputError
from foretune.plans.standings import DEFAULT, EVOLVED, RANDOM, TVM
from foretune.tgraph import (
    COLUMNS,
    Graph,
    LayoutGraph,
    Part,
    TileGraph,
    by_configuration,
    by_graph,
    graph_key,
    named,
    read_graphs,
    train,
    whole,
)
from foretune.tgraph.config import TGraphConfig
from foretune.tgraph.metrics import agreement, layout_metrics, tile_metrics
from foretune.tgraph.opcodes import OPCODES
from foretune.tgraph.splits import configuration_keys

Floats = npt.NDArray[np.float64]
Changes = Mapping[str, Any]

TREES = "trees"
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
_ROUNDS = 400
_OPTIONS = {"max_depth": 8, "eta": 0.1, "subsample": 0.8, "colsample_bytree": 0.5}
_SUMMED = {**_OPTIONS, "max_depth": 6, "eta": 0.05}
"""Of trees over sums, which learn from few networks."""


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


def kept(
    judge: Callable[[], dict[str, Any]],
    settings: Settings,
    part: str,
    graphs: Sequence[Graph],
    model: str,
    seed: int,
) -> dict[str, Any]:
    """The figures of a training, found again where data, configuration and code are the same.

    Args:
        judge: Trains and judges.
        settings: Of all trainings.
        part: What the training is a part of.
        graphs: What is learned from, and judged on.
        model: What is trained.
        seed: Of the training.
    """
    config = None if model not in {**MODELS, **ABLATIONS, **TILES} else resolved(model, settings)
    cells = Cells(
        settings.folder,
        {
            "graphs": [_digest(graph) for graph in graphs],
            "config": None if config is None else config.to_json(),
            "tested": settings.tested,
            "code": code_of(
                "benchmarks._tgraph",
                "foretune.tgraph.model",
                "foretune_research.tgraph.config",
                within=["tgraph"],
            ),
        },
    )
    words = f"{part}, {model}, seed {seed}"
    found: dict[str, Any] = cells.get(words, judge, words)
    return found


def resolved(model: str, settings: Settings) -> TGraphConfig:
    """How a model is trained."""
    name, changes = {**MODELS, **ABLATIONS, **TILES}[model]
    return named(name, {**settings.options, **changes})


def _digest(graph: Graph) -> str:
    """Changes with a graph, its configurations and their run times."""
    digest = hashlib.blake2b(graph_key(graph).encode(), digest_size=8)
    digest.update(np.ascontiguousarray(configuration_keys(graph)).tobytes())
    digest.update(np.ascontiguousarray(graph.runtime).tobytes())
    return digest.hexdigest()


def _boosted(
    rows: npt.NDArray[Any], labels: Floats, held: Sequence[npt.NDArray[Any]], options: Changes
) -> list[Floats]:
    trees = xgboost.train(dict(options), xgboost.DMatrix(rows, labels), _ROUNDS)
    return [np.asarray(trees.predict(xgboost.DMatrix(one)), dtype=np.float64) for one in held]


# Files of TpuGraphs


def layout_cell(graph: LayoutGraph, model: str, seed: int, settings: Settings) -> dict[str, Any]:
    """Figures of a fifth of the configurations, learned from the others."""

    def judge() -> dict[str, Any]:
        rng = np.random.default_rng(seed)
        learned, held = by_configuration(graph, 5, rng)
        if len(held.rows) > settings.tested:
            held = Part(graph, rng.choice(held.rows, settings.tested, replace=False))
        began = time.perf_counter()
        if model == TREES:
            rank = learned.runtime.argsort().argsort() / len(learned.rows)
            options = {**_OPTIONS, "seed": seed, "nthread": settings.threads}
            (scores,) = _boosted(_layout(learned), rank, [_layout(held)], options)
        else:
            made = train(
                [learned], resolved(model, settings), name=model, seed=seed, validate=False
            )
            scores = made.score(graph, held.rows)
        return {
            **layout_metrics(scores, held.runtime),
            "resolvable_tau": resolvable_tau(scores, held.runtime),
            "learned": len(learned.rows),
            "judged": len(held.rows),
            "train_s": time.perf_counter() - began,
        }

    return kept(judge, settings, graph.name, [graph], model, seed)


def tile_cell(
    graphs: tuple[TileGraph, ...], model: str, seed: int, settings: Settings
) -> dict[str, Any]:
    """Figures of every kernel, learned from the others, as lists in the order of ``graphs``."""

    def judge() -> dict[str, Any]:
        found: dict[int, dict[str, float]] = {}
        for fold in by_graph(graphs, len(graphs), np.random.default_rng(seed)):
            learned = [whole(graph) for at, graph in enumerate(graphs) if at not in set(fold)]
            held = [whole(graphs[at]) for at in fold]
            if model == TREES:
                rows = np.concatenate([_tile(part) for part in learned])
                logs = [np.log(part.runtime) for part in learned]
                labels = np.concatenate([log - log.mean() for log in logs])
                options = {**_OPTIONS, "seed": seed, "nthread": settings.threads}
                scores = _boosted(rows, labels, [_tile(part) for part in held], options)
            else:
                made = train(
                    learned, resolved(model, settings), name=model, seed=seed, validate=False
                )
                scores = [made.score(part.graph, part.rows) for part in held]
            for at, part, each in zip(fold, held, scores, strict=True):
                found[at] = tile_metrics(each, part.runtime)
        return {"kernels": [found[at] for at in range(len(graphs))]}

    return kept(judge, settings, "tiles", graphs, model, seed)


def _layout(part: Part) -> npt.NDArray[Any]:
    assert isinstance(part.graph, LayoutGraph)
    features = part.graph.configurations.features(part.rows)
    return features.reshape(len(features), -1).astype(np.float32)


def _tile(part: Part) -> npt.NDArray[Any]:
    assert isinstance(part.graph, TileGraph)
    nodes = part.graph.nodes.features
    graph = np.concatenate([nodes.mean(axis=0), nodes.max(axis=0)])
    return np.hstack([part.graph.configurations[part.rows], np.tile(graph, (len(part.rows), 1))])


def resolvable_tau(scores: Floats, runtime: Floats, apart: float = 0.002) -> float:
    """tau-a over pairs whose run times differ by more than ``apart``, relative."""
    log = np.log(runtime)
    total = right = 0
    for at in range(len(scores)):
        slower = log[at] - log > apart
        total += int(slower.sum())
        right += int(np.sign(scores[at] - scores[slower]).sum())
    return right / total if total else float("nan")


def ceiling(runtime: Floats, noise: Floats, seed: int = 0) -> float | None:
    """tau that noise leaves to who knows everything else; None where nothing tells of it.

    The noise is added to the run times; the tau of both is an upper bound, because the run times
    have been spread by noise already.

    Args:
        runtime: Of different configurations, shape (n,).
        noise: By how much logarithms of readings differ, shape (m,).
    """
    if not len(noise):
        return None
    drawn = np.random.default_rng(seed).choice(noise, len(runtime))
    return agreement(np.log(runtime) + drawn, runtime)[0]


# Plans of networks

_KINDS = (OPCODES["convolution"], OPCODES["dot"])
"""Operations that are told apart; others count together."""
_CHOICES = {12: 3, 13: 2, 14: 2}
"""Columns of a configuration with what they may be, beside -1."""
_RESULT = slice(0, 6)
_ELEMENTS = COLUMNS.index("shape_dimensions_product")
_SIZES = slice(COLUMNS.index("shape_dimensions_0"), COLUMNS.index("shape_dimensions_0") + 6)
_CHANNELS = COLUMNS.index("convolution_dim_numbers_output_feature_dim")
_LAYOUT = slice(
    COLUMNS.index("layout_minor_to_major_0"), COLUMNS.index("layout_minor_to_major_0") + 6
)


@dataclass(frozen=True)
class Network:
    """A network with all of its measured plans.

    Attributes:
        graph: Plans that were drawn, and plans that were bred, as one graph.
        origin: Whose idea each plan was, shape (c,).
        compared: Whether it was measured beside the default plan, shape (c,).
        default: Nanoseconds of the default plan, measurement by measurement.
        tvm_is_default: Whether TVM's own plan is the default plan.
    """

    graph: LayoutGraph
    origin: npt.NDArray[np.str_]
    compared: npt.NDArray[np.bool_]
    default: npt.NDArray[np.int64]
    tvm_is_default: bool

    @property
    def name(self) -> str:
        """Without the folder."""
        return self.graph.name.rpartition("/")[2]

    @property
    def part(self) -> Part:
        """All of its different plans."""
        return whole(self.graph, "first")

    @property
    def made(self) -> dict[str, Any]:
        """What plans were measured with."""
        found: dict[str, Any] = json.loads(self.graph.made)
        return found

    @property
    def noise(self) -> Floats:
        """By how much the default plan's readings differ, neighbours of each other.

        So a slow hour is none. Empty where there are too few.
        """
        logs = np.log(self.default.astype(np.float64))
        return np.diff(logs) / np.sqrt(2.0) if len(logs) >= 3 else logs[:0]


def read_networks(folder: Path) -> list[Network]:
    """Networks of a folder that ``foretune graph collect --pack`` wrote, by name.

    Plans are compared within a network alone, so that networks may be of different machines.

    Raises:
        BadInputError: There is none, or plans of one network were measured with different things.
    """
    found: dict[str, Network] = {}
    for graph in read_graphs(folder):
        name = graph.name.rpartition("/")[2]
        if not isinstance(graph, LayoutGraph) or not graph.made or graph.runtime is None:
            raise BadInputError(
                f"{folder} must hold plans, but {graph.name} has none: give what `foretune graph "
                "collect --pack` wrote"
            )
        if name in found:
            raise BadInputError(
                f"plans of a network must be measured with the same, but those of {name} were "
                "with two kinds: give one collection of it"
            )
        origin, compared = [], []
        for file in sorted(folder.rglob(f"{name}.npz")):
            with np.load(file) as data:
                origin.append(data["config_origin"])
                compared.append(data["config_compared"])
                default, same = data["default_readings"], bool(data["tvm_is_default"])
        joined = np.concatenate(origin), np.concatenate(compared)
        found[name] = Network(graph, *joined, default=default, tvm_is_default=same)
    return list(found.values())


def judged(network: Network, scores: Floats) -> dict[str, Any]:
    """How well scores order a network's plans, and what following them costs.

    Losses are seconds over those of the best plan that was measured beside the default plan, minus
    1: among hundreds measured once, the lowest was lucky.

    Args:
        network: The network.
        scores: Of its different plans, lower is faster.

    Returns:
        ``name``, ``plans``; ``tau`` of all, ``tau_random`` and ``tau_evolved`` within what was
        drawn and what was bred (bred ones are faster, which is easily seen); losses: ``pick`` (the
        plan with the lowest score of all), ``pick_drawn`` (of those drawn, the default plan and
        TVM's), ``default``, ``tvm``, ``random`` and ``evolved`` (means; None without any).

    Raises:
        BadInputError: No plan was compared with the default plan.
    """
    rows = network.part.rows
    runtime = network.part.runtime
    origin, compared = network.origin[rows], network.compared[rows]
    if not compared[origin != DEFAULT].any():
        raise BadInputError(
            f"the best plan must be known, but of {network.graph.name} none was measured beside "
            "the default plan: collect it to its end"
        )
    loss = runtime / float(runtime[compared].min()) - 1.0
    order = np.lexsort((-runtime, scores))
    drawn = order[np.isin(origin[order], (DEFAULT, TVM, RANDOM))]

    def of(name: str) -> float | None:
        found = loss[origin == name]
        return float(found.mean()) if len(found) else None

    def within(name: str) -> float:
        own = origin == name
        return agreement(scores[own], runtime[own])[0] if own.sum() > 1 else float("nan")

    return {
        "name": network.name,
        "plans": len(rows),
        "tau": agreement(scores, runtime)[0],
        "tau_random": within(RANDOM),
        "tau_evolved": within(EVOLVED),
        "pick": float(loss[order[0]]),
        "pick_drawn": float(loss[drawn[0]]),
        "default": of(DEFAULT),
        "tvm": of(DEFAULT) if network.tvm_is_default else of(TVM),
        "random": of(RANDOM),
        "evolved": of(EVOLVED),
    }


def changed_scores(network: Network) -> Floats:
    """The trivial order: how many operators differ from the default plan; fewer is faster."""
    rows = network.part.rows
    features = network.graph.configurations.features(rows)
    default = features[np.flatnonzero(network.origin[rows] == DEFAULT)[0]]
    return np.asarray((features != default).any(axis=2).sum(axis=1), dtype=np.float64)


def tree_scores(
    learned: Sequence[Network], held: Sequence[Network], seed: int, threads: int
) -> list[Floats]:
    """Scores of plans by trees that learned logarithms of run times of other networks' plans."""
    rows = np.concatenate([summed(network) for network in learned])
    logs = [np.log(network.part.runtime) for network in learned]
    labels = np.concatenate([(log - log.mean()) / max(log.std(), 1e-6) for log in logs])
    options = {**_SUMMED, "seed": seed, "nthread": threads}
    return _boosted(rows, labels, [summed(network) for network in held], options)


def summed(network: Network) -> npt.NDArray[np.float32]:
    """A row of sums for each different plan of a network, shape (c, columns)."""
    graph, rows = network.graph, network.part.rows
    features = graph.configurations.features(rows).astype(np.int64)
    nodes = graph.nodes.features[graph.configurable]
    opcode = graph.nodes.opcode[graph.configurable]
    work = _work(graph)
    weights = np.stack([np.full(len(work), 1 / len(work)), work / work.sum()])
    indicators = [(features[:, :, column] == value)
                  for column, count in _CHOICES.items() for value in range(-1, count)]  # fmt: skip
    moved = (features[:, :, _RESULT] != nodes[:, _LAYOUT].astype(np.int64)).any(axis=2)
    indicators.append(moved)
    of_kind = [opcode == kind for kind in _KINDS]
    of_kind.append(~np.any(of_kind, axis=0))
    columns = [
        indicator[:, kind] @ weights[:, kind].T for indicator in indicators for kind in of_kind
    ]
    # Where a layout changes between one operator and the next, something may be copied.
    steps = moved[:, 1:] != moved[:, :-1]
    changes = steps.sum(axis=1) / max(1, steps.shape[1])
    same = [len(opcode), *(kind.mean() for kind in of_kind), np.log1p(work).mean()]
    whole_network = np.tile(np.array(same), (len(rows), 1))
    found = np.column_stack([*columns, changes, whole_network])
    return found.astype(np.float32)


def _work(graph: LayoutGraph) -> Floats:
    """Multiplications of each operator with a choice, about, shape (nc,).

    Numbers of the result times weights for each channel of it. Weights are the largest of what an
    operator reads but for what comes first, its data.
    """
    features = graph.nodes.features.astype(np.float64)
    reads: dict[int, list[int]] = {}
    for node, read in graph.nodes.edges.tolist():
        reads.setdefault(node, []).append(read)
    found = []
    for node in graph.configurable.tolist():
        sizes = features[node, _SIZES]
        axes = int((sizes > 0).sum())
        convolution = graph.nodes.opcode[node] == _KINDS[0]
        axis = int(features[node, _CHANNELS]) if convolution else axes - 1
        channels = max(1.0, sizes[axis] if axes else 1.0)
        constant = [features[read, _ELEMENTS] for read in reads.get(node, ())
                    if graph.nodes.opcode[read] == OPCODES["constant"]]  # fmt: skip
        weights = max(constant, default=channels)
        found.append(max(1.0, features[node, _ELEMENTS]) * max(1.0, weights / channels))
    return np.array(found)
