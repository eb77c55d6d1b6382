"""A model of transformers in this process."""

from __future__ import annotations

import hashlib
import json
import math
import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from foretune._options import require_type
from foretune.errors import BadInputError, MissingDependencyError
from foretune.llm._base import Answer, LanguageModel, LlmError, Message


class LocalModel(LanguageModel):
    """A causal language model in a folder, as transformers saves it. Nothing is downloaded.

    Sampling is seeded by the messages, so that the same ones get the same answer, and draws from a
    generator of its own, because PyTorch's is shared with whatever else runs in this process.

    Args:
        folder: With the model and its tokenizer.
        temperature: Of sampling; 0 takes the likeliest token.
        max_tokens: Longest answer.
        device: Where it runs, as PyTorch names it: ``"cpu"``, or ``"cuda"`` where there is one.

    Raises:
        BadInputError: The folder holds no such model, there is no such device, or a number makes no
            sense.
        MissingDependencyError: transformers or PyTorch is not installed.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        temperature: float = 0.0,
        max_tokens: int = 512,
        device: str = "cpu",
    ) -> None:
        require_type("llm", "max_tokens", max_tokens, int)
        if max_tokens < 1 or not 0 <= temperature < math.inf:
            raise BadInputError(
                "llm: max_tokens >= 1 and temperature >= 0 must hold, and be finite, but got "
                f"{max_tokens} and {temperature}"
            )
        try:
            import transformers

            from foretune import _torch
        except ModuleNotFoundError as error:
            raise MissingDependencyError(
                "local language models need transformers and PyTorch: install them with "
                "`pip install foretune[models,torch]`"
            ) from error
        self.name = Path(folder).name
        self.temperature = temperature
        self.max_tokens = max_tokens
        chosen = _torch.choose_device(device)
        try:
            self._tokenizer = transformers.AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
            self._model = transformers.AutoModelForCausalLM.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
        except (OSError, ValueError, KeyError, ImportError) as error:
            raise BadInputError(
                f"{folder} must hold a causal language model of transformers, but cannot be read "
                f"({str(error).splitlines()[0][:200]}): give the folder of `save_pretrained`"
            ) from error
        self._model.to(chosen).eval()
        self._lock = threading.Lock()
        self._closed = threading.Event()

    @property
    def settings(self) -> dict[str, Any]:
        """Temperature and longest answer."""
        return {"temperature": self.temperature, "max_tokens": self.max_tokens}

    def disturbs(self, kind: str) -> bool:
        """On the processor always: it takes all cores. On an accelerator, what is timed there."""
        return str(self._model.device.type) == "cpu" or kind != "llvm"

    def complete(self, messages: Sequence[Message], seconds: float) -> Answer:
        """Generates an answer, one at a time; it ends where the time does.

        Raises:
            LlmError: The prompt is longer than the model can read, or the model is closed.
        """
        import torch
        from transformers import StoppingCriteriaList

        from foretune.llm._drawing import OwnDraws

        began = time.monotonic()
        tokens = self._tokens(messages).to(self._model.device)
        room = getattr(self._model.config, "max_position_embeddings", None)
        length = min(self.max_tokens, (room or 1 << 30) - tokens.shape[1])
        if length < 1:
            raise LlmError(f"the model reads {room} tokens, but the prompt has {tokens.shape[1]}")
        sampling: dict[str, Any] = {"do_sample": False}
        draws: AbstractContextManager[Any] = nullcontext()
        if self.temperature > 0:
            sampling = {"do_sample": True, "temperature": self.temperature}
            draws = OwnDraws(_seed_of(messages), self._model.device)
        with self._lock, draws, torch.inference_mode():
            self._require_open()
            generated = self._model.generate(
                tokens,
                attention_mask=torch.ones_like(tokens),
                max_new_tokens=length,
                max_time=max(0.1, seconds - (time.monotonic() - began)),
                pad_token_id=self._tokenizer.eos_token_id or 0,
                stopping_criteria=StoppingCriteriaList([self._is_over]),
                **sampling,
            )
        # Half an answer must not be kept as if it were what the model has to say.
        self._require_open()
        new = generated[0, tokens.shape[1] :]
        text = str(self._tokenizer.decode(new, skip_special_tokens=True))
        took = time.monotonic() - began
        return Answer(text, int(tokens.shape[1]), len(new), took, not self._ends(new.tolist()))

    def _is_over(self, tokens: Any, _scores: Any, **_more: Any) -> Any:
        """Of each sequence whether it is to end with these tokens [sequences, length]: closed."""
        import torch

        closed = self._closed.is_set()
        return torch.full((tokens.shape[0],), closed, dtype=torch.bool, device=tokens.device)

    def _require_open(self) -> None:
        if self._closed.is_set():
            raise LlmError("the model is closed")

    def close(self) -> None:
        """Ends what is being written at its next token; nothing is answered from then on."""
        self._closed.set()

    def _ends(self, tokens: Sequence[int]) -> bool:
        """Whether the model came to an end, and neither its length nor its time did."""
        ends = self._model.generation_config.eos_token_id
        ends = ends if isinstance(ends, list) else [ends]
        return bool(tokens) and tokens[-1] in ends

    def _tokens(self, messages: Sequence[Message]) -> Any:
        """The prompt: a tensor [1, tokens]."""
        templated = bool(getattr(self._tokenizer, "chat_template", None))
        if templated:
            text = self._tokenizer.apply_chat_template(
                list(messages), tokenize=False, add_generation_prompt=True
            )
        else:
            text = "\n\n".join(m["content"] for m in messages) + "\n\n"
        # A template writes special tokens itself, the one at the beginning among them.
        tokens = self._tokenizer(text, return_tensors="pt", add_special_tokens=not templated)
        return tokens["input_ids"]


def _seed_of(messages: Sequence[Message]) -> int:
    text = json.dumps([dict(m) for m in messages], sort_keys=True)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "big")
