"""Training the state encoder: a program is to be found among others by another view of it.

Idea: every state of a batch is read twice. Its two vectors are to be nearer to one another than to
those of the other states of its workload (intra) and of other workloads (inter).

Symbols: a file holds the states of one workload; the tuple of a state a is (a, its positive p,
intra negatives, inter negatives); the loss is ``foretune_research.world._tuples.tuple_loss``.

Source: Pan et al., Toward Compiler World Models, 2026, section 3.3. There, the positive is the same
text under another dropout, which teaches to tell all programs apart, not that some are alike. So:

- ``positives="variant"`` reads a different writing of the same program instead, ``"both"`` one or
  the other;
- ``by_time`` pushes states of a workload apart only as far as their seconds differ;
- the tuples of a batch share their texts: every state is anchor, positive and negative of others,
  so that a tuple costs two encodings, not two and as many as it has negatives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np

from foretune._options import Bounds, Count, Fraction, NotNegative, OneOf, Positive, require_options
from foretune.errors import BadInputError
from foretune.world._part import require
from foretune_research.world.encoder import EncoderConfig, StateEncoder

if TYPE_CHECKING:
    from foretune_research.world._tuples import EncoderEpoch

Rewrite = Callable[[str, np.random.Generator], str]


@dataclass(frozen=True)
class TextFile:
    """States of one workload.

    Attributes:
        texts: Each program once.
        seconds: How long each takes, NaN where that is not known; None: nowhere.
    """

    texts: Sequence[str]
    seconds: Sequence[float] | None = None

    def __post_init__(self) -> None:
        if self.seconds is not None and len(self.seconds) != len(self.texts):
            raise BadInputError(
                f"a file must have as many seconds as texts, but got {len(self.seconds)} and "
                f"{len(self.texts)}: give NaN where seconds are not known"
            )


@dataclass(frozen=True)
class ContrastiveConfig:
    """How the encoder is trained.

    Attributes:
        positives: ``"dropout"``: the same text, read again; ``"variant"``: the program written in
            another way; ``"both"``: for every state one of them, by chance.
        temperature: Divides cosines.
        neg_weight: ``"log_add"`` or ``"multiply"``, see ``tuple_loss``.
        intra_weight, inter_weight: Of negatives of the same and of other workloads.
        by_time: Weigh an intra negative by ``|log2 t_i - log2 t_j|``, 1 at most and where a time is
            not known.
        intra: Intra negatives of a state; as many fewer as its file lacks.
        files: Workloads of a batch; so a state has ``(files - 1) * (intra + 1)`` inter negatives.
        epochs: Passes over the states.
        learning_rate: Step size of AdamW, at its peak.
        backbone_rate: The same for a published backbone, which is not to forget what it knows.
        warm_up: Share of the steps in which the step size rises; it falls along a cosine then.
        weight_decay: AdamW's, on matrices.
        clip: Norm of a step's gradient at most.
    """

    positives: Annotated[str, OneOf(("dropout", "variant", "both"))] = "both"
    temperature: Positive = 0.05
    neg_weight: Annotated[str, OneOf(("log_add", "multiply"))] = "log_add"
    intra_weight: NotNegative = 1.0
    inter_weight: NotNegative = 1.0
    by_time: bool = False
    intra: Annotated[int, Bounds(ge=0)] = 4
    files: Count = 8
    epochs: Annotated[int, Bounds(ge=0)] = 2
    learning_rate: Positive = 1e-3
    backbone_rate: Positive = 2e-5
    warm_up: Fraction = 0.05
    weight_decay: NotNegative = 1e-2
    clip: Positive = 1.0

    def __post_init__(self) -> None:
        require_options("contrastive training", self)


def train_encoder(
    files: Sequence[TextFile],
    config: ContrastiveConfig | None = None,
    encoder: EncoderConfig | None = None,
    *,
    validation: Sequence[TextFile] = (),
    rewrite: Rewrite | None = None,
    seed: int = 0,
    device: str | None = None,
    threads: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> tuple[StateEncoder, tuple[EncoderEpoch, ...]]:
    """An encoder trained on the states of workloads.

    Texts of another kind that the encoder is to read, too, may be a file of their own.

    Args:
        files: What to learn from.
        config: How.
        encoder: What the encoder is; the compact one if None.
        validation: Other workloads, to be judged on after every epoch.
        rewrite: Writes a program in another way; needed unless ``positives`` is ``"dropout"``.
        seed: Of weights, order, dropout and rewriting. The same seed, texts, threads and processor
            give the same encoder.
        device: PyTorch's name of a device; None: a CUDA device where there is one.
        threads: Threads PyTorch may use here and in the encoder; None: as many as it would.
        progress: Called with one line of text per epoch.

    Returns:
        The encoder, and what was seen of each epoch.

    Raises:
        BadInputError: There are no two texts, ``rewrite`` is missing, dropout is 0 where the
            positives need it, the device is not there, or the weights grew without bound.
        MissingDependencyError: An optional package is not installed.
    """
    config = config or ContrastiveConfig()
    texts = [text for file in files for text in file.texts]
    if len(texts) < 2:
        raise BadInputError(
            f"contrastive training: at least 2 texts must be there, but got {len(texts)}: "
            "give states of several workloads"
        )
    if config.positives != "dropout" and rewrite is None:
        raise BadInputError(
            f"contrastive training: positives={config.positives!r} needs a rewrite function: "
            "give foretune_research.world.text.variant, or choose positives='dropout'"
        )
    require("torch", "tokenizers")
    from foretune_research.world import _tuples

    made = StateEncoder.fresh(texts, encoder, seed=seed, device=device, threads=threads)
    if config.positives != "variant" and made.config.dropout == 0:
        raise BadInputError(
            f"contrastive training: positives={config.positives!r} needs dropout > 0, but it is 0: "
            "a text read twice would give the same vector"
        )
    history = _tuples.contrast(made, files, validation, config, rewrite, seed, progress)
    return made, history
