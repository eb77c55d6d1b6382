"""Networks whose plans were collected: what is judged on them, and trees to compare with.

Trees of one network could not read the configuration of another. They read sums: over all operators
with a choice, how many took each one, alone and weighted by an operator's share of the work.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xgboost

from foretune.errors import BadInputError
from foretune.plans.standings import DEFAULT, EVOLVED, RANDOM, TVM
from foretune.tgraph import COLUMNS, LayoutGraph, Part, read_graphs, whole
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
_ELEMENTS = COLUMNS.index("shape_dimensions_product")
_SIZES = slice(COLUMNS.index("shape_dimensions_0"), COLUMNS.index("shape_dimensions_0") + 6)
_CHANNELS = COLUMNS.index("convolution_dim_numbers_output_feature_dim")
_LAYOUT = slice(
    COLUMNS.index("layout_minor_to_major_0"), COLUMNS.index("layout_minor_to_major_0") + 6
)
_EXTRAS = ("origin", "compared", "quiet", "alone")


@dataclass(frozen=True)
class Network:
    """A network with all of its measured plans.

    Attributes:
        graph: Plans that were drawn, and plans that were bred, as one graph.
        origin: Whose idea each plan was, shape (c,).
        compared: Whether it was measured beside the default plan, shape (c,).
        quiet: Quiet readings of each, shape (c,).
        alone: Nanoseconds of each where it was measured alone, shape (c,).
        default: Nanoseconds of the default plan, measurement by measurement.
        tvm_is_default: Whether TVM's own plan is the default plan.
    """

    graph: LayoutGraph
    origin: npt.NDArray[np.str_]
    compared: npt.NDArray[np.bool_]
    quiet: npt.NDArray[np.int64]
    alone: npt.NDArray[np.int64]
    default: npt.NDArray[np.int64]
    tvm_is_default: bool

    @property
    def part(self) -> Part:
        """All of its different plans."""
        return whole(self.graph, "first")

    @property
    def made(self) -> dict[str, Any]:
        """What plans were measured with."""
        found: dict[str, Any] = json.loads(self.graph.made)
        return found


def read_networks(folder: Path) -> list[Network]:
    """Networks of a folder that ``foretune graph collect --pack`` wrote, by name.

    Plans are compared within a network alone, so that networks may be of different machines.

    Raises:
        BadInputError: There is none, or plans of one network were measured with different things.
    """
    graphs = read_graphs(folder)
    found: dict[str, Network] = {}
    for graph in graphs:
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
        files = sorted(folder.rglob(f"{name}.npz"))
        extras = []
        for file in files:
            with np.load(file) as data:
                extras.append({key: data[f"config_{key}"] for key in _EXTRAS})
                default, same = data["default_readings"], bool(data["tvm_is_default"])
        joined = {key: np.concatenate([each[key] for each in extras]) for key in _EXTRAS}
        found[name] = Network(graph, **joined, default=default, tvm_is_default=same)
    return list(found.values())


def judged(network: Network, scores: FloatArray) -> dict[str, Any]:
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

    tvm = of(DEFAULT) if network.tvm_is_default else of(TVM)
    return {
        "name": network.graph.name.rpartition("/")[2],
        "plans": len(rows),
        "tau": agreement(scores, runtime)[0],
        "tau_random": within(RANDOM),
        "tau_evolved": within(EVOLVED),
        "pick": float(loss[order[0]]),
        "pick_drawn": float(loss[drawn[0]]),
        "default": of(DEFAULT),
        "tvm": tvm,
        "random": of(RANDOM),
        "evolved": of(EVOLVED),
    }


def changed_scores(network: Network) -> FloatArray:
    """The trivial order: how many operators differ from the default plan; fewer is faster."""
    rows = network.part.rows
    features = network.graph.configurations.features(rows)
    default = features[np.flatnonzero(network.origin[rows] == DEFAULT)[0]]
    return np.asarray((features != default).any(axis=2).sum(axis=1), dtype=np.float64)


def ceiling(network: Network, seed: int = 0) -> float | None:
    """tau that noise leaves to who knows everything else; None where nobody knows the noise.

    The noise is by how much the default plan's readings differ from each other, neighbours of each
    other, so that a slow hour is none.
    """
    readings = network.default.astype(np.float64)
    if len(readings) < 3:
        return None
    steps = np.diff(np.log(readings)) / np.sqrt(2.0)
    runtime = network.part.runtime
    drawn = np.random.default_rng(seed).choice(steps, len(runtime))
    return agreement(np.log(runtime) + drawn, runtime)[0]


def tree_scores(
    learned: Sequence[Network], held: Sequence[Network], seed: int, threads: int
) -> list[FloatArray]:
    """Scores of plans by trees that learned logarithms of run times of other networks' plans."""
    rows = np.concatenate([summed(network) for network in learned])
    logs = [np.log(network.part.runtime) for network in learned]
    labels = np.concatenate([(log - log.mean()) / max(log.std(), 1e-6) for log in logs])
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


def _work(graph: LayoutGraph) -> FloatArray:
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


def kinds_of(networks: Sequence[Network]) -> Mapping[str, int]:
    """How many machines, codes and weights plans were measured with."""
    made = [network.made for network in networks]
    return {
        name: len({json.dumps(one.get(name)) for one in made})
        for name in ("hardware", "code", "weights")
    }
