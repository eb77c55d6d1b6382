"""A causal language model with one linear output and low-rank adapters, trained and asked.

The part of ``foretune_research.hf.classifier`` that runs the model: prompts in, one score each out.
The state that is looked at is that of the last token which only fills up no more: texts are filled
up behind, and the model is told the number of the filler. Transformers and PEFT are optional.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from foretune._arrays import Array, FloatArray, IndexArray
from foretune._options import Bounds, Count, Fraction, OneOf, Positive, require_options
from foretune.cost._examples import group_batches
from foretune.cost.behaviour.labels import SAMPLINGS, ClassWeights
from foretune.errors import BadInputError
from foretune_research.hf._transformers import argument_of_cache, unreadable

if TYPE_CHECKING:
    from torch import Tensor

    from foretune.cost._networks import Loss

NAME = "classifier:hf"

_CHUNK = 16
"""Programs scored at once."""
_LEAST_PROGRAM = 64
"""Tokens that must be left for a program's text."""
_SAMPLINGS = tuple(name for name in SAMPLINGS if name != "good_only")


@dataclass(frozen=True)
class HfConfig:
    """How a language model is fine-tuned.

    Attributes:
        loss, sampling: As in ``ClassifierConfig``.
        epochs: Passes over the data.
        batch: Programs per step.
        learning_rate: Step size of AdamW; of adapters it is larger than of whole models.
        clip: Norm of a step's gradient at most.
        rank, alpha, dropout: Of LoRA: width of the adapters, their scale over the rank, and share
            of inputs that is left out while training.
        max_length: Tokens of a prompt at most; the end of a longer one is cut off.
        precision: Of the model's weights.
        name_device: Whether the prompt says what the device is called.
    """

    loss: Annotated[str, OneOf(("mse", "bce", "rank"))] = "mse"
    sampling: Annotated[str, OneOf(_SAMPLINGS)] = "paper"
    epochs: Count = 2
    batch: Annotated[int, Bounds(ge=2)] = 16
    learning_rate: Positive = 2e-4
    clip: Positive = 1.0
    rank: Count = 16
    alpha: Count = 32
    dropout: Fraction = 0.05
    max_length: Annotated[int, Bounds(ge=2 * _LEAST_PROGRAM)] = 2048
    precision: Annotated[str, OneOf(("float32", "bfloat16"))] = "float32"
    name_device: bool = True

    def __post_init__(self) -> None:
        require_options(NAME, self)


class AdaptedModel:
    """A language model with adapters and an output, on a device.

    Args:
        model: Folder of the model and its tokenizer, or its name on the hub.
        config: How it is trained.
        seed: Of the adapters and the output.
        device: PyTorch's device.

    Raises:
        BadInputError: It is no such model, or has no token that fills up.
    """

    def __init__(self, model: str, config: HfConfig, seed: int, device: Any) -> None:
        import torch
        import transformers

        self.config, self._device = config, device
        try:
            self._tokenizer = transformers.AutoTokenizer.from_pretrained(
                model, trust_remote_code=False
            )
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                base = transformers.AutoModelForSequenceClassification.from_pretrained(
                    model,
                    num_labels=1,
                    dtype=getattr(torch, config.precision),
                    trust_remote_code=False,
                )
                self._model = _with_adapters(base, config)
        except (OSError, ValueError, KeyError, ImportError) as error:
            raise unreadable(f"{NAME}: {model}", error, "or a name on the hub") from error
        pad = _filler(self._tokenizer, base)
        if pad is None:
            raise BadInputError(
                f"{NAME}: the tokenizer of {model} must have a filler or an end that the model "
                "knows, but has neither"
            )
        self._pad = pad
        self._kept = argument_of_cache(base)
        # Without it the state of a filler would be looked at.
        base.config.get_text_config().pad_token_id = self._pad
        self._model.to(device)
        self._prefixes: dict[str, list[int]] = {}

    @property
    def architecture(self) -> str:
        """What another model of the same name would differ in."""
        config = self._model.config
        layers, width = config.num_hidden_layers, config.hidden_size
        return f"{config.model_type}, {layers} layers of {width}, {config.vocab_size} tokens"

    def train(
        self,
        prompts: Sequence[tuple[str, str]],
        targets: FloatArray,
        numbers: IndexArray,
        seed: int,
    ) -> None:
        """Fine-tunes adapters and output.

        Args:
            prompts: Prefix and program, n of them.
            targets: What scores are compared with, shape (n,).
            numbers: Of each program's group, shape (n,).
            seed: Of order and dropout.
        """
        import torch

        config, rng = self.config, np.random.default_rng(seed)
        told = [self._tokens(*prompt) for prompt in prompts]
        values = torch.tensor(targets, dtype=torch.float32, device=self._device)
        loss = _loss(config.loss, targets)
        trained = [p for p in self._model.parameters() if p.requires_grad]
        optimiser = torch.optim.AdamW(trained, lr=config.learning_rate)
        self._model.train()
        with torch.random.fork_rng(devices=list(range(torch.cuda.device_count()))):
            torch.manual_seed(seed)
            for _ in range(config.epochs):
                for batch in group_batches(numbers, config.batch, config.batch, rng):
                    optimiser.zero_grad()
                    scores = self._outputs([told[at] for at in batch.programs.tolist()])
                    at = torch.from_numpy(batch.lists).to(self._device)
                    there, at = at >= 0, at.clamp(min=0)
                    own = values[torch.from_numpy(batch.programs).to(self._device)]
                    loss(scores[at], own[at], there).mean().backward()  # type: ignore[no-untyped-call]
                    torch.nn.utils.clip_grad_norm_(trained, config.clip)
                    optimiser.step()
        self._model.eval()
        if not all(bool(torch.isfinite(p).all()) for p in trained):
            raise BadInputError(
                f"{NAME}: the weights grew without bound: lower learning_rate, which is "
                f"{config.learning_rate}"
            )

    def scores(self, prompts: Sequence[tuple[str, str]]) -> FloatArray:
        """Scores of programs, shape (n,); the prefix of several is read once."""
        import torch

        self._model.eval()
        found = np.zeros(len(prompts))
        by_prefix: dict[str, list[int]] = {}
        for row, (prefix, _) in enumerate(prompts):
            by_prefix.setdefault(prefix, []).append(row)
        with torch.inference_mode():
            for prefix, rows in by_prefix.items():
                head = self._prefix(prefix)
                told = {row: self._tokens(*prompts[row])[len(head) :] for row in rows}
                # Like lengths together: what fills up costs as much as what is read.
                rows.sort(key=lambda row: len(told[row]))
                kept = self._model(torch.tensor([head], device=self._device), use_cache=True)
                for start in range(0, len(rows), _CHUNK):
                    chunk = rows[start : start + _CHUNK]
                    scores = self._outputs(
                        [told[row] for row in chunk], getattr(kept, self._kept), len(head)
                    )
                    found[chunk] = scores.double().cpu().numpy()
        return found

    def _outputs(self, told: Sequence[list[int]], cache: Any = None, before: int = 0) -> Tensor:
        """Scores of some texts, shape (n,), filled up behind; ``before`` tokens are in a cache."""
        import torch

        longest = max(map(len, told))
        ids = torch.full((len(told), longest), self._pad, dtype=torch.long)
        mask = torch.zeros((len(told), before + longest), dtype=torch.long)
        for row, own in enumerate(told):
            ids[row, : len(own)] = torch.tensor(own)
            mask[row, : before + len(own)] = 1
        given: dict[str, Any] = {}
        if cache is not None:
            # Running a batch adds to what is kept.
            given[self._kept] = copy.deepcopy(cache)
            given[self._kept].batch_repeat_interleave(len(told))
        outputs = self._model(
            input_ids=ids.to(self._device),
            attention_mask=mask.to(self._device),
            use_cache=cache is not None,
            **given,
        )
        scores: Tensor = outputs.logits[:, 0].float()
        return scores

    def _prefix(self, prefix: str) -> list[int]:
        if prefix not in self._prefixes:
            ids = self._tokenizer(prefix, add_special_tokens=False)["input_ids"]
            room = self.config.max_length - _LEAST_PROGRAM
            if len(ids) > room:
                raise BadInputError(
                    f"{NAME}: max_length >= {len(ids) + _LEAST_PROGRAM} must hold for this prompt, "
                    f"but got {self.config.max_length}"
                )
            self._prefixes[prefix] = list(ids)
        return self._prefixes[prefix]

    def _tokens(self, prefix: str, program: str) -> list[int]:
        """A prompt's tokens; those of the prefix by themselves, so that they can be kept."""
        head = self._prefix(prefix)
        ids = self._tokenizer(program + "Answer:", add_special_tokens=False)["input_ids"]
        return [*head, *ids[: self.config.max_length - len(head)]]

    def weights(self) -> dict[str, Array]:
        """Adapters and output by name."""
        import peft

        state = peft.get_peft_model_state_dict(self._model)
        return {name: weight.detach().float().cpu().numpy() for name, weight in state.items()}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Takes what ``weights`` gave."""
        import peft
        import torch

        state = {name: torch.from_numpy(np.asarray(weight)) for name, weight in arrays.items()}
        peft.set_peft_model_state_dict(self._model, state)
        self._model.eval()


def _filler(tokenizer: Any, base: Any) -> int | None:
    """A token that fills up: the tokenizer's own, or its end; None if the model knows neither.

    A tokenizer may name a filler that its model was never given.
    """
    known = base.get_input_embeddings().num_embeddings
    fillers = (tokenizer.pad_token_id, tokenizer.eos_token_id)
    return next((int(each) for each in fillers if each is not None and each < known), None)


def _with_adapters(base: Any, config: HfConfig) -> Any:
    import peft

    return peft.get_peft_model(
        base,
        peft.LoraConfig(
            task_type=peft.TaskType.SEQ_CLS,
            r=config.rank,
            lora_alpha=config.alpha,
            lora_dropout=config.dropout,
            target_modules="all-linear",
        ),
    )


def _loss(name: str, targets: FloatArray) -> Loss:
    from foretune.cost._networks import lambda_rank

    if name == "rank":
        return lambda_rank
    weights = ClassWeights.of(targets > 0.5)
    return weights.mse if name == "mse" else weights.bce
