"""TGraph: an ensemble of graph networks that ranks the configurations of a graph.

Life cycle: ``train`` makes one from parts of graphs of one kind; ``score`` gives a number for each
configuration, higher is slower, comparable within the graph; ``save`` and ``load`` keep it in a
file. Every member learns from all folds of the graphs but one, and is validated on that one.

PyTorch is imported when a model trains or scores, never earlier: it is optional.

Source: Tatarkhanov et al., TGraph (2025).
"""

from __future__ import annotations

import importlib.util
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from foretune._arrays import Array, FloatArray, IndexArray
from foretune._model_file import Arrays, check, read_model, write_model
from foretune.errors import BadInputError, MissingDependencyError, RecordError
from foretune.tgraph import config as configs
from foretune.tgraph.config import TGraphConfig
from foretune.tgraph.graphs import LAYOUT, TILE, Graph, graph_names
from foretune.tgraph.prepare import Scaler, Scalers, family, prepare
from foretune.tgraph.splits import Part, by_graph

SCHEMA = "foretune.tgraph/2"
FEATURES = 1
"""Version of what networks read."""
_MADE_BY = "foretune graph train"
logger = logging.getLogger("foretune.tgraph")


@dataclass(frozen=True)
class Member:
    """One network of the ensemble.

    Attributes:
        weights: By name, float32.
        scalers: Fitted to the graphs it learned from.
        spread: Deviation of its scores within a graph.
        left_out: Names of the graphs it was validated on.
        validation: tau-b there, or the tile metric, the mean over graphs; NaN without any.
        loss: Mean of its last hundred steps, NaN of a member that was not trained.
    """

    weights: dict[str, Array]
    scalers: Scalers
    spread: float
    left_out: tuple[str, ...]
    validation: float
    loss: float


@dataclass(frozen=True)
class TGraph:
    """A trained ensemble.

    Attributes:
        name: Of its configuration, for people.
        kind: ``"layout"`` or ``"tile"``.
        config: How it was made.
        columns: Columns of ``node_feat`` that it reads.
        members: All that were trained, whether or not they score.
        seen: Digests of the architectures that it learned from or was validated on, without their
            sizes and configurations (``foretune.tgraph.family``).
        scale: How many log2 slow-downs one unit of score is worth, on graphs that members left
            out; None where nobody found out (``foretune.plans.calibrated`` does).
        strength: How many measurements of a network weigh as much as the belief in ``scale``.
    """

    name: str
    kind: str
    config: TGraphConfig
    columns: int
    members: tuple[Member, ...]
    seen: frozenset[str]
    scale: float | None = None
    strength: float = 16.0

    @property
    def kept(self) -> tuple[Member, ...]:
        """The members that score: all, or the best by validation."""
        return self.members if not self.config.kept else best(self.members, self.config.kept)

    def score(
        self,
        graph: Graph,
        rows: IndexArray | None = None,
        *,
        device: str | None = None,
        seed: int = 0,
    ) -> FloatArray:
        """Scores of configurations of a graph; the lowest is expected to be the fastest.

        Args:
            graph: Of this model's kind.
            rows: Which configurations; all if left out.
            device: Of PyTorch; a CUDA device where there is one if left out.
            seed: Of the orders over which scores are averaged.

        Returns:
            float64 of shape (rows,).

        Raises:
            BadInputError: The graph is of another kind, or has other columns.
        """
        self._require_readable(graph)
        require_torch()
        from foretune._torch import choose_device
        from foretune.tgraph._training import Loaded, score

        chosen = np.arange(len(graph.configurations)) if rows is None else rows
        total = np.zeros(len(chosen))
        place = choose_device(device)
        for member in self.kept:
            loaded = Loaded(graph, member.scalers, self.config, place)
            scores = score(_network(self, member, place), loaded, chosen, self.config, seed)
            scale = member.spread if self.config.average == "scaled" else 1.0
            total += scores / max(scale, 1e-12)
        return total / len(self.kept)

    def save(self, path: Path, command: str = "") -> None:
        """Writes it to an ``.npz`` file.

        Args:
            path: The file; its folder must exist.
            command: What trained it, for people.

        Raises:
            RecordError: It cannot be written.
        """
        meta = {
            "schema": SCHEMA,
            "features": FEATURES,
            "command": command,
            "name": self.name,
            "kind": self.kind,
            "config": self.config.to_json(),
            "columns": self.columns,
            "seen": sorted(self.seen),
            "scale": self.scale,
            "strength": self.strength,
            "members": [_meta_of(member) for member in self.members],
        }
        arrays: Arrays = {}
        for at, member in enumerate(self.members):
            arrays |= {f"{at}/weights/{name}": w for name, w in member.weights.items()}
            arrays |= _scaler_arrays(f"{at}/nodes", member.scalers.nodes)
            if member.scalers.choices is not None:
                arrays |= _scaler_arrays(f"{at}/choices", member.scalers.choices)
        write_model(path, meta, arrays)

    def _require_readable(self, graph: Graph) -> None:
        if graph.kind != self.kind:
            raise BadInputError(
                f"a model of {self.kind} graphs cannot score {graph.name}, a {graph.kind} graph: "
                f"train one with `{_MADE_BY}` on a collection of {graph.kind} graphs"
            )
        columns = graph.nodes.features.shape[1]
        if columns != self.columns:
            raise BadInputError(
                f"the model reads nodes of {self.columns} columns, but those of {graph.name} have "
                f"{columns}: give graphs whose features were made in the same way"
            )


def train(
    parts: Sequence[Part],
    config: TGraphConfig,
    *,
    name: str = "tgraph",
    seed: int = 0,
    device: str | None = None,
    validate: bool = True,
) -> TGraph:
    """Trains an ensemble.

    Args:
        parts: What to learn from, graphs of one kind; those without an order are left out.
        config: How.
        name: What to call it.
        seed: Seeds folds, weights, order and samples.
        device: Of PyTorch; a CUDA device where there is one if left out.
        validate: Whether each member leaves a fold out. Otherwise, and with a single architecture,
            one member learns from everything.

    Raises:
        BadInputError: No graph has an order, kinds or columns differ, or training diverged.
        MissingDependencyError: PyTorch is not installed.
    """
    usable = [part for part in parts if part.orderable]
    if not usable:
        raise BadInputError(
            "training needs a graph with two different run times, but "
            f"{graph_names([part.graph for part in parts]) or 'no graph'} has none: give graphs "
            "that were measured"
        )
    require_torch()
    kind, columns, layouts = _common(usable)
    rng = np.random.default_rng(seed)
    seen = frozenset(family(part.graph) for part in usable)
    folds: list[list[int]] = [[]]
    if validate and len(seen) > 1:
        folds = by_graph([part.graph for part in usable], config.folds, rng)[: config.trained]
    seeds = [int(drawn) for drawn in rng.integers(2**31, size=len(folds))]
    members = []
    for at, (fold, own) in enumerate(zip(folds, seeds, strict=True)):
        logger.info("member %d of %d", at + 1, len(folds))
        members.append(_train_member(usable, fold, layouts, config, own, device))
    return TGraph(name, kind, config, columns, tuple(members), seen)


def load(path: Path) -> TGraph:
    """Reads what ``TGraph.save`` wrote.

    Raises:
        RecordError: The file cannot be read or is something else.
        VersionMismatchError: It was written under another schema or feature version.
    """
    meta, arrays = read_model(path, "a trained TGraph")
    check(path, meta, _MADE_BY, schema=SCHEMA, features=FEATURES)
    try:
        if meta["kind"] not in (LAYOUT, TILE) or not meta["members"]:
            raise ValueError(f"its kind is {meta['kind']!r}, its members are {meta['members']!r}")
        members = tuple(_member(arrays, at, one) for at, one in enumerate(meta["members"]))
        return TGraph(
            str(meta["name"]),
            meta["kind"],
            configs.restored(meta["config"]),
            int(meta["columns"]),
            members,
            frozenset(meta["seen"]),
            None if meta.get("scale") is None else float(meta["scale"]),
            float(meta.get("strength", TGraph.strength)),
        )
    except (KeyError, TypeError, ValueError, AttributeError, BadInputError) as error:
        raise RecordError(f"{path} is not a trained TGraph: {error}") from error


def best(members: Sequence[Member], count: int) -> tuple[Member, ...]:
    """The best by validation, in their order; those without validation count as the worst."""
    quality = [-math.inf if math.isnan(m.validation) else m.validation for m in members]
    chosen = sorted(np.argsort([-q for q in quality], kind="stable")[:count])
    return tuple(members[at] for at in chosen)


def fold_figures(members: Sequence[Member]) -> dict[str, Any]:
    """Validation of all members, and what the choice of the best four would make of it."""
    figures = [member.validation for member in members]
    return {
        "folds": [
            {"left_out": list(member.left_out), "validation": member.validation}
            for member in members
        ],
        "all": float(np.mean(figures)),
        "best_four": float(np.mean([member.validation for member in best(members, 4)])),
    }


def require_torch() -> None:
    """Refuses to go on without PyTorch.

    Raises:
        MissingDependencyError: It is not installed.
    """
    if importlib.util.find_spec("torch") is None:
        raise MissingDependencyError(
            "TGraph needs PyTorch, which is not installed: install it with `pip install "
            "'foretune[torch]'`"
        )


def names() -> list[str]:
    """Names of the configurations."""
    return configs.names()


def _common(parts: Sequence[Part]) -> tuple[str, int, int]:
    """Kind, columns, and columns of layouts of all graphs."""
    kinds = {part.graph.kind for part in parts}
    columns = {part.graph.nodes.features.shape[1]: part.graph.name for part in parts}
    if len(kinds) > 1 or len(columns) > 1:
        what = f"kinds {', '.join(sorted(kinds))}" if len(kinds) > 1 else f"columns {columns}"
        raise BadInputError(
            f"graphs of one model must be of one kind and have the same columns, but have {what}: "
            "train one model for each collection"
        )
    first = prepare(parts[0].graph, 0, True)
    return kinds.pop(), next(iter(columns)), first.layout.shape[1]


def _train_member(
    parts: Sequence[Part],
    fold: Sequence[int],
    layouts: int,
    config: TGraphConfig,
    seed: int,
    device: str | None,
) -> Member:
    from foretune._torch import choose_device
    from foretune.tgraph._training import train

    learned = [part for at, part in enumerate(parts) if at not in set(fold)]
    held = [parts[at] for at in fold]
    scalers = Scalers.fit([p.graph for p in learned], config.hops, config.logarithms)
    done = train(learned, held, scalers, layouts, config, seed, choose_device(device))
    loss = float(np.mean(done.losses[-100:])) if done.losses else math.nan
    return Member(
        done.weights,
        scalers,
        done.spread,
        tuple(part.graph.name for part in held),
        done.validation,
        loss,
    )


def _network(model: TGraph, member: Member, device: Any) -> Any:
    import torch

    from foretune.tgraph._training import make_network

    layouts = model.columns - len(member.scalers.nodes.mean)
    with torch.random.fork_rng(devices=[]):
        columns = len(member.scalers.nodes.mean)
        network = make_network(model.kind, columns, layouts, model.config)
    try:
        network.load_state_dict({n: torch.from_numpy(w) for n, w in member.weights.items()})
    except RuntimeError as error:
        raise RecordError(f"the weights do not fit their configuration: {error}") from error
    return network.to(device)


def _meta_of(member: Member) -> dict[str, Any]:
    return {
        "spread": member.spread,
        "left_out": list(member.left_out),
        "validation": None if math.isnan(member.validation) else member.validation,
        "loss": None if math.isnan(member.loss) else member.loss,
    }


def _scaler_arrays(place: str, scaler: Scaler) -> Arrays:
    return {
        f"{place}/mean": scaler.mean,
        f"{place}/scale": scaler.scale,
        f"{place}/wide": scaler.wide,
    }


def _member(arrays: Arrays, at: int, meta: dict[str, Any]) -> Member:
    def scaler(place: str) -> Scaler:
        return Scaler(*(arrays[f"{at}/{place}/{name}"] for name in ("mean", "scale", "wide")))

    start = f"{at}/weights/"
    return Member(
        {n.removeprefix(start): w for n, w in arrays.items() if n.startswith(start)},
        Scalers(scaler("nodes"), scaler("choices") if f"{at}/choices/mean" in arrays else None),
        float(meta["spread"]),
        tuple(map(str, meta["left_out"])),
        math.nan if meta["validation"] is None else float(meta["validation"]),
        math.nan if meta["loss"] is None else float(meta["loss"]),
    )
