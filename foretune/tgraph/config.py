"""What a TGraph is and how it is trained: two named configurations, and a switch for each part.

``published`` is the paper with what its released code does where the two differ
(https://github.com/thanhhau097/google_fast_or_slow); switches that have the value ``"paper"`` give
the paper's own way. ``corrected`` is what docs/tgraph.md recommends, with a reason for each
difference.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from foretune._options import constants, option_names, refuse_unknown, require_types
from foretune.errors import BadInputError, unknown_name

_CHOICES: Mapping[str, tuple[object, ...]] = {
    "prune_hops": (0, 1, 2, 3, 4, 5, "all"),
    "dedup": ("min", "first", "none"),
    "edges": ("consumers", "both", "none"),
    "sage": ("pyg", "paper"),
    "attention": ("batch", "anchors", "none"),
    "tile_attention": ("inert", "fused", "none"),
    "norm": ("instance", "layer"),
    "residual": ("code", "paper"),
    "readout": ("mean", "mean_max"),
    "loss": ("hinge", "listmle", "ranknet", "mse"),
    "hinge_reduction": ("mean_all", "mean_valid", "sum"),
    "sampler": ("uniform", "window", "gumbel_best"),
    "average": ("raw", "scaled"),
}
"""Fields -> the values they may have."""
_LEAST: Mapping[str, float] = {
    "width": 16,
    "blocks": 0,
    "anchors": 1,
    "epochs": 0,
    "batch": 2,
    "folds": 2,
    "trained": 1,
    "kept": 0,
    "permutations": 0,
    "chunk": 1,
    "tie_width": 0,
    "weight_decay": 0,
}


def _require(rule: str, holds: bool, name: str, value: object) -> None:
    if not holds:
        raise BadInputError(f"tgraph: `{rule}` must hold, but got {name}={value}")


@dataclass(frozen=True)
class TGraphConfig:
    """A configuration of model and training; the defaults are ``published``.

    Attributes:
        prune_hops: Hops from configurable nodes within which nodes are kept, or ``"all"``.
        dedup: Which of equal configurations is learned from: ``"min"``, the fastest (the paper);
            ``"first"`` (the released code); ``"none"``, all of them.
        repad: Whether layouts of nodes are filled up with -1 instead of 0.
        logarithms: Whether columns of a wide range are scaled by their logarithm.
        width: Channels, a multiple of 16.
        blocks: Graph convolution blocks.
        edges: ``"consumers"``: a node hears of its consumers (the released code); ``"both"``: of
            what it consumes, too, with weights of their own; ``"none"``.
        sage: ``"pyg"``: mean of neighbours, as PyTorch Geometric's default; ``"paper"``: equation
            2, a sum of transformed neighbours, and normalised results.
        channel_attention: Equation 5.
        attention: Across configurations, equation 6. ``"batch"``: with those of the same batch;
            ``"anchors"``: with itself and with fixed ones of the graph; ``"none"``.
        anchors: How many of these.
        mean_weight: Whether weights are multiplied by their number, so that their mean is 1; else
            attention shrinks what it lets through as batches grow.
        positive_temperature: Whether the temperature is kept above 0.05.
        tile_attention: Of tile models. ``"inert"``: in the nodes' branch, where there is one
            configuration only and softmax is 1 (the released code); ``"fused"``: over joined
            configurations, in the way of ``attention``; ``"none"``.
        norm: ``"instance"``: over nodes, per channel; ``"layer"``: over channels, per node.
        residual: ``"code"``: the activation follows the sum; ``"paper"``: equation 3.
        readout: Over nodes: ``"mean"``, or ``"mean_max"``, with the maximum beside it.
        dropout: Share of the numbers left out at random in training.
        loss: ``"hinge"`` (equation 8), ``"listmle"``, ``"ranknet"`` or ``"mse"`` of standardised
            logarithms.
        hinge_reduction: ``"mean_all"``: over all pairs, ordered or not (the released code);
            ``"mean_valid"``: over ordered ones; ``"sum"`` (the paper).
        tie_width: Relative difference of run times from which the hinge's margin is 1; below, it is
            in proportion. 0: always 1.
        epochs: Passes over the graphs, one step for each.
        batch: Configurations of a step.
        sampler: ``"uniform"``; ``"window"``: every other time from a window of the run times;
            ``"gumbel_best"``: fast ones more often.
        learning_rate: Of AdamW, at its peak.
        warm_up: Share of the steps in which it rises; then it falls along a cosine.
        weight_decay: Of AdamW.
        decay_all: Whether biases decay, too (the released code), or matrices alone (the paper).
        clip: Norm of a gradient at most.
        folds: Parts of the graphs; each trained member leaves one out. With fewer networks, as many
            as there are; with one, a single member learns from all.
        trained: Members that are trained, at most.
        kept: How many of them score, the best by validation; 0 for all.
        best_checkpoint: Whether a member is kept as it was when it validated best, looked at
            ``foretune.tgraph._training.CHECKS`` times, or as it is in the end.
        permutations: Random orders of the configurations over which scores are averaged; 0 for the
            given order alone.
        chunk: Configurations that are scored at once.
        average: Of members' scores: ``"raw"``, or ``"scaled"``, each divided by its spread in
            training, since a hinge leaves scales open.
    """

    prune_hops: int | str = 1
    dedup: str = "min"
    repad: bool = True
    logarithms: bool = False
    width: int = 256
    blocks: int = 2
    edges: str = "consumers"
    sage: str = "pyg"
    channel_attention: bool = True
    attention: str = "batch"
    anchors: int = 16
    mean_weight: bool = False
    positive_temperature: bool = False
    tile_attention: str = "inert"
    norm: str = "instance"
    residual: str = "code"
    readout: str = "mean"
    dropout: float = 0.2
    loss: str = "hinge"
    hinge_reduction: str = "mean_all"
    tie_width: float = 0.0
    epochs: int = 750
    batch: int = 128
    sampler: str = "uniform"
    learning_rate: float = 1e-3
    warm_up: float = 0.05
    weight_decay: float = 1e-5
    decay_all: bool = True
    clip: float = 1.0
    folds: int = 20
    trained: int = 5
    kept: int = 4
    best_checkpoint: bool = True
    permutations: int = 10
    chunk: int = 128
    average: str = "raw"

    def __post_init__(self) -> None:
        require_types("tgraph", self)
        for name, known in _CHOICES.items():
            value = getattr(self, name)
            if value not in known:
                raise BadInputError(
                    f"tgraph: {name} must be one of {', '.join(map(str, known))}, but got {value!r}"
                )
        for name, least in _LEAST.items():
            _require(f"{name} >= {least}", getattr(self, name) >= least, name, getattr(self, name))
        _require("width % 16 == 0", self.width % 16 == 0, "width", self.width)
        _require("0 <= dropout < 1", 0 <= self.dropout < 1, "dropout", self.dropout)
        _require("0 <= warm_up < 1", 0 <= self.warm_up < 1, "warm_up", self.warm_up)
        for name in ("learning_rate", "clip"):
            _require(f"{name} > 0", getattr(self, name) > 0, name, getattr(self, name))

    @property
    def hops(self) -> int | None:
        """``prune_hops`` as a number, None for all."""
        return None if isinstance(self.prune_hops, str) else self.prune_hops

    def to_json(self) -> dict[str, Any]:
        """All fields."""
        return asdict(self)


_NAMED: Mapping[str, TGraphConfig] = {
    "published": TGraphConfig(),
    "corrected": TGraphConfig(
        logarithms=True,
        edges="both",
        attention="anchors",
        mean_weight=True,
        positive_temperature=True,
        tile_attention="fused",
        norm="layer",
        readout="mean_max",
        dropout=0.0,
        hinge_reduction="mean_valid",
        tie_width=0.004,
        decay_all=False,
        kept=0,
        best_checkpoint=False,
        permutations=0,
        average="scaled",
    ),
}


def names() -> list[str]:
    """Names of the configurations."""
    return list(_NAMED)


def named(name: str, options: Mapping[str, Any] | None = None) -> TGraphConfig:
    """A named configuration, changed by options.

    Args:
        name: ``published`` or ``corrected``.
        options: Fields of ``TGraphConfig`` to their values.

    Raises:
        BadInputError: The name, an option or a value is none.
    """
    if name not in _NAMED:
        raise unknown_name("configuration of tgraph", name, _NAMED)
    options = options or {}
    refuse_unknown("tgraph", options, option_names(TGraphConfig), constants(TGraphConfig))
    return replace(_NAMED[name], **options)
