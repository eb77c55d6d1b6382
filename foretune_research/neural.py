"""Neural rankers as they were published, and with a switch for each part.

``mlp:reference`` is the published model (Zheng et al., TenSet, NeurIPS 2021 data sets track;
``mlp_model.py`` of its repository): rows divided by the largest value of each column, 164 -> 256 ->
256, sum, two residual blocks, linear; LambdaRank over batches of 512 shuffled programs, Adam at a
constant 7e-4, at most 50 epochs, ended by the training loss. Two things differ. TenSet's rows have
10 tags of the workload besides, of which our programs have none, so that there are 239,873 weights
instead of 242,433. And they are rounded to 16 bits when training ends.

``tlp:reference`` and ``mtl_tlp:reference`` are the published model (Zhai et al., TLP, ASPLOS 2023;
``tlp_train.py`` and
``mtl_tlp_train.py`` of its repository): 25 steps of 22 numbers for a CPU (40 of 20 for a GPU, as
options), 64 -> 128 -> 256 -> 256, 8-head attention, two residual blocks, decoder 256 -> 128 -> 64
-> 1; LambdaRank over 1,024 shuffled programs, Adam at a constant 7e-4, 50 epochs, the best of them
by the loss on a tenth of the rows. The layer ``l0`` of the published code is left out: nothing uses
it. What differs: numbers are logarithms, see ``foretune.features.tokens``; and weights are rounded
to 16 bits when training ends.

MTL-TLP has one decoder per hardware on one trunk.
"""

# Constants of the product are options here: instance variables in the place of class variables.
# mypy: disable-error-code="misc"

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np

from foretune._arrays import Float32Array
from foretune._options import Bounds, Count, Fraction, NotNegative, OneOf, Positive
from foretune.cost._examples import Labelled, Scaling
from foretune.cost._neural import NeuralConfig, NeuralRanker
from foretune.cost.behaviour.classifier import Classifier, ClassifierConfig
from foretune.cost.behaviour.labels import SAMPLINGS
from foretune.cost.mlp import MlpConfig, MlpRanker
from foretune.cost.tlp import TlpConfig, TlpRanker

if TYPE_CHECKING:
    from foretune.cost._networks import Loss
    from foretune.cost._training import Training
    from foretune.dataset import Group

_SAMPLINGS = tuple(name for name in SAMPLINGS if name != "good_only")
_SCALINGS = ("standard", "maximum", "none")
_LOSSES = ("lambda_rank", "pairwise", "mse", "bce", "list_net")
PUBLISHED: Mapping[str, Any] = {
    "mixed": True,
    "epochs": 50,
    "learning_rate": 7e-4,
    "decay": False,
    "weight_decay": 1e-6,
    "coupled": True,
    "clip": 0.5,
    "hardware": False,
    "norm": False,
    "dropout": 0.0,
}
"""What the trainers of TenSet and TLP have in common, where it is not our default."""


@dataclass(frozen=True)
class NeuralSwitches(NeuralConfig):
    """What all networks have, with a switch for each part.

    Attributes:
        loss: ``"lambda_rank"``: pairs weighted by what swapping them does to NDCG; ``"pairwise"``:
            all pairs alike; ``"mse"`` and ``"bce"``: the score, through a sigmoid, is the label;
            ``"list_net"``: the softmax of the scores is that of the labels, sharpened.
        mixed: Compare programs of different workloads, as the published trainers do.
        decay: Whether the step size rises at first and then falls along a cosine; else constant.
        warm_up: Share of the steps in which it rises.
        weight_decay: AdamW's, on matrices only; Adam's, on everything, where ``coupled``.
        coupled: Adam, whose weight decay is part of the gradient, instead of AdamW.
        clip: Norm of a step's gradient at most.
        select: Which epoch is kept. ``"validation"``: the one that picks best in the validation
            groups (the last without any); ``"training"``: the last, training ends when the
            training loss no longer falls (TenSet); ``"rows"``: the one with the least loss on a
            tenth of the training programs, left out at random (TLP).
        patience: Epochs without a better one after which training ends; not for ``"rows"``.
        storage: Type that weights are rounded to and stored in: ``"float16"`` or ``"float32"``.
        scaling: Of the rows. ``"standard"``: to mean 0 and deviation 1, clipped at 8 deviations;
            ``"maximum"``: divided by the largest value; ``"none"``.
        hardware: Whether the hardware's factors are part of the context.
        blocks: Residual blocks.
        norm: Whether what goes into residual blocks, attention and decoders is normalised.
        dropout: Share of a block's numbers left out at random in training.
    """

    loss: Annotated[str, OneOf(_LOSSES)] = "lambda_rank"
    mixed: bool = False
    decay: bool = True
    warm_up: Fraction = 0.05
    weight_decay: NotNegative = 1e-2
    coupled: bool = False
    clip: Positive = 1.0
    select: Annotated[str, OneOf(("validation", "training", "rows"))] = "validation"
    patience: Count = 15
    storage: Annotated[str, OneOf(("float16", "float32"))] = "float16"
    scaling: Annotated[str, OneOf(_SCALINGS)] = "standard"
    hardware: bool = True
    blocks: Annotated[int, Bounds(ge=0)] = 2
    norm: bool = True
    dropout: Fraction = 0.1


@dataclass(frozen=True)
class MlpVariantsConfig(NeuralSwitches, MlpConfig):
    """The perceptron over stores.

    Attributes:
        actions: Whether ``action_features``, which hold the factors of the hardware, are the
            context; if not, these factors are it, where ``hardware`` says so.
    """

    actions: bool = True


def _largest(values: Float32Array) -> Scaling:
    """Divides by the largest value of a column, where that is positive (TenSet)."""
    largest = values.max(axis=0)
    factor = 1.0 / np.where(largest > 0, largest, 1.0)
    return Scaling(np.zeros_like(largest), factor.astype(np.float32))


def _unscaled(values: Float32Array) -> Scaling:
    columns = values.shape[1]
    return Scaling(np.zeros(columns, np.float32), np.ones(columns, np.float32))


SCALINGS: Mapping[str, Callable[[Float32Array], Scaling]] = {
    "standard": Scaling.standard,
    "maximum": _largest,
    "none": _unscaled,
}
"""By the names of ``NeuralSwitches.scaling``."""


class Study(NeuralRanker):
    """A ranker with ``NeuralSwitches``, under a name of its own, which may stand for options."""

    config: NeuralSwitches

    study: ClassVar[str]
    presets: ClassVar[Mapping[str, Any]] = {}
    """Options that the name stands for."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{**self.presets, **options})

    @property
    def name(self) -> str:
        """The name by which ``foretune.cost.rankers`` makes such a ranker."""
        return self.study

    def _row_scaling(self, data: Labelled) -> Scaling:
        return SCALINGS[self.config.scaling](data.examples.rows)

    def _trainer(self) -> type[Training]:
        from foretune_research.neural_training import StudyTraining

        return StudyTraining

    def _loss(self, data: Labelled) -> Loss | None:
        from foretune_research.neural_training import LOSSES

        return super()._loss(data) or LOSSES[self.config.loss]


class MlpVariants(Study, MlpRanker):
    """The ranker mlp with a switch for each part.

    Args:
        options: What ``MlpRanker`` takes, and fields of ``MlpVariantsConfig``.

    Raises:
        BadInputError: Unknown option, or a value that makes no sense.
    """

    config_type: ClassVar[type[NeuralConfig]] = MlpVariantsConfig
    study: ClassVar[str] = "mlp:variants"


class MlpReference(MlpVariants):
    """TenSet's perceptron over stores, as published."""

    study: ClassVar[str] = "mlp:reference"
    presets: ClassVar[Mapping[str, Any]] = {
        **PUBLISHED,
        "batch": 512,
        "select": "training",
        # A sixth of the epochs.
        "patience": 8,
        "scaling": "maximum",
        "actions": False,
    }


@dataclass(frozen=True)
class TlpVariantsConfig(NeuralSwitches, TlpConfig):
    """Self-attention over steps.

    Attributes:
        width: Numbers per step.
        published_kinds: One-hot over TLP's eleven primitives instead of all kinds of actions.
        attention_heads: Heads; they divide the last of ``embed``.
        decoder: Widths of the decoder but for its last layer, which is 1.
        masked: Whether steps that only fill up are left out.
        positions: Whether a learned vector per position is added.
        heads: ``"single"``: one decoder; ``"hardware"``: one per hardware of the training data
            (MTL-TLP). On other hardware the decoder of the nearest answers, by its factors; where
            these are unknown, the score is the mean of all decoders.
    """

    width: Count = 64
    published_kinds: bool = False
    attention_heads: Count = 8
    decoder: tuple[int, ...] = (128, 64)
    masked: bool = True
    positions: bool = True
    heads: Annotated[str, OneOf(("single", "hardware"))] = "single"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_widths("decoder")
        # What fills up has no position of its own.
        self.require(
            "masked, where there are positions,", self.masked or not self.positions, self.masked
        )


class TlpVariants(Study, TlpRanker):
    """The ranker tlp with a switch for each part.

    Args:
        options: What ``TlpRanker`` takes, and fields of ``TlpVariantsConfig``.

    Raises:
        BadInputError: Unknown option, or a value that makes no sense.
    """

    config_type: ClassVar[type[NeuralConfig]] = TlpVariantsConfig
    study: ClassVar[str] = "tlp:variants"
    config: TlpVariantsConfig

    @classmethod
    def _base_names(cls) -> tuple[str, ...]:
        return ("tlp", "mtl_tlp")

    def _hardware_heads(self, groups: Sequence[Group]) -> tuple[str, ...]:
        if self.config.heads == "single":
            return ()
        return tuple(sorted({group.hardware for group in groups}))


_TLP: Mapping[str, Any] = {
    **PUBLISHED,
    "batch": 1024,
    "select": "rows",
    "scaling": "none",
    "steps": 25,
    "width": 22,
    "published_kinds": True,
    "embed": (64, 128, 256, 256),
    "decoder": (256, 128, 64),
    "masked": False,
    "positions": False,
}


class TlpReference(TlpVariants):
    """TLP as published: self-attention over scheduling steps."""

    study: ClassVar[str] = "tlp:reference"
    presets: ClassVar[Mapping[str, Any]] = _TLP


class MtlTlp(TlpVariants):
    """TLP with a decoder per hardware (MTL-TLP)."""

    study: ClassVar[str] = "mtl_tlp"
    presets: ClassVar[Mapping[str, Any]] = {"heads": "hardware"}


class MtlTlpReference(TlpVariants):
    """MTL-TLP as published."""

    study: ClassVar[str] = "mtl_tlp:reference"
    presets: ClassVar[Mapping[str, Any]] = {**_TLP, "heads": "hardware"}


@dataclass(frozen=True)
class ClassifierVariantsConfig(NeuralSwitches, ClassifierConfig):
    """The classifier of behaviour.

    Attributes:
        loss: ``"mse"``: the paper's; ``"bce"``: the cross entropy of the same labels;
            ``"rank"``: LambdaRank within a group.
        sampling: Which programs of a group are learned from: ``"paper"`` or
            ``"good_borderline_bad"`` (``labels.SAMPLINGS``).
        blocks: Of attention and a perceptron.
        attention_heads: Heads; they divide ``width``.
        decisions: Whether decisions of candidates are tokens, too.
        hardware: Whether it is told which device it is.
    """

    loss: Annotated[str, OneOf(("mse", "bce", "rank"))] = "rank"
    sampling: Annotated[str, OneOf(_SAMPLINGS)] = "paper"
    attention_heads: Count = 4
    decisions: bool = False
    batch: int = 256


class ClassifierVariants(Study, Classifier):
    """The classifier with a switch for each part: LLMTuner's loss and sampling.

    Args:
        options: What ``Classifier`` takes, and fields of ``ClassifierVariantsConfig``.

    Raises:
        BadInputError: Unknown option, or a value that makes no sense.
    """

    config_type: ClassVar[type[NeuralConfig]] = ClassifierVariantsConfig
    study: ClassVar[str] = "classifier:variants"
