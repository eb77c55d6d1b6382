"""A causal language model that fills in the schema of scores, for tuning and for scoring.

The answer has always the same form (``prompts.template``): only the numbers are the model's. So
nothing is sampled and nothing parsed: the form is given, and at each number the model is asked what
it thinks of its digits, or a linear layer reads the state there.

- ``"digits"``: a score is its expectation over the digits, ``p(1) + p(0) * (E[tenths] / 10 +
  E[hundredths] / 100)``; each number is then written down, rounded, before the next is asked for.
  Few programs are tied, though a written number has two decimals.
- ``"heads"``: a linear layer per metric on the last hidden state in front of its number, through a
  sigmoid; numbers are written as 0.50, so that one pass reads them all.

Symbols: n programs, M metrics of a kind of device. Tokens of an answer are those of the pieces
between numbers, each by itself, and those of the digits, so that training and scoring agree.

Transformers and PyTorch are optional and imported when a model is read.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._arrays import FloatArray
from foretune.cost.behaviour.prompts import PROMPT_VERSION, template
from foretune.describe import METRICS, SCHEMA_VERSION
from foretune.describe.text import TEXT_VERSION
from foretune.errors import (
    BadInputError,
    MissingDependencyError,
    VersionMismatchError,
    unknown_name,
)
from foretune.llm import Message
from foretune_research.hf._transformers import argument_of_cache, unreadable

if TYPE_CHECKING:
    from torch import Tensor, nn

META = "foretune_scores.json"
HEADS = "foretune_heads.pt"
READOUTS = ("digits", "heads")
_NUMBER = "0.00"
_PLACEHOLDER = 0.5
_LONGEST = 4096
"""Tokens of a prompt at most, where the model does not say less."""
_CHUNK = 8
"""Programs asked about at once."""
_IGNORED = -100
"""Label of tokens that the loss leaves out, as transformers has it."""


def versions() -> dict[str, int]:
    """Of everything that decides what a tuned model was taught."""
    return {"schema": SCHEMA_VERSION, "prompt": PROMPT_VERSION, "text": TEXT_VERSION}


@dataclass(frozen=True)
class Told:
    """A prompt with its answer.

    Attributes:
        tokens: All of them.
        labels: The same where the loss looks, else -100: only the answer.
        places: Of each metric, the position in front of its number.
    """

    tokens: list[int]
    labels: list[int]
    places: list[int]


class ScoreModel:
    """A causal model of transformers with its tokenizer.

    Args:
        folder: As ``save_pretrained`` writes it; one that ``save`` wrote says how it is read.
        readout: ``"digits"`` or ``"heads"``; what the folder says if None, else ``"digits"``.
        device: PyTorch's name of a device; None: a CUDA device where there is one.

    Raises:
        BadInputError: There is no such model, or digits are no tokens of it.
        VersionMismatchError: It was tuned for another schema or other texts.
        MissingDependencyError: PyTorch or transformers is not installed.
    """

    def __init__(
        self, folder: Path | str, readout: str | None = None, device: str | None = None
    ) -> None:
        try:
            import transformers

            from foretune import _torch
        except ModuleNotFoundError as error:
            raise MissingDependencyError(
                "scores of a local model need transformers and PyTorch: install them with "
                "`pip install 'foretune[models,torch]'`"
            ) from error
        meta = _meta(Path(folder))
        self.readout = readout or meta.get("readout", READOUTS[0])
        if self.readout not in READOUTS:
            raise unknown_name("readout of scores", self.readout, READOUTS)
        self.device = _torch.choose_device(device)
        try:
            self.tokenizer: Any = transformers.AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
            self.model: Any = transformers.AutoModelForCausalLM.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
        except (OSError, ValueError, KeyError, ImportError) as error:
            raise unreadable(str(folder), error) from error
        self.model.to(self.device).eval()
        self._kept = argument_of_cache(self.model)
        self.digits = [self._single(str(digit)) for digit in range(10)]
        self._dot = self._single(".")
        self._pieces: dict[str, list[list[int]]] = {}
        self._begin: tuple[list[int], Any] | None = None
        """The tokens that the last prompts had in common, and what is kept of them."""
        room = getattr(self.model.config, "max_position_embeddings", None) or _LONGEST
        self.longest = min(int(room), _LONGEST)
        self.heads: nn.Module = self._new_heads()
        if (Path(folder) / HEADS).is_file():
            self._read_heads(Path(folder) / HEADS)

    def _new_heads(self) -> nn.Module:
        import torch

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            layer = torch.nn.Linear(self.model.config.hidden_size, len(METRICS))
        return layer.to(self.device)

    def _read_heads(self, path: Path) -> None:
        import torch

        state = torch.load(path, map_location=self.device, weights_only=True)
        self.heads.load_state_dict(state)

    def _single(self, text: str) -> int:
        found = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        if len(found) != 1:
            raise BadInputError(
                f"scores are read digit by digit, but {text!r} is no single token of this model: "
                "choose one whose tokenizer splits numbers, for example Qwen2.5"
            )
        return int(found[0])

    def pieces(self, kind: str) -> list[list[int]]:
        """Tokens between numbers, M + 1 lists."""
        if kind not in self._pieces:
            self._pieces[kind] = [
                list(self.tokenizer(piece, add_special_tokens=False)["input_ids"])
                for piece in template(kind).split(_NUMBER)
            ]
        return self._pieces[kind]

    def prompt(self, messages: Sequence[Message], kind: str) -> list[int]:
        """Tokens of a prompt.

        Raises:
            BadInputError: It leaves no room for the answer.
        """
        if getattr(self.tokenizer, "chat_template", None):
            text = self.tokenizer.apply_chat_template(
                list(messages), tokenize=False, add_generation_prompt=True
            )
        else:
            text = "\n\n".join(m["content"] for m in messages) + "\n\nAnswer:\n"
        ids = list(self.tokenizer(text, add_special_tokens=False)["input_ids"])
        answer = sum(map(len, self.pieces(kind))) + 4 * (len(self.pieces(kind)) - 1)
        if len(ids) + answer + 1 > self.longest:
            raise BadInputError(
                f"the model reads {self.longest} tokens, but a program with its answer has "
                f"{len(ids) + answer + 1}: choose a model that reads more"
            )
        return ids

    def number(self, value: float) -> list[int]:
        """Tokens of a score with two decimals: 0.734 → ``0 . 7 3``."""
        hundredths = round(100 * min(1.0, max(0.0, value)))
        tens, ones = divmod(hundredths % 100, 10)
        return [self.digits[hundredths // 100], self._dot, self.digits[tens], self.digits[ones]]

    def sequence(self, messages: Sequence[Message], kind: str, scores: FloatArray) -> Told:
        """A prompt and the answer that gives these scores.

        Args:
            messages: The question.
            kind: Of the device.
            scores: Shape (len(METRICS),), those of the kind are numbers.
        """
        head = self.prompt(messages, kind)
        tokens, places = list(head), []
        pieces = self.pieces(kind)
        own = scores[_own(kind)]
        for piece, value in zip(pieces, own.tolist(), strict=False):
            tokens += piece
            places.append(len(tokens) - 1)
            tokens += self.number(value)
        tokens += pieces[-1]
        end = self.tokenizer.eos_token_id
        tokens += [] if end is None else [int(end)]
        labels = [_IGNORED] * len(head) + tokens[len(head) :]
        return Told(tokens, labels, places)

    def scores(self, questions: Sequence[Sequence[Message]], kind: str) -> FloatArray:
        """Scores of programs, shape (n, len(METRICS)); NaN of metrics that the kind has not."""
        import torch

        found = np.full((len(questions), len(METRICS)), np.nan)
        order = sorted(range(len(questions)), key=lambda row: len(questions[row][-1]["content"]))
        self.model.eval()
        with torch.inference_mode():
            for start in range(0, len(order), _CHUNK):
                rows = order[start : start + _CHUNK]
                heads = [self.prompt(questions[row], kind) for row in rows]
                read = self._by_heads if self.readout == "heads" else self._by_digits
                found[np.ix_(rows, _own(kind))] = read(heads, kind)
        return found

    def _by_heads(self, prompts: Sequence[list[int]], kind: str) -> FloatArray:
        answer: list[int] = []
        places = []
        for piece in self.pieces(kind)[:-1]:
            answer += piece
            places.append(len(answer) - 1)
            answer += self.number(_PLACEHOLDER)
        cache, tokens, mask = self._begun([[*prompt, *answer] for prompt in prompts], len(answer))
        start = tokens.shape[1] - len(answer)
        outputs = self._run(tokens, mask, cache, output_hidden_states=True)
        at = [start + place for place in places]
        found = self.read_heads(outputs.hidden_states[-1][:, at], kind)
        return np.asarray(found.double().cpu().numpy())

    def _run(self, tokens: Tensor, mask: Tensor, cache: Any, **more: Any) -> Any:
        """Runs tokens behind what is kept; the mask is of both."""
        return self.model(
            input_ids=tokens,
            attention_mask=mask,
            use_cache=True,
            position_ids=(mask.cumsum(1) - 1).clamp(min=0)[:, -tokens.shape[1] :],
            **({} if cache is None else {self._kept: cache}),
            **more,
        )

    def _begun(self, prompts: Sequence[list[int]], least: int = 1) -> tuple[Any, Tensor, Tensor]:
        """What all have in common is read once.

        Args:
            prompts: Tokens of each.
            least: So many of each, at its end, are left.

        Returns:
            What is kept of it, None if nothing; the other tokens, filled up in front so that all
            end together; the mask of both.
        """
        import torch

        # Of each at least what is looked at is left to be run.
        shared = min(_shared(prompts), min(map(len, prompts)) - least)
        tokens, mask = self._padded([prompt[shared:] for prompt in prompts])
        if shared == 0:
            return None, tokens, mask
        first = prompts[0][:shared]
        if self._begin is None or self._begin[0] != first:
            one = torch.tensor([first], device=self.device)
            outputs = self._run(one, torch.ones_like(one), None)
            self._begin = (first, getattr(outputs, self._kept))
        # Running a batch adds to what is kept.
        cache = copy.deepcopy(self._begin[1])
        cache.batch_repeat_interleave(len(prompts))
        before = torch.ones((len(prompts), shared), dtype=mask.dtype, device=self.device)
        return cache, tokens, torch.cat([before, mask], dim=1)

    def states(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Last hidden states, shape (n, length, width)."""
        outputs = self.model(
            input_ids=tokens, attention_mask=mask, output_hidden_states=True, use_cache=False
        )
        states: Tensor = outputs.hidden_states[-1]
        return states

    def read_heads(self, states: Tensor, kind: str) -> Tensor:
        """Scores of states in front of numbers: shape (n, M, width) -> (n, M)."""
        import torch

        at = torch.as_tensor(_own(kind), device=self.device)
        every = self.heads(states.float())
        own = every[:, torch.arange(len(at), device=self.device), at]
        return torch.sigmoid(own)

    def _by_digits(self, prompts: Sequence[list[int]], kind: str) -> FloatArray:
        import torch

        pieces = self.pieces(kind)
        cache, told, mask = self._begun([[*prompt, *pieces[0]] for prompt in prompts])
        n = len(prompts)

        def column(token: int) -> Tensor:
            return torch.full((n, 1), token, device=self.device)

        digits = torch.tensor(self.digits, device=self.device)
        values = torch.arange(10, device=self.device).float()
        found = []
        for number in range(len(pieces) - 1):
            first, cache = self._digit(told, mask, cache, digits)
            whole = first[:, 1] / (first[:, 0] + first[:, 1]).clamp(min=1e-9)
            told = torch.cat([column(self.digits[0]), column(self._dot)], dim=1)
            mask = _longer(mask, told)
            tenths, cache = self._digit(told, mask, cache, digits)
            told = digits[tenths.argmax(dim=1, keepdim=True)]
            mask = _longer(mask, told)
            hundredths, cache = self._digit(told, mask, cache, digits)
            below = (tenths @ values) / 10 + (hundredths @ values) / 100
            found.append((whole + (1 - whole) * below).clamp(0, 1))
            # What stands between this number and the next is run with the number's last digit.
            between = torch.tensor([pieces[number + 1]] * n, device=self.device)
            told = torch.cat([digits[hundredths.argmax(dim=1, keepdim=True)], between], dim=1)
            mask = _longer(mask, told)
        return np.asarray(torch.stack(found, dim=1).double().cpu().numpy())

    def _digit(self, told: Tensor, mask: Tensor, cache: Any, digits: Tensor) -> tuple[Tensor, Any]:
        """Runs further tokens; probabilities of the digits behind them, shape (n, 10)."""
        import torch

        outputs = self._run(told, mask, cache)
        likely = torch.softmax(outputs.logits[:, -1, digits].float(), dim=1)
        return likely, getattr(outputs, self._kept)

    def _padded(self, prompts: Sequence[list[int]]) -> tuple[Tensor, Tensor]:
        """Tokens and mask, filled up in front, so that all end together."""
        import torch

        longest = max(map(len, prompts))
        tokens = torch.zeros((len(prompts), longest), dtype=torch.long)
        mask = torch.zeros_like(tokens)
        for row, own in enumerate(prompts):
            tokens[row, longest - len(own) :] = torch.tensor(own)
            mask[row, longest - len(own) :] = 1
        return tokens.to(self.device), mask.to(self.device)

    def save(self, folder: Path | str, more: dict[str, Any] | None = None) -> None:
        """Writes model, tokenizer, heads and how they are read; what ``ScoreModel`` reads again.

        Args:
            folder: Made if it is not there.
            more: What else ``foretune_scores.json`` is to say.
        """
        import torch

        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        self.model.save_pretrained(place)
        self.tokenizer.save_pretrained(place)
        torch.save(self.heads.state_dict(), place / HEADS)
        meta = {"readout": self.readout, "versions": versions(), **(more or {})}
        (place / META).write_text(json.dumps(meta, indent=1), encoding="utf-8")


def _shared(prompts: Sequence[list[int]]) -> int:
    """Tokens at the beginning that all have in common."""
    count = 0
    for column in zip(*prompts, strict=False):
        if any(token != column[0] for token in column):
            break
        count += 1
    return count


def _longer(mask: Tensor, told: Tensor) -> Tensor:
    """A mask with further tokens."""
    import torch

    return torch.cat([mask, torch.ones_like(told)], dim=1)


def _own(kind: str) -> list[int]:
    return [at for at, metric in enumerate(METRICS) if kind in metric.kinds]


def _meta(folder: Path) -> dict[str, Any]:
    if not (folder / META).is_file():
        return {}
    try:
        meta = json.loads((folder / META).read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadInputError(f"{folder / META} is no JSON object: tune the model again") from error
    if meta.get("versions") != versions():
        raise VersionMismatchError(
            f"{folder}: versions must be {versions()}, but are {meta.get('versions')}: tune the "
            "model again"
        )
    return dict(meta)
