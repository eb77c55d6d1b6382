"""What TGraph expects of the plans of one network, before any of them is measured.

A network is encoded once, as a file of a collection has it; the plans that are scored are its
configurations. Where the model compares configurations with fixed ones of their graph, these are
random plans, drawn by the network's key: a plan's score never depends on what it is scored with.

Weights that come with the package are ``foretune/tgraph/weights/plans-KIND.npz``, ``KIND`` the kind
of target. Others are what ``foretune graph train`` makes of a collection.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from foretune import tgraph
from foretune._arrays import Float32Array, FloatArray
from foretune.cost import fitted_scale, fitted_strength
from foretune.errors import BadInputError
from foretune.plans.encode import anchors, configurable, configurations
from foretune.tgraph import COLUMNS, LayoutGraph, Nodes, TGraph
from foretune.tgraph.configurations import packed

if TYPE_CHECKING:
    from foretune.plans.encode import NetworkGraph
    from foretune.plans.space import PlanCandidate, PlanSpace
    from foretune.tgraph.configurations import Configurations


_WEIGHTS = "plans"
_SUFFIX = ".npz"
_LAYOUT = "layout"
_JUDGED = 128
"""Configurations of a graph by which scores are calibrated, at most."""
_LEAST_SCALE = 2.0**-8
"""What explains less explains nothing."""


def read_plan_model(path: Path) -> TGraph:
    """A graph network of a file, which ranks plans.

    Raises:
        BadInputError: There is no such file, or it ranks something else.
        RecordError: The file cannot be read or is something else.
        VersionMismatchError: It was written under another schema or feature version.
    """
    if not path.is_file():
        raise BadInputError(
            f"a model of plans is a file that `foretune graph train` wrote, but there is none at "
            f"{path}: give another one"
        )
    model = tgraph.load(path)
    _require_plans(model, str(path))
    return model


def shipped_plan_model(kind: str) -> TGraph | None:
    """The graph network that comes with the package for a kind of target; None without one.

    Raises:
        RecordError: The file is damaged or of another version.
    """
    file = importlib.resources.files("foretune.tgraph") / "weights" / f"{_WEIGHTS}-{kind}{_SUFFIX}"
    if not file.is_file():
        return None
    with importlib.resources.as_file(file) as path:
        return read_plan_model(path)


def calibrated(model: TGraph, parts: Sequence[tgraph.Part], seed: int = 0) -> TGraph:
    """The same model, which knows what its scores are worth in log2 slow-downs.

    Each member is judged on the graphs that it left out; on those it learned from where it left
    out none, which flatters it.

    Args:
        model: Trained.
        parts: What it was trained on.
        seed: Draws the configurations that are scored.

    Raises:
        MissingDependencyError: PyTorch is not installed.
    """
    rng = np.random.default_rng(seed)
    usable = [part for part in parts if part.orderable]
    judged = []
    for member in model.members:
        alone = replace(model, members=(member,))
        held = [part for part in usable if part.graph.name in member.left_out]
        for part in held or usable:
            chosen = rng.permutation(len(part.rows))[:_JUDGED]
            runtime = part.runtime[chosen]
            scores = alone.score(part.graph, part.rows[chosen])
            judged.append((-scores, runtime / np.median(runtime)))
    scale = fitted_scale(judged)
    if scale < _LEAST_SCALE:
        return replace(model, scale=0.0)
    # In units of what scores explain: there, the variance of scores is 1, about.
    strength = fitted_strength([(s, seconds ** (1 / scale)) for s, seconds in judged], 1.0)
    return replace(model, scale=scale, strength=strength)


class GraphPrior:
    """What a graph network expects of the plans of a network; a ``Prior`` of ``LinearPlans``.

    Args:
        model: Trained on plans.
        graph: The network.
        space: Its plans.

    Raises:
        BadInputError: The model ranks something else.
        MissingDependencyError: PyTorch is not installed.
    """

    def __init__(self, model: TGraph, graph: NetworkGraph, space: PlanSpace) -> None:
        tgraph.require_torch()
        _require_plans(model, model.name)
        self._model = model
        self._graph = graph
        self._threads = space.hardware.threads
        self._nodes = Nodes(
            graph.features, graph.opcode.astype(np.int64), graph.edges.astype(np.int64)
        )
        self._anchors = _packed(anchors(graph, space))
        self._known: dict[str, float] = {}

    @property
    def has_seen(self) -> bool:
        """Whether the model learned from a network of this architecture."""
        ids = np.empty(0, dtype=np.int64)
        graph = LayoutGraph("plans", self._nodes, ids, self._anchors, None)
        return tgraph.family(graph) in self._model.seen

    @property
    def scale(self) -> float:
        """Log2 slow-downs that one unit is worth."""
        assert self._model.scale is not None, "a model without it is refused"
        return self._model.scale

    @property
    def strength(self) -> float:
        """Measured plans that weigh as much as the belief in ``scale``."""
        return self._model.strength

    def expected(self, plans: Sequence[PlanCandidate]) -> FloatArray:
        """Higher is faster, float64 of shape (n,); each plan is scored once."""
        missing = {plan.key: plan for plan in plans if plan.key not in self._known}
        if missing:
            scores = self._scores(list(missing.values())).tolist()
            self._known.update(zip(missing, (-score for score in scores), strict=True))
        return np.array([self._known[plan.key] for plan in plans], dtype=np.float64)

    def gain(self, plan: PlanCandidate, default: PlanCandidate) -> float:
        """How many times as fast as another plan one is expected to be."""
        one, other = self.expected([plan, default])
        return float(2.0 ** (self.scale * (one - other)))

    def _scores(self, plans: Sequence[PlanCandidate]) -> FloatArray:
        from foretune._torch import limited_threads

        rows = _packed(configurations(self._graph, plans))
        ids = configurable(self._graph, plans[0]).astype(np.int64)
        graph = LayoutGraph("plans", self._nodes, ids, rows, None, self._anchors)
        with limited_threads(self._threads):
            return self._model.score(graph)


def _packed(rows: Float32Array) -> Configurations:
    return packed([rows], *rows.shape[:2])


def _require_plans(model: TGraph, where: str) -> None:
    """Refuses a model that does not rank plans, or not one by one.

    Raises:
        BadInputError: See above.
    """
    if model.kind != _LAYOUT or model.columns != len(COLUMNS):
        raise BadInputError(
            f"a model of plans ranks layout graphs of {len(COLUMNS)} columns, but that of {where} "
            f"ranks {model.kind} graphs of {model.columns}: train one on what `foretune graph "
            "collect --pack` writes"
        )
    if model.config.attention == "batch":
        raise BadInputError(
            f"plans are scored a few at a time, but the model of {where} compares all that are "
            "scored together (attention=batch): train one with --config corrected"
        )
    if not model.scale:
        known = "not known" if model.scale is None else "nothing"
        raise BadInputError(
            f"a model of plans must explain run times, but what the scores of {where} explain is "
            f"{known}: train it again, on more networks"
        )
