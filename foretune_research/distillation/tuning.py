"""Tuning of a local language model on a teacher's answers, by LoRA.

The loss looks at the tokens of the answer alone (LLMTuner, section 3.2); with ``readout="heads"``
it is the squares of what the heads say instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._options import Count, Positive, require_options
from foretune.describe import METRICS
from foretune.errors import BadInputError, MissingDependencyError
from foretune_research.distillation.teaching import Answered

if TYPE_CHECKING:
    from foretune_research.hf.score_model import ScoreModel


@dataclass(frozen=True)
class TuningConfig:
    """How a local model is tuned.

    Attributes:
        readout: ``"digits"`` or ``"heads"``.
        epochs: Passes over the answers.
        batch: Answers per step.
        learning_rate: Of AdamW.
        rank, alpha, dropout: Of LoRA.
        full: Whether all weights are tuned: for a model that has learned nothing yet.
        threads: That PyTorch may use; None: as many as it would.
        seed: Of adapters and order.
    """

    readout: str = "digits"
    epochs: Count = 2
    batch: Count = 16
    learning_rate: Positive = 1e-4
    rank: Count = 16
    alpha: Count = 32
    dropout: float = 0.05
    full: bool = False
    threads: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        require_options("distillation", self)


@dataclass(frozen=True)
class Tuned:
    """What came of tuning.

    Attributes:
        losses: Mean loss of each epoch.
        trained: Weights that were tuned.
        total: Weights there are.
        answers: Learned from.
    """

    losses: tuple[float, ...]
    trained: int
    total: int
    answers: int


def tune(
    base: Path | str,
    answers: Sequence[Answered],
    folder: Path | str,
    config: TuningConfig | None = None,
) -> Tuned:
    """Tunes a causal model on answers and writes it to a folder that ``HfScores`` reads.

    Args:
        base: Folder of the model.
        answers: What ``kept`` gave.
        folder: Where the tuned one is written, adapters merged.
        config: How.

    Raises:
        BadInputError: There is nothing to learn from, or the model cannot be read.
        MissingDependencyError: PyTorch, transformers or PEFT is not installed.
    """
    config = config or TuningConfig()
    if not answers:
        raise BadInputError("tuning needs answers to learn from, but there are none: ask for more")
    from foretune_research.hf.score_model import ScoreModel

    model = ScoreModel(base, config.readout, "cpu")
    if not config.full:
        try:
            import peft
        except ModuleNotFoundError as error:
            raise MissingDependencyError(
                "tuning by LoRA needs the package 'peft', which is not installed: install it with "
                "`pip install 'foretune[models]'`"
            ) from error
        lora = peft.LoraConfig(
            task_type=peft.TaskType.CAUSAL_LM, r=config.rank, lora_alpha=config.alpha,
            lora_dropout=config.dropout, target_modules="all-linear",
        )  # fmt: skip
        model.model = peft.get_peft_model(model.model, lora)
    losses, trained, total = _train(model, answers, config)
    if not config.full:
        model.model = model.model.merge_and_unload()
    model.model.eval()
    model.save(folder, {"answers": len(answers), "config": asdict(config)})
    return Tuned(tuple(losses), trained, total, len(answers))


def _train(
    model: ScoreModel, answers: Sequence[Answered], config: TuningConfig
) -> tuple[list[float], int, int]:
    import torch

    from foretune import _torch

    weights = [p for p in model.model.parameters() if p.requires_grad]
    if config.readout == "heads":
        weights += list(model.heads.parameters())
    rng = np.random.default_rng(config.seed)
    losses = []
    with _torch.limited_threads(config.threads), torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        optimiser = torch.optim.AdamW(weights, lr=config.learning_rate)
        model.model.train()
        for _ in range(config.epochs):
            order = rng.permutation(len(answers))
            total = 0.0
            for start in range(0, len(order), config.batch):
                batch = [answers[at] for at in order[start : start + config.batch].tolist()]
                loss = _loss(model, batch)
                optimiser.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(weights, 1.0)
                optimiser.step()
                total += loss.item() * len(batch)
            losses.append(total / len(answers))
    if not np.isfinite(losses).all():
        raise BadInputError(
            f"distillation: the loss grew without bound: lower learning_rate, which is "
            f"{config.learning_rate}"
        )
    everything = sum(p.numel() for p in model.model.parameters())
    return losses, sum(p.numel() for p in weights), everything


def _loss(model: ScoreModel, batch: Sequence[Answered]) -> Any:
    """Cross entropy of the answers' tokens; of heads, squares of their scores besides."""
    import torch

    told, wanted = [], []
    for answer in batch:
        assert answer.scores is not None
        kind = answer.question.kind
        # Heads read states behind the numbers that they will see: placeholders.
        shown = answer.scores if model.readout == "digits" else np.full(len(METRICS), 0.5)
        told.append(model.sequence(answer.question.lesson, kind, shown))
        wanted.append(answer.scores)
    longest = max(len(each.tokens) for each in told)
    tokens = torch.zeros((len(told), longest), dtype=torch.long)
    labels = torch.full_like(tokens, -100)
    mask = torch.zeros_like(tokens)
    for row, each in enumerate(told):
        tokens[row, : len(each.tokens)] = torch.tensor(each.tokens)
        labels[row, : len(each.labels)] = torch.tensor(each.labels)
        mask[row, : len(each.tokens)] = 1
    if model.readout == "digits":
        outputs = model.model(input_ids=tokens, attention_mask=mask, labels=labels)
        return outputs.loss
    states = model.states(tokens, mask)
    loss = torch.zeros(())
    for row, (each, answer) in enumerate(zip(told, batch, strict=True)):
        kind = answer.question.kind
        found = model.read_heads(states[row : row + 1, each.places], kind)[0]
        own = [at for at, metric in enumerate(METRICS) if kind in metric.kinds]
        target = torch.tensor(wanted[row][own], dtype=torch.float32)
        loss = loss + ((found - target) ** 2).mean()
    return loss / len(batch)
