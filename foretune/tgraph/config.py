"""What a TGraph is and how it is trained: the configuration ``corrected``.

It is what docs/tgraph.md recommends, with a reason for each difference from the paper. What is
constant here (class variables) is an option of ``published``, the paper with what its released code
does where the two differ, and of ``variants``; both are in the package ``foretune_research``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from foretune._options import (
    Bounds,
    Count,
    NotNegative,
    OneOf,
    Positive,
    constants,
    option_names,
    refuse_unknown,
    require_options,
    stored_options,
)
from foretune._registry import Registry
from foretune.errors import VersionMismatchError

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from foretune._arrays import FloatArray, IndexArray
    from foretune.tgraph._training import Run
    from foretune.tgraph.graphs import Graph
    from foretune.tgraph.splits import Part


@dataclass(frozen=True)
class TGraphConfig:
    """A configuration of model and training.

    Attributes:
        prune_hops: Hops from configurable nodes within which nodes are kept, or ``"all"``.
        width: Channels, a multiple of 16.
        blocks: Graph convolution blocks.
        tie_width: Relative difference of run times from which the hinge's margin is 1; below, it is
            in proportion. 0: always 1.
        epochs: Passes over the graphs, one step for each.
        batch: Configurations of a step.
        learning_rate: Of AdamW, at its peak.
        folds: Parts of the graphs; each trained member leaves one out. With fewer networks, as many
            as there are; with one, a single member learns from all.
        trained: Members that are trained, at most.
    """

    dedup: ClassVar[str] = "min"
    repad: ClassVar[bool] = True
    logarithms: ClassVar[bool] = True
    edges: ClassVar[str] = "both"
    sage: ClassVar[str] = "pyg"
    channel_attention: ClassVar[bool] = True
    attention: ClassVar[str] = "anchors"
    anchors: ClassVar[int] = 16
    mean_weight: ClassVar[bool] = True
    positive_temperature: ClassVar[bool] = True
    tile_attention: ClassVar[str] = "fused"
    norm: ClassVar[str] = "layer"
    residual: ClassVar[str] = "code"
    readout: ClassVar[str] = "mean_max"
    dropout: ClassVar[float] = 0.0
    loss: ClassVar[str] = "hinge"
    hinge_reduction: ClassVar[str] = "mean_valid"
    sampler: ClassVar[str] = "uniform"
    warm_up: ClassVar[float] = 0.05
    weight_decay: ClassVar[float] = 1e-5
    decay_all: ClassVar[bool] = False
    clip: ClassVar[float] = 1.0
    kept: ClassVar[int] = 0
    best_checkpoint: ClassVar[bool] = False
    permutations: ClassVar[int] = 0
    chunk: ClassVar[int] = 128
    average: ClassVar[str] = "scaled"

    prune_hops: Annotated[int | str, OneOf((0, 1, 2, 3, 4, 5, "all"))] = 1
    width: Annotated[int, Bounds(ge=16, multiple_of=16)] = 256
    blocks: Annotated[int, Bounds(ge=0)] = 2
    tie_width: NotNegative = 0.004
    epochs: Annotated[int, Bounds(ge=0)] = 750
    batch: Annotated[int, Bounds(ge=2)] = 128
    learning_rate: Positive = 1e-3
    folds: Annotated[int, Bounds(ge=2)] = 20
    trained: Count = 5

    def __post_init__(self) -> None:
        require_options("tgraph", self)

    @property
    def hops(self) -> int | None:
        """``prune_hops`` as a number, None for all."""
        return None if isinstance(self.prune_hops, str) else self.prune_hops

    def to_json(self) -> dict[str, Any]:
        """All fields."""
        return asdict(self)

    def compared(self, scores: Tensor, runtime: Tensor) -> Tensor:
        """The loss of scores of configurations of one graph, a scalar."""
        from foretune.tgraph import _losses

        return _losses.hinge(scores, runtime, self.tie_width)

    def sampled(self, part: Part, rng: np.random.Generator) -> tuple[IndexArray, FloatArray]:
        """Configurations of a step and their run times, ``batch`` at most."""
        from foretune.tgraph import _training

        return _training.sample(part, self.batch, rng)

    def scored(
        self,
        graph: Graph,
        rows: IndexArray,
        seed: int,
        scores_of: Callable[[IndexArray], FloatArray],
    ) -> FloatArray:
        """Scores of configurations, shape (rows,).

        Args:
            graph: Of the configurations.
            rows: Which.
            seed: Of what is drawn.
            scores_of: Rows to scores, in one order.
        """
        from foretune.tgraph import _training

        del seed
        return _training.scored_once(graph, rows, scores_of)

    def run_type(self) -> type[Run]:
        """What trains a member."""
        from foretune.tgraph._training import Run

        return Run


_CONFIGS: Registry[TGraphConfig] = Registry(
    "configuration of tgraph",
    "foretune.tgraph_configs",
    {"corrected": "foretune.tgraph.config:TGraphConfig"},
    studied=("published", "variants"),
)


def names() -> list[str]:
    """Names of the configurations."""
    return _CONFIGS.names()


def named(name: str, options: Mapping[str, Any] | None = None) -> TGraphConfig:
    """A named configuration, changed by options.

    Args:
        name: ``corrected``, or ``published`` and ``variants`` of the package foretune_research.
        options: Fields of the configuration to their values.

    Raises:
        BadInputError: The name, an option or a value is none.
        MissingDependencyError: The name is one of a package that is not installed.
    """
    kind: Any = _CONFIGS.factory(name)
    options = options or {}
    refuse_unknown("tgraph", options, option_names(kind), constants(kind))
    made: TGraphConfig = kind(**options)
    return made


def restored(options: Mapping[str, Any]) -> TGraphConfig:
    """A configuration that was stored.

    Raises:
        BadInputError: A value makes no sense.
        MissingDependencyError: It is one of a package that is not installed.
    """
    try:
        return TGraphConfig(**stored_options(constants(TGraphConfig), "a TGraph", options))
    except VersionMismatchError:
        kind: Any = _CONFIGS.factory("variants")
        made: TGraphConfig = kind(**options)
        return made
