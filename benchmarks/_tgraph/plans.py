"""Networks whose plans were collected: what is judged on them, and trees to compare with.

Trees of one network could not read the configuration of another. They read sums: over all operators
with a choice, how many took each one, alone and weighted by an operator's share of the work.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xgboost

from foretune.errors import BadInputError
from foretune.plans.trials import DEFAULT, EVOLVED, RANDOM, TVM
from foretune.tgraph import COLUMNS, LayoutGraph, Part, read_graph, whole
from foretune.tgraph.configurations import Configurations
from foretune.tgraph.metrics import agreement
from foretune.tgraph.opcodes import OPCODES

FloatArray = npt.NDArray[np.float64]

_KINDS = (OPCODES["convolution"], OPCODES["dot"])
"""Operations that are told apart; others count together."""
_CHOICES = {12: 3, 13: 2, 14: 2}
"""Columns of a configuration with what they may be, beside -1."""
_ROUNDS = 400
_OPTIONS = {"max_depth": 6, "eta": 0.05, "subsample": 0.8, "colsample_bytree": 0.5}
_RESULT = slice(0, 6)
_SIZES = [COLUMNS.index(f"{name}_product") for name in ("shape_dimensions", "window_size")]
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
        quiet: Quiet readings of each, shape (c,).
        made: What they were measured with, as ``foretune.plans`` writes it.
    """

    graph: LayoutGraph
    origin: npt.NDArray[np.str_]
    compared: npt.NDArray[np.bool_]
    quiet: npt.NDArray[np.int64]
    made: Mapping[str, Any]

    @property
    def part(self) -> Part:
        """All of its different plans."""
        return whole(self.graph)


def read_networks(folder: Path) -> list[Network]:
    """Networks of a folder that ``foretune graph collect --pack`` wrote, by name.

    Plans are compared within a network alone, so that networks may be of different machines.

    Raises:
        BadInputError: There is none, or plans of one network were measured with different things.
    """
    stems = sorted({file.stem for file in folder.rglob("*.npz")})
    if not stems:
        raise BadInputError(f"{folder} must hold files of plans, but has none: pack a collection")
    return [_network(folder, stem) for stem in stems]


def _network(folder: Path, stem: str) -> Network:
    graphs, extras, made = [], [], set()
    for origin in (RANDOM, EVOLVED):
        for file in folder.rglob(f"{origin}/{stem}.npz"):
            graph = read_graph(file, stem)
            assert isinstance(graph, LayoutGraph) and graph.runtime is not None
            graphs.append(graph)
            with np.load(file) as data:
                extras.append({k: data[f"config_{k}"] for k in ("origin", "compared", "quiet")})
                made.add(str(data["made"]))
    if len(made) > 1:
        raise BadInputError(
            f"plans of a network must be measured with the same, but those of {stem} were with "
            f"{len(made)} kinds: give one collection of it"
        )
    first = graphs[0]
    joined = {name: np.concatenate([each[name] for each in extras]) for name in extras[0]}
    keys = np.concatenate([graph.configurations.keys for graph in graphs])
    rows = np.sort(np.unique(keys, return_index=True)[1])
    codes = np.concatenate([np.asarray(graph.configurations.codes) for graph in graphs])
    runtime = np.concatenate([graph.runtime for graph in graphs if graph.runtime is not None])
    graph = replace(
        first, configurations=Configurations(codes[rows], keys[rows]), runtime=runtime[rows]
    )
    chosen = {name: values[rows] for name, values in joined.items()}
    return Network(graph, made=json.loads(made.pop()), **chosen)


def judged(network: Network, scores: FloatArray) -> dict[str, Any]:
    """How well scores order a network's plans, and what following them costs.

    Losses are seconds over those of the best plan that was measured beside the default plan, minus
    1: among hundreds measured once, the lowest was lucky.

    Args:
        network: The network.
        scores: Of its different plans, lower is faster.

    Returns:
        ``name``, ``plans``, ``tau``; losses: ``pick`` (the plan with the lowest score),
        ``best_of_five`` (the best of the five with the lowest), ``default``, ``tvm``, ``random``
        (mean of the plans drawn uniformly; None without any).
    """
    rows = network.part.rows
    runtime = network.part.runtime
    origin, compared = network.origin[rows], network.compared[rows]
    best = float(runtime[compared].min())
    loss = runtime / best - 1.0
    order = np.lexsort((-runtime, scores))

    def of(name: str) -> float | None:
        found = loss[origin == name]
        return float(found.mean()) if len(found) else None

    return {
        "name": network.graph.name,
        "plans": len(rows),
        "tau": agreement(scores, runtime)[0],
        "pick": float(loss[order[0]]),
        "best_of_five": float(loss[order[:5]].min()),
        "default": of(DEFAULT),
        "tvm": of(TVM) if TVM in origin else of(DEFAULT),
        "random": of(RANDOM),
    }


def tree_scores(
    learned: Sequence[Network], held: Sequence[Network], seed: int, threads: int
) -> list[FloatArray]:
    """Scores of plans by trees that learned logarithms of run times of other networks' plans."""
    rows = np.concatenate([summed(network) for network in learned])
    logs = [np.log(network.part.runtime) for network in learned]
    labels = np.concatenate([log - log.mean() for log in logs])
    options = {**_OPTIONS, "seed": seed, "nthread": threads}
    trees = xgboost.train(options, xgboost.DMatrix(rows, labels), _ROUNDS)
    return [
        np.asarray(trees.predict(xgboost.DMatrix(summed(network))), dtype=np.float64)
        for network in held
    ]


def summed(network: Network) -> npt.NDArray[np.float32]:
    """A row of sums for each different plan of a network, shape (c, columns)."""
    graph, rows = network.graph, network.part.rows
    features = graph.configurations.features(rows).astype(np.int64)
    nodes = graph.nodes.features[graph.configurable]
    opcode = graph.nodes.opcode[graph.configurable]
    work = np.prod(np.maximum(nodes[:, _SIZES], 1), axis=1, dtype=np.float64)
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
