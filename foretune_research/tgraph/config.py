"""TGraph's published configuration, and every switch of it.

``published`` is the paper with what its released code does where the two differ
(https://github.com/thanhhau097/google_fast_or_slow); switches that have the value ``"paper"`` give
the paper's own way. ``variants`` is the product's ``corrected`` with the same switches.
"""

# Constants of the product are options here: instance variables in the place of class variables.
# mypy: disable-error-code="misc"

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from foretune._options import Bounds, Count, Fraction, NotNegative, OneOf, Positive
from foretune.tgraph import TGraphConfig

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from foretune._arrays import FloatArray, IndexArray
    from foretune.tgraph._training import Run
    from foretune.tgraph.graphs import Graph
    from foretune.tgraph.splits import Part


@dataclass(frozen=True)
class VariantsConfig(TGraphConfig):
    """``corrected``, with a switch for each part.

    Attributes:
        dedup: Which of equal configurations is learned from: ``"min"``, the fastest (the paper);
            ``"first"`` (the released code); ``"none"``, all of them.
        repad: Whether layouts of nodes are filled up with -1 instead of 0.
        logarithms: Whether columns of a wide range are scaled by their logarithm.
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
        sampler: ``"uniform"``; ``"window"``: every other time from a window of the run times;
            ``"gumbel_best"``: fast ones more often.
        warm_up: Share of the steps in which it rises; then it falls along a cosine.
        weight_decay: Of AdamW.
        decay_all: Whether biases decay, too (the released code), or matrices alone (the paper).
        clip: Norm of a gradient at most.
        kept: How many of them score, the best by validation; 0 for all.
        best_checkpoint: Whether a member is kept as it was when it validated best, looked at
            ``foretune.tgraph._training.CHECKS`` times, or as it is in the end.
        permutations: Random orders of the configurations over which scores are averaged; 0 for the
            given order alone.
        chunk: Configurations that are scored at once.
        average: Of members' scores: ``"raw"``, or ``"scaled"``, each divided by its spread in
            training, since a hinge leaves scales open.
    """

    dedup: Annotated[str, OneOf(("min", "first", "none"))] = "min"
    repad: bool = True
    logarithms: bool = True
    edges: Annotated[str, OneOf(("consumers", "both", "none"))] = "both"
    sage: Annotated[str, OneOf(("pyg", "paper"))] = "pyg"
    channel_attention: bool = True
    attention: Annotated[str, OneOf(("batch", "anchors", "none"))] = "anchors"
    anchors: Count = 16
    mean_weight: bool = True
    positive_temperature: bool = True
    tile_attention: Annotated[str, OneOf(("inert", "fused", "none"))] = "fused"
    norm: Annotated[str, OneOf(("instance", "layer"))] = "layer"
    residual: Annotated[str, OneOf(("code", "paper"))] = "code"
    readout: Annotated[str, OneOf(("mean", "mean_max"))] = "mean_max"
    dropout: Fraction = 0.0
    loss: Annotated[str, OneOf(("hinge", "listmle", "ranknet", "mse"))] = "hinge"
    hinge_reduction: Annotated[str, OneOf(("mean_all", "mean_valid", "sum"))] = "mean_valid"
    sampler: Annotated[str, OneOf(("uniform", "window", "gumbel_best"))] = "uniform"
    warm_up: Fraction = 0.05
    weight_decay: NotNegative = 1e-5
    decay_all: bool = False
    clip: Positive = 1.0
    kept: Annotated[int, Bounds(ge=0)] = 0
    best_checkpoint: bool = False
    permutations: Annotated[int, Bounds(ge=0)] = 0
    chunk: Count = 128
    average: Annotated[str, OneOf(("raw", "scaled"))] = "scaled"

    def compared(self, scores: Tensor, runtime: Tensor) -> Tensor:
        """The loss that the configuration names."""
        from foretune_research.tgraph import losses

        return losses.loss(scores, runtime, self)

    def sampled(self, part: Part, rng: np.random.Generator) -> tuple[IndexArray, FloatArray]:
        """Configurations of a step, drawn as the configuration says."""
        from foretune_research.tgraph import training

        return training.sample(part, self, rng)

    def scored(
        self,
        graph: Graph,
        rows: IndexArray,
        seed: int,
        scores_of: Callable[[IndexArray], FloatArray],
    ) -> FloatArray:
        """Means over ``permutations`` orders where configurations are compared with their batch."""
        from foretune_research.tgraph import training

        if self.attention != "batch":
            return super().scored(graph, rows, seed, scores_of)
        return training.scored_in_orders(rows, self.permutations, seed, scores_of)

    def run_type(self) -> type[Run]:
        """What keeps a member as it validated best, where that is asked for."""
        from foretune_research.tgraph import training

        return training.BestRun if self.best_checkpoint else super().run_type()


@dataclass(frozen=True)
class PublishedConfig(VariantsConfig):
    """TGraph as it was published."""

    logarithms: bool = False
    edges: str = "consumers"
    attention: str = "batch"
    mean_weight: bool = False
    positive_temperature: bool = False
    tile_attention: str = "inert"
    norm: str = "instance"
    readout: str = "mean"
    dropout: float = 0.2
    hinge_reduction: str = "mean_all"
    tie_width: float = 0.0
    decay_all: bool = True
    kept: int = 4
    best_checkpoint: bool = True
    permutations: int = 10
    average: str = "raw"
